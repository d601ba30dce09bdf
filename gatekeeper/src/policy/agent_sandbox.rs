//! The `[sandbox]` table of an agent's configuration file: bubblewrap around each command, with a writable working
//! directory. Gives the same document as gatekeeper's own schema. Keys in the table must be known; other keys of the file
//! belong to the agent, unless they look like keys of a policy.

use super::document::Document;
use super::error::{PolicyError, nearest};
use super::field::Field;
use super::node::Value;
use super::{Isolate, NetworkMode, Profile, schema, values};

pub(super) const SANDBOX: &[&str] = &["enabled", "isolate_network", "extra_rw_paths", "extra_ro_paths"];

/// Whether this file is such a configuration. A file that also has policy keys is a policy with a misspelt table.
pub(super) fn is_one(root: &Field<'_>) -> bool {
    let Value::Table(entries) = &root.node.value else { return false };
    let is_table = |value: &Value| matches!(value, Value::Table(_));
    let has = entries.iter().any(|(key, node)| key.name == "sandbox" && is_table(&node.value));
    has && entries
        .iter()
        .filter(|(key, _)| key.name != "sandbox")
        .all(|(key, _)| nearest(&key.name, schema::TOP).is_none())
}

pub(super) fn read(root: Field<'_>) -> Result<Document, PolicyError> {
    const PATHS: &str = "a list of paths";
    let mut document = Document::default();
    let (mut enabled, mut isolated) = (None, true);
    for table in root.entries()?.into_iter().filter(|field| field.name == "sandbox") {
        for field in table.known_entries(SANDBOX, schema::elsewhere)? {
            match field.name.as_str() {
                "enabled" => enabled = Some(field.truth()?),
                "isolate_network" => isolated = field.truth()?,
                "extra_rw_paths" => document.paths.write = field.each(PATHS, values::path)?,
                "extra_ro_paths" => document.paths.also_read = field.each(PATHS, values::path)?,
                _ => return Err(field.unknown(SANDBOX, None)),
            }
        }
    }
    if enabled == Some(false) {
        // The agent asked for no sandbox. Its paths were checked above and have no effect.
        let mut document = Document { profile: Some(vec![Profile::Unrestricted]), ..Document::default() };
        document.bubblewrap.mode = Some(Isolate::Disabled);
        return Ok(document);
    }
    // Without `enabled`, use bubblewrap if it works here. With `enabled = true`, refuse to run without it.
    document.bubblewrap.mode = Some(if enabled.is_some() { Isolate::Required } else { Isolate::Preferred });
    document.profile = Some(if isolated { vec![Profile::Write] } else { vec![Profile::Write, Profile::Network] });
    document.network.mode = Some(if isolated { NetworkMode::None } else { NetworkMode::Full });
    Ok(document)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::parse;
    use std::path::Path;

    fn toml(text: &str) -> Result<Document, String> {
        parse(text.as_bytes(), Path::new("agent.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn the_table_is_read_as_a_policy() {
        let text = "[sandbox]\nenabled = true\nisolate_network = true\nextra_rw_paths = [\"/home/user/.cargo\"]\n\
                    extra_ro_paths = [\"/opt/tools\"]\n";
        let document = toml(text).expect("as it stands");
        assert_eq!(document.profile, Some(vec![Profile::Write]));
        assert_eq!(document.network.mode, Some(NetworkMode::None));
        assert_eq!(document.bubblewrap.mode, Some(Isolate::Required));
        assert_eq!(document.paths.write, [Path::new("/home/user/.cargo")]);
        assert_eq!(document.paths.also_read, [Path::new("/opt/tools")]);
        let beside = format!("model = 'x'\n{text}[daemon]\nport = 1\n");
        assert_eq!(toml(&beside), Ok(document), "the rest of the file is the agent's");
    }

    #[test]
    fn each_key_does_what_it_says() {
        assert_eq!(toml("[sandbox]").unwrap().bubblewrap.mode, Some(Isolate::Preferred), "as this machine can");
        let open = toml("[sandbox]\nisolate_network = false").unwrap();
        assert_eq!(open.profile, Some(vec![Profile::Write, Profile::Network]));
        assert_eq!(open.network.mode, Some(NetworkMode::Full));
        let off = toml("[sandbox]\nenabled = false\nextra_rw_paths = ['/x']").unwrap();
        assert_eq!(off.profile, Some(vec![Profile::Unrestricted]));
        assert!(off.paths.write.is_empty());
    }

    #[test]
    fn what_is_misspelt_or_misplaced_is_an_error() {
        for (text, told) in [
            (
                "[sandbox]\nisolate_netwrok = true",
                "unknown key 'sandbox.isolate_netwrok'; did you mean 'sandbox.isolate_network'?",
            ),
            ("[sandbox]\nenabled = 'yes'", "sandbox.enabled must be true or false, not a string"),
            ("[sandbox]\nextra_rw_paths = ''", "sandbox.extra_rw_paths must be a list of paths, not a string"),
            ("profile = 'write'\n[sandbox]\nenabled = true", "unknown key 'sandbox'; did you mean 'bubblewrap'?"),
            ("proflie = 'write'\n[sandbox]\nenabled = true", "unknown key 'proflie'; did you mean 'profile'?"),
        ] {
            let error = toml(text).expect_err(text);
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
