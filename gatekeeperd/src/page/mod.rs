//! The files of the operator's page: plain HTML, style and script, compiled into the program. No build step, no other host.

const SCRIPT: &str = "text/javascript; charset=utf-8";

const FILES: [(&str, &str, &[u8]); 8] = [
    ("/", "text/html; charset=utf-8", include_bytes!("index.html")),
    ("/style.css", "text/css; charset=utf-8", include_bytes!("style.css")),
    ("/icon.svg", "image/svg+xml", include_bytes!("icon.svg")),
    ("/start.js", SCRIPT, include_bytes!("start.js")),
    ("/dom.js", SCRIPT, include_bytes!("dom.js")),
    ("/sessions.js", SCRIPT, include_bytes!("sessions.js")),
    ("/live.js", SCRIPT, include_bytes!("live.js")),
    ("/records.js", SCRIPT, include_bytes!("records.js")),
];

/// The content type and the bytes of a file, by its path.
pub fn file(path: &str) -> Option<(&'static str, &'static [u8])> {
    FILES.iter().find(|(known, ..)| *known == path).map(|(_, kind, bytes)| (*kind, *bytes))
}
