//! noVNC, in the browser's container: x11vnc shows the display on a UNIX socket, on which it also speaks WebSocket, and the relay
//! serves the pages of noVNC. x11vnc has no TCP port: a page in the browser could connect to one.

use super::chromium::Ended;
use super::log::Log;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = "/usr/bin/x11vnc";
/// Where Debian's package has the pages.
const FILES: &str = "/usr/share/novnc";
/// The largest of them.
const LARGEST: u64 = 4 << 20;

/// Starts x11vnc. Returns its socket as well.
pub fn start(display: &str, log: &Log) -> io::Result<(Ended, PathBuf)> {
    for needed in [PROGRAM, "/usr/share/novnc/vnc.html"] {
        if !Path::new(needed).exists() {
            return Err(io::Error::other(format!("browser.enableNoVnc is true, and the image has no {needed}")));
        }
    }
    let directory = Path::new(super::TEMPORARY).join("vnc");
    std::fs::DirBuilder::new().mode(0o700).create(&directory)?;
    let socket = directory.join("socket");
    let mut command = Command::new(PROGRAM);
    command.args(["-display", display, "-forever", "-shared", "-nopw", "-quiet"]).arg("-unixsock").arg(&socket);
    // No port, also none of IPv6.
    command.args(["-rfbport", "0", "-rfbportv6", "-1", "-no6"]);
    // The browser is a client of the same display, and could give orders by properties of its windows.
    command.args(["-nocmds", "-noremote", "-novncconnect"]);
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    if let Some(stderr) = child.stderr.take() {
        log.follow(stderr);
    }
    let mut child = Ended(child);
    let deadline = Instant::now() + Duration::from_secs(20);
    while !socket.exists() {
        if child.0.try_wait()?.is_some() || Instant::now() > deadline {
            return Err(io::Error::other("x11vnc does not start"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok((child, socket))
}

/// A file of noVNC and its type.
pub fn file(path: &str) -> Option<(&'static str, Vec<u8>)> {
    let relative = Path::new(path.trim_start_matches('/'));
    let plain =
        |part: Component<'_>| matches!(part, Component::Normal(name) if !name.as_encoded_bytes().starts_with(b"."));
    let kind = match relative.extension()?.to_str()? {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff" => "font/woff",
        "ttf" => "font/ttf",
        "oga" | "mp3" => "audio/ogg",
        _ => return None,
    };
    let whole = Path::new(FILES).join(relative);
    if !relative.components().all(plain) || std::fs::metadata(&whole).ok()?.len() > LARGEST {
        return None;
    }
    Some((kind, std::fs::read(whole).ok()?))
}
