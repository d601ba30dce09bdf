use super::*;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

/// Asks both trees everything about a path that `Glance` answers by itself.
fn answers(tree: &dyn Tree, path: &Path) -> (Option<PathBuf>, Option<Look>, bool, bool, Option<PathBuf>) {
    (tree.resolve(path), tree.look(path), tree.is_directory(path), tree.is_closed(path), tree.shut(path))
}

/// A directory with one of everything that a plan may meet.
fn scene() -> PathBuf {
    let top = std::env::temp_dir().join(format!("gatekeeper-glance-{}", std::process::id()));
    let _ = fs::remove_dir_all(&top);
    fs::create_dir_all(top.join("home/.config/gh")).expect("own directory");
    fs::write(top.join("home/.config/gh/hosts.yml"), "token").expect("own file");
    fs::write(top.join("home/.npmrc"), "").expect("own file");
    fs::hard_link(top.join("home/.npmrc"), top.join("home/second")).expect("own file");
    symlink("home", top.join("link")).expect("own link");
    symlink("../home/.npmrc", top.join("home/file-link")).expect("own link");
    symlink("/nowhere", top.join("dangling")).expect("own link");
    symlink("loop", top.join("loop")).expect("own link");
    // The kernel follows 40 links at most for one path.
    symlink(".", top.join("self")).expect("own link");
    for (name, count) in [("many", 30), ("too-many", 45)] {
        symlink(top.join("self/".repeat(count)).join("home/.npmrc"), top.join(name)).expect("own link");
    }
    fs::create_dir_all(top.join("shut/inside")).expect("own directory");
    fs::set_permissions(top.join("shut"), fs::Permissions::from_mode(0o000)).expect("own directory");
    top
}

#[test]
fn one_look_answers_as_the_file_system_does() {
    let top = scene();
    let names = [
        "",
        "home",
        "home/",
        "home/.npmrc",
        "home/second",
        "home/.npmrc/below",
        "home/.config/gh/hosts.yml",
        "home/.config/absent",
        "home/.config/absent/below",
        "absent/a/b/c",
        "link",
        "link/.npmrc",
        "link/absent",
        "link/.config/gh",
        "home/file-link",
        "home/file-link/below",
        "dangling",
        "dangling/below",
        "loop",
        "loop/below",
        "many",
        "too-many",
        "home/../home/.npmrc",
        "home/./.npmrc",
        "link/../home",
        "shut",
        "shut/inside",
        "shut/inside/deeper",
    ];
    let system = [
        "/",
        "/etc",
        "/etc/shadow",
        "/etc/passwd",
        "/lib/x86_64-linux-gnu",
        "/bin/sh",
        "/proc/self/exe",
        "/proc/self/root/etc/passwd",
        "/dev/null",
        "/root",
        "/root/.ssh",
        "relative",
        ".",
    ];
    let glance = Glance::default();
    // In both orders: what was seen of a directory must not change the answers for what is in it.
    let paths: Vec<PathBuf> = names.iter().map(|name| top.join(name)).chain(system.map(PathBuf::from)).collect();
    for path in paths.iter().chain(paths.iter().rev()) {
        assert_eq!(answers(&glance, path), answers(&Disk, path), "{}", path.display());
    }
    // Reaching many at once walks to a directory only once.
    let hostile = [vec![], vec![top.clone()], vec![top.join("home")]];
    let fresh = Glance::default();
    let trees: [&dyn Tree; 3] = [&Disk, &glance, &fresh];
    for (tree, hostile) in trees.iter().flat_map(|tree| hostile.iter().map(move |hostile| (tree, hostile))) {
        let reached = |paths: &[PathBuf]| tree.reach_all(paths, hostile).map_err(|error| error.to_string());
        let each = |path: &PathBuf| Disk.reach(path, hostile).map_err(|error| error.to_string());
        let (good, bad): (Vec<PathBuf>, Vec<PathBuf>) = paths.iter().cloned().partition(|path| each(path).is_ok());
        assert_eq!(reached(&good), good.iter().map(each).collect());
        for path in bad {
            let beside = path.parent().map(|above| above.join("absent"));
            let both: Vec<PathBuf> = beside.into_iter().chain([path.clone()]).collect();
            assert_eq!(reached(&both).err(), both.iter().find_map(|path| each(path).err()), "{}", path.display());
        }
    }
    // What was reached is known from then on.
    for path in &paths {
        assert_eq!(answers(&fresh, path), answers(&Disk, path), "{}", path.display());
    }
    assert_eq!(glance.homes(), Disk.homes());
    assert_eq!(glance.mounts(), Disk.mounts());
    fs::set_permissions(top.join("shut"), fs::Permissions::from_mode(0o700)).expect("own directory");
    fs::remove_dir_all(&top).expect("own directory");
}
