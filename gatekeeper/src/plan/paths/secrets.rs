//! Project files whose names suggest secrets: `.env` and similar ones. The search in the working directory is bounded in
//! depth and in directories, so that it does not slow down a run.

use super::Tree;
use super::patterns::{EntryKind, Seek};
use crate::policy::pattern::Progress;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// How deep below the working directory to search, and in how many directories in total.
pub const DEPTH: usize = 3;
pub const MOST_DIRECTORIES: usize = 2000;

/// Directories of dependencies, build output and tools, which hold no files of the project.
const SKIPPED: &[&str] = &[
    ".bundle",
    ".cache",
    ".cargo",
    ".dart_tool",
    ".direnv",
    ".eggs",
    ".git",
    ".gradle",
    ".hg",
    ".idea",
    ".jj",
    ".m2",
    ".mypy_cache",
    ".next",
    ".nox",
    ".npm",
    ".nuxt",
    ".parcel-cache",
    ".pnpm-store",
    ".pub-cache",
    ".pytest_cache",
    ".ruff_cache",
    ".rustup",
    ".stack-work",
    ".svelte-kit",
    ".svn",
    ".terraform",
    ".tox",
    ".turbo",
    ".venv",
    ".vscode",
    ".yarn",
    "DerivedData",
    "Pods",
    "__pycache__",
    "_build",
    "bower_components",
    "build",
    "dist",
    "dist-newstyle",
    "elm-stuff",
    "node_modules",
    "site-packages",
    "target",
    "vendor",
    "venv",
];

const NAMES: &[&str] = &[
    ".Renviron",
    ".boto",
    ".dev.vars",
    ".dockercfg",
    ".env",
    ".envrc",
    ".env~",
    ".git-credentials",
    ".gnupg",
    ".htpasswd",
    ".kubeconfig",
    ".my.cnf",
    ".netrc",
    ".pgpass",
    ".pypirc",
    ".s3cfg",
    ".secrets",
    ".ssh",
    ".vault-password",
    ".vault-token",
    ".vault_pass",
    ".vault_pass.txt",
    ".vault_password",
    "_netrc",
    "application_default_credentials.json",
    "client_secret.json",
    "credentials.json",
    "id_dsa",
    "id_ecdsa",
    "id_ecdsa_sk",
    "id_ed25519",
    "id_ed25519_sk",
    "id_rsa",
    "kubeconfig",
    "master.key",
    "secrets.yaml",
    "secrets.yml",
    "secring.gpg",
    "vault_pass.txt",
    "vault_password",
];

/// Endings of names. Server keys and certificates (`.pem`, `.key`, `.p12`, `.jks`) are not among them, because a project's
/// programs and tests read them.
const ENDINGS: &[&str] = &[".tfstate", ".tfstate.backup", ".kdbx", ".ppk", ".agekey"];

/// `.env.NAME` files that are meant to be shared.
const EXAMPLES: &[&str] = &["example", "sample", "template", "tmpl", "dist", "default", "defaults", "schema", "vault"];

/// Names that suggest a secret only in a certain directory, as (directory, name).
const INSIDE: &[(&str, &str)] = &[
    (".aws", "credentials"),
    (".docker", "config.json"),
    (".kube", "config"),
    (".streamlit", "secrets.toml"),
    ("credentials", "*.key"),
];

/// Closed only if they contain a secret: a `.npmrc` without a token holds settings that npm needs.
const LOOKED_INTO: &[Contents] = &[
    Contents { name: ".npmrc", marks: &["_authToken", "_auth", "_password"], long: true },
    Contents { name: ".yarnrc.yml", marks: &["npmAuthToken", "npmAuthIdent"], long: true },
];

struct Contents {
    name: &'static str,
    marks: &'static [&'static str],
    /// Whether to close a file that is too long to read to its end.
    long: bool,
}

/// A file this long may not have been read to its end.
const LONG: usize = 8000;

/// The search for these files.
pub struct Secrets;

impl Seek for Secrets {
    fn start(&self) -> Vec<Progress> {
        vec![0]
    }

