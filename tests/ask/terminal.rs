//! `--ask`: the user at the terminal answers, also while the command uses it.

use crate::plumbing::{Place, users};
use crate::support::{Done, has, probe};
use std::fs;

/// Runs gatekeeper on a new terminal, and performs the steps of tests/probes/pty.c.
#[track_caller]
fn on_a_terminal(place: &Place, steps: &[&str], words: &[&str]) -> Done {
    let gatekeeper = crate::support::gatekeeper_for_all().to_str().expect("text");
    let all: Vec<&str> =
        steps.iter().copied().chain(["--", gatekeeper, "run", "--ask"]).chain(words.iter().copied()).collect();
    let mut command = place.any(&probe("pty", &[]), &all);
    command.env("TERM", "xterm");
    crate::support::run(&mut command)
}

#[test]
fn each_key_does_what_it_says() {
    for user in users() {
        let place = Place::new(user);
        let home = place.at("home");
        let line = format!("for i in 1 2 3; do echo x > {}/$i; done; ls {}", home.display(), home.display());
        let made = |steps: &[&str]| {
            for name in ["1", "2", "3"] {
                let _ = fs::remove_file(home.join(name));
            }
            on_a_terminal(&place, steps, &["--profile", "write", "-c", &line]).exits(0);
            let there = |name: &&str| home.join(name).exists();
            ["1", "2", "3"].into_iter().filter(there).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            made(&[
                "</1;",
                "<more: ",
                ">y",
                "</2;",
                "<more: ",
                ">n",
                "</3;",
                "<more: ",
                ">x?",
                "<flag for next time: --write",
                "<more: ",
                ">a"
            ]),
            "1 3"
        );
        assert_eq!(made(&["</1;", "<more: ", ">y", "</2;", "<more: ", ">d"]), "1");
    }
}

#[test]
fn a_grant_goes_into_the_policy_file() {
    let place = Place::new(None);
    let (home, policy) = (place.at("home"), place.at("p.toml"));
    fs::write(&policy, "# mine\nprofile = \"write\"\n").expect("own directory");
    let line = format!("echo x > {}/x", home.display());
    let words = ["--config", policy.to_str().expect("text"), "-c", &line];
    on_a_terminal(&place, &["<more: ", ">p"], &words).exits(0);
    let text = fs::read_to_string(&policy).expect("still there");
    assert!(text.starts_with("# mine\nprofile = \"write\"\n") && text.contains(home.to_str().expect("text")), "{text}");
    let plain: Vec<&str> = ["run"].into_iter().chain(words).collect();
    place.run(&plain).exits(0);
}

#[test]
fn names_cannot_draw_on_the_terminal() {
    let place = Place::new(None);
    let name = format!("{}/a\u{1b}[2J\n\u{202e}b", place.at("home").display());
    let done = on_a_terminal(
        &place,
        &["<a\\u{1b}[2J\\n\\u{202e}b;", "<more: ", ">n"],
        &["--profile", "write", "--", "touch", &name],
    );
    done.exits(1);
}

#[test]
fn control_c_ends_the_question_and_the_command() {
    let place = Place::new(None);
    let line = format!("echo x > {}/x; echo never", place.at("home").display());
    let done = on_a_terminal(&place, &["<more: ", ">\\x03"], &["--profile", "write", "-c", &line]);
    done.exits(130);
    assert!(!place.at("home/x").exists());
}

#[test]
fn the_terminal_is_as_it_was_and_job_control_goes_on() {
    if !has("bash") {
        return;
    }
    let place = Place::new(None);
    let line = format!(
        "stty -icanon -echo; echo x > {0}/1; stty -a | grep -o -e '-icanon' -e '-echo '; stty icanon echo; \
         set -m; (echo y > {0}/2); jobs; echo after-\"all\"; read word; echo got-$word",
        place.at("home").display()
    );
    let steps = ["</1;", "<more: ", ">y", "<-icanon", "</2;", "<more: ", ">y", "<after-all", ">hello\\r", "<got-hello"];
    on_a_terminal(&place, &steps, &["--profile", "write", "--", "bash", "--norc", "-c", &line]).exits(0);
    assert!(place.at("home/1").exists() && place.at("home/2").exists());
}

