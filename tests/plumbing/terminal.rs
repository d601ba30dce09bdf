//! A terminal: the command has it as if nobody were in between, also under the job control of an interactive shell.

use super::{Place, mark, none_left, users};
use crate::support::{Done, probe, skip};

/// Who is at the terminal, and the flags that put bubblewrap around the command or do not.
fn scenes() -> Vec<(Option<u32>, &'static str)> {
    let ways: &[&str] = if crate::isolate::works() { &["", "--isolate required"] } else { &[""] };
    users().into_iter().flat_map(|user| ways.iter().map(move |way| (user, *way))).collect()
}

/// Types at an interactive bash; `$G` stands for gatekeeper, and `$W` for the flags of the scene.
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
                // In there bubblewrap shows it as the console.
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
                // A shell that is just starting its next command may miss it, with us or without.
                "?sleep",
                ">\\x03",
                "<ready$ ",
                ">echo code=$?\\r",
                "<code=130",
                // A command that handles it goes on, and is told once each time.
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
                // The shell gives the terminal back, in the state that the job left it in.
                "?sh",
                ">hello\\r",
                "<got-hello",
                "<ready$ ",
                // Twice, and into the background.
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
                // As an editor does: no echo, no signals, key by key.
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

/// Nobody is there to continue a command that stops: it goes on, as it would without gatekeeper.
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
        // As in a container: the terminal inside with us, or outside with the session and the group, which have no number then.
        let terminal = [&[pty.to_str().expect("text")], &steps[..]].concat();
        for words in [
            [&terminal, &run[..]].concat(),
            [&namespace, &terminal[..], &run].concat(),
            [&terminal, &namespace[..], &run].concat(),
        ] {
            let (program, rest) = words.split_first().expect("words");
            let done = crate::support::run(&mut place.any(program.as_ref(), rest));
            if done.stderr().contains("unshare failed") {
                skip("no user namespaces here");
            } else {
                done.exits(6);
            }
        }
    }
}

/// The shell's session has no number in a PID namespace that was made inside of it.
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
                // The shell waits for unshare alone, and what has not stopped yet may read what is typed.
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

/// In the background, and nobody left who could bring it to the front: who reads the terminal all the same does not wait for
/// ever, nor try for ever.
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

/// SIGKILL to the whole job: the guardian is not in it, and ends what has left it.
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

/// A guardian that cannot leave the job is no guardian: nothing is run. Sessions that cannot be asked for are no reason to wait.
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

/// A pipeline of which only one end is the terminal.
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
