//! Caches of package managers and compilers, moved into one directory so that builds work without a writable home.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The variable of each cache, and its subdirectory of the cache directory. Maven's take an option instead of a path.
const CACHES: &[(&str, &str)] = &[
    ("XDG_CACHE_HOME", "xdg"),
    ("npm_config_cache", "npm"),
    ("YARN_CACHE_FOLDER", "yarn"),
    ("PIP_CACHE_DIR", "pip"),
    ("UV_CACHE_DIR", "uv"),
    ("PYTHONPYCACHEPREFIX", "pycache"),
    ("CARGO_HOME", "cargo"),
    ("GOCACHE", "go-build"),
    ("GOMODCACHE", "go-mod"),
    ("CCACHE_DIR", "ccache"),
    ("GRADLE_USER_HOME", "gradle"),
    ("YARN_GLOBAL_FOLDER", "yarn-global"),
    ("BUN_INSTALL_CACHE_DIR", "bun"),
    ("PNPM_HOME", "pnpm"),
    (MAVEN, "maven"),
    (OLD_MAVEN, "maven"),
];

/// Read by Maven 3.9 and newer.
const MAVEN: &str = "MAVEN_ARGS";
/// Read by every Maven, for its virtual machine.
const OLD_MAVEN: &str = "MAVEN_OPTS";

/// Where package managers keep their downloads, relative to home, and the variable that moves it.
const ROOTS: &[(&str, &str)] = &[
    (".npm", "npm_config_cache"),
    (".cache", "XDG_CACHE_HOME"),
    (".cargo/registry", "CARGO_HOME"),
    (".cargo/git", "CARGO_HOME"),
    (".cargo/.package-cache", "CARGO_HOME"),
    (".cargo/.package-cache-mutate", "CARGO_HOME"),
    (".cargo/.global-cache", "CARGO_HOME"),
    ("go/pkg", "GOMODCACHE"),
    (".gradle", "GRADLE_USER_HOME"),
    (".yarn/berry", "YARN_GLOBAL_FOLDER"),
    (".bun/install/cache", "BUN_INSTALL_CACHE_DIR"),
    (".local/share/pnpm", "PNPM_HOME"),
    (".m2/repository", MAVEN),
];

/// Whether `--cache` would move this path, or a directory above a cache, out of home. Not if the policy already sets the
/// variable.
pub fn moves(home: &Path, path: &Path, set: &BTreeMap<String, String>) -> bool {
    let Ok(path) = path.strip_prefix(home) else { return false };
    let is = |(root, variable): &&(&str, &str)| {
        let root = Path::new(root);
        let above = root.starts_with(path) && path.file_name().is_some();
        (path.starts_with(root) || above) && !set.contains_key(*variable)
    };
    ROOTS.iter().any(|root| is(&root))
}

/// The cache directory of one working directory. It lies outside that directory, and no other working directory shares
/// it, so a command cannot poison another project's caches.
pub fn private(home: &Path, cwd: &Path) -> PathBuf {
    let bytes = cwd.as_os_str().as_encoded_bytes();
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    let name = cwd.file_name().map_or_else(|| "root".to_owned(), |name| name.to_string_lossy().into_owned());
    let plain = |letter: char| if letter.is_ascii_alphanumeric() || "._-".contains(letter) { letter } else { '_' };
    let name: String = name.chars().take(40).map(plain).collect();
    home.join(".cache/gatekeeper").join(format!("{name}-{:08x}", hash as u32))
}

/// The variables for a cache directory; `None` if its path is not UTF-8, which a policy cannot hold.
pub fn variables(directory: &Path) -> Option<Vec<(String, String)>> {
    let directory = directory.to_str()?;
    let value = |name: &str, below: &str| match name {
        MAVEN | OLD_MAVEN => format!("-Dmaven.repo.local={directory}/{below}"),
        _ => format!("{directory}/{below}"),
    };
    Some(CACHES.iter().map(|(name, below)| ((*name).to_owned(), value(name, below))).collect())
}
