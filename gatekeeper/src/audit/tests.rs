use super::verify::verify;
use super::*;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("temporary directory")
}

fn written(path: &Path, lines: usize) {
    let audit = Audit::open(path, &Hostile::default(), &["true".to_owned()]).expect("own directory");
    for at in 0..lines {
        audit.note(Entry::allowed(Kind::Open).with("path", format!("/{at}"))).expect("room");
    }
    audit.finish("exited", 0).expect("room");
}

fn checked(path: &Path) -> verify::Verified {
    let head = fs::read(path.with_extension("jsonl.head")).ok();
    verify(&fs::read(path).expect("there"), head.as_deref(), None)
}

#[test]
fn an_untouched_file_is_intact_and_private() {
    let top = directory();
    let path = top.path().join("a.jsonl");
    written(&path, 3);
    written(&path, 2);
    let found = checked(&path);
    assert_eq!((found.lines, found.runs, &found.faults, &found.notes), (9, 2, &Vec::new(), &Vec::new()));
    for file in [path.clone(), path.with_extension("jsonl.head")] {
        assert_eq!(fs::metadata(file).expect("there").permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn every_change_is_found() {
    let top = directory();
    let path = top.path().join("a.jsonl");
    written(&path, 5);
    let text = fs::read_to_string(&path).expect("there");
    let lines: Vec<&str> = text.lines().collect();
    for at in 0..lines.len() {
        let without: Vec<&str> =
            lines.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, line)| *line).collect();
        let changed: Vec<String> = lines
            .iter()
            .enumerate()
            .map(
                |(other, line)| {
                    if other == at { line.replace("\"time\":\"2", "\"time\":\"3") } else { (*line).to_owned() }
                },
            )
            .collect();
        let mut swapped = lines.clone();
        swapped.swap(at, (at + 1) % lines.len());
        let mut doubled = lines.clone();
        doubled.insert(at, lines[at]);
        for (how, wrong) in [
            ("removed", without.join("\n")),
            ("changed", changed.join("\n")),
            ("swapped", swapped.join("\n")),
            ("doubled", doubled.join("\n")),
            ("cut", lines[..at].join("\n")),
        ] {
            fs::write(&path, wrong + "\n").expect("own");
            assert!(!checked(&path).intact(), "line {at} {how}");
        }
    }
}

#[test]
fn lines_removed_at_the_end_are_missed_without_a_head_if_a_run_is_cut() {
    let top = directory();
    let path = top.path().join("a.jsonl");
    written(&path, 3);
    let text = fs::read_to_string(&path).expect("there");
    let cut = text.lines().take(4).collect::<Vec<_>>().join("\n") + "\n";
    assert!(!verify(cut.as_bytes(), None, None).intact());
    assert!(verify(text.as_bytes(), None, None).intact(), "a whole copy");
}

#[test]
fn a_rotated_file_is_continued() {
    let top = directory();
    let path = top.path().join("a.jsonl");
    written(&path, 1);
    let audit = Audit::open(&path, &Hostile::default(), &[]).expect("own directory");
    fs::rename(&path, top.path().join("a.1")).expect("own");
    audit.finish("exited", 0).expect("room");
    drop(audit);
    written(&path, 1);
    let old = fs::read(top.path().join("a.1")).expect("there");
    let first = verify(&old, None, None);
    let found = checked(&path);
    assert!(found.intact(), "{found:?}");
    assert!(found.notes.iter().any(|note| note.contains("continues an earlier file")), "{found:?}");
    let head = fs::read(path.with_extension("jsonl.head")).expect("there");
    let new = fs::read(&path).expect("there");
    assert!(verify(&new, Some(&head), Some(&first.head)).intact());
    let shorter = old[..old.len() - 1].iter().rposition(|byte| *byte == b'\n').map(|at| &old[..=at]).expect("lines");
    let cut = verify(shorter, None, None);
    assert!(!verify(&new, Some(&head), Some(&cut.head)).intact(), "the end of the old file is missing");
}

#[test]
fn what_was_changed_stays_visible_after_the_next_run() {
    let top = directory();
    let path = top.path().join("a.jsonl");
    written(&path, 2);
    let text = fs::read_to_string(&path).expect("there");
    fs::write(&path, text.lines().take(2).collect::<Vec<_>>().join("\n") + "\n").expect("own");
    written(&path, 1);
    assert!(!checked(&path).intact());
}

#[test]
fn links_and_devices_are_refused() {
    let top = directory();
    let precious = top.path().join("precious");
    fs::write(&precious, "mine").expect("new");
    symlink(&precious, top.path().join("soft")).expect("new");
    fs::hard_link(&precious, top.path().join("hard")).expect("new");
    let hostile = Hostile::working_directory(top.path());
    for name in ["soft", "hard"] {
        Audit::open(&top.path().join(name), &hostile, &[]).expect_err(name);
    }
    Audit::open(Path::new("/dev/null"), &hostile, &[]).expect_err("a device");
    Audit::open(top.path(), &hostile, &[]).expect_err("a directory");
    assert_eq!(fs::read_to_string(&precious).expect("there"), "mine");
}

#[test]
fn many_runs_share_a_file() {
    let top = directory();
    let path = top.path().join("a.jsonl");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| written(&path, 50));
        }
    });
    let found = checked(&path);
    assert!(found.intact(), "{:?}", found.faults.first());
    assert_eq!((found.lines, found.runs), (8 * 52, 8));
}

