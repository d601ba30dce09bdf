//! How a browser ends, and what is left of it.

use super::site::Site;
use super::{Browser, eventually, marked, open, options, ready};
use gatekeeperd::browser::{BrowserError, NoticeKind, Options, Reason};
use std::time::{Duration, Instant};

/// A port that only this test's browser has on its command line.
fn mark(site: &Site) -> String {
    format!("\"local_ports\":[{}]", site.port)
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_leaves_no_process_and_a_second_close_says_the_same() {
    if !ready() {
        return;
    }
    let site = Site::of(&[("/", "<title>x</title>")]);
    let browser = open(&site).await;
    assert!(!marked(&mark(&site)).is_empty());
    let closed = browser.close().await;
    assert_eq!((closed.gone, closed.ended.reason), (true, Reason::Closed), "{closed:?}");
    assert_eq!(marked(&mark(&site)), Vec::<String>::new());
    assert_eq!(browser.close().await.closed_at, closed.closed_at);
    let gone = browser.navigate(&site.url("/")).await.expect_err("closed");
    assert!(matches!(gone, BrowserError::Ended(_)), "{gone}");
    // Dropping the last handle is enough.
    drop(open(&site).await);
    eventually("every process has ended", || marked(&mark(&site)).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_is_said_and_the_session_goes_on_or_has_ended() {
    if !ready() {
        return;
    }
    let site = Site::of(&[("/", "<title>x</title>"), ("/big", "<title>big</title>")]);
    let browser = open(&site).await;
    browser.navigate(&site.url("/")).await.expect("loads");
    // The renderer: Chromium crashes it on this address, which navigate refuses, so kill it as the kernel would.
    let renderers = || {
        let own = children_of(&marked(&mark(&site)));
        own.into_iter().filter(|(_, line)| line.contains("--type=renderer")).collect::<Vec<_>>()
    };
    for (pid, _) in renderers() {
        kill(pid);
    }
    for _ in 0..100 {
        if browser.notices(0).iter().any(|notice| notice.kind == NoticeKind::Crash) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let crashed = browser.screenshot(false).await.err().expect("it crashed");
    assert!(matches!(crashed, BrowserError::Crashed), "{crashed}");
    assert_eq!(browser.navigate(&site.url("/big")).await.expect("a new renderer").title, "big");
    browser.screenshot(false).await.expect("a picture");
    // The browser itself.
    let main = children_of(&marked(&mark(&site)));
    let main = main.iter().find(|(_, line)| {
        line.contains("--remote-debugging-pipe") && !line.contains("--type=") && line.contains("chromium/chromium")
    });
    kill(main.expect("the browser").0);
    for _ in 0..200 {
        if browser.ended().is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let ended = browser.ended().expect("it ended");
    assert_eq!(ended.reason, Reason::Crashed, "{ended:?}");
    assert!(ended.detail.starts_with("the browser was ended by signal 9"), "{ended:?}");
    let error = browser.screenshot(false).await.err().expect("ended").to_string();
    assert!(error.starts_with("the browser has ended: the browser was ended by signal 9"), "{error}");
    assert!(browser.close().await.gone);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deadline_ends_a_session_and_a_missing_browser_does_not_begin_one() {
    if !ready() {
        return;
    }
    let site = Site::of(&[]);
    let short = Options { deadline: Some(Duration::from_secs(8)), ..options(&site) };
    let browser = Browser::open(short).await.expect("opens");
    let began = Instant::now();
    while browser.ended().is_none() && began.elapsed() < Duration::from_secs(40) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let ended = browser.ended().expect("it ended");
    assert_eq!((ended.reason, ended.detail.as_str()), (Reason::Deadline, "the time of this session is over"));
    assert!(browser.close().await.gone);
    let none = Options { chromium: Some("/usr/bin/no-chromium".into()), ..options(&site) };
    let error = Browser::open(none).await.expect_err("missing").to_string();
    assert!(error.contains("/usr/bin/no-chromium"), "{error}");
}

#[test]
fn a_daemon_that_is_killed_leaves_no_browser() {
    if !ready() {
        return;
    }
    let site = Site::of(&[("/", "<title>x</title>")]);
    // A process of its own: this test again, which opens a browser and says so.
    if std::env::var_os("GATEKEEPERD_TEST_CHILD").is_some() {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(async {
            let _browser = open(&site).await;
            println!("\nport {}", site.port);
            tokio::time::sleep(Duration::from_secs(60)).await;
        });
        return;
    }
    let mut child = std::process::Command::new(std::env::current_exe().expect("own"))
        .args(["--exact", "ending::a_daemon_that_is_killed_leaves_no_browser", "--nocapture"])
        .env("GATEKEEPERD_TEST_CHILD", "1")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("starts");
    let out = std::io::BufReader::new(child.stdout.take().expect("piped"));
    let line = std::io::BufRead::lines(out).map_while(Result::ok).find(|line| line.starts_with("port "));
    let port = line.expect("it opened a browser").replace("port ", "");
    let mark = format!("\"local_ports\":[{port}]");
    let before = marked(&mark);
    let tree = children_of(&before);
    assert!(tree.len() > 3, "{tree:?}");
    child.kill().expect("own child");
    child.wait().expect("own child");
    eventually("every process has ended", || tree.iter().all(|(pid, line)| cmdline(*pid).as_ref() != Some(line)));
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid as i32).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("ours");
}

fn cmdline(pid: u32) -> Option<String> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    Some(String::from_utf8_lossy(&line).replace('\0', " ")).filter(|line| !line.is_empty())
}

/// These processes and all below them, with their command lines.
fn children_of(roots: &[String]) -> Vec<(u32, String)> {
    let mut found: Vec<u32> = roots.iter().filter_map(|line| line.split(' ').next()?.parse().ok()).collect();
    let parents: Vec<(u32, u32)> = std::fs::read_dir("/proc")
        .expect("proc")
        .flatten()
        .filter_map(|entry| {
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            let pid = entry.file_name().into_string().ok()?.parse().ok()?;
            let parent = stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()?;
            Some((pid, parent))
        })
        .collect();
    loop {
        let more: Vec<u32> = parents
            .iter()
            .filter(|(pid, parent)| found.contains(parent) && !found.contains(pid))
            .map(|(pid, _)| *pid)
            .collect();
        if more.is_empty() {
            break;
        }
        found.extend(more);
    }
    found.into_iter().filter_map(|pid| Some((pid, cmdline(pid)?))).collect()
}
