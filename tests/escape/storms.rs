//! Many calls at once: guesses, floods, and signals while the supervisor handles a call.

use super::scene::attacker;
use crate::run::{Gate, denials, users};
use crate::support::probe;

fn counted(report: &serde_json::Value, syscall: &str) -> u64 {
    let counts = denials(report, syscall).into_iter().map(|denial| denial["count"].as_u64().expect("a number"));
    counts.sum::<u64>() + report["denials_dropped"].as_u64().unwrap_or(0)
}

/// 2^20 guesses if the filter itself answers, which is fast, and 2^12 if each goes to the supervisor.
#[test]
fn secret_addresses_are_not_guessed() {
    let attacker = attacker();
    let attacker = attacker.to_str().expect("text");
    for user in users() {
        let outer = probe("outer", &[]);
        let gate = Gate::new(*user).flags(["--quiet", "--deny", "sendmsg"]);
        gate.run([attacker, "guess", "4096"]).exits(0).prints("4096 4096\n");
        let gate = Gate::new(*user).flags(["--quiet", "--deny", "sendmsg"]);
        let done = gate.under([outer.to_str().expect("text"), "listen", "--"]).run([attacker, "guess", "1048576"]);
        done.exits(0).prints("1048576 1048576\n");
    }
}

#[test]
fn a_flood_of_denied_calls_is_refused_and_counted_to_the_last() {
    let attacker = attacker();
    for user in users() {
        let (done, report) = Gate::new(*user).report([attacker.to_str().expect("text"), "flood", "100", "50"]);
        done.exits(0).prints("5000\n");
        assert_eq!(counted(&report, "ptrace"), 5000, "{report:#}");
    }
}

/// A handled signal must not make the kernel discard the supervisor's answer and restart the call, which would count it
/// twice. The filter uses SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, which needs Linux 5.19.
#[test]
fn a_signal_does_not_make_one_call_two() {
    let attacker = attacker();
    for user in users() {
        let (done, report) = Gate::new(*user).report([attacker.to_str().expect("text"), "signals", "3000"]);
        done.exits(0).prints("3000 interrupted\n");
        assert_eq!(counted(&report, "ptrace"), 3000, "{report:#}");
    }
}

/// The report names the call that killed a process, even if a signal arrived while the supervisor handled it.
#[test]
fn a_signal_does_not_hide_the_call_that_kills() {
    let attacker = attacker();
    for user in users() {
        for round in 0..40 {
            let gate = Gate::new(*user).flags(["--on-violation", "kill"]);
            let (done, report) = gate.report([attacker.to_str().expect("text"), "signals", "3000"]);
            done.exits(159);
            assert_eq!(counted(&report, "ptrace"), 1, "round {round}: {report:#}");
        }
    }
}

/// A supervisor that runs out of descriptors refuses calls. It lets nothing through and does not hang.
#[test]
fn a_supervisor_out_of_descriptors_stays_closed() {
    let attacker = attacker();
    for user in users() {
        let gate = Gate::profile(*user, "write").under(["sh", "-c", "ulimit -n 64; exec \"$@\"", "sh"]);
        let done = gate.run([attacker.to_str().expect("text"), "exhaust", "150"]);
        done.exits(0).prints("exhausted closed\n");
    }
}
