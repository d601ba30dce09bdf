//! Protected paths that a process outside the sandbox changed during the run. The guardian notices; the report says so.

use crate::enforce::mounts::path_of;
use crate::report::{Layer, LayerReport, LayerStatus};
use crate::sys::message::Message;
use crate::sys::mounts::Mounts;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

/// The changes during a run.
#[derive(Debug, Default)]
pub struct Changed {
    /// How often each path was replaced, and the longest time in microseconds until it was protected again.
    renewed: BTreeMap<PathBuf, (u32, i64)>,
    gone: BTreeMap<PathBuf, ()>,
    /// The errno, if changes could not be watched.
    unwatched: Option<i32>,
    /// Which path could not be protected again, and why.
    pub lost: Option<String>,
}

/// The path of a mount.
pub fn place(mounts: Option<&Mounts>, at: usize) -> Option<PathBuf> {
    mounts?.mounts.get(at).map(|mount| path_of(mount.path()))
}

impl Changed {
    /// Handles a message of the guardian. `held` are the watched paths, if bubblewrap made the mounts.
    pub fn hear(&mut self, kind: u32, message: &Message, mounts: Option<&Mounts>, held: &[PathBuf]) {
        let at = usize::try_from(message.a).unwrap_or(usize::MAX);
        let path = || place(mounts, at).or_else(|| held.get(at).cloned()).unwrap_or_default();
        let [number, ..] = message.usage;
        match kind {
            Message::RENEWED => {
                let (count, longest) = self.renewed.entry(path()).or_default();
                *count += 1;
                *longest = number.max(*longest);
                self.gone.remove(&path());
            }
            Message::GONE => drop(self.gone.insert(path(), ())),
            Message::UNWATCHED => self.unwatched = Some(message.a),
            Message::LOST => {
                let path = path();
                let why = match i32::try_from(number) {
                    Ok(0) | Err(_) => "bubblewrap's mounts cannot be renewed".to_owned(),
                    Ok(errno) => io::Error::from_raw_os_error(errno).to_string(),
                };
                let text = format!(
                    "{} was changed from outside during the run and could not be protected again: {why}",
                    path.display()
                );
                self.lost.get_or_insert(text);
            }
            _ => {}
        }
    }

    /// Adds the changes to the report. A layer whose protection had a gap is `partial`.
    pub fn tell(self, layers: &mut [LayerReport]) {
        let mut parts = Vec::new();
        for (path, (count, longest)) in &self.renewed {
            let times = if *count == 1 { String::new() } else { format!(" {count} times") };
            parts.push(format!(
                "{} was replaced{times} from outside during the run, and protected again at most {} ms after gatekeeper \
                 noticed",
                path.display(),
                longest / 1000 + 1
            ));
        }
        for path in self.gone.keys() {
            parts.push(format!(
                "{} was removed from outside during the run; from then on the command could create it",
                path.display()
            ));
        }
        if let Some(errno) = self.unwatched {
            let why = io::Error::from_raw_os_error(errno);
            parts.push(format!(
                "paths that are replaced from outside during the run lose their protection: they cannot be watched ({why}; see \
                 fs.dir-notify-enable)"
            ));
        }
        parts.extend(self.lost);
        if parts.is_empty() {
            return;
        }
        for layer in layers.iter_mut().filter(|layer| layer.layer == Layer::Namespaces) {
            layer.status = LayerStatus::Partial;
            layer.detail = format!("{}; {}", layer.detail, parts.join("; "));
        }
    }
}
