use super::*;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

fn picture() -> Picture {
    Picture { png: b"a picture".to_vec(), width: 1, height: 1, captured_at: SystemTime::now(), cut: false }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("exists").permissions().mode() & 0o7777
}

const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

#[test]
fn off_writes_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let recorder = Recorder::new(Mode::Off, &dir.path().join("rec"), "t", "s").expect("nothing to do");
    assert_eq!(recorder.keep(&picture()), None);
    assert!(!dir.path().join("rec").exists());
}

#[test]
fn transient_keeps_the_last_fifty_and_goes_at_the_end() {
    let dir = tempfile::tempdir().expect("a directory");
    let recorder = Recorder::new(Mode::Transient, dir.path(), "t", "s").expect("writable");
    let paths: Vec<PathBuf> = (0..60).filter_map(|_| recorder.keep(&picture())).collect();
    assert_eq!(paths.len(), 60);
    assert_eq!(paths.iter().filter(|path| path.exists()).count(), RING);
    assert!(!paths[9].exists() && paths[10].exists());
    assert_eq!((mode(&paths[59]), mode(&dir.path().join("t")), mode(&dir.path().join("t/s"))), (0o600, 0o700, 0o700));
    recorder.close();
    assert!(!dir.path().join("t/s").exists());
    assert_eq!(recorder.keep(&picture()), None, "closed");
}

#[test]
fn audit_stays_until_its_time_is_over() {
    let dir = tempfile::tempdir().expect("a directory");
    let recorder = Recorder::new(Mode::Audit, dir.path(), "t", "s").expect("writable");
    let kept = recorder.keep(&picture()).expect("kept");
    recorder.close();
    drop(recorder);
    assert_eq!(std::fs::read(&kept).expect("still there"), b"a picture");
    assert_eq!(list(dir.path(), "t", "s").expect("listed"), ["000001.png"]);
    assert_eq!(read(dir.path(), "t", "s", "000001.png").expect("read").as_deref(), Some(&b"a picture"[..]));
    assert_eq!(read(dir.path(), "t", "s", "../s/000001.png").expect("no picture"), None);
    assert_eq!(clean(dir.path(), KEPT).expect("pruned"), Pruned::default());
    assert!(kept.exists(), "younger than seven days");
    let old = SystemTime::now() - KEPT - Duration::from_secs(60);
    for name in ["000001.png", "mode"] {
        std::fs::File::open(dir.path().join("t/s").join(name)).and_then(|file| file.set_modified(old)).expect("own");
    }
    discard(dir.path(), "t", "s");
    assert!(kept.exists(), "audit material is not discarded");
    assert_eq!(clean(dir.path(), KEPT).expect("pruned"), Pruned { sessions: 1, pictures: 1 });
    assert!(!dir.path().join("t").exists());
    assert_eq!(clean(dir.path(), KEPT).expect("nothing left"), Pruned::default());
}

#[test]
fn what_a_killed_daemon_left_of_a_transient_recording_goes_with_the_next_start() {
    let dir = tempfile::tempdir().expect("a directory");
    let recorder = Recorder::new(Mode::Transient, dir.path(), "t", "s").expect("writable");
    recorder.keep(&picture()).expect("kept");
    // A kill runs no destructor.
    std::mem::forget(recorder);
    discard(dir.path(), "t", "s");
    assert!(!dir.path().join("t/s").exists());
    discard(dir.path(), "t", "s");
}

#[test]
fn the_quota_refuses_an_audit_picture() {
    let dir = tempfile::tempdir().expect("a directory");
    let recorder = Recorder::new(Mode::Audit, dir.path(), "t", "s").expect("writable").with_quota(30);
    let kept: Vec<bool> = (0..4).map(|_| recorder.try_keep(&picture()).is_ok()).collect();
    assert_eq!(kept, [true, true, false, false], "five bytes of `mode`, then nine each");
    let error = recorder.try_keep(&picture()).expect_err("full").to_string();
    assert_eq!(
        error,
        "the recordings would exceed their quota of 30 bytes; the operator can raise --quota or remove recordings"
    );
}

