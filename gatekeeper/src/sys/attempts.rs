//! Syscalls that a sandbox must deny, for `gatekeeper __probe`: each is made once, without harm, and its errno printed.
//!
//! Without a sandbox each call fails with an errno that no sandbox returns (a bad descriptor, an unknown flag), or
//! succeeds on a file made for it. So a denial by the sandbox cannot be mistaken for anything else.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

/// Upper bits that the kernel ignores in an `int` argument. They bypass a filter that compares all 64 bits.
const JUNK: u64 = 0xdead_0000_0000_0000;
/// An address that is never mapped.
const NOWHERE: u64 = 1;
const BAD: u64 = u64::MAX;
const TIOCSTI: u64 = 0x5412;
const TIOCLINUX: u64 = 0x541c;
/// FS_IOC_SETFLAGS and FS_IOC_FSSETXATTR.
const SET_FLAGS: u64 = 0x4008_6602;
const SET_PROJECT: u64 = 0x401c_5820;
const HERE: u64 = libc::AT_FDCWD as u64;
const IPPROTO_MPTCP: u64 = 262;

/// A user id that no account here has.
const OTHER: u64 = 54_321;

/// Syscall number and arguments.
type Raw = (i64, [u64; 6]);

/// The calls without an operand, by their names in the profile tests.
fn plain(name: &str) -> Option<Raw> {
    let socket =
        |family: i32, kind: i32, protocol: u64| (libc::SYS_socket, call([family as u64, kind as u64, protocol]));
    let (stream, datagram, raw) = (libc::SOCK_STREAM, libc::SOCK_DGRAM, libc::SOCK_RAW);
    Some(match name {
        "socket-inet" => socket(libc::AF_INET, stream, 0),
        "socket-inet-junk" => (libc::SYS_socket, call([JUNK | libc::AF_INET as u64, stream as u64, 0])),
        "socket-inet-datagram" => socket(libc::AF_INET, datagram, 0),
        "socket-inet6" => socket(libc::AF_INET6, stream, 0),
        "socket-mptcp" => socket(libc::AF_INET, stream, IPPROTO_MPTCP),
        "socket-unix-datagram" => socket(libc::AF_UNIX, datagram, 0),
        "socketpair-datagram" => (libc::SYS_socketpair, call([libc::AF_UNIX as u64, datagram as u64, 0, NOWHERE])),
        "socketpair-raw" => (libc::SYS_socketpair, call([libc::AF_UNIX as u64, raw as u64, 0, NOWHERE])),
        "socket-netlink-audit" => socket(libc::AF_NETLINK, raw, libc::NETLINK_AUDIT as u64),
        "socket-packet" => socket(libc::AF_PACKET, raw, 0),
        "socket-vsock" => socket(libc::AF_VSOCK, stream, 0),
        "socket-alg" => socket(libc::AF_ALG, libc::SOCK_SEQPACKET, 0),
        "ptrace" => (libc::SYS_ptrace, call([BAD, BAD])),
        "ptrace-traceme" => (libc::SYS_ptrace, call([0])),
        "process-vm-readv" => (libc::SYS_process_vm_readv, call([BAD, 0, 0, 0, 0, 1])),
        "process-vm-writev" => (libc::SYS_process_vm_writev, call([BAD, 0, 0, 0, 0, 1])),
        "pidfd-getfd" => (libc::SYS_pidfd_getfd, call([BAD, 0, 0])),
        "mount" => (libc::SYS_mount, call([NOWHERE, NOWHERE, NOWHERE, 0, NOWHERE])),
        "umount" => (libc::SYS_umount2, call([NOWHERE, BAD])),
        "pivot-root" => (libc::SYS_pivot_root, call([NOWHERE, NOWHERE])),
        "chroot" => (libc::SYS_chroot, call([NOWHERE])),
        "open-tree" => (libc::SYS_open_tree, call([BAD, NOWHERE, BAD])),
        "move-mount" => (libc::SYS_move_mount, call([BAD, NOWHERE, BAD, NOWHERE, BAD])),
        "fsopen" => (libc::SYS_fsopen, call([NOWHERE, BAD])),
        "fsmount" => (libc::SYS_fsmount, call([BAD, BAD])),
        "mount-setattr" => (libc::SYS_mount_setattr, call([BAD, NOWHERE, BAD, 0, 0])),
        "bpf" => (libc::SYS_bpf, call([BAD, 0, 0])),
        "keyctl" => (libc::SYS_keyctl, call([BAD])),
        "add-key" => (libc::SYS_add_key, call([NOWHERE, NOWHERE, 0, 0, 0])),
        "request-key" => (libc::SYS_request_key, call([NOWHERE, NOWHERE, 0, 0])),
        "userfaultfd" => (libc::SYS_userfaultfd, call([BAD])),
        "perf-event-open" => (libc::SYS_perf_event_open, call([NOWHERE, 0, 0, BAD, BAD])),
        "open-by-handle-at" => (libc::SYS_open_by_handle_at, call([BAD, NOWHERE, 0])),
        "fanotify-init" => (libc::SYS_fanotify_init, call([BAD, 0])),
        "unshare" => (libc::SYS_unshare, call([BAD])),
        "unshare-user" => (libc::SYS_unshare, call([libc::CLONE_NEWUSER as u64])),
        "setns" => (libc::SYS_setns, call([BAD, 0])),
        // CLONE_THREAD without CLONE_SIGHAND is EINVAL to the kernel, but the filter only sees the namespace flag.
        "clone-new-user" => (libc::SYS_clone, call([NEW_USER | THREAD])),
        "clone-new-net" => (libc::SYS_clone, call([libc::CLONE_NEWNET as u64 | THREAD])),
        "clone-new-mount-junk" => (libc::SYS_clone, call([JUNK | libc::CLONE_NEWNS as u64 | THREAD])),
        "init-module" => (libc::SYS_init_module, call([NOWHERE, 0, NOWHERE])),
        "finit-module" => (libc::SYS_finit_module, call([BAD, NOWHERE, 0])),
        "delete-module" => (libc::SYS_delete_module, call([NOWHERE, 0])),
        "kexec-load" => (libc::SYS_kexec_load, call([0, BAD, 0, BAD])),
        "reboot" => (libc::SYS_reboot, call([0, 0, 0])),
        "swapon" => (libc::SYS_swapon, call([NOWHERE, BAD])),
        "syslog" => (libc::SYS_syslog, call([BAD, 0, 0])),
        "clock-settime" => (libc::SYS_clock_settime, call([BAD, NOWHERE])),
        "sethostname" => (libc::SYS_sethostname, call([NOWHERE, BAD])),
        "acct" => (libc::SYS_acct, call([NOWHERE])),
        "setuid" => (libc::SYS_setuid, call([BAD])),
        "setuid-other" => (libc::SYS_setuid, call([JUNK | OTHER])),
        "setresuid-other" => (libc::SYS_setresuid, call([BAD, OTHER, BAD])),
        "setgroups" => (libc::SYS_setgroups, call([1, NOWHERE])),
        "capset" => (libc::SYS_capset, call([NOWHERE, NOWHERE])),
        "personality" => (libc::SYS_personality, call([libc::ADDR_NO_RANDOMIZE as u64])),
        "prlimit-other" => (libc::SYS_prlimit64, call([i32::MAX as u64, libc::RLIMIT_NOFILE as u64, 0, 0])),
        "sched-setscheduler" => (libc::SYS_sched_setscheduler, call([i32::MAX as u64, 0, NOWHERE])),
        "sched-real-time" => (libc::SYS_sched_setscheduler, call([JUNK, JUNK | libc::SCHED_FIFO as u64, NOWHERE])),
        "sched-setparam" => (libc::SYS_sched_setparam, call([i32::MAX as u64, NOWHERE])),
        "sched-setattr" => (libc::SYS_sched_setattr, call([0, NOWHERE, 0])),
        "setpriority-other" => (libc::SYS_setpriority, call([0, i32::MAX as u64, 0])),
        "setpriority-user" => (libc::SYS_setpriority, call([2, 0, BAD])),
        "ioprio-other" => (libc::SYS_ioprio_set, call([1, i32::MAX as u64, 0])),
        "shmget" => (libc::SYS_shmget, call([0, 0, 0])),
        "semget" => (libc::SYS_semget, call([0, BAD, 0])),
        "msgget" => (libc::SYS_msgget, call([i32::MAX as u64, 0])),
        "mq-open" => (libc::SYS_mq_open, call([NOWHERE, 0, 0, 0])),
        "kcmp" => (libc::SYS_kcmp, call([BAD, BAD, 0, 0, 0])),
        "name-to-handle-at" => (libc::SYS_name_to_handle_at, call([BAD, NOWHERE, NOWHERE, NOWHERE, 0])),
        "memfd-secret" => (libc::SYS_memfd_secret, call([BAD])),
        "move-pages" => (libc::SYS_move_pages, call([BAD, 0, 0, 0, 0, 0])),
        "tiocsti" => (libc::SYS_ioctl, call([0, TIOCSTI, NOWHERE])),
        "tiocsti-junk" => (libc::SYS_ioctl, call([0, JUNK | TIOCSTI, NOWHERE])),
        "tioclinux" => (libc::SYS_ioctl, call([0, TIOCLINUX, NOWHERE])),
        "tioclinux-junk" => (libc::SYS_ioctl, call([0, JUNK | TIOCLINUX, NOWHERE])),
        "io-uring-setup" => (libc::SYS_io_uring_setup, call([1, NOWHERE])),
        "io-uring-enter" => (libc::SYS_io_uring_enter, call([BAD, 1, 0, 0, 0, 0])),
        "io-uring-register" => (libc::SYS_io_uring_register, call([BAD, 0, 0, 0])),
        "openat2" => (libc::SYS_openat2, call([HERE, NOWHERE, NOWHERE, 0])),
        "clone3" => (libc::SYS_clone3, call([NOWHERE, 0])),
        "execve" => (libc::SYS_execve, call([NOWHERE, 0, 0])),
        "execveat" => (libc::SYS_execveat, call([BAD, NOWHERE, 0, 0, BAD])),
        #[cfg(target_arch = "x86_64")]
        "modify-ldt" => (libc::SYS_modify_ldt, call([BAD, 0, 0])),
        #[cfg(target_arch = "x86_64")]
        "iopl" => (libc::SYS_iopl, call([BAD])),
        _ => return None,
    })
}

