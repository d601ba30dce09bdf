//! Files on a disk: what extends what, and what is no file.

use super::*;
use std::fs;
use std::path::Path;
use std::process::Command;

struct Files(tempfile::TempDir);

impl Files {
    fn new(files: &[(&str, &str)]) -> Files {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Files(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn load(&self, name: &str) -> Document {
        load(&self.path(name)).unwrap()
    }

    /// The error, with the directory taken out of it.
    fn refuses(&self, name: &str) -> String {
        let error = load(&self.path(name)).unwrap_err().to_string();
        error.replace(&format!("{}/", self.0.path().display()), "")
    }
}

#[test]
fn a_file_is_laid_over_what_it_extends() {
    let files = Files::new(&[
        ("own/policy.toml", "extends = '../base.json'\nprofile = 'network'\n[syscalls]\nallow = 'socket'"),
        ("base.json", "{\"extends\": \"far.toml\", \"profile\": \"write\", \"syscalls\": {\"deny\": [\"socket\"]}}"),
        ("far.toml", "timeout = 5\n[syscalls]\ndeny = 'ptrace'"),
    ]);
    let document = files.load("own/policy.toml");
    assert_eq!(document.extends, None);
    assert_eq!(document.profile, Some(vec![Profile::Network]));
    assert_eq!(document.syscalls.allow, ["socket"]);
    assert_eq!(document.syscalls.deny, ["ptrace", "socket"], "what a base denies stays denied");
    assert_eq!(document.timeout, Some(std::time::Duration::from_secs(5)));
    let real = |name| files.path(name).canonicalize().unwrap();
    for name in ["far.toml", "base.json", "own/policy.toml"] {
        assert!(document.sources.contains(&real(name)), "{:?}", document.sources);
    }
    assert!(Policy::resolve(document).is_ok());
}

#[test]
fn an_agents_configuration_can_be_extended() {
    let files = Files::new(&[
        ("policy.toml", "extends = 'app.json'\nrequire_sandbox = true"),
        ("app.json", "{\"tools\": {\"exec\": {\"sandbox\": {\"profile\": \"network\"}}}}"),
        ("off.toml", "extends = 'off.json'"),
        ("off.json", "{\"tools\": {\"exec\": {\"enabled\": false}}}"),
    ]);
    let document = files.load("policy.toml");
    assert_eq!(document.profile, Some(vec![Profile::Network]));
    assert_eq!(document.require_sandbox, Some(true));
    assert_eq!(files.refuses("off.toml"), "off.json:1: exec is disabled by this policy");
}

#[test]
fn both_names_of_a_linked_policy_are_sources() {
    let files = Files::new(&[("real.toml", "")]);
    std::os::unix::fs::symlink("real.toml", files.path("link.toml")).unwrap();
    let sources = files.load("link.toml").sources;
    assert_eq!(sources, [files.path("link.toml"), files.path("real.toml").canonicalize().unwrap()]);
}

#[test]
fn circles_and_long_rows_are_refused() {
    let files = Files::new(&[
        ("self.toml", "\nextends = 'self.toml'"),
        ("a.toml", "extends = 'b.toml'"),
        ("b.toml", "\n\nextends = './a.toml'"),
    ]);
    assert_eq!(files.refuses("self.toml"), "self.toml:2: extends: self.toml is extended again: a loop");
    assert_eq!(files.refuses("a.toml"), "b.toml:3: extends: ./a.toml is extended again: a loop");
    for n in 0..10 {
        fs::write(files.path(&format!("{n}.toml")), format!("extends = '{}.toml'", n + 1)).unwrap();
    }
    fs::write(files.path("10.toml"), "").unwrap();
    assert_eq!(files.refuses("1.toml"), "9.toml:1: extends: more than 8 files deep");
    assert!(load(&files.path("2.toml")).is_ok());
}

#[test]
fn what_is_no_file_is_refused_at_once() {
    let files = Files::new(&[("missing.toml", "\nextends = 'nothing.toml'"), ("odd.toml", "extends = 'fifo'")]);
    assert!(Command::new("mkfifo").arg(files.path("fifo")).status().unwrap().success());
    fs::create_dir(files.path("dir")).unwrap();
    assert_eq!(files.refuses("fifo"), "fifo is a FIFO, not a policy file");
    assert_eq!(files.refuses("odd.toml"), "odd.toml:1: fifo is a FIFO, not a policy file");
    assert_eq!(files.refuses("dir"), "dir is a directory, not a policy file");
    assert_eq!(files.refuses("nothing.toml"), "cannot read nothing.toml: No such file or directory (os error 2)");
    assert_eq!(
        files.refuses("missing.toml"),
        "missing.toml:2: cannot read nothing.toml: No such file or directory (os error 2)"
    );
    assert_eq!(load(Path::new("/dev/zero")).unwrap_err().to_string(), "/dev/zero is a device, not a policy file");
    fs::write(files.path("large"), vec![b'#'; MAX_BYTES + 1]).unwrap();
    assert_eq!(files.refuses("large"), "large is larger than 1048576 bytes");
}

#[test]
fn rules_that_multiply_over_files_are_refused() {
    let rules = |action: &str| format!("[[syscalls.rule]]\nsyscall = 'read'\naction = '{action}'\n").repeat(200);
    let files = Files::new(&[
        ("near.toml", &format!("extends = 'base.toml'\n{}", rules("deny"))),
        ("base.toml", &rules("allow")),
    ]);
    assert_eq!(files.refuses("near.toml"), "near.toml: more than 1024 rules, together with what it extends");
}

#[test]
fn errors_keep_the_name_that_the_user_gave() {
    let error = load(Path::new("no/such/policy.toml")).unwrap_err().to_string();
    assert_eq!(error, "cannot read no/such/policy.toml: No such file or directory (os error 2)");
}
