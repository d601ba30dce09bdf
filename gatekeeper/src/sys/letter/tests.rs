//! A launch with every part arrives as it was sent.

use super::*;
use crate::sys::guardian::Backstop;
use crate::sys::keeper::{Directory, Name, Watched};
use crate::sys::message;
use crate::sys::mounts::{Kept, Mount, Mounts, UserMaps};
use crate::sys::place::{Make, Place};
use crate::sys::stage::{Source, Staging};
use std::fs::File;
use std::time::Duration;

fn file(path: &str) -> OwnedFd {
    File::open(path).expect("there").into()
}

fn same(one: impl AsFd, other: impl AsFd) -> bool {
    let id = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino)).expect("open");
    id(one.as_fd()) == id(other.as_fd())
}

fn text(text: &str) -> CString {
    CString::new(text).expect("no NUL")
}

/// More than fits into one message.
fn long() -> Vec<CString> {
    (0..4000).map(|at| text(&format!("a word of some length, number {at}"))).collect()
}

fn launch() -> Launch {
    let mut mask = crate::sys::signals::current_mask();
    // SAFETY: changes one initialised signal set.
    unsafe { libc::sigaddset(&mut mask, libc::SIGUSR1) };
    Launch {
        operations: vec![
            Operation::Signals,
            Operation::Cgroup,
            Operation::Namespaces,
            Operation::Stage,
            Operation::Mounts,
            Operation::Limits,
            Operation::NoNewPrivs,
            Operation::Landlock,
            Operation::Seccomp,
            Operation::Exec,
        ],
        program: file("/bin/true"),
        directory: text("/usr"),
        streams: [Some(file("/dev/null")), Some(file("/dev/zero")), None],
        limits: vec![(7, libc::rlimit { rlim_cur: 1, rlim_max: 2 })],
        group: Group::Session,
        mask,
        mounts: Some(Mounts {
            user: Some(UserMaps { uid: text("0 1 1"), gid: text("2 3 1") }),
            network: true,
            mounts: vec![
                Mount::Pinned(text("/a")),
                Mount::ReadOnly { path: text("/b"), kept: 5 },
                Mount::Link(text("/c")),
                Mount::Covered { by: text("/d"), path: text("/e") },
                Mount::Private {
                    path: text("/f"),
                    options: text("size=1"),
                    rights: 6,
                    kept: Some(Kept { path: text("/f/k"), writable: text("/f/k/t"), flags: 9 }),
                },
            ],
        }),
        stage: Some(Staging {
            tree: text("/w"),
            source: Source::Overlay { upper: text("/u"), work: text("/v") },
            flags: 2,
            rules: vec![(text("/w/x"), 8)],
            program: Some(text("/w/y")),
        }),
        lock: Some(file("/etc/shells")),
        watched: Some(Watched {
            directories: vec![Directory::new(text("/g"), true)],
            names: vec![Name::new(0, text("h"), 3)],
        }),
        ruleset: Some(file("/etc/passwd")),
        filter: Some(Filter { program: vec![Insn { code: 0x8006, jt: 1, jf: 2, k: 0xdead_beef }], listener: true }),
        arguments: Arguments::chosen(long(), vec![text("A=b")]).expect("random"),
        progress: Progress::in_file().expect("memory"),
        place: Some(Place {
            base: Arc::new(file("/tmp")),
            name: text("run"),
            inside: vec![
                Make::Directory { name: text("tmp"), mode: 0o700 },
                Make::File { name: text("file"), mode: 0o400, contents: vec![0, 1, 0xff] },
            ],
            grants: vec![(text("tmp"), 9)],
            keep: true,
        }),
        stubs: vec![Stub { parent: Arc::new(file("/usr")), name: text("stub") }],
        cgroup: Some(Joined { procs: file("/etc/group"), directory: text("/sys/fs/cgroup/x") }),
        kept: Vec::new(),
        numbers: Vec::new(),
        waits: true,
        backstop: Some(Backstop { timeout: Some(Duration::from_millis(5)), continues: true }),
    }
}

