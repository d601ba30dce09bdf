//! The display of a browser that is not headless: its sockets, its cookie, and the variables that name them.

use crate::plan::browser::Arguments;
use crate::request::variable;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

#[derive(Debug, Default)]
pub struct Display {
    pub sockets: Vec<PathBuf>,
    pub files: Vec<PathBuf>,
    pub variables: Vec<(String, String)>,
}

/// A headless browser gets none: any client of an X server can read other windows and every key press.
pub fn find(given: &Arguments, caller: &[(OsString, OsString)]) -> Display {
    let mut display = Display::default();
    if given.headless {
        return display;
    }
    let variable = |name: &str| variable(caller, name).and_then(|value| value.to_str());
    if let Some(name) = variable("DISPLAY").filter(|name| !name.is_empty()) {
        display.variables.push(("DISPLAY".to_owned(), name.to_owned()));
        display.sockets.extend(x_socket(name).filter(|socket| socket.exists()));
        let home = || variable("HOME").map(|home| Path::new(home).join(".Xauthority"));
        let cookie = variable("XAUTHORITY").map(PathBuf::from).or_else(home).filter(|file| file.is_file());
        if let Some(real) = cookie.and_then(|file| std::fs::canonicalize(file).ok()) {
            display.variables.extend(real.to_str().map(|path| ("XAUTHORITY".to_owned(), path.to_owned())));
            display.files.push(real);
        }
    }
    if let (Some(name), Some(directory)) = (variable("WAYLAND_DISPLAY"), variable("XDG_RUNTIME_DIR")) {
        let socket = Path::new(directory).join(name);
        if let Some(real) = std::fs::canonicalize(socket).ok().filter(|_| !name.is_empty()) {
            // An absolute path, because XDG_RUNTIME_DIR differs inside the sandbox (wl_display_connect takes either).
            display.variables.extend(real.to_str().map(|path| ("WAYLAND_DISPLAY".to_owned(), path.to_owned())));
            display.sockets.push(real);
        }
    }
    display
}

/// The socket of `:0`, `:0.1` or `unix:0`. A display on another host has none here.
fn x_socket(name: &str) -> Option<PathBuf> {
    let (host, number) = name.rsplit_once(':')?;
    let number = number.split('.').next()?;
    let local = matches!(host, "" | "unix") && !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    local.then(|| PathBuf::from(format!("/tmp/.X11-unix/X{number}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_display_of_this_machine_has_a_socket() {
        for (name, socket) in [(":0", Some("0")), (":12.1", Some("12")), ("unix:3", Some("3"))] {
            let path = socket.map(|number| PathBuf::from(format!("/tmp/.X11-unix/X{number}")));
            assert_eq!(x_socket(name), path, "{name}");
        }
        for name in ["host:0", "localhost:10.0", ":", "0", ":../../x"] {
            assert_eq!(x_socket(name), None, "{name}");
        }
    }
}
