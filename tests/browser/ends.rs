//! How a browser starts and ends: exit codes, signals, leftovers, two at once, and without bubblewrap.

use super::{Desk, QUIET, layer, ready};
use crate::plumbing::{eventually, marked, signal};
use crate::support::run;
use serde_json::json;
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

/// A word that only the command line of this test's browser contains.
fn mark(desk: &Desk) -> String {
    desk.profile().display().to_string()
}

#[test]
fn killing_gatekeeper_leaves_no_browser() {
    if !ready() {
        return;
    }
    let desk = Desk::plain();
    let mut browser = desk.driven(&[], &[]);
    browser.open("data:text/html,x");
    assert!(marked(&mark(&desk)).len() > 3, "gatekeeper, the browser and its children");
    signal(browser.child.id(), "KILL");
    eventually("every process has ended", || marked(&mark(&desk)).is_empty());
    let status = browser.wait();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL));
}

#[test]
fn a_signal_reaches_the_browser_and_its_code_comes_back() {
    if !ready() {
        return;
    }
    // Chromium closes cleanly on SIGTERM. On an overloaded machine it was once seen to die by SIGILL instead, for an
    // unknown reason.
    let closed = (0..5).any(|_| {
        let desk = Desk::plain();
        let mut browser = desk.driven(&[], &[]);
        browser.open("data:text/html,x");
        signal(browser.child.id(), "TERM");
        let code = browser.wait().code();
        eventually("every process has ended", || marked(&mark(&desk)).is_empty());
        let report = desk.report();
        assert_eq!(json!(code), report["exit_code"]);
        match code {
            Some(0) => assert_eq!(report["outcome"], json!("exited")),
            other => assert_eq!(other, Some(128 + libc::SIGILL), "{report:#}"),
        }
        code == Some(0)
    });
    assert!(closed, "it never came to close in order");

    let desk = Desk::plain();
    run(desk.bare(&[]).arg("--").arg(desk.script("exit 7"))).exits(7);
    run(desk.bare(&[]).arg("--").arg(desk.script("kill -9 $$"))).exits(137);
    run(desk.bare(&[]).args(["--", "no-such-browser"])).exits(127);
}

#[test]
fn a_renderer_that_crashes_takes_nothing_with_it() {
    if !ready() {
        return;
    }
    let desk = Desk::plain();
    let mut browser = desk.driven(&[], &[]);
    let kept = browser.open("data:text/html,kept");
    let renderers = || {
        let all = marked("--type=renderer").into_iter();
        let words = |pid: i32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        all.filter(|pid| String::from_utf8_lossy(&words(*pid)).contains(&mark(&desk))).count()
    };
    let before = renderers();
    for _ in 0..3 {
        let page = browser.open("data:text/html,crashing");
        let _ = browser.try_call("Target.closeTarget", json!({"targetId": page.target}), None);
    }
    let page = browser.open("data:text/html,crashing");
    browser.call_in(&page, "Inspector.enable", json!({}));
    let session = page.session.clone();
    // No answer comes, because the renderer has crashed.
    browser.post("Page.crash", &session);
    browser.event_of(&page, "Inspector.targetCrashed");
    browser.call("Target.closeTarget", json!({"targetId": page.target}));
    assert_eq!(browser.eval(&kept, "document.body.textContent"), "kept");
    // Chromium keeps some spare renderers.
    eventually("no more renderers than at first, and some spare ones", || renderers() <= before + 3);
    assert_eq!(browser.close().code(), Some(0));
    eventually("every process has ended", || marked(&mark(&desk)).is_empty());
}

#[test]
fn two_at_once_and_a_private_profile_leave_nothing() {
    if !ready() {
        return;
    }
    let desk = Desk::plain();
    let start = || {
        let mut command = desk.place.command(&["browser", "--quiet", "--", "chromium", "--headless"]);
        command.args(QUIET).arg("--remote-debugging-pipe").stdout(Stdio::null()).stderr(Stdio::null());
        super::cdp::Browser::start(&mut command)
    };
    let (mut one, mut other) = (start(), start());
    let (here, there) = (one.open("data:text/html,one"), other.open("data:text/html,other"));
    assert_eq!(one.eval(&here, "document.body.textContent"), "one");
    assert_eq!(other.eval(&there, "document.body.textContent"), "other");
    assert_eq!((one.close().code(), other.close().code()), (Some(0), Some(0)));
    for name in ["home", "tmp", "work"] {
        let left: Vec<PathBuf> =
            fs::read_dir(desk.place.at(name)).expect("own").flatten().map(|entry| entry.path()).collect();
        assert_eq!(left, Vec::<PathBuf>::new(), "{name}");
    }
}

