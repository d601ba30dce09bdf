//! Tasks over HTTP: each action of UI-TARS reaches the page, and a task can be aborted at each step.

use crate::support::{Daemon, html, site};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Reports what happens to it, one request for each event.
const PAGE: &str = "<!doctype html><title>page</title><body style='margin:0;height:5000px;width:5000px'>
<input id=in style='position:absolute;left:20px;top:20px;width:200px;height:30px'>
<div id=box style='position:absolute;left:300px;top:20px;width:200px;height:200px;background:#eee'></div>
<script>
const say = (what) => fetch('/said?' + what, {method: 'POST'});
const box = document.getElementById('box'), field = document.getElementById('in');
box.onclick = (e) => say('click-' + e.clientX + '-' + e.clientY);
box.ondblclick = () => say('double');
box.oncontextmenu = (e) => { e.preventDefault(); say('right'); };
let from = null;
box.onmousedown = (e) => from = e.clientX;
box.onmouseup = (e) => { if (e.clientX !== from) say('drag-' + from + '-' + e.clientX); };
field.onkeydown = (e) => { if (e.key === 'Enter') say('submit-' + field.value); if (e.ctrlKey && e.key === 'a') say('hotkey'); };
onscroll = () => { clearTimeout(window.t); window.t = setTimeout(() => say('scroll-' + (scrollX > 0) + '-' + (scrollY > 0)), 50); };
</script>";

type Said = Arc<Mutex<Vec<String>>>;

fn page() -> (u16, Said) {
    let said: Said = Arc::default();
    let heard = Arc::clone(&said);
    let port = site(move |head, _| {
        let address = head.split(' ').nth(1).unwrap_or_default();
        match address.split_once('?').unwrap_or((address, "")) {
            ("/", _) => html("", PAGE),
            ("/never", _) => String::new(),
            (path, query) => {
                heard.lock().expect("no panic").extend((path == "/said").then(|| query.to_owned()));
                html("", "")
            }
        }
    });
    (port, said)
}

