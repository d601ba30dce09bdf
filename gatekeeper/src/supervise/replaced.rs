//! What somebody outside changed of what the mounts protect: heard from the guardian, told in the report.

use crate::enforce::mounts::path_of;
use crate::report::{Layer, LayerReport, LayerStatus};
use crate::sys::message::Message;
use crate::sys::mounts::Mounts;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

/// Every change of a run.
#[derive(Debug, Default)]
pub struct Changed {
    /// How often each was replaced, and the longest time in microseconds until it was protected again.
    renewed: BTreeMap<PathBuf, (u32, i64)>,
    gone: BTreeMap<PathBuf, ()>,
    unwatched: Option<i32>,
    /// What could not be protected again.
    pub lost: Option<String>,
}

/// Where a mount is.
pub fn place(mounts: Option<&Mounts>, at: usize) -> Option<PathBuf> {
    mounts?.mounts.get(at).map(|mount| path_of(mount.path()))
}

impl Changed {
    /// A message of the guardian; `held` is what was watched where the mounts are bubblewrap's.
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
                    Ok(0) | Err(_) => "bubblewrap's mounts cannot be made again".to_owned(),
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

    /// Puts it into the report: a layer whose protection had a gap was in force in part.
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
                "{} was removed from outside during the run; from then on the command could make it",
                path.display()
            ));
        }
        if let Some(errno) = self.unwatched {
            let why = io::Error::from_raw_os_error(errno);
            parts.push(format!(
                "what is replaced from outside during the run is not protected any more: no watch can be made ({why}; see \
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
