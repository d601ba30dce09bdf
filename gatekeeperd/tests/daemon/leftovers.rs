//! Sessions that were opened and closed leave nothing: no process, file, descriptor or memory.

use crate::support::{Daemon, echo};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What a daemon has at rest.
#[derive(Debug, PartialEq)]
struct Rest {
    children: usize,
    descriptors: Option<usize>,
    files: BTreeSet<PathBuf>,
}

fn rest(daemon: &Daemon) -> Rest {
    let pid = daemon.pid().as_raw_pid();
    let parent = format!(" {pid} ");
    let children = std::fs::read_dir("/proc").expect("proc").flatten().filter(|entry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest[2.min(rest.len())..].starts_with(&parent))
    });
    let mut files = BTreeSet::new();
    below(daemon.state.path(), &mut files);
    // The memory of the daemon is protected, so only root may count its descriptors.
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).ok().map(|entries| {
        // SQLite keeps up to four connections, as many as were needed at once.
        let names = entries.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
        names.filter(|name| !name.to_string_lossy().contains("gatekeeperd.db")).count()
    });
    Rest { children: children.count(), descriptors, files }
}

fn below(directory: &Path, into: &mut BTreeSet<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
        if entry.file_type().expect("a type").is_dir() {
            below(&entry.path(), into);
        }
        into.insert(entry.path());
    }
}

/// Kilobytes that only this process uses: pages of files do not count.
fn memory(daemon: &Daemon) -> i64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid().as_raw_pid())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// SESSIONS_IN_A_ROW=50 runs the long form; `make soak` does.
#[tokio::test]
async fn sessions_in_a_row_leave_nothing() {
    let count = std::env::var("SESSIONS_IN_A_ROW").ok().and_then(|text| text.parse().ok()).unwrap_or(10);
    let port = echo();
    let daemon = Daemon::start(&["--local-port", &port.to_string()]);
    let alice = daemon.token("alice", false);
    let once = async || {
        let id = daemon.open(&alice, json!({ "record": "transient" })).await;
        daemon.act(&alice, &id, "navigate", json!({ "url": format!("http://127.0.0.1:{port}/") })).await;
        daemon.act(&alice, &id, "screenshot", json!({})).await;
        daemon.ask(&alice, "DELETE", &format!("/v1/sessions/{id}"), None).await;
    };
    // The first ones warm up the allocator, the pool of connections and the directories.
    once().await;
    once().await;
    let (before, used) = (rest(&daemon), memory(&daemon));
    for _ in 0..count {
        once().await;
    }
    let mut after = rest(&daemon);
    for _ in 0..100 {
        if after == before {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        after = rest(&daemon);
    }
    assert_eq!(after, before, "after {count} sessions");
    let grown = memory(&daemon) - used;
    println!("{count} sessions: {grown} kB more memory of the daemon than after two");
    assert!(grown < 4096 + 40 * count, "{grown} kB after {count} sessions");
    let rows = daemon.json(&["session", "list"])["sessions"].as_array().expect("a list").clone();
    assert!(rows.len() as i64 == count + 2 && rows.iter().all(|row| row["state"] == "closed"), "{rows:?}");
}
