//! What `paths.deny`, `paths.execute` and credentials close stays closed whatever else a policy grants: the right to execute,
//! terminals, shared memory.

use super::{Gate, act, errnos, users};
use crate::support::{probe, skip};
use std::fs;
use std::path::{Path, PathBuf};

fn with_policy(gate: Gate, text: &str) -> Gate {
    let policy = gate.file("policy.toml", text);
    gate.flags(["--config".as_ref(), policy.as_os_str()])
}

/// On a host without mounts.
fn unmounted(gate: Gate) -> Gate {
    let outer = probe("outer", &[]);
    gate.under([outer.to_str().unwrap().to_owned(), format!("{}=1", libc::SYS_unshare), "--".to_owned()])
}

#[test]
fn a_directory_of_programs_opens_nothing_that_is_closed_in_it() {
    for user in users() {
        for profile in ["minimal", "read", "write"] {
            for listed in [r#"["/usr", "/lib", "/lib64", "."]"#, r#"["/"]"#] {
                for mounts in [true, false] {
                    let gate = Gate::profile(*user, profile);
                    let secret = gate.file("app/secret.key", "D");
                    let by_name = gate.file(".env", "E");
                    let ordinary = gate.file("app/ordinary", "x");
                    let copy = gate.dir.join("app/act");
                    crate::support::copy_program(&act(), &copy);
                    let home = PathBuf::from(gate.env_of("HOME"));
                    fs::create_dir(home.join(".ssh")).unwrap();
                    fs::write(home.join(".ssh/id_rsa"), "K").unwrap();
                    super::tree_owned_by(*user, &home);
                    let policy = format!(
                        "[paths]\nread = [\"/\"]\nexecute = {listed}\ndeny = [\"app/secret.key\", \"/dev/full\"]\n"
                    );
                    let gate = with_policy(gate, &policy);
                    let gate = if mounts { gate } else { unmounted(gate) };
                    let mut words = vec![copy.clone().into_os_string()];
                    // Without mounts, a `.env` in a writable tree stays open, and the report says so.
                    let env = if profile == "write" && !mounts { 0 } else { libc::EACCES };
                    let closed = [&secret, &by_name, &home.join(".ssh/id_rsa"), Path::new("/dev/full"), &ordinary];
                    closed.iter().for_each(|path| words.extend(["read".into(), path.into(), ",".into()]));
                    let expected = [libc::EACCES, env, libc::EACCES, libc::EACCES, 0];
                    assert_eq!(errnos(&gate.run(&words)), expected, "{user:?} {profile} {listed} {mounts}");
                }
            }
        }
    }
}

/// What the command builds in a writable tree can be executed there, although something in the tree is closed.
#[test]
fn a_closed_file_in_a_writable_tree_takes_no_program_from_it() {
    for user in users() {
        let gate = Gate::profile(*user, "write");
        gate.file(".env", "E");
        let gate = with_policy(gate, "[paths]\nexecute = [\"/usr\", \"/lib\", \"/lib64\", \".\"]\n");
        let line = "mkdir built && cp /usr/bin/id built/own && ./built/own -u";
        gate.run(["sh", "-c", line]).exits(0);
    }
}

#[test]
fn a_list_of_commands_takes_from_the_list_of_programs_and_adds_nothing() {
    let loader = Path::new("/lib64/ld-linux-x86-64.so.2");
    if !loader.exists() {
        return skip("/lib64/ld-linux-x86-64.so.2 does not exist");
    }
    for user in users() {
        let of = |policy: &str| {
            let gate = with_policy(Gate::profile(*user, "read"), policy);
            let line = "id -u >/dev/null 2>&1; echo $?; ls -d / >/dev/null 2>&1; echo $?; \
                        /lib64/ld-linux-x86-64.so.2 /usr/bin/id >/dev/null 2>&1; echo $?";
            gate.run(["sh", "-c", line]).exits(0).stdout()
        };
        let listed = "[paths]\nexecute = [\"/usr/bin/id\", \"/bin/sh\", \"/lib64/ld-linux-x86-64.so.2\"]\n";
        assert_eq!(of(listed), "0\n126\n0\n", "the control");
        // Neither: `id` is not among the commands, and `ls` is not among the programs.
        assert_eq!(of(&format!("{listed}[commands]\nallow = [\"sh\", \"ls\"]\n")), "126\n126\n127\n", "{user:?}");
        // A directory of programs does not make readable what the commands leave out.
        let wide = "[paths]\nexecute = [\"/usr\", \"/lib64\"]\n[commands]\nallow = [\"sh\", \"ls\"]\n";
        assert_eq!(of(wide), "126\n0\n127\n", "{user:?}");
        assert_eq!(of("[paths]\nexecute = [\"/usr\", \"/lib64\"]\n"), "0\n0\n0\n", "the control");
    }
}
