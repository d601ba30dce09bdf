//! Pages that hang, dawdle, go away or are too large: each action ends in its time, and the session goes on.

use super::site::Site;
use super::{open, options, ready};
use gatekeeperd::browser::{Browser, BrowserError, NoticeKind, Options, Target};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(4);

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_hangs_fails_one_navigation_and_not_the_next() {
    if !ready() {
        return;
    }
    let site = Site::of(&[
        ("/", "<title>fine</title><script>sessionStorage.seen = 'here'</script>"),
        ("/again", "<script>document.title = sessionStorage.seen || 'new'</script>"),
        ("/loop", "<title>loop</title><script>onload = () => setTimeout(() => { for (;;); }, 100)</script>"),
        ("/at-once", "<title>x</title><script>for (;;);</script>"),
        (
            "/popup",
            "<title>opener</title><button style='width:300px;height:300px' onclick=\"window.open('/')\">x</button>",
        ),
    ]);
    let browser = Browser::open(Options { action_timeout: LIMIT, ..options(&site) }).await.expect("opens");
    for hangs in ["/loop", "/at-once"] {
        let first = browser.navigate(&site.url(hangs)).await;
        if hangs == "/loop" {
            first.expect("it loads before it hangs");
            tokio::time::sleep(Duration::from_millis(500)).await;
            let late = browser.navigate(&site.url("/")).await.expect_err("its renderer hangs");
            assert!(matches!(late, BrowserError::Timeout { .. }), "{late}");
        } else {
            assert!(matches!(first, Err(BrowserError::Timeout { .. })), "{first:?}");
        }
        assert_eq!(browser.navigate(&site.url("/")).await.expect("a new page").title, "fine", "{hangs}");
        browser.screenshot(false).await.expect("a picture");
    }
    // A server that does not answer is no page that hangs: the tab, and what it stores, stays.
    let late = browser.navigate(&site.url("/never")).await.expect_err("no answer");
    assert!(matches!(late, BrowserError::Timeout { .. }), "{late}");
    assert_eq!(browser.navigate(&site.url("/again")).await.expect("loads").title, "here");
    assert!(browser.notices(0).iter().all(|notice| notice.kind != NoticeKind::Popup), "{:?}", browser.notices(0));
    browser.navigate(&site.url("/popup")).await.expect("loads");
    browser.click(&Target::Point { x: 100.0, y: 100.0 }).await.expect("clicked");
    browser.settle().await;
    assert_eq!(browser.notices(0).pop().map(|notice| notice.kind), Some(NoticeKind::Popup), "the control");
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_of_an_action_is_that_of_all_its_steps() {
    if !ready() {
        return;
    }
    let slow = "<title>slow</title><input id=i onkeydown='const t = Date.now(); while (Date.now() - t < 1500);'>\
                <button onmousedown='const t = Date.now(); while (Date.now() - t < 1500);'>x</button>";
    let site = Site::of(&[("/", slow)]);
    let browser = Browser::open(Options { action_timeout: LIMIT, ..options(&site) }).await.expect("opens");
    browser.navigate(&site.url("/")).await.expect("loads");
    let begin = Instant::now();
    let late = browser.type_text(Some("#i"), "abcdefgh").await.expect_err("twelve seconds of work");
    assert!(matches!(late, BrowserError::Timeout { within: LIMIT, .. }), "{late}");
    assert!(begin.elapsed() < LIMIT + Duration::from_secs(3), "{:?}", begin.elapsed());
    tokio::time::sleep(Duration::from_secs(2)).await;
    browser.click(&Target::Selector("button".into())).await.expect("the control: slow, and in time");
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_closes_itself_has_not_crashed() {
    if !ready() {
        return;
    }
    let site = Site::of(&[
        ("/", "<title>main</title><button style='width:300px;height:300px' onclick=\"window.open('/pop')\">x</button>"),
        (
            "/pop",
            "<title>pop</title><button id=down onmousedown='window.close()'>x</button><button id=up onclick='window.close()'>x</button>\
                  <input id=key onkeydown='window.close()'>",
        ),
    ]);
    let browser = open(&site).await;
    let popup = async || {
        browser.navigate(&site.url("/")).await.expect("loads");
        browser.click(&Target::Point { x: 100.0, y: 100.0 }).await.expect("clicked");
        browser.settle().await;
        assert_eq!(browser.address().await.expect("a page").1, "pop");
    };
    for button in ["#down", "#up"] {
        popup().await;
        browser.click(&Target::Selector(button.into())).await.unwrap_or_else(|error| panic!("{button}: {error}"));
        browser.settle().await;
        assert_eq!(browser.address().await.expect("a page").1, "main", "{button}");
    }
    popup().await;
    let gone = browser.type_text(Some("#key"), "abc").await.expect_err("it closed at the first key");
    assert!(matches!(gone, BrowserError::Gone), "{gone}");
    // A browser that is being closed has ended, and its page has not crashed.
    popup().await;
    let typing = browser.type_text(None, "abcdefgh");
    let (typed, _) = tokio::join!(typing, browser.close());
    assert!(!matches!(typed, Err(BrowserError::Crashed | BrowserError::Gone)), "{typed:?}");
    let after = browser.screenshot(false).await.err().expect("closed");
    assert!(matches!(after, BrowserError::Ended(_)), "{after}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_picture_of_noise_fits_into_a_message() {
    if !ready() {
        return;
    }
    let noise = "<title>noise</title><body style='margin:0'><canvas id=c width=4000 height=7000 style='display:block'></canvas><script>
        const context = c.getContext('2d'), words = new Uint32Array(4000 * 10);
        let state = 1;
        for (let top = 0; top < 7000; top += 10) {
          for (let at = 0; at < words.length; at++) {
            state ^= state << 13; state ^= state >>> 17; state ^= state << 5;
            words[at] = state | 0xff000000;
          }
          context.putImageData(new ImageData(new Uint8ClampedArray(words.buffer), 4000, 10), 0, top);
        }</script>";
    let site = Site::of(&[("/", noise)]);
    let browser =
        Browser::open(Options { action_timeout: Duration::from_secs(120), ..options(&site) }).await.expect("opens");
    browser.navigate(&site.url("/")).await.expect("loads");
    let picture = browser.screenshot(true).await.expect("a picture");
    assert_eq!((picture.width, picture.height, picture.cut), (4000, 6000, true));
    assert!(picture.png.len() > 64 << 20, "{} bytes: it must not compress", picture.png.len());
    browser.screenshot(false).await.expect("the session goes on");
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cookie_that_the_browser_refuses_is_left_out_and_named() {
    if !ready() {
        return;
    }
    let site = Site::of(&[("/", "<title>x</title>")]);
    let browser = open(&site).await;
    let cookies = |bad: &str| {
        let text = format!(r#"[{{"name":"good","value":"1","domain":"127.0.0.1"}},{bad}]"#);
        serde_json::from_str::<Vec<gatekeeperd::browser::Cookie>>(&text).expect("CDP's shape")
    };
    for bad in [
        r#"{"name":"bad","value":"s3cret;x","domain":"127.0.0.1"}"#,
        r#"{"name":"__Secure-bad","value":"s3cret","domain":"127.0.0.1"}"#,
        r#"{"name":"bad","value":"s3cret","domain":"127.0.0.1","partitionKey":"https://a.org"}"#,
    ] {
        let cookies = cookies(bad);
        assert!(cookies[0].fault().is_none() && cookies[1].fault().is_some(), "{bad}");
        browser.set_cookies(&cookies).await.expect("the good one");
        let notice = browser.notices(0).pop().expect("a notice");
        let text = "the browser refused cookie 1 of this session, which belongs to 127.0.0.1";
        assert_eq!((notice.kind, notice.text.as_str()), (NoticeKind::Cookie, text));
        assert!(browser.set_cookies(&cookies[1..]).await.is_err(), "none is left: {bad}");
    }
    browser.navigate(&site.url("/")).await.expect("loads");
    assert!(site.heads()[0].contains("Cookie: good=1\r\n"), "{:?}", site.heads());
    browser.close().await;
}
