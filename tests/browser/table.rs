//! The compatibility table of docs/guide/browser.md: each row is tried in a confined browser, and the document must show the
//! results.

use super::cdp::{Browser, Page};
use super::site::{Site, from_base64};
use super::{Desk, layer, ready};
use crate::plumbing::{eventually, users};
use serde_json::json;
use std::fs;
use std::path::Path;

const PAGE: &str = "<title>page</title><body style='margin:0;background:rgb(255,0,0)'>\
    <input type=file id=file><form></form>";
const WORKER: &str = "onmessage = e => postMessage(e.data * 2); onconnect = e => e.ports[0].postMessage('shared');";
const SERVICE: &str = "onfetch = e => { if (e.request.url.endsWith('/made')) e.respondWith(new Response('by the worker')) };\
    onactivate = e => e.waitUntil(clients.claim());";

/// The browser and site that the rows use.
struct Stage {
    desk: Desk,
    site: Site,
    browser: Browser,
    page: Page,
}

impl Stage {
    fn eval(&mut self, expression: &str) -> Result<serde_json::Value, String> {
        match self.browser.eval(&self.page, expression) {
            serde_json::Value::String(text) if text.starts_with("threw") => Err(text),
            value => Ok(value),
        }
    }

    fn is(&mut self, expression: &str, expected: &str) -> Result<(), String> {
        let value = self.eval(expression)?;
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        if text == expected { Ok(()) } else { Err(format!("{text} and not {expected}")) }
    }

    fn restart(&mut self) {
        self.browser.call("Browser.close", json!({}));
        assert_eq!(self.browser.wait().code(), Some(0));
        self.browser = self.desk.driven(&[], FLAGS);
        self.page = self.browser.open(&self.site.url("/"));
    }
}

const FLAGS: &[&str] = &["--enable-unsafe-swiftshader", "--autoplay-policy=no-user-gesture-required"];

type Row = (&'static str, &'static str, fn(&mut Stage) -> Result<(), String>);

