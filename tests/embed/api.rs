//! Compares the public API of the library with a list, so that no change to it is accidental.

use std::path::Path;

/// The documented `pub` declarations of one file without their bodies, and the variants of enums.
fn declared(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).expect("a source file");
    let mut found = Vec::new();
    let mut open: Option<String> = None;
    let (mut within_enum, mut hidden) = (false, false);
    for line in text.lines().map(str::trim) {
        if within_enum {
            within_enum = line != "}";
            let variant = line.starts_with(|first: char| first.is_ascii_uppercase());
            found.extend(variant.then(|| format!("    {}", line.trim_end_matches(','))));
            continue;
        }
        let text = match open.take() {
            Some(before) => format!("{before} {line}"),
            None if line.starts_with("pub ") && !std::mem::take(&mut hidden) => line.to_owned(),
            None => {
                hidden |= line == "#[doc(hidden)]";
                continue;
            }
        };
        match text.find([';', '{']).or_else(|| text.ends_with(',').then(|| text.len() - 1)) {
            Some(_) if text.starts_with("pub use") => found.push(text.trim_end_matches(';').to_owned()),
            Some(end) => {
                within_enum = text.starts_with("pub enum");
                found.push(text[..end].trim().to_owned());
            }
            None => open = Some(text),
        }
    }
    found
}

const FILES: [&str; 12] = [
    "gatekeeper/src/lib.rs",
    "gatekeeper/src/sandbox/mod.rs",
    "gatekeeper/src/sandbox/builder.rs",
    "gatekeeper/src/sandbox/running.rs",
    "gatekeeper/src/library.rs",
    "gatekeeper/src/report/mod.rs",
    "gatekeeper/src/report/browser.rs",
    "gatekeeper/src/report/denial.rs",
    "gatekeeper/src/report/layer.rs",
    "gatekeeper/src/report/limit.rs",
    "gatekeeper/src/check/verdict.rs",
    "src/lib.rs",
];

#[test]
fn the_public_api_is_the_one_that_is_written_down() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut lines = Vec::new();
    for file in FILES {
        lines.push(format!("# {file}"));
        lines.extend(declared(&root.join(file)));
    }
    let now = lines.join("\n") + "\n";
    let list = root.join("tests/embed/api.txt");
    if std::env::var_os("UPDATE_API").is_some() {
        std::fs::write(&list, &now).expect("own tree");
    }
    let written = std::fs::read_to_string(&list).unwrap_or_default();
    let differ = now.lines().zip(written.lines()).find(|(now, written)| now != written);
    assert!(
        now == written,
        "{differ:?}; if this is meant: UPDATE_API=1 cargo test public_api, and say so in CHANGELOG.md"
    );
}
