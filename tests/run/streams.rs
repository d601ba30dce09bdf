//! What the command inherits from the caller: streams, arguments, descriptors, signal dispositions.

use super::{Gate, NOTHING, act, finish, gatekeeper, unprivileged, users};
use crate::support::{gatekeeper_for_all, probe, run};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

#[test]
fn streams_are_the_callers_own() {
    for user in users() {
        let gate = Gate::new(*user).stdin("through\n");
        gate.run(["cat"]).exits(0).prints("through\n").complains("");
        let big: Vec<u8> = (0..3_000_000u32).map(|n| n as u8).collect();
        let done = Gate::new(*user).stdin(big.clone()).run(["cat"]);
        assert!(done.output.stdout == big);
    }
}

#[test]
fn closed_streams_are_nobodys_files() {
    let gate = Gate::new(unprivileged());
    for closed in ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"] {
        let mut command = Command::new("sh");
        let line = format!(r#"exec {closed}; exec "$@""#);
        command.args(["-c", &line, "sh"]).arg(gatekeeper()).args(["run", "--report", "report", "--", "sh", "-c"]);
        command.arg("test -e /dev/fd/0 -a -e /dev/fd/1 -a -e /dev/fd/2 && exit 9").current_dir(&gate.dir);
        super::become_user(&mut command, gate.user);
        finish(command, None).exits(9);
    }
}

/// A report that goes to a closed stream is one that cannot be written.
#[test]
fn a_report_to_a_closed_stream_is_refused() {
    let gate = Gate::new(unprivileged());
    for (closed, flags) in
        [("1>&-", "--report-fd 1"), ("0<&-", "--report-fd 0"), ("1>&-", "--json"), ("1>&-", "--report /dev/fd/1")]
    {
        let mut command = Command::new("sh");
        let line = format!(r#"exec {closed}; exec "$0" run {flags} -- touch ran"#);
        command.args(["-c", &line]).arg(gatekeeper()).current_dir(&gate.dir);
        super::become_user(&mut command, gate.user);
        let done = finish(command, None);
        done.exits(125);
        assert!(done.stderr().contains("Bad file descriptor") && done.stderr().contains("nothing was run"), "{done}");
        assert!(!gate.dir.join("ran").exists());
    }
}

/// A terminal that is closed signals the leader of its session, which is gatekeeper if a program opened the terminal for it.
#[test]
fn a_closed_terminal_ends_the_command() {
    let script = "import os, pty, signal, sys, time\n\
                  signal.alarm(60)\n\
                  pid, master = pty.fork()\n\
                  if pid == 0: os.execv(sys.argv[1], sys.argv[1:])\n\
                  assert b'ready' in os.read(master, 100)\n\
                  os.close(master)\n\
                  print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n";
    for user in users() {
        let gate = Gate::new(*user);
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", script]).arg(gatekeeper_for_all());
        command.args(["run", "--profile", "read", "-q", "-c", "echo ready; exec sleep 600"]).current_dir(&gate.dir);
        super::become_user(&mut command, gate.user);
        finish(command, None).exits(0).prints("129\n");
    }
}

#[test]
fn huge_words_and_environments_pass_or_are_refused_as_a_whole() {
    for user in users() {
        let word = "x".repeat(100_000);
        let words: Vec<&str> = std::iter::once("echo").chain(std::iter::repeat_n(word.as_str(), 10)).collect();
        let done = Gate::new(*user).run(&words);
        assert_eq!(done.exits(0).output.stdout.len(), 10 * 100_001);
        let gate = Gate::new(*user).env("BIG", "y".repeat(120_000)).flags(["--env", "BIG"]);
        gate.run(["sh", "-c", "echo ${#BIG}"]).exits(0).prints("120000\n");
        // With the arguments of gatekeeper itself, more than the kernel accepts: nothing runs, and the step is named.
        let many: Vec<String> = (0..30_000).map(|n| format!("word-{n}")).collect();
        let done = Gate::new(*user).run(std::iter::once("echo").chain(many.iter().map(String::as_str)));
        assert!(done.exits(0).stdout().ends_with("word-29999\n"));
    }
}

#[test]
fn words_need_not_be_text() {
    use std::os::unix::ffi::OsStrExt;
    for user in users() {
        let word = std::ffi::OsStr::from_bytes(b"a\xff\xfeb");
        let (done, report) = Gate::new(*user).report([std::ffi::OsStr::new("printf"), "%s".as_ref(), word]);
        assert_eq!(done.exits(0).output.stdout, b"a\xff\xfeb");
        assert_eq!(report["command"][2], "a\u{fffd}\u{fffd}b");
        let gate = Gate::new(*user).env("LC_ODD", std::ffi::OsStr::from_bytes(b"\xff"));
        assert_eq!(gate.run(["sh", "-c", "printf %s \"$LC_ODD\""]).exits(0).output.stdout, b"\xff");
    }
}

/// The command inherits the caller's signal mask and ignored signals as without gatekeeper, and none of gatekeeper's
/// own.
#[test]
fn signal_dispositions_are_the_callers() {
    let gate = Gate::new(unprivileged());
    let line = "grep -E '^Sig(Blk|Ign|Cgt)|^ShdPnd' /proc/self/status";
    // pre_exec forces a fork, as for gatekeeper below: posix_spawn would change the mask.
    let plain = {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        // SAFETY: the closure does nothing.
        unsafe { command.pre_exec(|| Ok(())) };
        run(&mut command).stdout()
    };
    let mut command = gate.flags(["-c", line]).command(NOTHING);
    // SAFETY: the closure does nothing.
    unsafe { command.pre_exec(|| Ok(())) };
    finish(command, None).exits(0).prints(&plain);
    let nohup = Gate::new(unprivileged()).under(["nohup"]);
    let done = nohup.flags(["-c", line]).run(NOTHING);
    let text = done.stdout();
    let ignored = text.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).expect("a line");
    // Check only SIGHUP: tests that a shell starts in the background ignore two more signals.
    assert_eq!(u64::from_str_radix(ignored, 16).expect("a mask") & 1, 1, "{done}");
}

