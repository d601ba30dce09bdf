//! Walks over links, swapped directories and unusual paths.

use super::*;
use std::fs;
use std::os::unix::fs::symlink;

struct Scene {
    top: tempfile::TempDir,
    hostile: Hostile,
}

impl Scene {
    /// `work` is hostile, `outside` is not.
    fn new() -> Scene {
        let top = tempfile::tempdir().expect("temporary directory");
        for name in ["work/sub", "outside/keys"] {
            fs::create_dir_all(top.path().join(name)).expect("new");
        }
        fs::write(top.path().join("outside/keys/secret"), "x").expect("new");
        let hostile = Hostile::working_directory(&top.path().join("work"));
        Scene { top, hostile }
    }

    fn at(&self, name: &str) -> PathBuf {
        // The path of the temporary directory may contain links.
        self.top.path().canonicalize().expect("own").join(name)
    }

    fn walk(&self, name: &str) -> Result<PathBuf, Untrusted> {
        walk(&self.at(name), &self.hostile).map(|found| found.real)
    }
}

#[test]
fn links_are_followed_outside_and_refused_below_a_hostile_tree() {
    let scene = Scene::new();
    symlink(scene.at("outside/keys"), scene.at("work/absolute")).expect("new");
    symlink("../outside/keys", scene.at("work/relative")).expect("new");
    symlink("sub", scene.at("work/harmless")).expect("new");
    symlink("../work", scene.at("outside/to-work")).expect("new");
    symlink("keys", scene.at("outside/same")).expect("new");
    for name in ["work/absolute", "work/relative/secret", "work/harmless", "work/sub/../relative", "work/absolute/"] {
        let error = scene.walk(name).expect_err(name);
        assert!(
            matches!(&error, Untrusted::Link { link, .. } if link.starts_with(scene.at("work"))),
            "{name}: {error}"
        );
    }
    // Also through another name of the same tree.
    assert!(matches!(scene.walk("outside/to-work/relative"), Err(Untrusted::Link { .. })));
    assert_eq!(scene.walk("outside/to-work/sub").expect("no link below it"), scene.at("work/sub"));
    assert_eq!(scene.walk("outside/same/secret").expect("outside"), scene.at("outside/keys/secret"));
    assert_eq!(scene.walk("work/../outside//same/.").expect("outside"), scene.at("outside/keys"));
    assert_eq!(scene.walk("work/sub/../../outside/same").expect("outside"), scene.at("outside/keys"));
    assert_eq!(
        walk(&scene.at("work/relative"), &Hostile::default()).expect("the control").real,
        scene.at("outside/keys")
    );
}

#[test]
fn what_is_no_path_is_an_error() {
    let scene = Scene::new();
    symlink("loop", scene.at("outside/loop")).expect("new");
    let errno = |name: &str| match scene.walk(name) {
        Err(Untrusted::Io { error, .. }) => error.raw_os_error(),
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!(errno("nothing"), Some(libc::ENOENT));
    assert_eq!(errno("outside/loop"), Some(libc::ELOOP));
    assert_eq!(errno("outside/keys/secret/"), Some(libc::ENOTDIR));
    assert_eq!(errno("outside/keys/secret/.."), Some(libc::ENOTDIR));
    assert!(walk(Path::new(""), &scene.hostile).expect_err("empty").is_missing());
}

#[test]
fn proc_leads_to_files_and_to_what_has_no_name() {
    use std::os::fd::AsRawFd;
    let scene = Scene::new();
    let secret = fs::File::open(scene.at("outside/keys/secret")).expect("there");
    let named = |fd: i32| walk(Path::new(&format!("/proc/self/fd/{fd}")), &scene.hostile);
    let found = named(secret.as_raw_fd()).expect("open");
    assert_eq!((found.real, found.nameless), (scene.at("outside/keys/secret"), false));
    fs::remove_file(scene.at("outside/keys/secret")).expect("own");
    assert!(named(secret.as_raw_fd()).expect("open").nameless);
    let (pipe, _other) = rustix::pipe::pipe().expect("pipe");
    assert!(named(pipe.as_raw_fd()).expect("open").nameless);
    let gone = fs::File::open(scene.at("work/sub")).expect("there");
    fs::remove_dir(scene.at("work/sub")).expect("own");
    assert!(named(gone.as_raw_fd()).is_err(), "a directory without a name is a tree that nobody can judge");
}

#[test]
fn directories_are_made_without_following_what_is_in_their_place() {
    let scene = Scene::new();
    let made = make_directory(&scene.at("work/cache/deep"), &scene.hostile, Mode::RWXU).expect("made");
    assert_eq!(made.real, scene.at("work/cache/deep"));
    symlink(scene.at("outside"), scene.at("work/planted")).expect("new");
    symlink(scene.at("outside/new"), scene.at("work/dangling")).expect("new");
    for name in ["work/planted/new", "work/dangling"] {
        let error = make_directory(&scene.at(name), &scene.hostile, Mode::RWXU).expect_err(name);
        assert!(matches!(error, Untrusted::Link { .. }), "{error}");
    }
    assert!(!scene.at("outside/new").exists());
}

/// While another thread keeps swapping a directory and a link, the walk returns the directory or an error.
#[test]
fn a_swap_during_the_walk_leads_nowhere_else() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use std::sync::atomic::{AtomicBool, Ordering};
    let scene = Scene::new();
    symlink(scene.at("outside/keys"), scene.at("work/link")).expect("new");
    let (sub, link) = (scene.at("work/sub"), scene.at("work/link"));
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let _ = renameat_with(CWD, &sub, CWD, &link, RenameFlags::EXCHANGE);
            }
        });
        let mut refused = 0;
        for _ in 0..5000 {
            match walk(&sub, &scene.hostile) {
                Ok(found) => assert!(found.is_directory() && found.real == sub),
                Err(Untrusted::Link { .. }) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        done.store(true, Ordering::Relaxed);
        assert!(refused > 0, "the swaps took place");
    });
}