const NEW_USER: u64 = libc::CLONE_NEWUSER as u64;
const THREAD: u64 = libc::CLONE_THREAD as u64;

fn call<const N: usize>(given: [u64; N]) -> [u64; 6] {
    let mut args = [0; 6];
    args.iter_mut().zip(given).for_each(|(arg, value)| *arg = value);
    args
}

/// Calls on a file.
fn on_file(name: &str, path: &CString, other: &CString) -> Option<Raw> {
    let (file, other) = (path.as_ptr() as u64, other.as_ptr() as u64);
    let create = (libc::O_CREAT | libc::O_WRONLY) as u64;
    Some(match name {
        "open-write" => (libc::SYS_openat, call([HERE, file, libc::O_WRONLY as u64])),
        "open-truncate" => (libc::SYS_openat, call([HERE, file, (libc::O_RDONLY | libc::O_TRUNC) as u64])),
        "open-create" => (libc::SYS_openat, call([HERE, other, create, 0o600])),
        "open-read" => (libc::SYS_openat, call([HERE, file, libc::O_RDONLY as u64])),
        "truncate" => (libc::SYS_truncate, call([file, 0])),
        "unlink" => (libc::SYS_unlinkat, call([HERE, file, 0])),
        "rename-away" => (libc::SYS_renameat2, call([HERE, file, HERE, other, 0])),
        "rename-onto" => (libc::SYS_renameat2, call([HERE, other, HERE, file, 0])),
        "link" => (libc::SYS_linkat, call([HERE, file, HERE, other, 0])),
        "symlink" => (libc::SYS_symlinkat, call([file, HERE, other])),
        "mkdir" => (libc::SYS_mkdirat, call([HERE, other, 0o700])),
        "mknod-fifo" => (libc::SYS_mknodat, call([HERE, other, u64::from(libc::S_IFIFO | 0o600), 0])),
        "chmod" => (libc::SYS_fchmodat, call([HERE, file, 0o777])),
        "chown" => (libc::SYS_fchownat, call([HERE, file, BAD, BAD, 0])),
        "utimes" => (libc::SYS_utimensat, call([HERE, file, 0, 0])),
        "setxattr" => (libc::SYS_setxattr, call([file, c"user.probe".as_ptr() as u64, file, 1, 0])),
        "removexattr" => (libc::SYS_removexattr, call([file, c"user.probe".as_ptr() as u64])),
        _ => return None,
    })
}

