//! A terminal: the command uses it as without gatekeeper, also under the job control of an interactive shell.

use super::{Place, mark, none_left, users};
use crate::support::{Done, probe, skip};

/// The users, each without and with the flags for bubblewrap.
fn scenes() -> Vec<(Option<u32>, &'static str)> {
    let ways: &[&str] = if crate::isolate::works() { &["", "--isolate required"] } else { &[""] };
    users().into_iter().flat_map(|user| ways.iter().map(move |way| (user, *way))).collect()
}

/// Types into an interactive bash, where `$G` is gatekeeper and `$W` the flags of the scene.
#[track_caller]
fn at_a_shell((user, way): (Option<u32>, &str), steps: &[&str]) -> Done {
    let place = Place::new(user);
    let mut words: Vec<&str> = vec!["<ready$ "];
    words.extend(steps);
    words.extend([">exit 0\\r", "--", "bash", "--norc", "--noprofile", "-i"]);
    let mut command = place.any(&probe("pty", &[]), &words);
    command.env("PS1", "ready$ ").env("TERM", "xterm").env("G", super::gatekeeper()).env("W", way);
    let done = crate::support::run(&mut command);
    done.exits(0);
    done
}

#[test]
fn the_command_has_the_terminal() {
    for scene in scenes() {
        at_a_shell(
            scene,
            &[
                ">\"$G\" run $W -c 'test -t 0 && test -t 1 && test -t 2 && echo has-\"all\"; tty; stty size'\\r",
                "<has-all",
                // Inside bubblewrap the terminal is /dev/console.
                "</dev/",
                "<24 80",
                "<ready$ ",
            ],
        );
    }
}

#[test]
fn control_c_interrupts_the_command() {
    for scene in scenes() {
        at_a_shell(
            scene,
            &[
                ">\"$G\" run $W -p write -c 'echo up-\"now\"; sleep 60; echo never-\"shown\"'\\r",
                "<up-now",
                // A shell that is just starting its next command may miss the signal, with or without gatekeeper.
                "?sleep",
                ">\\x03",
                "<ready$ ",
                ">echo code=$?\\r",
                "<code=130",
                // A command that handles the signal continues, and receives it once per key press.
                ">\"$G\" run $W -p write -c 'add() { n=$((n+1)); echo asked-$n; }; n=0; trap add INT; echo up-\"again\"; while [ $n -lt 2 ]; do sleep 60; done; exit 4'\\r",
                "<up-again",
                "?sleep",
                ">\\x03",
                "<asked-1",
                "?sleep",
                ">\\x03",
                "<asked-2",
                "<ready$ ",
                ">echo code=$?\\r",
                "<code=4",
            ],
        );
    }
}

#[test]
fn control_z_stops_it_and_fg_continues_it() {
    for scene in scenes() {
        let done = at_a_shell(
            scene,
            &[
                ">\"$G\" run $W -p write -c 'echo up-\"now\"; read word; echo got-\"$word\"'\\r",
                "<up-now",
                "?sh",
                ">\\x1a",
                "<Stopped",
                "<ready$ ",
                ">jobs\\r",
                "<Stopped",
                "<ready$ ",
                ">fg\\r",
                // The shell gives the terminal back in the state in which the job left it.
                "?sh",
                ">hello\\r",
                "<got-hello",
                "<ready$ ",
                // Stop it twice, and continue it in the background.
                ">\"$G\" run $W -p write -c 'echo up-\"two\"; while [ ! -e go ]; do sleep 0.1; done; echo slept-\"well\"; exit 5'\\r",
                "<up-two",
                "?sleep",
                ">\\x1a",
                "<Stopped",
                ">bg\\r",
                ">: >go\\r",
                "<slept-well",
                ">wait %1; echo code=$?\\r",
                "<code=5",
            ],
        );
        assert!(!done.stdout().contains("gatekeeper:"), "{done}");
    }
}

