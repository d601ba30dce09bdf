//! What a session can do with a page.

use super::site::Site;
use super::{Browser, open, options, ready};
use gatekeeperd::browser::{BrowserError, Clicks, Cookie, Input, MouseKind, NoticeKind, Options, Target};
use std::time::Duration;

const FORM: &str = r#"<!doctype html><title>form</title><body style="margin:0;height:3000px">
<input id=name style="position:absolute;left:20px;top:20px;width:200px">
<button id=go style="position:absolute;left:20px;top:60px;width:100px;height:40px"
  onclick="said.textContent += 'click ' + name_.value" ondblclick="said.textContent += ' double'"
  oncontextmenu="said.textContent += ' right'; return false">go</button>
<p id=said style="position:absolute;top:120px"></p>
<button id=below style="position:absolute;top:2500px" onclick="said.textContent += ' below'">below</button>
<div id=gone style="display:none">x</div>
<script>var name_ = document.getElementById('name'), said = document.getElementById('said');
addEventListener('keydown', e => { if (e.key == 'Enter') said.textContent += ' enter' });</script>"#;

async fn said(browser: &Browser) -> String {
    let html = browser.read_dom(1 << 20).await.expect("readable").html;
    let start = html.find("<p id=\"said\"").expect("the paragraph");
    let text = &html[start..];
    text[text.find('>').expect("tag") + 1..text.find("</p>").expect("end")].to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_loaded_clicked_typed_into_scrolled_and_read() {
    if !ready() {
        return;
    }
    let site = Site::of(&[("/", FORM), ("/wide", "<title>ü</title><p>äöü€😀")]);
    let browser = open(&site).await;
    let loaded = browser.navigate(&site.url("/")).await.expect("loads");
    assert_eq!((loaded.status, loaded.final_url, loaded.title.as_str()), (Some(200), site.url("/"), "form"));

    let picture = browser.screenshot(false).await.expect("a picture");
    assert_eq!((picture.width, picture.height, picture.cut), (800, 600, false));
    let whole = browser.screenshot(true).await.expect("a picture");
    assert_eq!((whole.width, whole.height), (800, 3000));

    browser.type_text(Some("#name"), "Zoë <3\n").await.expect("typed");
    assert_eq!(said(&browser).await, " enter");
    browser.click(&Target::Selector("#go".into())).await.expect("clicked");
    assert_eq!(said(&browser).await, " enterclick Zoë &lt;3");
    browser.click_as(&Target::Point { x: 70.0, y: 80.0 }, Clicks::Right).await.expect("clicked");
    assert!(said(&browser).await.ends_with(" right"));
    browser.click_as(&Target::Point { x: 70.0, y: 80.0 }, Clicks::Double).await.expect("clicked");
    assert!(said(&browser).await.ends_with(" double"));
    // Select the field's text and replace it.
    browser.click(&Target::Selector("#name".into())).await.expect("clicked");
    browser.hotkey("ctrl a").await.expect("pressed");
    browser.type_text(None, "new").await.expect("typed");
    browser.click(&Target::Selector("#go".into())).await.expect("clicked");
    assert!(said(&browser).await.ends_with("click new"), "{}", said(&browser).await);
    // It is scrolled into view.
    browser.click(&Target::Selector("#below".into())).await.expect("clicked");
    assert!(said(&browser).await.ends_with(" below"));
    browser.scroll(None, 0.0, -5000.0).await.expect("scrolled");
    browser
        .input(Input::Mouse {
            kind: MouseKind::Move,
            x: 5.0,
            y: 5.0,
            button: Default::default(),
            clicks: 0,
            modifiers: 0,
        })
        .await
        .expect("moved");

    let wrong = |target: &str| Target::Selector(target.to_owned());
    assert!(matches!(browser.click(&wrong("#none")).await, Err(BrowserError::NoElement { .. })));
    assert!(matches!(browser.click(&wrong("##")).await, Err(BrowserError::Selector { .. })));
    assert!(matches!(browser.click(&wrong("#gone")).await, Err(BrowserError::Element { .. })));
    assert!(matches!(browser.click(&Target::Point { x: 800.0, y: 1.0 }).await, Err(BrowserError::Outside { .. })));

    // Cut between two characters, not inside of one.
    browser.navigate(&site.url("/wide")).await.expect("loads");
    let dom = browser.read_dom(1 << 20).await.expect("readable");
    assert_eq!(dom.truncated_to, None);
    let euro = dom.html.find('€').expect("in the page");
    let cut = browser.read_dom(euro + 1).await.expect("readable");
    assert_eq!((cut.truncated_to, cut.html.as_str()), (Some(euro), &dom.html[..euro]));
    let closed = browser.close().await;
    assert!(closed.gone, "{closed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dialog_a_download_a_popup_and_a_lone_surrogate_leave_the_session_usable() {
    if !ready() {
        return;
    }
    let site = Site::of(&[
        ("/alert", "<title>before</title><script>alert('look\\u0007here'); document.title = 'after'</script>"),
        (
            "/popup",
            "<title>opener</title><button style='width:300px;height:300px' onclick=\"window.open('/child')\">x</button>",
        ),
        ("/child", "<title>child</title>"),
        ("/odd", "<body><script>document.title = 'x\\ud83d'; alert('\\udc00')</script>"),
        ("/upload", "<title>up</title><input type=file style='width:300px;height:300px'>"),
        ("/stay", "<title>stay</title><body onclick='1'><script>onbeforeunload = e => e.preventDefault()</script>"),
    ]);
    let browser = open(&site).await;
    assert_eq!(browser.navigate(&site.url("/alert")).await.expect("loads").title, "after");
    let notice = browser.notices(0).pop().expect("a notice");
    assert_eq!((notice.kind, notice.text.as_str()), (NoticeKind::Dialog, "alert: look here"));

    let refused = browser.navigate(&site.url("/file")).await.expect_err("refused");
    assert!(matches!(refused, BrowserError::Download { .. }), "{refused}");
    browser.navigate(&site.url("/odd")).await.expect("loads");
    browser.read_dom(1000).await.expect("readable");

    browser.navigate(&site.url("/stay")).await.expect("loads");
    browser.click(&Target::Point { x: 9.0, y: 9.0 }).await.expect("clicked");
    browser.navigate(&site.url("/upload")).await.expect("the page cannot keep us");
    let before = browser.next_notice();
    browser.click(&Target::Point { x: 40.0, y: 150.0 }).await.expect("clicked");
    browser.settle().await;
    assert_eq!(browser.notices(before).pop().map(|notice| notice.kind), Some(NoticeKind::Upload));

    browser.navigate(&site.url("/popup")).await.expect("loads");
    let before = browser.next_notice();
    browser.click(&Target::Point { x: 100.0, y: 100.0 }).await.expect("clicked");
    browser.settle().await;
    assert_eq!(browser.address().await.expect("a page"), (site.url("/child"), "child".to_owned()));
    assert_eq!(browser.notices(before).pop().map(|notice| notice.kind), Some(NoticeKind::Popup));
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_never_loads_or_never_rests_is_an_error_and_the_session_goes_on() {
    if !ready() {
        return;
    }
    let site = Site::of(&[
        ("/", "<title>fine</title>"),
        ("/half", "<title>half</title><p>text<img src=/never>"),
        ("/busy", "<title>busy</title><script>onload = () => setTimeout(() => { for (;;); }, 100)</script>"),
    ]);
    let browser =
        Browser::open(Options { action_timeout: Duration::from_secs(3), ..options(&site) }).await.expect("opens");
    let late = browser.navigate(&site.url("/never")).await.expect_err("never loads");
    assert!(matches!(late, BrowserError::Timeout { .. }), "{late}");
    assert_eq!(browser.navigate(&site.url("/")).await.expect("loads").title, "fine");
    // The text is there; only a picture is missing.
    assert_eq!(browser.navigate(&site.url("/half")).await.expect("usable").title, "half");
    assert_eq!(browser.notices(0).pop().map(|notice| notice.kind), Some(NoticeKind::Unfinished));
    browser.navigate(&site.url("/busy")).await.expect("loads");
    tokio::time::sleep(Duration::from_millis(300)).await;
    let late = browser.read_dom(100).await.expect_err("its renderer is busy for ever");
    assert!(matches!(late, BrowserError::Timeout { .. }), "{late}");
    assert_eq!(browser.navigate(&site.url("/")).await.expect("loads").title, "fine");
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn private_addresses_are_denied_and_the_denial_is_known_at_once() {
    if !ready() {
        return;
    }
    let (site, other) = (Site::of(&[("/", "<title>own</title>")]), Site::of(&[("/", "<title>other</title>")]));
    let browser = open(&site).await;
    let denied = browser.navigate(&other.url("/")).await.expect_err("denied");
    let BrowserError::Denied { denial, .. } = &denied else { panic!("{denied}") };
    assert_eq!(denial.allow_with, Some(format!("--local-port {}", other.port)));
    assert!(
        denied.to_string().ends_with(&format!("gatekeeperd serve --local-port {} would allow it", other.port)),
        "{denied}"
    );
    let tls = browser.navigate(&other.url("/").replace("http", "https")).await.expect_err("denied");
    assert!(matches!(tls, BrowserError::Denied { .. }), "{tls}");
    // Chromium tries a refused tunnel more than once.
    assert!(matches!(&browser.denials()[..], [one] if one.count >= 2), "{:?}", browser.denials());
    let metadata = browser.navigate("http://169.254.169.254/latest/meta-data").await.expect_err("denied");
    assert!(matches!(metadata, BrowserError::Denied { .. }), "{metadata}");
    assert_eq!(other.heads(), Vec::<String>::new());
    // The control: the listed port is reached.
    assert_eq!(browser.navigate(&site.url("/")).await.expect("loads").title, "own");
    assert!(matches!(browser.navigate("file:///etc/passwd").await, Err(BrowserError::Address { .. })));
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cookies_are_there_for_the_first_request_and_never_in_another_session() {
    if !ready() {
        return;
    }
    let site = Site::of(&[("/", "<title>x</title><script>document.cookie = 'made=here'</script>")]);
    let browser = open(&site).await;
    let cookie: Cookie = serde_json::from_str(
        r#"{"name":"sid","value":"s3cret","domain":"127.0.0.1","httpOnly":true,"sameSite":"Lax","expires":-1}"#,
    )
    .expect("CDP's shape");
    assert!(!format!("{cookie:?}").contains("s3cret"));
    browser.set_cookies(&[cookie]).await.expect("set");
    browser.navigate(&site.url("/")).await.expect("loads");
    assert!(site.heads()[0].contains("Cookie: sid=s3cret"), "{:?}", site.heads());
    let mut names: Vec<String> = browser.cookies().await.expect("cookies").iter().map(|one| one.name.clone()).collect();
    names.sort();
    assert_eq!(names, ["made", "sid"]);
    browser.close().await;
    let second = open(&site).await;
    let before = site.heads().len();
    second.navigate(&site.url("/")).await.expect("loads");
    let heads = site.heads();
    let first = heads[before..].iter().find(|head| head.starts_with("GET / ")).expect("asked for");
    assert!(!first.contains("Cookie:"), "an empty profile: {first}");
    assert!(heads[before..].iter().all(|head| !head.contains("s3cret")), "{heads:?}");
    second.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_are_streamed_while_there_is_a_viewer() {
    if !ready() {
        return;
    }
    let page = "<title>x</title><body style='background:#fff'><script>let n = 0; setInterval(() => { document.body.textContent = n++ }, 50)</script>";
    let site = Site::of(&[("/", page)]);
    let browser = open(&site).await;
    browser.navigate(&site.url("/")).await.expect("loads");
    for round in 0..2 {
        let mut frames = browser.frames();
        for _ in 0..3 {
            let frame = tokio::time::timeout(Duration::from_secs(10), frames.recv()).await.expect("in time");
            let frame = frame.unwrap_or_else(|error| panic!("round {round}: {error}"));
            assert_eq!((frame.width, frame.height), (800, 600));
            assert!(frame.jpeg.starts_with(b"\xff\xd8"), "a JPEG");
        }
        drop(frames);
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    browser.close().await;
}
