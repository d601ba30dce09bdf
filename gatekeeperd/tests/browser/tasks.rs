//! Tasks with a scripted model: it gets the real screenshots, looks for coloured areas in them, and answers with UI-TARS's
//! actions at the places that it found.

use super::site::Site;
use super::{Browser, open, options, ready};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use gatekeeperd::browser::Options;
use gatekeeperd::recording::{Mode, Recorder};
use gatekeeperd::task::{self, Audit, Coordinates, Model, Request, Status, TaskResult};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

/// A green button, which leads to a blue field, whose text leads to a page that is red.
const START: &str = "<body style='margin:0;background:#fff'><button onclick=\"location='/form'\"
  style='position:absolute;left:437px;top:311px;width:90px;height:50px;border:0;background:#00c000'></button>";
const FORM: &str = "<body style='margin:0;background:#fff'><form action=/end>
  <input name=q style='position:absolute;left:120px;top:450px;width:300px;height:40px;border:0;background:#0000ff'></form>";
const END: &str = "<body style='margin:0;background:#ff0000'>";

type Script = dyn Fn(&Picture) -> String + Send + Sync;

struct Picture {
    width: u32,
    height: u32,
    pixels: Vec<[u8; 3]>,
}

impl Picture {
    fn decode(png: &[u8]) -> Picture {
        let mut reader = png::Decoder::new(std::io::Cursor::new(png)).read_info().expect("a PNG");
        let mut bytes = vec![0; reader.output_buffer_size().expect("a size")];
        let info = reader.next_frame(&mut bytes).expect("a picture");
        let samples = info.color_type.samples();
        assert!(samples >= 3, "in colour");
        let pixels = bytes[..info.buffer_size()].chunks(samples).map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect();
        Picture { width: info.width, height: info.height, pixels }
    }

    /// The middle of everything that has this colour.
    fn middle(&self, colour: [u8; 3]) -> Option<(f64, f64)> {
        let found: Vec<(u32, u32)> = (0..self.height)
            .flat_map(|y| (0..self.width).map(move |x| (x, y)))
            .filter(|(x, y)| self.pixels[(y * self.width + x) as usize] == colour)
            .collect();
        let (first, last) = (found.first()?, found.last()?);
        let (left, right) = (found.iter().map(|at| at.0).min()?, found.iter().map(|at| at.0).max()?);
        Some((f64::from(left + right + 1) / 2.0, f64::from(first.1 + last.1 + 1) / 2.0))
    }
}

const GREEN: [u8; 3] = [0, 0xc0, 0];
const BLUE: [u8; 3] = [0, 0, 0xff];
const RED: [u8; 3] = [0xff, 0, 0];

/// A chat endpoint. Returns its address, and the bodies that it got.
fn model(script: Arc<Script>) -> (String, Arc<Mutex<Vec<Value>>>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback");
    let url = format!("http://{}/v1", listener.local_addr().expect("bound"));
    let got: Arc<Mutex<Vec<Value>>> = Arc::default();
    let known = Arc::clone(&got);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (script, known) = (Arc::clone(&script), Arc::clone(&known));
            std::thread::spawn(move || {
                let body = request(&mut stream);
                let messages = body["messages"].as_array().expect("messages");
                let url = messages.last().expect("one")["content"][0]["image_url"]["url"].as_str().expect("a picture");
                let png = STANDARD.decode(url.strip_prefix("data:image/png;base64,").expect("inline")).expect("base64");
                let answer = script(&Picture::decode(&png));
                known.lock().expect("no panic").push(body.clone());
                let answer = json!({"choices": [{"message": {"role": "assistant", "content": answer}}]}).to_string();
                let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length:";
                let _ = write!(stream, "{head} {}\r\n\r\n{answer}", answer.len());
            });
        }
    });
    (url, got)
}

fn request(stream: &mut impl Read) -> Value {
    let mut bytes = Vec::new();
    let mut block = [0u8; 65536];
    loop {
        let count = stream.read(&mut block).expect("a request");
        bytes.extend_from_slice(&block[..count]);
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        let length = head.split("content-length: ").nth(1).expect("a length");
        let length: usize = length.lines().next().expect("a line").trim().parse().expect("a number");
        if bytes.len() >= end + 4 + length {
            return serde_json::from_slice(&bytes[end + 4..]).expect("JSON");
        }
    }
}

#[derive(Default)]
struct Trail(Mutex<Vec<String>>);