const ROWS: &[Row] = &[
    ("pages over HTTP", "yes", |stage| stage.is("document.title", "page")),
    ("WebSocket", "yes", |stage| {
        let echo = "new Promise((done, fail) => { const s = new WebSocket(location.origin.replace('http', 'ws') + '/socket');\
            s.onopen = () => s.send('hello'); s.onmessage = e => done(e.data); s.onerror = () => fail(Error('closed')) })";
        stage.is(echo, "hello")
    }),
    ("workers and shared workers", "yes", |stage| {
        stage.is("new Promise(done => { const w = new Worker('/worker.js'); w.onmessage = e => done(e.data); w.postMessage(21) })", "42")?;
        stage.is("new Promise(done => new SharedWorker('/worker.js').port.onmessage = e => done(e.data))", "shared")
    }),
    ("service workers", "yes", |stage| {
        let made = "(async () => { await navigator.serviceWorker.register('/service.js');\
            await navigator.serviceWorker.ready;\
            if (!navigator.serviceWorker.controller)\
                await new Promise(done => navigator.serviceWorker.oncontrollerchange = done);\
            return (await fetch('/made')).text() })()";
        stage.is(made, "by the worker")
    }),
    ("shared memory between threads (SharedArrayBuffer)", "yes", |stage| {
        stage.is("crossOriginIsolated && Atomics.add(new Int32Array(new SharedArrayBuffer(8)), 0, 5) === 0", "true")
    }),
    ("shared memory in /dev/shm, large canvases", "yes", |stage| {
        let drawn = "(() => { const c = document.createElement('canvas'); c.width = c.height = 4000;\
            const g = c.getContext('2d'); g.fillStyle = 'rgb(1,2,3)'; g.fillRect(0, 0, 4000, 4000);\
            return [...g.getImageData(3999, 3999, 1, 1).data].join() })()";
        stage.is(drawn, "1,2,3,255")
    }),
    ("WebAssembly", "yes", |stage| {
        let bytes = "0,97,115,109,1,0,0,0,1,5,1,96,0,1,127,3,2,1,0,7,5,1,1,102,0,0,10,6,1,4,0,65,42,11";
        stage.is(&format!("WebAssembly.instantiate(new Uint8Array([{bytes}])).then(m => m.instance.exports.f())"), "42")
    }),
    ("WebGL, drawn by software", "yes, with `--enable-unsafe-swiftshader`", |stage| {
        let drawn = "(() => { const g = document.createElement('canvas').getContext('webgl', {preserveDrawingBuffer: true});\
            if (!g) return 'none'; g.clearColor(0, 1, 0, 1); g.clear(g.COLOR_BUFFER_BIT); const p = new Uint8Array(4);\
            g.readPixels(0, 0, 1, 1, g.RGBA, g.UNSIGNED_BYTE, p); return [...p].join() })()";
        stage.is(drawn, "0,255,0,255")
    }),
    ("audio", "yes, without a sound device", |stage| {
        stage.is("(async () => { const a = new AudioContext(); const o = a.createOscillator(); o.connect(a.destination); o.start();\
            await a.resume(); await new Promise(done => { const look = () => a.currentTime > 0.1 ? done() : setTimeout(look, 10); look() });\
            return a.state })()", "running")
    }),
    ("screenshots", "yes", |stage| {
        let shot = stage.browser.call_in(&stage.page, "Page.captureScreenshot", json!({"format": "png"}));
        let bytes = from_base64(shot["data"].as_str().unwrap_or_default());
        if !bytes.starts_with(b"\x89PNG") {
            return Err("no PNG".to_owned());
        }
        // The browser itself decodes the image.
        let url = format!("data:image/png;base64,{}", shot["data"].as_str().unwrap_or_default());
        stage.is(&format!("(async () => {{ const i = new Image(); i.src = '{url}'; await i.decode();\
            const c = document.createElement('canvas'); c.width = i.width; c.height = i.height; const g = c.getContext('2d');\
            g.drawImage(i, 0, 0); return [...g.getImageData(i.width - 2, i.height - 2, 1, 1).data].join() }})()"), "255,0,0,255")
    }),
    ("PDF", "yes", |stage| {
        let printed = stage.browser.call_in(&stage.page, "Page.printToPDF", json!({}));
        let bytes = from_base64(printed["data"].as_str().unwrap_or_default());
        let whole = bytes.starts_with(b"%PDF-") && bytes.trim_ascii_end().ends_with(b"%%EOF");
        if whole && bytes.len() > 500 { Ok(()) } else { Err(format!("{} bytes", bytes.len())) }
    }),
    ("downloads into media/downloads", "yes", |stage| {
        let place = stage.desk.media("downloads");
        stage.browser.call(
            "Browser.setDownloadBehavior",
            json!({"behavior": "allow", "downloadPath": place, "eventsEnabled": true}),
        );
        download(stage, "completed")?;
        let text = fs::read_to_string(place.join("got.txt")).map_err(|error| error.to_string())?;
        if text == "downloaded\n" { Ok(()) } else { Err(text) }
    }),
    ("downloads to any other place", "no", |stage| {
        // Its /tmp is private and writable, and discarded at the end. Elsewhere it can create nothing.
        let elsewhere =
            [stage.desk.place.at("home").join(".ssh"), "/etc".into(), "/usr/local".into(), "/var/lib".into()];
        for place in elsewhere {
            let below_tmp = place.starts_with(stage.desk.place.at(""));
            let behavior = json!({"behavior": "allow", "downloadPath": place, "eventsEnabled": true});
            stage.browser.call("Browser.setDownloadBehavior", behavior);
            let ended = download(stage, "canceled");
            if place.join("got.txt").exists() || ended.is_err() && !below_tmp {
                return Err(format!("{}: {ended:?}", place.display()));
            }
        }
        Ok(())
    }),
    ("uploads of files that it can see", "yes", |stage| {
        let file = stage.desk.media("browser").join("upload.txt");
        fs::write(&file, "picked").map_err(|error| error.to_string())?;
        pick(stage, &file)?;
        stage.is("document.getElementById('file').files[0].text()", "picked")
    }),
    ("uploads of anything else", "no", |stage| {
        let secret = stage.desk.place.at("home").join("secret.txt");
        fs::write(&secret, "secret").expect("own");
        for file in [secret.as_path(), Path::new("/etc/shadow"), Path::new("/etc/hostname")] {
            let _ = pick(stage, file);
            let read = stage.eval(
                "document.getElementById('file').files[0].text().then(t => 'read ' + t, e => 'refused ' + e.name)",
            )?;
            if read != "refused NotFoundError" {
                return Err(format!("{}: {read}", file.display()));
            }
        }
        Ok(())
    }),
    ("cookies, localStorage and IndexedDB over a restart", "yes", |stage| {
        stage.eval("document.cookie = 'kept=1; max-age=86400'; localStorage.kept = 'yes'; true")?;
        let store = "new Promise(done => { const r = indexedDB.open('d'); r.onupgradeneeded = () => r.result.createObjectStore('s');\
            r.onsuccess = () => { const t = r.result.transaction('s', 'readwrite'); t.objectStore('s').put('kept', 1); t.oncomplete = () => done(1) } })";
        stage.eval(store)?;
        stage.restart();
        stage.is("document.cookie", "kept=1")?;
        stage.is("fetch('/cookie').then(r => r.text())", "kept=1")?;
        stage.is("localStorage.kept", "yes")?;
        stage.is("new Promise(done => indexedDB.open('d').onsuccess = e => { const r = e.target.result.transaction('s').objectStore('s').get(1);\
            r.onsuccess = () => done(r.result) })", "kept")
    }),
    ("cookies of another profile", "no", |stage| {
        let other = Desk::new(stage.desk.place.user);
        let mut browser = other.driven(&[], &[]);
        let page = browser.open(&stage.site.url("/"));
        let cookie = browser.eval(&page, "document.cookie + '|' + localStorage.kept");
        browser.close();
        if cookie == "|undefined" { Ok(()) } else { Err(cookie.to_string()) }
    }),
    ("20 tabs at once", "yes", |stage| {
        let url = stage.site.url("/");
        let tabs: Vec<Page> = (0..20).map(|_| stage.browser.tab(&url)).collect();
        for tab in &tabs {
            let title = "new Promise(done => { const look = () => document.title ? done(document.title) : setTimeout(look, 20); look() })";
            let title = stage.browser.eval(tab, title);
            if title != "page" {
                return Err(title.to_string());
            }
        }
        tabs.iter().for_each(|tab| drop(stage.browser.call("Target.closeTarget", json!({"targetId": tab.target}))));
        Ok(())
    }),
    ("`file://` of media/browser, media/downloads and the profile", "yes", |stage| {
        let file = stage.desk.media("browser").join("local.html");
        fs::write(&file, "<title>local</title>").map_err(|error| error.to_string())?;
        let error = stage.browser.go(&stage.page.clone(), &format!("file://{}", file.display()));
        if error.is_empty() { stage.is("document.title", "local") } else { Err(error) }
    }),
    ("`file://` of the rest of the workspace, of the home directory, of /root", "no", |stage| {
        let files = [stage.desk.workspace().join("src/x.html"), stage.desk.place.at("home").join("secret.txt")];
        fs::create_dir_all(stage.desk.workspace().join("src")).expect("own");
        fs::write(&files[0], "x").expect("own");
        for url in files.iter().map(|file| format!("file://{}", file.display())).chain(["file:///root".to_owned()]) {
            let error = stage.browser.go(&stage.page.clone(), &url);
            if error != "net::ERR_FILE_NOT_FOUND" {
                return Err(format!("{url}: {error}"));
            }
        }
        Ok(())
    }),
];

