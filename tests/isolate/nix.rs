//! A system without /usr/lib and /lib, as NixOS: everything is in a store, and the usual paths are links or missing.
//! The test builds it from this system's programs.

use super::works;
use crate::network::users;
use crate::support::{fresh, gatekeeper, has, run};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

const MAKE: &str = r#"
set -e
lib=/nix/store/a-libc/lib; bin=/nix/store/b-tools/bin
mkdir -p "$1$lib" "$1$bin" "$1/etc" "$1/proc" "$1/dev" "$1/tmp" "$1/work" "$1/bin" "$1/run" "$1/home"
ln -s /nix/store/b-tools "$1/run/current-system"
ln -s $bin/sh "$1/bin/sh"
echo root:x:0:0::/home:/bin/sh > "$1/etc/passwd"
cp "$2" "$1$bin/gatekeeper"
cp -L "$(command -v bwrap)" "$(command -v cat)" "$1$bin/"
cp -L /bin/sh "$1$bin/sh"
for file in "$1$bin"/*; do
    patchelf --print-interpreter "$file" >/dev/null 2>&1 || continue # gatekeeper, where it is static
    ldd "$file" | grep -o '/[^ ]*' | while read -r library; do cp -Ln "$library" "$1$lib/"; done
    patchelf --set-interpreter $lib/"$(ldd "$file" | grep -o '[^/]*ld-linux[^ ]*')" --force-rpath --set-rpath $lib "$file"
done
chmod 755 "$1"
chmod 777 "$1/work"
"#;

#[test]
fn a_system_without_the_usual_directories_is_isolated_as_well() {
    if !works() || !has("patchelf") {
        return;
    }
    let root = fresh("nix");
    run(Command::new("sh").args(["-c", MAKE, "sh"]).arg(&root).arg(gatekeeper())).exits(0);
    // Not nobody: inside a user namespace, all unmapped users appear with that id.
    for user in users().into_iter().map(|user| user.map(|_| 12345)) {
        let inside = |mode: &str| {
            let mut command = Command::new("bwrap");
            command.args(["--bind".as_ref(), root.as_os_str(), Path::new("/").as_os_str()]);
            command.args(["--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--chdir", "/work"]);
            command.args(["--setenv", "PATH", "/run/current-system/bin", "--setenv", "HOME", "/home"]);
            command.args(["gatekeeper", "run", "--isolate", mode, "-p", "write"]);
            command.args(["-c", "echo made > made; cat made /etc/passwd; cat /home/x"]).current_dir("/");
            if let Some(user) = user {
                command.uid(user).gid(user);
            }
            run(&mut command)
        };
        for mode in ["required", "disabled"] {
            let done = inside(mode);
            done.exits(1).prints("made\nroot:x:0:0::/home:/bin/sh\n");
            assert!(done.stderr().contains("/home/x: No such file or directory"), "{done}");
            std::fs::remove_file(root.join("work/made")).expect("made by the command");
        }
    }
}
