//! libsandbox(7) names all variables and groups.

use std::path::Path;

#[test]
fn the_manual_names_every_variable_and_group() {
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/man/libsandbox.7");
    let manual = std::fs::read_to_string(manual).expect("it is there").replace("\\-", "-");
    for name in sandbox_contract::vars::ALL {
        assert!(manual.contains(name), "{name}");
    }
    for group in sandbox_contract::groups::GROUPS {
        let mut about = group.about.to_owned();
        about[..1].make_ascii_uppercase();
        assert!(manual.contains(&format!(".B @{}\n{about}.\n", group.name)), "@{}", group.name);
    }
}
