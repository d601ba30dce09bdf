//! The packages: the Debian one is installed into a fresh system, used there, and purged without leftovers.

use super::install::{make, tree};
use super::root;
use crate::support::{Done, fresh, has, is_root, on_path, run, skip};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Some of what every package holds.
const HELD: [&str; 7] = [
    "/usr/bin/gatekeeper",
    "/usr/bin/gatekeeperd",
    "/usr/lib/libsandbox.so",
    "/usr/lib/systemd/system/gatekeeperd.service",
    "/usr/share/doc/gatekeeper/examples/python/agent.py",
    "/usr/share/doc/gatekeeper/examples/c/linked.c",
    "/usr/share/doc/gatekeeper/integrations/codex/confined-codex",
];

/// Builds a package from the programs of the tests.
fn package(kind: &str) -> PathBuf {
    let dir = fresh(kind);
    make(&format!("package-{kind}"), &[("DIST", &dir)]).exits(0);
    let mut made = std::fs::read_dir(&dir).expect("own directory").flatten().map(|entry| entry.path());
    made.next().expect("a package")
}

/// A minimal Debian system, downloaded once and kept in the target directory.
pub fn debian() -> Option<PathBuf> {
    static SYSTEM: OnceLock<Option<PathBuf>> = OnceLock::new();
    SYSTEM.get_or_init(bootstrapped).clone()
}

fn bootstrapped() -> Option<PathBuf> {
    let kept = root().join("target/debootstrap");
    let system = kept.join("system");
    if system.join("usr/bin/dpkg").exists() {
        return Some(system);
    }
    let sources = "apt-get indextargets --format '$(CODENAME) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages'";
    let listed = run(Command::new("sh").args(["-c", sources])).stdout();
    // Only the release, not its updates.
    let found = listed.lines().find_map(|line| {
        let mut words = line.split(' ');
        let (release, component, mirror) = (words.next()?, words.next()?, words.next()?);
        (component == "main" && !release.contains('-')).then(|| (release.to_owned(), mirror.to_owned()))
    });
    let Some((release, mirror)) = found else {
        skip("apt-get knows no archive of this release");
        return None;
    };
    std::fs::create_dir_all(&kept).expect("the target directory");
    // Bootstrap into a temporary directory and rename it when it is complete.
    let beside = kept.join(format!("new-{}", std::process::id()));
    let mut command = Command::new("debootstrap");
    command.arg("--variant=minbase").arg(&release).arg(&beside).arg(&mirror);
    let done = run(&mut command);
    if done.code() != Some(0) {
        let _ = std::fs::remove_dir_all(&beside);
        skip(&format!("debootstrap failed: {done}"));
        return None;
    }
    std::fs::rename(&beside, &system).expect("same directory");
    Some(system)
}

