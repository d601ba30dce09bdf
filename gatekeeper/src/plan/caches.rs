//! Caches of package managers and compilers, moved below one directory, so that builds work with a closed home.

use std::path::Path;

/// Each variable and its place below the cache directory.
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
];

/// What to set for a cache directory; `None` where its path cannot be the value of a variable of a policy.
pub fn variables(directory: &Path) -> Option<Vec<(String, String)>> {
    let directory = directory.to_str()?;
    Some(CACHES.iter().map(|(name, below)| ((*name).to_owned(), format!("{directory}/{below}"))).collect())
}