#[test]
fn without_bubblewrap_it_is_refused_or_one_warning_and_the_other_layers() {
    if !ready() {
        return;
    }
    let desk = Desk::plain();
    let config = desk.place.at("home").join("agent.json");
    // A program that another user could have written is not executed as bubblewrap.
    let planted = desk.script("touch planted; exit 1");
    let text = json!({"browser": {"sandbox": {"bwrapPath": planted}}}).to_string();
    fs::write(&config, text).expect("own");
    let config = config.to_str().expect("text");
    let secret = desk.place.at("home").join("secret.html");
    fs::write(&secret, "<p>the contents</p>").expect("own");

    let refused = desk.dump(&["--config", config, "--require-sandbox"], "data:text/html,x");
    refused.exits(125);
    let report = desk.report();
    assert!(
        report["error"].as_str().is_some_and(|error| error.contains("bubblewrap does not work here")),
        "{report:#}"
    );

    let fallen = |url: &str| {
        let mut command = desk.place.command(&["browser", "--config", config, "--profile-dir"]);
        command.arg(desk.profile()).arg("--report").arg(desk.report_file()).args(["--", "chromium", "--headless"]);
        // A short TMPDIR, because the path of a socket below it may have 107 bytes.
        run(command.args(QUIET).args(["--dump-dom", url]).env("TMPDIR", "/tmp"))
    };
    let done = fallen("data:text/html,<p>loaded</p>");
    done.exits(0);
    assert!(done.stdout().contains("<p>loaded</p>"), "{done}");
    let warnings: Vec<String> =
        done.stderr().lines().filter(|line| line.starts_with("gatekeeper: ")).map(str::to_owned).collect();
    assert_eq!(warnings.len(), 1, "{done}");
    assert!(warnings[0].starts_with("gatekeeper: warning: not isolated, bubblewrap does not work here"), "{done}");
    let report = desk.report();
    // Shared memory is private even without bubblewrap.
    let (status, detail) = layer(&report, "namespaces");
    assert!(status == "partial" && detail.starts_with("bubblewrap does not work here"), "{report:#}");
    assert_eq!((layer(&report, "seccomp").0, layer(&report, "landlock").0), ("enforced", "enforced"), "{report:#}");
    for hidden in [secret.display().to_string(), "/etc/passwd".to_owned()] {
        let done = fallen(&format!("file://{hidden}"));
        assert!(!done.stdout().contains("the contents") && !done.stdout().contains(":x:0:"), "{done}");
        assert!(done.stderr().contains("ERR_ACCESS_DENIED") || done.stderr().contains("ERR_FILE_NOT_FOUND"), "{done}");
    }
}

#[test]
fn the_report_tells_when_the_inner_sandbox_is_off() {
    if !ready() {
        return;
    }
    let desk = Desk::plain();
    // Libraries pass --no-sandbox by default. It weakens nothing.
    run(&mut desk.browser(&[], &["--no-sandbox", "--dump-dom", "data:text/html,x"])).exits(0);
    assert_eq!(desk.report()["browser"]["inner_sandbox"], "on");
    run(&mut desk.browser(&["--no-inner-sandbox"], &["--dump-dom", "data:text/html,x"])).exits(0);
    let report = desk.report();
    assert_eq!(report["browser"]["inner_sandbox"], "off", "{report:#}");
    let detail = report["browser"]["detail"].as_str().expect("text");
    assert!(detail.ends_with("; asked for by --no-inner-sandbox"), "{detail}");
    assert_eq!((layer(&report, "seccomp").0, layer(&report, "namespaces").0), ("enforced", "enforced"));
}

#[test]
fn settings_that_switch_it_off_are_obeyed_with_a_warning() {
    let desk = Desk::plain();
    let config = desk.place.at("home").join("agent.toml");
    fs::write(&config, "[browser.sandbox]\nenabled = false\n").expect("own");
    let mut command = desk.place.command(&["browser", "--config"]);
    command.arg(&config).arg("--report").arg(desk.report_file()).args(["--", "/bin/sh", "-c", "echo $HOME"]);
    let done = run(&mut command);
    done.exits(0).prints(&format!("{}\n", desk.place.at("home").display()));
    done.complains("gatekeeper: warning: the browser is not confined: browser.sandbox.enabled is false\n");
    assert_eq!(layer(&desk.report(), "seccomp").0, "off");
    fs::write(&config, "[browser.sandbox]\nenable = false\n").expect("own");
    let mut command = desk.place.command(&["browser", "--config"]);
    let wrong = run(command.arg(&config).args(["--", "/bin/true"]));
    wrong.exits(125);
    assert!(wrong.stderr().contains("browser.sandbox.enabled"), "{wrong}");
}

#[test]
fn a_profile_that_is_not_the_browsers_is_refused() {
    let desk = Desk::plain();
    for elsewhere in [desk.place.at("home"), desk.workspace(), PathBuf::from("/etc")] {
        fs::write(desk.place.at("home").join("file"), "x").expect("own");
        fs::write(desk.workspace().join("file"), "x").expect("own");
        let words = format!("--user-data-dir={}", elsewhere.display());
        let done = run(desk.bare(&[]).args(["--", "/bin/true", &words]));
        done.exits(126);
        let report = desk.report();
        assert!(report["error"].as_str().is_some_and(|error| error.contains("--profile-dir")), "{report:#}");
    }
    // A profile that an automation library has created, and one in the browser's own directory.
    let made = desk.place.at("tmp").join("automation-1");
    fs::create_dir(&made).expect("own");
    std::os::unix::fs::chown(&made, desk.place.user, desk.place.user).expect("own, or root's to give");
    for own in [made, desk.profile().join("second")] {
        let script = "for word; do :; done; d=${word#*=}; mkdir -p $d && echo x > $d/file";
        let words = format!("--user-data-dir={}", own.display());
        run(desk.bare(&[]).args(["--", "/bin/sh", "-c", script, "sh", &words])).exits(0);
        assert!(own.join("file").exists(), "{}", own.display());
    }
}