#[test]
fn lines_that_somebody_else_appended_are_found_before_and_after_the_next_run() {
    let top = directory();
    let path = top.path().join("a.jsonl");
    written(&path, 2);
    let last = fs::read_to_string(&path).expect("there").lines().last().expect("lines").to_owned();
    let forged =
        format!("{{\"seq\":5,\"kind\":\"host\",\"decision\":\"allowed\",\"prev\":\"{}\"}}\n", hash(last.as_bytes()));
    let mut file = fs::OpenOptions::new().append(true).open(&path).expect("own");
    file.write_all(forged.as_bytes()).expect("room");
    assert!(!checked(&path).intact(), "the head names the line before it");
    written(&path, 1);
    assert!(!checked(&path).intact(), "and the chain goes on from there");
}

#[test]
fn a_rotated_file_that_was_compressed_may_leave_its_inode_to_the_next() {
    let top = directory();
    let path = top.path().join("a.jsonl");
    written(&path, 1);
    fs::remove_file(&path).expect("own");
    let audit = Audit::open(&path, &Hostile::default(), &[]).expect("own directory");
    // As if the new file had the old one's inode number: file systems choose as they like.
    audit.finish("exited", 0).expect("room");
    drop(audit);
    let found = checked(&path);
    assert!(found.intact(), "{found:?}");
    let file = File::open(&path).expect("there");
    let stat = fstat(&file).expect("open");
    let known = Head { count: 3, hash: hash(b"x"), inode: stat.st_ino, size: 700, next: None };
    assert!(Head::last(Some(known.clone()), &file, &stat, true).expect("read").1, "made now");
    assert!(!Head::last(Some(known), &file, &stat, false).expect("read").1, "there before");
}

#[test]
fn a_file_that_was_emptied_is_not_a_rotated_one() {
    let top = directory();
    let path = top.path().join("a.jsonl");
    written(&path, 2);
    fs::OpenOptions::new().write(true).open(&path).expect("own").set_len(0).expect("own");
    assert!(!checked(&path).intact());
    written(&path, 1);
    let found = checked(&path);
    assert!(found.faults.iter().any(|fault| fault.why.contains("removed at the beginning")), "{found:?}");
}

#[test]
fn a_writer_that_was_killed_leaves_no_fault() {
    let top = directory();
    let path = top.path().join("a.jsonl");
    written(&path, 2);
    let (head, lines) = (path.with_extension("jsonl.head"), fs::read(&path).expect("there"));
    let before = fs::read_to_string(&head).expect("there");
    written(&path, 1);
    let whole = fs::read(&path).expect("there");
    let first = whole[lines.len()..].iter().position(|byte| *byte == b'\n').expect("a line") + 1;
    let digest = hash(&whole[lines.len()..lines.len() + first - 1]);
    // The head as it is while the first line of the second run is appended.
    let announced = before.replace("}\n", &format!(",\"next\":{{\"count\":5,\"hash\":\"{digest}\"}}}}\n"));
    let torn = [before.as_bytes(), &announced.as_bytes()[before.len()..]].concat();
    fs::write(&path, &lines).expect("own");
    fs::write(&head, torn).expect("own");
    assert!(checked(&path).intact(), "between two writes of the head");
    written(&path, 1);
    assert!(checked(&path).intact());
    for (killed, end) in [("before the line", 0), ("within it", first / 2), ("after it", first)] {
        fs::write(&path, &whole[..lines.len() + end]).expect("own");
        fs::write(&head, &announced).expect("own");
        if killed != "within it" {
            assert!(checked(&path).intact(), "{killed}");
        }
        written(&path, 1);
        let found = checked(&path);
        assert!(found.intact(), "{killed}: {found:?}");
    }
}

#[test]
fn a_rotation_that_was_interrupted_goes_on() {
    let top = directory();
    let path = top.path().join("a.jsonl");
    written(&path, 1);
    fs::rename(&path, top.path().join("a.1")).expect("own");
    // Announced and not written, because the disk was full.
    fs::write(&path, "").expect("own");
    let head = path.with_extension("jsonl.head");
    let inode = std::os::unix::fs::MetadataExt::ino(&fs::metadata(&path).expect("there"));
    let mut known = Head::read(&File::open(&head).expect("there")).expect("a head").expect("a head");
    (known.inode, known.size) = (inode, 0);
    known.write(&fs::OpenOptions::new().write(true).open(&head).expect("own")).expect("room");
    written(&path, 1);
    let found = checked(&path);
    assert!(found.intact() && !found.notes.is_empty(), "{found:?}");
}
