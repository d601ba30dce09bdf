//! `SANDBOX_FILTER`: a compiled filter enforces its list, and an invalid file stops the program.

use super::{SIGSYS, calls, refused};
use crate::support::fresh;
use sandbox_contract::bpf::{self, Insn, List, ret};
use sandbox_contract::{file, grammar};
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A filter that answers EPROTO to these calls and allows all others.
pub fn denying(names: &[&str]) -> Vec<Insn> {
    let listed = grammar::parse(names.join(":").as_bytes()).expect("known names");
    let list = List { listed: &listed, answer: ret::errno(71), others: ret::ALLOW, first: &[] };
    let mut program = vec![Insn::default(); bpf::MAX_LEN];
    let len = bpf::compile(&list, &mut program).expect("a short list");
    program.truncate(len);
    program
}

fn bytes(program: &[Insn]) -> Vec<u8> {
    let mut out = Box::new([0u8; file::MAX_FILE]);
    let len = file::encode(program, &mut out).expect("a program of a legal length");
    out[..len].to_vec()
}

/// Writes the program to a file in a new directory.
pub fn written(name: &str, program: &[Insn]) -> PathBuf {
    let path = fresh(name).join("filter");
    fs::write(&path, bytes(program)).expect("a fresh directory");
    path
}

#[track_caller]
fn refused_file(content: &[u8], why: &str) {
    let path = fresh("bad-filter").join("filter");
    fs::write(&path, content).expect("a fresh directory");
    refused_path(&path, &format!("SANDBOX_FILTER: '{}' {why}", path.display()));
}

#[track_caller]
fn refused_path(path: &Path, line: &str) {
    refused(&[("SANDBOX_FILTER", path.to_str().expect("a plain path"))], line);
}

#[test]
fn a_compiled_filter_does_what_its_list_says() {
    let path = written("good", &denying(&["getppid", "@network"]));
    let filter = ("SANDBOX_FILTER", path.to_str().expect("a plain path"));
    calls(&[filter], &["getppid", "socket", "getuid", "seccomp", "no_new_privs", "env:SANDBOX_FILTER"])
        .exits(0)
        .prints("getppid=71\nsocket=71\ngetuid=ok\nseccomp=2\nno_new_privs=1\nSANDBOX_FILTER=unset\n")
        .complains("");
    if cfg!(target_arch = "x86_64") {
        calls(&[filter], &["x32"]).dies_by(SIGSYS);
    }
}

#[test]
fn the_longest_program_is_loaded() {
    let mut program = vec![Insn { code: 0x20, jt: 0, jf: 0, k: 0 }; bpf::MAX_LEN - 3];
    program.push(Insn { code: 0x15, jt: 0, jf: 1, k: libc::SYS_getppid as u32 });
    program.push(Insn { code: 0x06, jt: 0, jf: 0, k: ret::errno(71) });
    program.push(Insn { code: 0x06, jt: 0, jf: 0, k: ret::ALLOW });
    assert_eq!(program.len(), bpf::MAX_LEN);
    let path = written("longest", &program);
    calls(&[("SANDBOX_FILTER", path.to_str().expect("a plain path"))], &["getppid", "getuid"])
        .exits(0)
        .prints("getppid=71\ngetuid=ok\n");
}

#[test]
fn a_file_that_is_no_filter_is_refused() {
    refused_file(b"", "is not a compiled filter");
    refused_file(b"read:write\n", "is not a compiled filter");
    refused_file(&[0; 4096], "is not a compiled filter");
}

#[test]
fn a_truncated_file_is_refused() {
    let whole = bytes(&denying(&["getppid"]));
    for len in [file::HEADER, file::HEADER + 1, whole.len() / 8 * 4, whole.len() - 8, whole.len() - 1] {
        refused_file(&whole[..len], "is truncated or over-long");
    }
}

#[test]
fn an_over_long_file_is_refused() {
    let mut whole = bytes(&denying(&["getppid"]));
    whole.push(0);
    refused_file(&whole, "is truncated or over-long");
    whole.resize(file::MAX_FILE + 100_000, 0);
    refused_file(&whole, "is truncated or over-long");
    // One instruction more than the kernel accepts, with a matching header.
    let mut long = bytes(&vec![Insn { code: 0x06, jt: 0, jf: 0, k: ret::ALLOW }; bpf::MAX_LEN]);
    long.extend([0x06, 0, 0, 0, 0, 0, 0xff, 0x7f]);
    long[48..52].copy_from_slice(&(bpf::MAX_LEN as u32 + 1).to_ne_bytes());
    let hash = sandbox_contract::sha256(&long[40..]);
    long[8..40].copy_from_slice(&hash);
    refused_file(&long, "is truncated or over-long");
}

#[test]
fn a_file_for_another_architecture_is_refused() {
    let mut foreign = bytes(&denying(&["getppid"]));
    foreign[44..48].copy_from_slice(&0x4000_0003u32.to_ne_bytes());
    let hash = sandbox_contract::sha256(&foreign[40..]);
    foreign[8..40].copy_from_slice(&hash);
    refused_file(&foreign, "was compiled for another architecture; compile it on this one");
}

#[test]
fn a_file_of_another_version_is_refused() {
    let mut newer = bytes(&denying(&["getppid"]));
    newer[40] = 2;
    refused_file(&newer, "has a format version that this library does not know; compile it again");
}

#[test]
fn an_altered_file_is_refused() {
    let whole = bytes(&denying(&["getppid"]));
    for at in [8, 39, file::HEADER, whole.len() - 1] {
        let mut altered = whole.clone();
        altered[at] ^= 1;
        refused_file(&altered, "was altered: its hash does not match");
    }
}

#[test]
fn a_program_that_the_kernel_does_not_take_is_refused() {
    // A jump out of the program, with a valid header and hash.
    let program = [Insn { code: 0x05, jt: 0, jf: 0, k: 100 }, Insn { code: 0x06, jt: 0, jf: 0, k: 0 }];
    let path = written("invalid", &program);
    refused_path(&path, "the kernel refused the seccomp filter: EINVAL");
}

#[test]
fn only_a_regular_file_at_an_absolute_path_is_read() {
    let dir = fresh("odd-filter");
    refused_path("filter".as_ref(), "SANDBOX_FILTER: 'filter' is not an absolute path");
    refused_path("".as_ref(), "SANDBOX_FILTER: '' is not an absolute path");
    refused_path(&dir, &format!("SANDBOX_FILTER: '{}' is not a regular file", dir.display()));
    let missing = dir.join("missing");
    refused_path(&missing, &format!("SANDBOX_FILTER: cannot open '{}': ENOENT", missing.display()));
    // A FIFO without a writer would block its reader for ever.
    let fifo = dir.join("fifo");
    let name = CString::new(fifo.as_os_str().as_bytes()).expect("no NUL in it");
    // SAFETY: `name` is NUL-terminated.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    refused_path(&fifo, &format!("SANDBOX_FILTER: '{}' is not a regular file", fifo.display()));
    refused_path("/dev/zero".as_ref(), "SANDBOX_FILTER: '/dev/zero' is not a regular file");
}

#[test]
fn an_unreadable_file_is_refused() {
    let path = written("unreadable", &denying(&["getppid"]));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).expect("own file");
    let done = super::others::as_nobody(&[("SANDBOX_FILTER", path.to_str().expect("a plain path"))], &["getppid"]);
    done.exits(1)
        .prints("")
        .complains(&format!("libsandbox: SANDBOX_FILTER: cannot open '{}': EACCES\n", path.display()));
}