/// The kernel stops the whole job when it reads the terminal: gatekeeper must not stop it again after it was continued.
#[test]
fn a_job_that_stopped_in_the_background_comes_to_the_foreground() {
    for scene in scenes() {
        at_a_shell(
            scene,
            &[
                ">\"$G\" run $W -p write -c 'read word; echo got-\"$word\"; exit 4' &\\r",
                "!sh",
                ">fg\\r",
                "?sh",
                ">hello\\r",
                "<got-hello",
                "<ready$ ",
                ">echo code=$?\\r",
                "<code=4",
                // And one that writes where the terminal lets only the foreground write.
                ">stty tostop; \"$G\" run $W -p write -c 'echo wro\"te\"; exit 3' &\\r",
                "!sh",
                ">fg\\r",
                "<wrote",
                "<ready$ ",
                ">echo code=$?\\r",
                "<code=3",
            ],
        );
    }
}

/// A process that has left the job, and whose first thread has exited, is stopped with the others.
#[test]
fn a_stopped_job_does_not_run_on_without_its_supervisor() {
    let leaderless = probe("leaderless", &[]);
    for user in users() {
        at_a_shell(
            (user, ""),
            &[
                &format!(">\"$G\" run -p write -- {} ticks ticks\\r", leaderless.display()),
                "<Stopped",
                "<ready$ ",
                ">sleep 0.5; before=$(wc -c <ticks); sleep 1; echo ran-$(( $(wc -c <ticks) - before ))-ticks\\r",
                "<ran-0-ticks",
                ">fg\\r",
                "<ready$ ",
                ">echo code=$?\\r",
                "<code=0",
            ],
        );
    }
}

/// Without the filter and Landlock the guardian continues a front process that the command has stopped. Ctrl-Z is something else.
#[test]
fn a_job_that_may_signal_its_guardian_stays_stopped() {
    for user in users() {
        at_a_shell(
            (user, ""),
            &[
                ">\"$G\" run -p unrestricted --timeout 300s -c 'echo up-\"now\"; setsid sleep 250 & read word; echo got-\"$word\"'\\r",
                "<up-now",
                "?sh",
                ">\\x1a",
                "<Stopped",
                "<ready$ ",
                ">sleep 1.5; jobs\\r",
                "<Stopped",
                "<ready$ ",
                ">fg\\r",
                "?sh",
                ">hello\\r",
                "<got-hello",
                "<ready$ ",
            ],
        );
    }
}

#[test]
fn a_window_that_changes_is_told() {
    for scene in scenes() {
        at_a_shell(
            scene,
            &[
                ">\"$G\" run $W -p write -c 'trap \"stty size\" WINCH; echo up-\"now\"; while :; do sleep 60 & wait $!; done'\\r",
                "<up-now",
                "#33x77",
                "<33 77",
                "#44x99",
                "<44 99",
                "?sh",
                ">\\x03",
                "<ready$ ",
            ],
        );
    }
}

#[test]
fn raw_keys_arrive_as_they_are() {
    for scene in scenes() {
        at_a_shell(
            scene,
            &[
                // Raw mode, as in an editor: no echo, no signals, single keys.
                ">\"$G\" run $W -p write -- bash -c 'stty raw -echo; printf up-\"raw\"; keys=$(dd bs=1 count=5 2>/dev/null | od -An -tx1); stty sane; echo keys-$keys'\\r",
                "<up-raw",
                ">\\x03\\x1a\\x1b[A",
                "<03 1a 1b 5b 41",
                "<ready$ ",
                ">echo still-\"here\"\\r",
                "<still-here",
            ],
        );
    }
}