impl Audit for Trail {
    async fn before(&self, action: &str, detail: Value) -> Result<(), String> {
        self.0.lock().expect("no panic").push(format!("{action} {detail}"));
        Ok(())
    }
}

async fn run(
    browser: &Browser,
    url: &str,
    how: Coordinates,
    steps: u32,
    dir: &Path,
    cancel: watch::Receiver<bool>,
) -> (TaskResult, Vec<String>) {
    let model = Model::new(url, "scripted", None, how).expect("sound");
    let recorder = Recorder::new(Mode::Audit, dir, "t", "task").expect("writable");
    let request =
        Request { instruction: "press the green button".into(), url: None, max_steps: steps, trace_id: "task".into() };
    let trail = Trail::default();
    let done = task::run(browser, &recorder, &model, &request, &trail, cancel).await;
    (done, trail.0.into_inner().expect("no panic"))
}

fn never() -> watch::Receiver<bool> {
    watch::channel(false).1
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_sees_the_screenshots_finishes_a_task() {
    if !ready() {
        return;
    }
    let site = Site::of(&[("/", START), ("/form", FORM), ("/end", END)]);
    let browser = open(&site).await;
    for how in [Coordinates::Pixels, Coordinates::Resized, Coordinates::Thousandths] {
        let script = move |picture: &Picture| {
            let (width, height) = how.size((picture.width, picture.height));
            let scaled = |(x, y): (f64, f64)| {
                format!("({:.0},{:.0})", x * width / f64::from(picture.width), y * height / f64::from(picture.height))
            };
            match (picture.middle(GREEN), picture.middle(BLUE), picture.middle(RED)) {
                (Some(at), ..) => format!("Thought: a green button\nAction: click(start_box='{}')", scaled(at)),
                (_, Some(at), _) => format!(
                    "Thought: a field\nAction: click(start_box='<|box_start|>{}<|box_end|>')\n\ntype(content='s3cret w\\'rd\\n')",
                    scaled(at)
                ),
                (.., Some(_)) => "Thought: red\nAction: finished(content='the page is red')".to_owned(),
                _ => "Thought: nothing yet\nAction: wait()".to_owned(),
            }
        };
        let (url, got) = model(Arc::new(script));
        browser.navigate(&site.url("/")).await.expect("loads");
        let dir = tempfile::tempdir().expect("a directory");
        let (done, trail) = run(&browser, &url, how, 10, dir.path(), never()).await;
        assert_eq!(
            (done.status, done.summary.as_str(), done.step_count),
            (Status::Finished, "the page is red", 3),
            "{how:?}"
        );
        assert_eq!(done.result_data["final_url"], site.url("/end?q=s3cret+w%27rd"), "{how:?}");
        let last = done.final_screenshot_path.expect("recorded");
        assert!(Picture::decode(&std::fs::read(last).expect("kept")).middle(RED).is_some());
        // Typed text is not in the audit.
        let names: Vec<&str> = trail.iter().filter_map(|row| row.split(' ').next()).collect();
        assert_eq!(names, ["click", "click", "type", "finished"]);
        assert!(trail[2].ends_with("{\"characters\":12}") && !trail.concat().contains("s3cret"), "{trail:?}");
        let got = got.lock().expect("no panic");
        assert!(
            got[0]["messages"][0]["content"][0]["text"]
                .as_str()
                .is_some_and(|text| text.ends_with("press the green button"))
        );
        assert_eq!(got[2]["messages"].as_array().map(Vec::len), Some(6), "the task, two turns, and the newest picture");
    }
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_ends_by_its_steps_an_abort_a_call_for_a_person_or_an_unusable_model() {
    if !ready() {
        return;
    }
    let site = Site::of(&[("/", START)]);
    let browser = open(&site).await;
    browser.navigate(&site.url("/")).await.expect("loads");
    let dir = tempfile::tempdir().expect("a directory");
    let fixed = |answer: &'static str| model(Arc::new(move |_: &Picture| answer.to_owned())).0;
    let run = async |answer: &'static str, cancel| {
        run(&browser, &fixed(answer), Coordinates::Pixels, 2, dir.path(), cancel).await
    };

    let (done, _) = run("Thought: up\nAction: scroll(start_box='(5,5)', direction='down')", never()).await;
    assert_eq!((done.status, done.step_count), (Status::MaxSteps, 2), "{}", done.summary);
    let (done, _) = run("Thought: Please log in.\nAction: call_user()", never()).await;
    assert_eq!((done.status, done.summary.as_str()), (Status::Aborted, "the model asks for a person: Please log in."));
    assert_eq!(done.result_data["call_user"], true);
    // Aborted while it waits five seconds.
    let (cancel, cancelled) = watch::channel(false);
    let began = std::time::Instant::now();
    let waiting = run("Action: wait()", cancelled);
    let (done, ()) = tokio::join!(waiting, async {
        tokio::time::sleep(std::time::Duration::from_millis(700)).await;
        cancel.send_replace(true);
    });
    assert_eq!((done.0.status, done.0.step_count), (Status::Aborted, 1));
    assert!(began.elapsed() < std::time::Duration::from_secs(4));
    // Aborted before the first step.
    let (done, trail) = run("Action: wait()", watch::channel(true).1).await;
    assert_eq!((done.status, done.step_count, trail.len()), (Status::Aborted, 0, 0));

    // A place outside of the page is an error of the model, which it hears of. A model that cannot be understood is given up.
    let (url, got) = model(Arc::new(|_: &Picture| "Action: click(start_box='(5000,5)')".to_owned()));
    let (done, _) = super::tasks::run(&browser, &url, Coordinates::Pixels, 2, dir.path(), never()).await;
    assert_eq!(done.status, Status::MaxSteps);
    let heard = got.lock().expect("no panic")[1]["messages"][3]["content"][0]["text"].to_string();
    assert!(heard.contains("click failed: (5000, 5) is outside of the viewport of 800 x 600 pixels"), "{heard}");
    let (done, _) =
        super::tasks::run(&browser, &fixed("Sure! I would click it."), Coordinates::Pixels, 9, dir.path(), never())
            .await;
    assert_eq!((done.status, done.step_count), (Status::Error, 3));
    assert!(done.summary.ends_with("the answer has no line `Action: ...`"), "{}", done.summary);
    let (done, _) =
        super::tasks::run(&browser, "http://127.0.0.1:1/v1", Coordinates::Pixels, 9, dir.path(), never()).await;
    assert_eq!(done.status, Status::Error);
    assert!(done.summary.starts_with("the model did not answer"), "{}", done.summary);
    browser.close().await;
}

/// A green button below what is seen first. The page is red once it was clicked.
const TALL: &str = "<body style='margin:0;background:#fff;height:3000px'><button style='position:absolute;right:50px;top:1500px;
  width:90px;height:50px;border:0;background:#00c000' onclick=\"document.body.style.background='#f00'; this.remove()\"></button>";

#[tokio::test(flavor = "multi_thread")]
async fn a_large_page_is_sent_in_a_picture_of_a_million_pixels_and_clicked_where_the_model_says() {
    if !ready() {
        return;
    }
    let site = Site::of(&[("/", TALL)]);
    for (viewport, sent, size) in
        [((1920, 1080), (1344, 756), (1344.0, 756.0)), ((1280, 800), (1280, 800), (1288.0, 812.0))]
    {
        let script = move |picture: &Picture| {
            assert_eq!((picture.width, picture.height), sent);
            match (picture.middle(GREEN), picture.middle(RED)) {
                (Some((x, y)), _) => {
                    let (x, y) = (x * size.0 / f64::from(sent.0), y * size.1 / f64::from(sent.1));
                    format!("Action: click(start_box='({x:.0},{y:.0})')")
                }
                (_, Some(_)) => "Action: finished(content='red')".to_owned(),
                _ => "Action: scroll(start_box='(600,400)', direction='down')".to_owned(),
            }
        };
        let browser = Browser::open(Options { viewport, ..options(&site) }).await.expect("opens");
        browser.navigate(&site.url("/")).await.expect("loads");
        let dir = tempfile::tempdir().expect("a directory");
        let (done, trail) =
            run(&browser, &model(Arc::new(script)).0, Coordinates::Resized, 6, dir.path(), never()).await;
        assert_eq!((done.status, done.summary.as_str()), (Status::Finished, "red"), "{viewport:?}: {trail:?}");
        let clicks = trail.iter().filter(|row| row.starts_with("click")).count();
        assert_eq!(clicks, 1, "{viewport:?}: {trail:?}");
        let kept = std::fs::read(done.final_screenshot_path.expect("recorded")).expect("kept");
        let kept = Picture::decode(&kept);
        assert_eq!((kept.width, kept.height), sent, "the recording has what the model saw");
        browser.close().await;
    }
}