    fn look(&self, above: &[Progress], depth: usize, name: &OsStr, kind: EntryKind) -> (bool, Option<Vec<Progress>>) {
        // Bytes that are not UTF-8 become a character that no name in the lists has.
        let name = &*name.to_string_lossy();
        let inside = above.first().copied().unwrap_or(0) as usize;
        if is_secret(name, inside) || looked_into(name).is_some() && kind != EntryKind::Directory {
            return (true, None);
        }
        if kind != EntryKind::Directory || depth >= DEPTH || SKIPPED.binary_search(&name).is_ok() {
            return (false, None);
        }
        let at = INSIDE.iter().position(|(directory, _)| *directory == name).map_or(0, |at| at + 1);
        (false, Some(vec![at as Progress]))
    }

    fn most_directories(&self) -> Option<usize> {
        Some(MOST_DIRECTORIES)
    }
}

/// `inside`: 1 + the index of its directory in `INSIDE`, or 0.
fn is_secret(name: &str, inside: usize) -> bool {
    if NAMES.binary_search(&name).is_ok() {
        return true;
    }
    if let Some(rest) = name.strip_prefix(".env.") {
        return !rest.split('.').any(|word| EXAMPLES.contains(&word));
    }
    let account = |name: &str| {
        let stem = name.strip_suffix(".json").map(|stem| stem.replace('_', "-"));
        stem.is_some_and(|stem| {
            stem.starts_with("service-account")
                || stem.ends_with("-service-account")
                || stem.ends_with("-service-account-key")
                || stem.starts_with("client-secret-")
        })
    };
    let within = inside.checked_sub(1).and_then(|at| INSIDE.get(at)).is_some_and(|(_, wanted)| matches(wanted, name));
    within || ENDINGS.iter().any(|ending| name.ends_with(ending)) || account(name)
}

fn matches(wanted: &str, name: &str) -> bool {
    match wanted.strip_prefix('*') {
        Some(ending) => name.ends_with(ending),
        None => wanted == name,
    }
}

fn looked_into(name: &str) -> Option<&'static Contents> {
    LOOKED_INTO.iter().find(|contents| matches(contents.name, name))
}

/// The real paths of the files that hold a secret, from pairs of the found path and its real path. A file that cannot be
/// read as text counts as a secret, because nothing proves the opposite. Looks into every file, however many: the search is
/// limited to some directories, and each name can be in each of them once.
pub fn keep_secrets(found: Vec<(PathBuf, PathBuf)>, tree: &dyn Tree) -> Vec<PathBuf> {
    let holds = |path: &Path, real: &Path| {
        let name = &*path.file_name().unwrap_or_default().to_string_lossy();
        let inside = path.parent().and_then(Path::file_name).and_then(OsStr::to_str);
        let inside = INSIDE.iter().position(|(directory, _)| Some(*directory) == inside).map_or(0, |at| at + 1);
        let Some(contents) = looked_into(name).filter(|_| !is_secret(name, inside)) else { return true };
        tree.text(real).is_none_or(|text| {
            contents.long && text.len() > LONG || contents.marks.iter().any(|mark| text.contains(mark))
        })
    };
    found.into_iter().filter(|(path, real)| holds(path, real)).map(|(_, real)| real).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_that_are_searched_are_sorted() {
        assert!(NAMES.is_sorted() && SKIPPED.is_sorted());
    }

    #[test]
    fn names_tell_secrets_from_examples() {
        let yes = [".env", ".env.local", ".env.production.local", "terraform.tfstate", "my-service-account.json"];
        let also = ["service_account_prod.json", "x.kdbx", "id_ed25519", "client_secret_12.json", ".envrc"];
        for name in yes.iter().chain(&also) {
            assert!(is_secret(name, 0), "{name}");
        }
        let no = [".env.example", ".env.local.example", ".env.dist", "env", "server.pem", "service.json", "a.tfvars"];
        for name in no {
            assert!(!is_secret(name, 0), "{name}");
        }
        assert!(is_secret("credentials", 1) && !is_secret("credentials", 0));
    }
}