#[test]
fn names_and_links_lead_nowhere_else() {
    let dir = tempfile::tempdir().expect("a directory");
    for name in ["", ".", "..", "a/b", "../x", ".hidden", "a\nb", "ä"] {
        assert!(Recorder::new(Mode::Audit, dir.path(), name, "s").is_err(), "{name:?}");
        assert!(Recorder::new(Mode::Audit, dir.path(), "t", name).is_err(), "{name:?}");
        assert!(list(dir.path(), "t", name).is_err(), "{name:?}");
    }
    let elsewhere = tempfile::tempdir().expect("a directory");
    std::os::unix::fs::symlink(elsewhere.path(), dir.path().join("linked")).expect("own");
    assert!(Recorder::new(Mode::Audit, dir.path(), "linked", "s").is_err());
    assert_eq!(std::fs::read_dir(elsewhere.path()).expect("own").count(), 0);
}

#[test]
fn the_directory_of_an_open_session_is_not_pruned() {
    let dir = tempfile::tempdir().expect("a directory");
    let recorder = Recorder::new(Mode::Audit, dir.path(), "t", "s").expect("writable");
    let kept = recorder.keep(&picture()).expect("kept");
    let age = || {
        let old = SystemTime::now() - KEPT - Duration::from_secs(60);
        for entry in std::fs::read_dir(dir.path().join("t/s")).expect("there").flatten() {
            std::fs::File::open(entry.path()).and_then(|file| file.set_modified(old)).expect("own");
        }
    };
    age();
    assert_eq!(clean(dir.path(), KEPT).expect("pruned"), Pruned { sessions: 0, pictures: 1 });
    assert!(!kept.exists(), "its time is over");
    recorder.try_keep(&picture()).expect("the directory is still there").expect("kept");
    assert_eq!(std::fs::read_to_string(dir.path().join("t/s/mode")).expect("there"), "audit");
    drop(recorder);
    age();
    assert_eq!(clean(dir.path(), KEPT).expect("pruned"), Pruned { sessions: 1, pictures: 1 });
}

#[test]
fn a_transient_recording_stays_within_the_quota_and_gives_back_what_it_removes() {
    let dir = tempfile::tempdir().expect("a directory");
    let recorder = |session| {
        Recorder::new(Mode::Transient, dir.path(), "t", session).expect("writable").with_quota(9 + 9 * RING as u64 + 10)
    };
    let first = recorder("one");
    let kept = |recorder: &Recorder| recorder.try_keep(&picture()).expect("no error").is_some();
    assert_eq!((0..3 * RING).filter(|_| kept(&first)).count(), 3 * RING, "the ring does not grow");
    let second = recorder("two");
    assert_eq!((0..4).filter(|_| kept(&second)).count(), 1, "nine bytes fit once more");
    first.close();
    assert!(kept(&second));
}

#[test]
fn a_picture_is_read_whole_or_not_at_all() {
    let dir = tempfile::tempdir().expect("a directory");
    drop(Recorder::new(Mode::Audit, dir.path(), "t", "s").expect("writable"));
    let file = |name: &str, length: u64| {
        let file = std::fs::File::create(dir.path().join("t/s").join(name)).expect("own");
        file.set_len(length).expect("sparse");
    };
    file("000001.png", 65 << 20);
    file("000002.png", LONGEST + 1);
    let read = |name: &str| read(dir.path(), "t", "s", name);
    assert_eq!(read("000001.png").expect("read").map(|bytes| bytes.len()), Some(65 << 20));
    assert_eq!(read("000002.png").expect_err("longer than any picture").kind(), io::ErrorKind::FileTooLarge);
    assert_eq!(read(&format!("{}.png", "0".repeat(300))).expect("no such file"), None);
}