/// The kernel sends the SIGCONT of a timer to a stopped process too. What it then draws must not get a yes.
#[test]
fn a_command_that_draws_over_the_question_gets_no_yes() {
    if !has("python3") {
        return;
    }
    let place = Place::new(None);
    let script = format!(
        "import ctypes, os, struct, time\n\
         libc = ctypes.CDLL(None, use_errno=True)\n\
         def continue_after(tenths):\n\
         \x20event = ctypes.create_string_buffer(struct.pack('<qii', 0, 18, 0), 64)\n\
         \x20timer = ctypes.c_void_p()\n\
         \x20assert libc.timer_create(0, event, ctypes.byref(timer)) == 0\n\
         \x20once = struct.pack('<qqqq', 0, 0, tenths // 10, tenths % 10 * 100000000)\n\
         \x20assert libc.timer_settime(timer, 0, ctypes.create_string_buffer(once, 32), None) == 0\n\
         if os.fork() == 0:\n time.sleep(0.3)\n open('{0}/x', 'w').close()\n os._exit(0)\n\
         for i in range(40): continue_after(15 + 4 * i)\n\
         end = time.time() + 60\n\
         while time.time() < end and os.waitpid(-1, os.WNOHANG)[0] == 0:\n\
         \x20os.write(1, b'\\r\\x1b[2KHARMLESS question, press y: ')\n\
         \x20time.sleep(0.01)\n",
        place.at("home").display()
    );
    // Many timers: one with an interval is not armed again while its process is stopped.
    // The first fake may be older than the question; the text of gatekeeper's notice comes after a fake of the stopped command.
    let steps = [
        "<more: ",
        "<HARMLESS",
        ">y",
        "<here it is again",
        "<HARMLESS",
        ">y",
        "<denied: the command does not stay stopped",
    ];
    on_a_terminal(&place, &steps, &["--profile", "write", "--", "python3", "-c", &script]);
    assert!(!place.at("home/x").exists());
}

/// SIGSTOP to a process waits for its first thread, which waits for the answer. The other threads have to stop too.
#[test]
fn a_program_with_several_threads_is_stopped_and_gets_its_yes() {
    if !has("python3") {
        return;
    }
    let place = Place::new(None);
    let script = format!(
        "import threading, time\n[threading.Thread(target=time.sleep, args=(3,)).start() for _ in range(3)]\n\
         open('{}/x', 'w').close(); print('writ' + 'ten')",
        place.at("home").display()
    );
    let steps = ["<more: ", ">y", "<written"];
    let done = on_a_terminal(&place, &steps, &["--profile", "write", "--", "python3", "-c", &script]);
    done.exits(0);
    assert!(!done.stdout().contains("here it is again"), "{done}");
    assert!(place.at("home/x").exists());
}

#[test]
fn a_title_that_was_begun_does_not_swallow_the_question() {
    let place = Place::new(None);
    let line = format!("printf '\\033]0;'; echo x > {}/x", place.at("home").display());
    let done = on_a_terminal(&place, &["<\x18\x1b\\", "<more: ", ">n"], &["--profile", "write", "-c", &line]);
    done.exits(2);
}

/// The session in docs/guide/ask.md, as the terminal showed it. Of the control characters only line ends are kept.
#[test]
fn the_session_in_the_guide_is_what_a_terminal_shows() {
    if !has("make") {
        return;
    }
    let place = Place::new(None);
    fs::write(place.at("work/Makefile"), "all:\n\techo built > app\n\tcp app ../out/app\n").expect("own directory");
    fs::create_dir(place.at("out")).expect("own directory");
    let done = on_a_terminal(
        &place,
        &["<more: ", ">?", "<next time: ", "<more: ", ">y"],
        &["--profile", "write", "--", "make"],
    );
    done.exits(0);
    let top = place.at("work").parent().expect("above").display().to_string();
    let shown = done.stdout().replace("\x18\x1b\\\x0f\x1b(B\x1b[0m", "").replace('\r', "").replace(&top, "/home/me");
    // The number of the process differs.
    let shown: Vec<String> = shown
        .split("(pid ")
        .enumerate()
        .map(|(at, part)| match at {
            0 => part.to_owned(),
            _ => format!("(pid 4711{}", part.trim_start_matches(|letter: char| letter.is_ascii_digit())),
        })
        .collect();
    let session = format!("```\n$ gatekeeper run --ask --profile write -- make\n{}```\n", shown.concat());
    let guide = include_str!("../../docs/guide/ask.md");
    assert!(guide.contains(&session), "docs/guide/ask.md should have:\n{session}");
    assert_eq!(fs::read_to_string(place.at("out/app")).expect("made"), "built\n");
}

/// What the command wrote could be another question, with the real one above the top of the screen.
#[test]
fn a_long_name_does_not_push_the_question_off_the_screen() {
    let place = Place::new(None);
    let fake = "wants to read harmless; y once, a for this run, n no, d deny the rest, ? more: ".repeat(3);
    fs::create_dir(place.at("work").join(fake.trim())).expect("own directory");
    let named = format!("{}../home/x", format!("{}/../", fake.trim()).repeat(12));
    let steps = [
        "<wants to write /",
        "<home/x (named wants to read harmless",
        "<characters ...]",
        "<../home/x); ",
        "<more: ",
        ">n",
    ];
    on_a_terminal(&place, &steps, &["--profile", "write", "--", "touch", &named]).exits(1);
    assert!(named.len() > 2000 && !place.at("home/x").exists());
}