/// Makes the named call and returns `ok` or the name of the errno.
pub fn probe(words: &[std::ffi::OsString]) -> Result<String, String> {
    let word = |at: usize| words.get(at).and_then(|word| word.to_str()).unwrap_or_default();
    let path = |at: usize| CString::new(words.get(at).map_or(&b""[..], |word| word.as_bytes())).unwrap_or_default();
    let (file, other) = (path(1), path(2));
    match word(0) {
        "fork" => return Ok(fork(libc::SIGCHLD as u64)),
        "vfork" => return Ok(fork((libc::CLONE_VFORK | libc::SIGCHLD) as u64)),
        "clone-new-pid" => return Ok(fork((libc::CLONE_NEWPID | libc::SIGCHLD) as u64)),
        "unix-connect" => return Ok(unix_connect(words.get(1).map(|word| word.as_os_str()).unwrap_or_default())),
        "chmod-by-descriptor" => return Ok(by_descriptor(&file, libc::SYS_fchmod, [0o777, 0])),
        "flags-by-descriptor" => return Ok(by_descriptor(&file, libc::SYS_ioctl, [SET_FLAGS, NOWHERE])),
        "flags-by-descriptor-junk" => return Ok(by_descriptor(&file, libc::SYS_ioctl, [JUNK | SET_FLAGS, NOWHERE])),
        "project-by-descriptor" => return Ok(by_descriptor(&file, libc::SYS_ioctl, [SET_PROJECT, NOWHERE])),
        "utimes-by-descriptor" => return Ok(by_descriptor(&file, libc::SYS_utimensat, [0, 0])),
        _ => {}
    }
    let raw = plain(word(0)).or_else(|| on_file(word(0), &file, &other));
    let (number, args) = raw.ok_or_else(|| format!("no probe is called '{}'", word(0)))?;
    Ok(answer(make(number, args)))
}