/// A model that gives these answers in turn, and then always the last one. An empty answer means none at all.
fn model(answers: &[&'static str]) -> String {
    let (answers, next) = (answers.to_vec(), Mutex::new(0));
    let port = site(move |_, _| {
        let mut next = next.lock().expect("no panic");
        let answer = answers[(*next).min(answers.len() - 1)];
        *next += 1;
        if answer.is_empty() {
            return String::new();
        }
        let body = json!({ "choices": [{ "message": { "role": "assistant", "content": answer } }] }).to_string();
        html("", &body)
    });
    format!("http://127.0.0.1:{port}/v1")
}

fn start(model: &str, port: u16) -> Daemon {
    let port = port.to_string();
    Daemon::start(&[
        "--model",
        model,
        "--model-coordinates",
        "pixels",
        "--local-port",
        &port,
        "--action-timeout",
        "20s",
    ])
}

#[tokio::test]
async fn each_action_of_the_grammar_reaches_the_page() {
    let (port, said) = page();
    let model = model(&[
        "Thought: a box\nAction: click(start_box='(350,60)')",
        "Thought: its corners\nAction: left_double(start_box='[340, 100, 360, 120]')",
        "Action: right_single(start_box='<|box_start|>(350,60)<|box_end|>')",
        "Action: drag(start_box='(320,60)', end_box='(460,60)')",
        "Action: click(start_box='(100,35)')\n\ntype(content='apri\\'cots')\n\nhotkey(key='ctrl a')",
        "Action: type(content='plums\\n')",
        "Action: scroll(start_box='(600,400)', direction='down')",
        "Action: scroll(direction='right');\nAction: wait()<|im_end|>",
        "Action: wait()",
        "Thought: done\nAction: finished(content='all of them')",
    ]);
    let daemon = start(&model, port);
    let alice = daemon.token("alice", false);
    let task = json!({ "instruction": "try everything", "url": format!("http://127.0.0.1:{port}/?q=secret"), "record": "audit" });
    let (status, done) = daemon.post(&alice, "/v1/tasks", task).await;
    assert_eq!(status, 200, "{done}");
    assert_eq!((done["status"].as_str(), done["summary"].as_str()), (Some("finished"), Some("all of them")), "{done}");
    assert_eq!(
        done.as_object().expect("fields").keys().collect::<Vec<_>>(),
        ["status", "summary", "result_data", "trace_id", "step_count", "final_screenshot_path"]
    );
    assert_eq!(done["step_count"], 10);
    let said = said.lock().expect("no panic").clone();
    for wanted in [
        "click-350-60",
        "double",
        "right",
        "drag-320-460",
        "hotkey",
        "submit-plums",
        "scroll-false-true",
        "scroll-true-true",
    ] {
        assert!(said.iter().any(|one| one == wanted), "{wanted} is missing: {said:?}");
    }
    let last = done["final_screenshot_path"].as_str().expect("recorded");
    assert!(std::fs::read(last).expect("kept").starts_with(b"\x89PNG"));
    let (_, audit) = daemon.ask(&alice, "GET", "/v1/audit?limit=1000", None).await;
    for secret in ["apri", "plums", "q=secret"] {
        assert!(!audit.to_string().contains(secret), "{secret}: {audit}");
    }
    let (_, rows) = daemon.ask(&alice, "GET", "/v1/sessions", None).await;
    assert_eq!(rows["sessions"][0]["end_reason"], "the task ended: finished");
}

/// Starts a task, aborts it after a while, and returns its result and how long the abort took.
async fn aborted(daemon: &Daemon, token: &str, task: Value, after: Duration) -> (Value, Duration) {
    let running = daemon.post(token, "/v1/tasks", task);
    let aborting = async {
        let id = loop {
            let (_, rows) = daemon.ask(token, "GET", "/v1/sessions", None).await;
            let open = rows["sessions"].as_array().expect("rows").iter().find(|row| row["state"] == "open").cloned();
            match open {
                Some(row) => break row["session_id"].as_str().expect("an id").to_owned(),
                None => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        };
        tokio::time::sleep(after).await;
        assert_eq!(daemon.ask(token, "DELETE", &format!("/v1/tasks/{id}"), None).await.0, 202);
        Instant::now()
    };
    let ((status, done), since) = tokio::join!(running, aborting);
    assert_eq!(status, 200, "{done}");
    (done, since.elapsed())
}

#[tokio::test]
async fn a_task_is_aborted_while_a_page_loads_a_model_thinks_or_it_waits() {
    let (port, _) = page();
    let daemon = start(&model(&[""]), port);
    let alice = daemon.token("alice", false);
    let task =
        |path: &str| json!({ "instruction": "x", "url": format!("http://127.0.0.1:{port}{path}"), "record": "off" });
    for (path, steps) in [("/never", 0..=0), ("/", 0..=1)] {
        let (done, took) = aborted(&daemon, &alice, task(path), Duration::from_millis(1500)).await;
        assert_eq!(done["status"], "aborted", "{path}: {done}");
        assert!(steps.contains(&done["step_count"].as_i64().expect("a number")), "{path}: {done}");
        assert!(took < Duration::from_secs(10), "{path}: the abort took {took:?}");
    }
    // A caller that goes away takes its task with it.
    let running = daemon.post(&alice, "/v1/tasks", task("/"));
    assert!(tokio::time::timeout(Duration::from_secs(6), running).await.is_err(), "the model never answers");
    let begin = Instant::now();
    while daemon.json(&["session", "list"])["sessions"]
        .as_array()
        .expect("rows")
        .iter()
        .any(|row| row["ended_at"].is_null())
    {
        assert!(begin.elapsed() < Duration::from_secs(20), "the session of an abandoned task is open");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn a_first_page_that_is_denied_is_a_result_and_not_in_the_store_with_its_query() {
    let (port, _) = page();
    let daemon = start(&model(&["Action: finished()"]), port);
    let alice = daemon.token("alice", false);
    let url = "http://10.0.0.1/?token=s3cret";
    let (status, done) = daemon.post(&alice, "/v1/tasks", json!({ "instruction": "x", "url": url })).await;
    assert_eq!((status, done["status"].as_str()), (200, Some("error")), "{done}");
    assert!(done["summary"].as_str().expect("text").contains("denied"), "{done}");
    let (_, rows) = daemon.ask(&alice, "GET", "/v1/sessions", None).await;
    let (_, audit) = daemon.ask(&alice, "GET", "/v1/audit", None).await;
    assert!(!rows.to_string().contains("s3cret") && !audit.to_string().contains("s3cret"), "{rows} {audit}");
    let begin = |url: &str| json!({ "instruction": "x", "url": url });
    let before = rows["sessions"].as_array().map(Vec::len);
    for wrong in [
        json!({ "instruction": " " }),
        json!({ "instruction": "x", "max_steps": 0 }),
        json!({}),
        begin("a.org"),
        begin("http://"),
        begin("file:///etc/passwd"),
    ] {
        let (status, answer) = daemon.post(&alice, "/v1/tasks", wrong.clone()).await;
        assert_eq!((status, answer["error"]["code"].as_str()), (400, Some("invalid_request")), "{wrong}: {answer}");
    }
    let (_, rows) = daemon.ask(&alice, "GET", "/v1/sessions", None).await;
    assert_eq!(rows["sessions"].as_array().map(Vec::len), before, "no session was opened for these");
}

#[tokio::test]
async fn neither_key_nor_picture_goes_to_a_proxy_of_the_environment() {
    let heard: Said = Arc::default();
    let hears = Arc::clone(&heard);
    let proxy = site(move |head, _| {
        hears.lock().expect("no panic").push(head.to_owned());
        html("", &json!({ "choices": [{ "message": { "content": "Action: finished(content='proxy')" } }] }).to_string())
    });
    let model = model(&["Thought: done\nAction: finished(content='model')"]);
    let state = tempfile::TempDir::new().expect("a temporary directory");
    let key = state.path().join("model-key");
    std::fs::write(&key, "sk-secret").expect("own directory");
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("own file");
    let key = key.display().to_string();
    let daemon = Daemon::start_as(state, &["--model", &model, "--model-key-file", &key], |command| {
        for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
            command.env(name, format!("http://127.0.0.1:{proxy}"));
        }
        command.env_remove("NO_PROXY").env_remove("no_proxy");
    });
    let alice = daemon.token("alice", false);
    let (status, done) = daemon.post(&alice, "/v1/tasks", json!({ "instruction": "x", "record": "off" })).await;
    assert_eq!((status, done["summary"].as_str()), (200, Some("model")), "{done}");
    assert_eq!(*heard.lock().expect("no panic"), Vec::<String>::new());
}