/// The C libraries keep some real-time signals for themselves, and leave them out of the masks that they set.
#[test]
fn signals_of_the_c_library_stay_blocked_and_reach_no_guardian() {
    // Signals 32, 33, 34 and 40.
    const BLOCKED: u64 = 0b111 << 31 | 1 << 39;
    let block = || {
        // SAFETY: the kernel reads eight bytes of a constant.
        let set =
            unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &BLOCKED, 0usize, size_of::<u64>()) };
        if set == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    let blocked = |status: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:\t")).expect("a line");
        u64::from_str_radix(line, 16).expect("a mask")
    };
    let status = |pid: &str| fs::read_to_string(format!("/proc/{pid}/status"));
    let mut command = Gate::new(unprivileged()).command(["cat", "/proc/self/status", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    // SAFETY: the closure makes one syscall.
    unsafe { command.pre_exec(block) };
    let mut front = command.spawn().expect("gatekeeper starts");
    let mut printed = BufReader::new(front.stdout.take().expect("piped"));
    let mut line = String::new();
    while !line.starts_with("SigBlk") {
        line.clear();
        assert_ne!(printed.read_line(&mut line).expect("text"), 0, "the command prints its status");
    }
    assert_eq!(blocked(&line), BLOCKED, "of the command");
    let pid = front.id();
    let guardian = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("its child");
    // All that can be blocked.
    let all = !(1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1));
    assert_eq!(blocked(&status(guardian.trim()).expect("it waits")), all, "of the guardian");
    drop(front.stdin.take());
    drop(printed);
    front.wait().expect("own child");
}

/// The command inherits no descriptor above 2, not even a directory that the caller leaked.
#[test]
fn descriptors_above_two_are_closed() {
    let gate = Gate::new(unprivileged());
    let act = act();
    let mut command = Command::new("sh");
    command.args(["-c", r#"exec 3</ 7</etc/passwd 9<.; exec "$@""#, "sh"]).arg(gatekeeper()).args(["run", "--"]);
    command.arg(&act).args(["fd", "3", ",", "fd", "7", ",", "fd", "9", ",", "fd", "0", ",", "fd", "2"]);
    command.current_dir(&gate.dir);
    super::become_user(&mut command, gate.user);
    finish(command, None).exits(0).prints("fd 9\nfd 9\nfd 9\nfd 0\nfd 0\n");
    // Nor the descriptors of the filter and the launcher; 3 is ls's own.
    let ls = Gate::new(unprivileged()).run(["ls", "/proc/self/fd"]);
    ls.exits(0).prints("0\n1\n2\n3\n");
}

/// A caller with many open descriptors and a low limit still gets a run.
#[test]
fn a_caller_with_a_low_limit_of_files_is_served() {
    let gate = Gate::new(unprivileged());
    let mut command = Command::new("sh");
    command.args(["-c", r#"ulimit -n 24; exec "$@""#, "sh"]).arg(gatekeeper()).args(["run", "--", "echo", "ran"]);
    command.current_dir(&gate.dir);
    super::become_user(&mut command, gate.user);
    finish(command, None).exits(0).prints("ran\n");
}

/// Odd characters in the command's name, and an empty argv[0] of gatekeeper, do no harm.
#[test]
fn zero_words_and_odd_names() {
    let gate = Gate::new(unprivileged());
    let copy = gate.dir.join("a b'c\n$(d)");
    fs::copy(probe("act", &[]), &copy).unwrap();
    gate.run([copy.as_os_str(), "tcp".as_ref()]).exits(0).prints("tcp 97\n");
    let mut command = gate.command(["./a b'c\n$(d)"]);
    command.arg0("");
    finish(command, None).exits(0);
}
