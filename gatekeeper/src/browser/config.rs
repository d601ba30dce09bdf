//! The browser section of an agent's settings file: `browser.sandbox` with enabled, bwrapPath, extraRoBind, extraBind and
//! gpu, and beside it profileDir and workspace. JSON or TOML, keys in camelCase or snake_case. Unknown keys in
//! `browser.sandbox` are errors; all other unknown keys belong to the agent and are ignored.

use crate::policy::{self, Field, PolicyError, Source, Value, ValueError, values};
use crate::trust::Hostile;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    pub enabled: bool,
    /// Whether to refuse to start if this machine lacks a layer. `None` means yes.
    pub require_sandbox: Option<bool>,
    pub bwrap: Option<PathBuf>,
    pub extra_read: Vec<PathBuf>,
    pub extra_write: Vec<PathBuf>,
    pub gpu: bool,
    pub profile_dir: Option<PathBuf>,
    pub workspace: Option<PathBuf>,
    pub sources: Vec<PathBuf>,
    /// Settings that could not be used as written, to print on stderr.
    pub warnings: Vec<String>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            enabled: true,
            require_sandbox: None,
            bwrap: None,
            extra_read: Vec::new(),
            extra_write: Vec::new(),
            gpu: true,
            profile_dir: None,
            workspace: None,
            sources: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

const SANDBOX: &[&str] = &[
    "enabled",
    "bwrapPath",
    "bwrap_path",
    "extraRoBind",
    "extra_ro_bind",
    "extraBind",
    "extra_bind",
    "gpu",
    "requireSandbox",
    "require_sandbox",
    "profileDir",
    "profile_dir",
    "workspace",
];

type Read<T> = Result<T, PolicyError>;

/// Reads a settings file. `home` replaces a leading `~`; relative paths are relative to the file.
pub fn load(file: &Path, home: Option<&Path>) -> Read<Config> {
    let (bytes, _) = policy::read(file, None, &Hostile::here())?;
    let mut config = parse(&bytes, file)?;
    let base = std::path::absolute(file).ok().and_then(|file| file.parent().map(Path::to_owned)).unwrap_or_default();
    let absolute = |path: &mut PathBuf| {
        *path = match (path.strip_prefix("~"), home) {
            (Ok(rest), Some(home)) => home.join(rest),
            _ => base.join(&*path),
        };
    };
    let named = [&mut config.bwrap, &mut config.profile_dir, &mut config.workspace];
    named.into_iter().flatten().for_each(absolute);
    config.extra_read.iter_mut().chain(&mut config.extra_write).for_each(absolute);
    // The agent's own launcher ignores a bwrapPath that does not exist; do the same, with a warning.
    if let Some(gone) = config.bwrap.take_if(|path| !path.exists()) {
        config.warnings.push(format!("bwrapPath {}: does not exist; using the bwrap of the system", gone.display()));
    }
    // The agent's own launcher skips extra paths that do not exist.
    config.extra_read.retain(|path| path.exists());
    config.extra_write.retain(|path| path.exists());
    config.sources = [std::path::absolute(file), file.canonicalize()].into_iter().flatten().collect();
    Ok(config)
}

pub fn parse(bytes: &[u8], name: &Path) -> Read<Config> {
    let source = Source::new(bytes, name)?;
    let root = Field::root(&source)?;
    let whole = root.again();
    let browser = root.entries()?.into_iter().find(|field| field.name == "browser");
    let mut config = Config { require_sandbox: Some(false), ..Config::default() };
    for field in browser.ok_or_else(|| whole.needs("browser"))?.entries()? {
        match field.name.as_str() {
            "sandbox" => sandbox(field, &mut config)?,
            "profileDir" | "profile_dir" => config.profile_dir = optional(&field)?,
            "workspace" => config.workspace = optional(&field)?,
            "profileDomains" | "profile_domains" if !is_empty(&field) => return Err(field.wrong(PROFILE_DOMAINS)),
            _ => {}
        }
    }
    Ok(config)
}