fn inside(system: &Path, line: &str) -> Done {
    let mut command = Command::new("chroot");
    command.arg(system).args(["sh", "-c", line]).env_clear().env("HOME", "/root").env("LC_ALL", "C");
    run(command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"))
}

/// The tree without the files in which dpkg records every change.
fn of_packages(system: &Path) -> Vec<(PathBuf, (u32, u64))> {
    let noted =
        ["var/lib/dpkg", "var/log", "var/cache/ldconfig", "etc/ld.so.cache", "root", "tmp", "proc", "dev", "sys"];
    let ours = |path: &Path| !noted.iter().any(|place| path.starts_with(place));
    tree(system).into_iter().filter(|(path, _)| ours(path)).collect()
}

#[test]
fn the_debian_package_is_installed_used_and_purged() {
    if !is_root() {
        return skip("only root can bootstrap a Debian system");
    }
    for tool in ["debootstrap", "chroot", "dpkg-deb", "objdump", "apt-get"] {
        if !on_path(tool) && !Path::new("/usr/sbin").join(tool).exists() {
            return skip(&format!("{tool} is not installed"));
        }
    }
    let package = package("deb");
    let Some(kept) = debian() else { return };
    // Use a copy, so that a failing test does not change the kept system.
    let system = fresh("debian").join("system");
    run(Command::new("cp").arg("-a").arg("--reflink=auto").arg(&kept).arg(&system)).exits(0);
    std::fs::copy(&package, system.join("tmp/gatekeeper.deb")).expect("own directory");
    let before = of_packages(&system);
    let mounts = Mounts::new(&system);

    inside(&system, "dpkg -i /tmp/gatekeeper.deb").exits(0);
    let listed = inside(&system, "dpkg -L gatekeeper");
    for file in HELD.iter().chain(&["/usr/share/doc/gatekeeper/copyright"]) {
        assert!(listed.stdout().lines().any(|line| line == *file), "{file}: {listed}");
    }
    assert!(inside(&system, "dpkg -V gatekeeper").exits(0).stdout().is_empty());

    // Use it as root and as a user of that system.
    let hidden = "gatekeeper run --quiet -- cat /etc/shadow";
    for user in ["root", "nobody"] {
        let tour = |line: &str| {
            let quoted = line.replace('\'', "'\\''");
            let enter = format!("cd /tmp && setpriv --reuid {user} --clear-groups sh -c '{quoted}'");
            inside(&system, &enter)
        };
        tour("echo hello | gatekeeper run -- wc -c").exits(0).prints("6\n");
        tour("gatekeeper run --quiet -- touch /usr/new").exits(1);
        tour(hidden).exits(1).prints("");
        tour("gatekeeper run --profile write -c 'echo kept > \"$TMPDIR/here\"; cat \"$TMPDIR/here\"'")
            .exits(0)
            .prints("kept\n");
        tour("gatekeeper check /usr/bin/env").exits(0);
        tour("gatekeeperd --version").exits(0);
        tour("SECCOMP_SYSCALL_DENY=mkdir SECCOMP_DEFAULT_ACTION=errno:EPROTO LD_PRELOAD=libsandbox.so mkdir /tmp/x")
            .exits(1)
            .complains("mkdir: cannot create directory '/tmp/x': Protocol error\n");
    }
    assert!(!system.join("usr/new").exists());

    inside(&system, "dpkg --purge gatekeeper").exits(0);
    inside(&system, "dpkg -s gatekeeper").exits(1);
    drop(mounts);
    assert_eq!(of_packages(&system), before);
}

/// Mounts /proc and /dev in the system while it is used.
struct Mounts(PathBuf);

impl Mounts {
    fn new(system: &Path) -> Mounts {
        let mounts = Mounts(system.to_owned());
        run(Command::new("mount").args(["-t", "proc", "proc"]).arg(system.join("proc"))).exits(0);
        run(Command::new("mount").args(["-t", "tmpfs", "-o", "mode=755", "tmpfs"]).arg(system.join("dev"))).exits(0);
        let nodes = "cd dev && mknod -m 666 null c 1 3 && mknod -m 666 zero c 1 5 && mknod -m 666 urandom c 1 9 && mkdir -m 1777 shm";
        run(Command::new("sh").args(["-c", nodes]).current_dir(system)).exits(0);
        mounts
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        for place in ["dev", "proc"] {
            let _ = Command::new("umount").arg("-l").arg(self.0.join(place)).status();
        }
    }
}

/// Two packages of the same programs, made at different times, are the same bytes.
#[test]
fn packages_do_not_depend_on_when_they_are_made() {
    for (kind, tool) in [("deb", "dpkg-deb"), ("rpm", "rpmbuild")] {
        if has(tool) && has("objdump") {
            let made = [package(kind), package(kind)];
            let second =
                |path: &PathBuf| std::fs::metadata(path).and_then(|about| about.modified()).expect("just made");
            assert_ne!(second(&made[0]), second(&made[1]));
            run(Command::new("cmp").args(&made)).exits(0);
        }
    }
}

/// The bill of materials names the hashes of the programs that `make` leaves, which have no symbols.
#[test]
fn a_program_without_symbols_is_packed_as_it_is() {
    if !has("dpkg-deb") || !has("objdump") {
        return;
    }
    let (dir, unpacked) = (fresh("deb"), fresh("unpacked"));
    make("package-deb", &[("DIST", &dir), ("GATEKEEPER", crate::bindings::stripped())]).exits(0);
    let made = std::fs::read_dir(&dir).expect("own directory").flatten().next().expect("a package").path();
    run(Command::new("dpkg-deb").arg("-x").arg(made).arg(&unpacked)).exits(0);
    run(Command::new("cmp").arg(unpacked.join("usr/bin/gatekeeper")).arg(crate::bindings::stripped())).exits(0);
}

#[test]
fn the_rpm_holds_the_same_files() {
    for tool in ["rpmbuild", "rpm", "objdump"] {
        if !has(tool) {
            return;
        }
    }
    let package = package("rpm");
    let ask = |flags: &[&str]| {
        let done = run(Command::new("rpm").args(flags).arg(&package));
        done.exits(0);
        done.stdout()
    };
    let files = ask(&["-qlp"]);
    for file in HELD.iter().chain(&["/usr/share/man/man7/libsandbox.7.gz"]) {
        assert!(files.lines().any(|line| line == *file), "{file} in {files}");
    }
    assert!(!files.contains("installed"), "{files}");
    let owners = ask(&["-qp", "--qf", "[%{FILEUSERNAME}:%{FILEGROUPNAME}\n]"]);
    assert!(owners.lines().all(|line| line == "root:root"), "{owners}");
    if !is_root() {
        return skip("only root can install an rpm");
    }
    // Install into an empty tree, ignoring dependencies, and remove it again.
    let top = fresh("rpm-root");
    let rpm = |flags: &[&str]| run(Command::new("rpm").arg("--root").arg(&top).args(flags));
    rpm(&["-i", "--nodeps", package.to_str().expect("UTF-8")]).exits(0);
    run(Command::new(top.join("usr/bin/gatekeeper")).arg("--version")).exits(0);
    rpm(&["-e", "--nodeps", "gatekeeper"]).exits(0);
    // rpm keeps its own database in the tree.
    let is_file = |(path, (mode, _)): (PathBuf, (u32, u64))| (mode & libc::S_IFMT != libc::S_IFDIR).then_some(path);
    let left = tree(&top).into_iter().filter_map(is_file);
    let left: Vec<PathBuf> = left.filter(|path| !path.to_string_lossy().contains("rpmdb")).collect();
    assert_eq!(left, Vec::<PathBuf>::new());
}