fn make(number: i64, args: [u64; 6]) -> i64 {
    let [a, b, c, d, e, f] = args;
    // SAFETY: every pointer among the arguments is to a live C string, or to page 0, which is never mapped, so that the
    // call fails with EFAULT. None of the calls writes to this process's memory, and only that of `fork` returns twice.
    unsafe { libc::syscall(number, a, b, c, d, e, f) }
}

fn answer(value: i64) -> String {
    if value >= 0 {
        return "ok".to_owned();
    }
    let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    super::errno_name(errno)
}

/// Forks a process that ends at once.
fn fork(flags: u64) -> String {
    let pid = make(libc::SYS_clone, call([flags]));
    if pid == 0 {
        // SAFETY: without CLONE_VM the child has its own memory; _exit runs none of the parent's handlers.
        unsafe { libc::_exit(0) }
    }
    let answer = answer(pid);
    if pid > 0 {
        let _ = super::process::wait(pid as i32);
    }
    answer
}

fn unix_connect(path: &std::ffi::OsStr) -> String {
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => "ok".to_owned(),
        Err(error) => error.raw_os_error().map_or_else(|| error.to_string(), super::errno_name),
    }
}

/// Changes a file through a descriptor that was opened for reading only.
fn by_descriptor(file: &CString, number: i64, rest: [u64; 2]) -> String {
    let fd = make(libc::SYS_openat, call([HERE, file.as_ptr() as u64, libc::O_RDONLY as u64]));
    if fd < 0 {
        return answer(fd);
    }
    answer(make(number, call([fd as u64, rest[0], rest[1]])))
}
