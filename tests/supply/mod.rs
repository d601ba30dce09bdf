//! The supply chain: reasons for every dependency, the bill of materials, and reproducible builds.

use crate::support::{libsandbox, run, skip};
use sandbox_contract::sha256;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(top().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A script of scripts/, with the cargo that runs these tests.
fn script(name: &str) -> Command {
    let mut command = Command::new(top().join("scripts").join(name));
    command.env("CARGO", env!("CARGO"));
    command
}

/// Every external crate in our manifests, for any purpose.
fn asked_for() -> BTreeSet<String> {
    let manifests = [
        "Cargo.toml",
        "gatekeeper",
        "gatekeeper/guardian",
        "gatekeeperd",
        "libsandbox",
        "libsandbox/contract",
        "gatekeeper/fuzz",
    ];
    let mut names = BTreeSet::new();
    for manifest in manifests {
        let path = if manifest.ends_with(".toml") { manifest.to_owned() } else { format!("{manifest}/Cargo.toml") };
        let manifest: toml::Table = read(&path).parse().expect("a manifest");
        // Those of all targets, and those of some.
        let some = manifest.get("target").and_then(toml::Value::as_table).into_iter().flatten();
        let all = std::iter::once(&manifest).chain(some.filter_map(|(_, target)| target.as_table()));
        let kinds = ["dependencies", "dev-dependencies", "build-dependencies"];
        for table in all.flat_map(|tables| kinds.map(|kind| tables.get(kind))) {
            let dependencies = table.and_then(toml::Value::as_table).into_iter().flatten();
            names.extend(dependencies.filter(|(_, how)| how.get("path").is_none()).map(|(name, _)| name.clone()));
        }
    }
    names.remove("sandbox-contract");
    names
}

#[test]
fn every_dependency_has_its_reason() {
    let document = read("docs/dependencies.md");
    let mut explained = BTreeSet::new();
    for row in document.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [first, why, ..] = cells[..] else { panic!("{row}") };
        let named = first.split('`').skip(1).step_by(2).filter(|name| !name.contains('/'));
        let named: Vec<String> = named.map(str::to_owned).collect();
        assert!(named.is_empty() || why.len() > 10, "no reason in {row}");
        explained.extend(named);
    }
    assert_eq!(explained, asked_for());
}

#[test]
fn the_list_of_materials_is_whole() {
    let done = run(&mut script("sbom"));
    done.exits(0);
    let document: Value = serde_json::from_str(&done.stdout()).expect("JSON");
    assert_eq!((document["bomFormat"].as_str(), document["specVersion"].as_str()), (Some("CycloneDX"), Some("1.5")));
    let components = document["components"].as_array().expect("a list");
    let of = |scope: &str| -> BTreeSet<&str> {
        let of = components.iter().filter(|one| one["scope"] == scope);
        of.map(|one| one["name"].as_str().expect("a name")).collect()
    };
    let shipped = of("required");
    for name in
        ["gatekeeper-sandbox", "gatekeeperd", "libsandbox", "sandbox-contract", "rustix", "clap", "libc", "sqlx"]
    {
        assert!(shipped.contains(name), "{name} is missing");
    }
    assert!(of("excluded").contains("libseccomp-sys"), "what the build alone uses is told as that");
    // ring compiles its C and assembly with it.
    assert!(of("excluded").contains("cc") && !shipped.contains("cc"), "cc is for the build only");
    for name in ["proptest", "tempfile", "libseccomp"] {
        assert!(!shipped.contains(name) && !of("excluded").contains(name), "{name} is for tests only");
    }
    let lock = read("Cargo.lock");
    for one in components {
        let (name, version) = (one["name"].as_str().expect("text"), one["version"].as_str().expect("text"));
        assert!(
            lock.contains(&format!("name = \"{name}\"\nversion = \"{version}\"")),
            "{name} {version} is not locked"
        );
        assert!(one["licenses"][0]["expression"].is_string(), "{name} has no licence");
        let own =
            ["gatekeeper-sandbox", "gatekeeperd", "libsandbox", "libsandbox-embed", "sandbox-contract"].contains(&name);
        assert_eq!(one["hashes"][0]["content"].is_string(), !own, "{name}");
    }
    // Programs are named with their hashes.
    let named = run(script("sbom").args(["/bin/true", "other=/bin/true"])).stdout();
    let named: Value = serde_json::from_str(&named).expect("JSON");
    let files = named["components"].as_array().expect("a list").iter().filter(|one| one["type"] == "file");
    let hash: String =
        sha256(&std::fs::read("/bin/true").expect("there")).iter().map(|byte| format!("{byte:02x}")).collect();
    let files: Vec<_> = files.map(|one| (one["name"].as_str(), one["hashes"][0]["content"].as_str())).collect();
    assert_eq!(files, [(Some("true"), Some(hash.as_str())), (Some("other"), Some(hash.as_str()))]);
    // The output is reproducible, and every dependency is a component.
    assert_eq!(run(&mut script("sbom")).stdout(), done.stdout());
    let known: BTreeSet<&str> = components.iter().filter_map(|one| one["bom-ref"].as_str()).collect();
    for dependency in document["dependencies"].as_array().expect("a list") {
        for on in dependency["dependsOn"].as_array().expect("a list") {
            assert!(known.contains(on.as_str().expect("text")), "{on}");
        }
    }
}

/// Two builds in different directories give the same bytes, which gatekeeper embeds.
#[test]
fn the_library_is_built_the_same_everywhere() {
    if std::env::var_os("LIBSANDBOX_SO").is_some() {
        return skip("gatekeeper embeds a library that was built elsewhere (LIBSANDBOX_SO)");
    }
    let done = run(&mut script("reproducible"));
    done.exits(0);
    let carried = std::fs::read(libsandbox()).expect("extracted");
    let hash: String = sha256(&carried).iter().map(|byte| format!("{byte:02x}")).collect();
    done.prints(&format!("{hash}\n"));
    // The library contains no path of this machine.
    for path in [env!("CARGO_MANIFEST_DIR"), "/.cargo/registry", "/rustc/"] {
        assert!(!carried.windows(path.len()).any(|window| window == path.as_bytes()), "{path}");
    }
}