#[test]
fn every_part_of_a_launch_arrives() {
    let sent = launch();
    let addresses = sent.arguments.parts().2;
    let (here, there) = message::pair().expect("sockets");
    let setup = file("/etc/hostname");
    let received = std::thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(&there, None).expect("received").expect("a letter"));
        send(here.as_fd(), &sent, setup.as_fd()).expect("sent");
        receiving.join().expect("no panic")
    });
    assert!(same(&received.setup, &setup) && same(&received.front, &there));
    let Launch { operations, program, directory, streams, limits, group, mask, mounts, stage, lock, watched, .. } =
        received.launch;
    assert_eq!((operations, directory, group), (sent.operations, sent.directory, Group::Session));
    assert!(same(program, &sent.program));
    let [stdin, stdout, stderr] = streams;
    assert!(same(stdin.expect("given"), file("/dev/null")) && same(stdout.expect("given"), file("/dev/zero")));
    // One that was not given is this process's own.
    assert!(stderr.is_none_or(|stderr| same(stderr, std::io::stderr())));
    assert_eq!(
        limits.iter().map(|(which, limit)| (*which, limit.rlim_cur, limit.rlim_max)).collect::<Vec<_>>(),
        [(7, 1, 2)]
    );
    assert_eq!(crate::sys::signals::members(&mask), crate::sys::signals::members(&sent.mask));
    let mounts = mounts.expect("sent");
    assert!(mounts.network);
    assert_eq!(mounts.user.map(|maps| (maps.uid, maps.gid)), Some((text("0 1 1"), text("2 3 1"))));
    let paths: Vec<_> = mounts.mounts.iter().map(|mount| mount.path().to_str().expect("text")).collect();
    assert_eq!(paths, ["/a", "/b", "/c", "/e", "/f"]);
    assert!(matches!(&mounts.mounts[1], Mount::ReadOnly { kept: 5, .. }));
    assert!(matches!(&mounts.mounts[3], Mount::Covered { by, .. } if **by == *c"/d"));
    assert!(matches!(
        &mounts.mounts[4],
        Mount::Private { options, rights: 6, kept: Some(Kept { path, writable, flags: 9 }), .. }
            if **options == *c"size=1" && **path == *c"/f/k" && **writable == *c"/f/k/t"
    ));
    let stage = stage.expect("sent");
    assert!(matches!(&stage.source, Source::Overlay { upper, work } if **upper == *c"/u" && **work == *c"/v"));
    assert_eq!((stage.tree, stage.flags, stage.rules), (text("/w"), 2, vec![(text("/w/x"), 8)]));
    assert_eq!(stage.program, Some(text("/w/y")));
    assert!(same(lock.expect("sent"), file("/etc/shells")));
    let watched = watched.expect("sent");
    assert_eq!(watched.directories[0].parts(), (c"/g", true));
    assert_eq!(watched.names[0].parts(), (0, c"h", 3));

    let Launch { ruleset, filter, arguments, progress, place, stubs, cgroup, waits, backstop, .. } = received.launch;
    assert!(waits);
    assert_eq!(backstop, Some(Backstop { timeout: Some(Duration::from_millis(5)), continues: true }));
    assert!(same(ruleset.expect("sent"), file("/etc/passwd")));
    let (filter, before) = (filter.expect("sent"), sent.filter.expect("made above"));
    assert_eq!((filter.program, filter.listener), (before.program, before.listener));
    let (argv, envp, at, flags) = arguments.parts();
    assert_eq!((argv, envp, at), (long().as_slice(), [text("A=b")].as_slice(), addresses));
    assert_eq!(flags, sent.arguments.parts().3);
    progress.fail(Operation::Mounts, libc::EPERM);
    assert_eq!(sent.progress.reached(), (Operation::Mounts, libc::EPERM), "one page");
    let place = place.expect("sent");
    assert!(same(&place.base, file("/tmp")) && place.keep && place.name == text("run"));
    assert!(matches!(&place.inside[0], Make::Directory { mode: 0o700, name } if **name == *c"tmp"));
    assert!(matches!(&place.inside[1], Make::File { mode: 0o400, contents, .. } if contents == &[0, 1, 0xff]));
    assert_eq!(place.grants, [(text("tmp"), 9)]);
    assert!(same(&stubs[0].parent, file("/usr")) && stubs[0].name == text("stub"));
    let cgroup = cgroup.expect("sent");
    assert!(same(cgroup.procs, file("/etc/group")) && cgroup.directory == text("/sys/fs/cgroup/x"));
}

#[test]
fn half_a_letter_is_an_error() {
    let (here, there) = message::pair().expect("sockets");
    rustix::net::send(&here, &[0; 7], SendFlags::empty()).expect("sent");
    drop(here);
    assert!(receive(&there, None).is_err());
}

#[test]
fn no_letter_is_no_error() {
    let (here, there) = message::pair().expect("sockets");
    drop(here);
    assert!(receive(&there, None).expect("closed").is_none());
}