fn sandbox(table: Field<'_>, config: &mut Config) -> Read<()> {
    for field in table.known_entries(SANDBOX, |_| None)? {
        match field.name.as_str() {
            "enabled" => config.enabled = field.truth()?,
            "bwrapPath" | "bwrap_path" => config.bwrap = optional(&field)?,
            "extraRoBind" | "extra_ro_bind" => config.extra_read = field.each("a list of paths", values::path)?,
            "extraBind" | "extra_bind" => config.extra_write = field.each("a list of paths", values::path)?,
            "gpu" => config.gpu = field.truth()?,
            "requireSandbox" | "require_sandbox" => config.require_sandbox = Some(field.truth()?),
            "profileDir" | "profile_dir" => config.profile_dir = optional(&field)?,
            "workspace" => config.workspace = optional(&field)?,
            _ => return Err(field.unknown(SANDBOX, None)),
        }
    }
    Ok(())
}

/// A browser process has one profile, which all sites share.
const PROFILE_DOMAINS: ValueError = ValueError::Conflict(
    "gatekeeper starts one browser with one profile and cannot choose it by site; start one browser per profile, with \
     --profile-dir and --net hosts=..., and remove this key",
);

fn is_empty(field: &Field<'_>) -> bool {
    match &field.node.value {
        Value::Null => true,
        Value::Table(entries) => entries.is_empty(),
        Value::List(items) => items.is_empty(),
        _ => false,
    }
}

/// An empty path counts as none.
fn optional(field: &Field<'_>) -> Read<Option<PathBuf>> {
    let path = |text: &str| -> Result<Option<PathBuf>, ValueError> {
        if text.is_empty() { Ok(None) } else { values::path(text).map(Some) }
    };
    field.parsed("a path", path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: &str = r#"{"browser": {"sandbox": {"enabled": true, "bwrapPath": "", "extraRoBind": ["/opt/a"],
        "extraBind": ["/opt/b"], "gpu": false}, "profileDir": "/p", "headless": true}, "other": 1}"#;

    #[test]
    fn both_languages_and_styles_say_the_same() {
        let json = parse(SEED.as_bytes(), Path::new("c.json")).expect("sound");
        let toml = "[browser]\nprofile_dir = '/p'\n[browser.sandbox]\nbwrap_path = ''\nextra_ro_bind = ['/opt/a']\n\
                    extra_bind = ['/opt/b']\ngpu = false\n";
        assert_eq!(parse(toml.as_bytes(), Path::new("c.toml")).expect("sound"), json);
        assert_eq!((json.enabled, json.gpu, json.require_sandbox), (true, false, Some(false)));
        assert_eq!((json.bwrap, json.profile_dir.as_deref()), (None, Some(Path::new("/p"))));
        assert_eq!((json.extra_read, json.extra_write), (vec!["/opt/a".into()], vec!["/opt/b".into()]));
    }

    #[test]
    fn a_misspelt_key_is_an_error_that_names_the_right_one() {
        for (text, near) in [("extraRoBinds", "extraRoBind"), ("gpus", "gpu"), ("enable", "enabled")] {
            let text = format!("{{\"browser\": {{\"sandbox\": {{\"{text}\": true}}}}}}");
            let error = parse(text.as_bytes(), Path::new("c.json")).expect_err("unknown").to_string();
            assert!(error.contains(near), "{error}");
        }
        assert!(parse(b"{}", Path::new("c.json")).is_err());
        let domains = |value: &str| format!("{{\"browser\": {{\"profileDomains\": {value}}}}}");
        let error =
            parse(domains("{\"bank.example\": \"bank\"}").as_bytes(), Path::new("c.json")).expect_err("not done");
        assert!(error.to_string().contains("browser.profileDomains: gatekeeper starts one browser"), "{error}");
        assert!(parse(domains("{}").as_bytes(), Path::new("c.json")).is_ok(), "it says nothing");
        assert!(parse(br#"{"browser": {"sandbox": {"gpu": "yes"}}}"#, Path::new("c.json")).is_err());
    }
}
