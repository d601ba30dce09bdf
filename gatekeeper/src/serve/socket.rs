//! The socket file of the server: private to this user, never reached through a link that a command may have planted, and never
//! put in the place of something else.

use super::session::Session;
use super::{Requests, client};
use crate::trust::{self, Hostile};
use rustix::fs::{AtFlags, FileType, Mode, statat, unlinkat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many clients are served at the same time.
const CLIENTS: usize = 64;

/// Binds the socket file, with mode 0600. A file that a dead server left is replaced; anything else is an error.
pub(super) fn listen(path: &Path) -> io::Result<UnixListener> {
    let refused = |why: &str| io::Error::other(format!("{}: {why}", path.display()));
    let (Some(name), absolute) = (path.file_name(), std::path::absolute(path)?) else {
        return Err(refused("it names no file"));
    };
    let parent = absolute.parent().ok_or_else(|| refused("it names no file"))?;
    let found = trust::walk(parent, &Hostile::here()).map_err(|error| io::Error::other(error.to_string()))?;
    if !found.is_directory() {
        return Err(refused("its parent is not a directory"));
    }
    if !trust::is_safe_base(&found.stat) {
        return Err(refused(
            "other users can replace it: its directory must belong to root or to this user, and be sticky if others may write there",
        ));
    }
    // By descriptor, so that the directory cannot be exchanged; and short, because sun_path holds 107 bytes.
    let here = Path::new("/proc/self/fd").join(found.file.as_raw_fd().to_string()).join(name);
    match statat(&found.file, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::Socket => {
            return Err(refused("something else has this name; remove it, or choose another"));
        }
        Ok(stat) if stat.st_uid != rustix::process::geteuid().as_raw() => {
            return Err(refused("it is a socket of another user"));
        }
        Ok(_) => match UnixStream::connect(&here) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                unlinkat(&found.file, name, AtFlags::empty())?;
            }
            _ => return Err(refused("another server listens there")),
        },
    }
    // No thread has been started yet, so nothing else creates files meanwhile.
    let before = rustix::process::umask(Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(&here);
    rustix::process::umask(before);
    let listener = listener.map_err(|error| refused(&error.to_string()))?;
    let made = statat(&found.file, name, AtFlags::SYMLINK_NOFOLLOW)?;
    match FileType::from_raw_mode(made.st_mode) == FileType::Socket && made.st_mode & 0o777 == 0o600 {
        true => Ok(listener),
        false => Err(refused("it was exchanged while it was made")),
    }
}

/// Serves each client on a thread.
pub(super) fn accept(listener: &UnixListener, requests: &Requests) -> io::Result<()> {
    static CLIENTS_NOW: AtomicUsize = AtomicUsize::new(0);
    loop {
        let mut client = match listener.accept() {
            Ok((client, _)) => client,
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::ECONNABORTED)) => continue,
            Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                // Until a client leaves.
                std::thread::sleep(std::time::Duration::from_millis(100));
                continue;
            }
            Err(error) => return Err(error),
        };
        let refusal = match CLIENTS_NOW.load(Ordering::SeqCst) {
            CLIENTS.. => Some("too many clients"),
            _ => client::refusal(&client),
        };
        if let Some(error) = refusal {
            let _ = writeln!(client, "{}", serde_json::json!({"id": null, "error": error}));
            continue;
        }
        let requests = requests.clone();
        CLIENTS_NOW.fetch_add(1, Ordering::SeqCst);
        let served = std::thread::Builder::new().spawn(move || {
            let input = File::from(OwnedFd::from(client));
            // A client whose connection fails has gone; the server serves the others.
            let _ = input.try_clone().and_then(|output| Session::new(output, requests).serve(input));
            CLIENTS_NOW.fetch_sub(1, Ordering::SeqCst);
        });
        if served.is_err() {
            CLIENTS_NOW.fetch_sub(1, Ordering::SeqCst);
        }
    }
}