/// Follows the download link of the site and returns the outcome.
fn download(stage: &mut Stage, state: &str) -> Result<(), String> {
    stage.eval("(() => { const a = document.createElement('a'); a.href = '/download'; document.body.append(a); a.click(); return 1 })()")?;
    let ended = stage.browser.event("Browser.downloadProgress", |event| event["state"] != "inProgress");
    let ended = ended["params"]["state"].as_str().unwrap_or_default().to_owned();
    if ended == state { Ok(()) } else { Err(ended) }
}

fn pick(stage: &mut Stage, file: &Path) -> Result<(), String> {
    let document = stage.browser.call_in(&stage.page, "DOM.getDocument", json!({}));
    let query = json!({"nodeId": document["root"]["nodeId"], "selector": "#file"});
    let node = stage.browser.call_in(&stage.page, "DOM.querySelector", query);
    let params = json!({"files": [file], "nodeId": node["nodeId"]});
    stage
        .browser
        .try_call("DOM.setFileInputFiles", params, Some(&stage.page))
        .map(drop)
        .map_err(|error| error.to_string())
}

#[test]
fn the_table_of_the_document_is_what_comes_out() {
    if !ready() {
        return;
    }
    let document = include_str!("../../docs/guide/browser.md");
    for user in users() {
        let desk = Desk::new(user);
        let site = Site::of(&[
            ("/", "text/html", PAGE),
            ("/worker.js", "text/javascript", WORKER),
            ("/service.js", "text/javascript", SERVICE),
        ]);
        let mut browser = desk.driven(&[], FLAGS);
        let page = browser.open(&site.url("/"));
        let mut stage = Stage { desk, site, browser, page };
        let mut table = String::from("| | works |\n|---|---|\n");
        let mut failed = Vec::new();
        for (name, answer, row) in ROWS {
            let began = std::time::Instant::now();
            match row(&mut stage) {
                Ok(()) => table.push_str(&format!("| {name} | {answer} |\n")),
                Err(why) => failed.push(format!("{name}: {why}")),
            }
            if began.elapsed().as_secs() >= 20 {
                eprintln!("{name} took {:?}", began.elapsed());
            }
        }
        assert!(failed.is_empty(), "user {user:?}:\n{}", failed.join("\n"));
        assert!(document.contains(&table), "docs/guide/browser.md lacks this table:\n{table}");
        let Stage { desk, browser, .. } = stage;
        assert_eq!(browser.close().code(), Some(0));
        let report = desk.report();
        assert_eq!(report["browser"]["inner_sandbox"], "on", "{report:#}");
        let told = format!("\"browser\":{}", report["browser"]);
        assert!(document.contains(&told), "docs/guide/browser.md lacks {told}");
        assert_eq!(layer(&report, "namespaces").0, "enforced", "{report:#}");
        let profile = desk.profile().display().to_string();
        eventually("every process has ended", || crate::plumbing::marked(&profile).is_empty());
    }
}