/// Without a shell that could continue it, a command ignores Control-Z, as it does without gatekeeper.
#[test]
fn control_z_without_a_shell_hangs_nobody() {
    let line = "echo up-\"now\"; read word; echo got-\"$word\"; exit 6";
    let steps = ["<up-now", "?sh", ">\\x1a", "<^Z", ">hello\\r", "<got-hello", "--"];
    let namespace = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"];
    for (user, way) in scenes() {
        let place = Place::new(user);
        let pty = probe("pty", &[]);
        let gatekeeper = super::gatekeeper().to_str().expect("text");
        let run: Vec<&str> =
            [gatekeeper, "run"].into_iter().chain(way.split_whitespace()).chain(["-p", "write", "-c", line]).collect();
        // As in a container: with the terminal inside, or with the terminal, session and group outside, where they have
        // no id in this PID namespace.
        let terminal = [&[pty.to_str().expect("text")], &steps[..]].concat();
        for words in [
            [&terminal, &run[..]].concat(),
            [&namespace, &terminal[..], &run].concat(),
            [&terminal, &namespace[..], &run].concat(),
        ] {
            let (program, rest) = words.split_first().expect("words");
            let done = crate::support::run(&mut place.any(program.as_ref(), rest));
            if done.stderr().contains("unshare failed") {
                skip("no user namespace can be created here");
            } else {
                done.exits(6);
            }
        }
    }
}

/// The shell's session has no id in a nested PID namespace.
#[test]
fn control_z_in_a_namespace_comes_back_to_the_shell() {
    for scene in scenes() {
        at_a_shell(
            scene,
            &[
                ">unshare --user --map-root-user --pid --fork --mount-proc \"$G\" run $W -p write -c 'echo up-\"now\"; read word; echo got-\"$word\"; exit 7'\\r",
                "<up-now",
                "?sh",
                ">\\x1a",
                "<Stopped",
                // The shell waits for unshare only, so a process that has not stopped yet could read what is typed.
                "!sh",
                "<ready$ ",
                ">fg\\r",
                "?sh",
                ">hello\\r",
                "<got-hello",
                "<ready$ ",
                ">echo code=$?\\r",
                "<code=7",
            ],
        );
    }
}

/// A background command that no shell can bring to the foreground must neither block nor retry for ever when it reads
/// the terminal.
#[test]
fn the_background_of_nobody_ends() {
    for scene in scenes() {
        at_a_shell(
            scene,
            &[
                ">(set -m; \"$G\" run $W --report told -p write -c 'read word; exit 6' </dev/tty &)\\r",
                ">until [ -s told ]; do sleep 0.1; done; echo it-\"ended\"\\r",
                "<it-ended",
            ],
        );
    }
}

/// SIGKILL to the whole job does not reach the guardian, which then ends processes that have left the job.
#[test]
fn a_killed_job_leaves_nothing() {
    for scene in scenes() {
        let mark = mark();
        let line =
            format!(">\"$G\" run $W -p write -c 'setsid sleep {mark} & echo up-\"now\"; sleep {mark}' </dev/null &\\r");
        at_a_shell(scene, &[&line, "<up-now", ">kill -9 %1; wait; echo job-\"gone\"\\r", "<job-gone"]);
        none_left(&mark);
    }
}

/// If the guardian cannot leave the job, nothing runs. If sessions cannot be queried, gatekeeper does not wait.
#[test]
fn an_outer_sandbox_that_refuses_sessions() {
    let cases = [(libc::SYS_setsid, "<process group", 125), (libc::SYS_getsid, "<up-now", 6)];
    for (user, (call, shows, code)) in users().into_iter().flat_map(|user| cases.map(|case| (user, case))) {
        let place = Place::new(user);
        let (outer, rule) = (probe("outer", &[]), format!("{call}=1"));
        let [outer, gatekeeper] = [&outer, super::gatekeeper()].map(|path| path.to_str().expect("text"));
        let words =
            [shows, "--", outer, &rule, "--", gatekeeper, "run", "-p", "write", "-c", "echo up-\"now\"; exit 6"];
        crate::support::run(&mut place.any(&probe("pty", &[]), &words)).exits(code);
    }
}

/// Pipelines with only one end on the terminal.
#[test]
fn pipelines_keep_their_ends() {
    for scene in scenes() {
        at_a_shell(
            scene,
            &[
                ">echo one | \"$G\" run $W -- cat | tr a-z A-Z\\r",
                "<ONE",
                "<ready$ ",
                ">\"$G\" run $W -- yes | head -n 1; echo codes=${PIPESTATUS[*]}\\r",
                "<codes=141 0",
            ],
        );
    }
}
