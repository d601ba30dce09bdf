//! What the gatekeeper outside tells the one inside, through a file that has no name: the policy as TOML, and the rest of
//! the request byte for byte.

use crate::policy::{self, Document, PolicyError};
use crate::request::{Asked, Browser, Inside, Purpose, Request};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A request, and what the process inside cannot know by itself.
#[derive(Debug, Clone)]
pub struct Handover {
    pub request: Request,
    /// Signals that are blocked when the command starts.
    pub blocked: Vec<i32>,
    /// Whether the command shares the caller's terminal.
    pub shares_terminal: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    #[error("the policy cannot be handed over: {0}")]
    Policy(#[from] PolicyError),
    #[error("what was handed over is not whole")]
    Broken,
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Handover {
    pub fn to_bytes(&self) -> Result<Vec<u8>, HandoverError> {
        let request = &self.request;
        let words = match &request.asked {
            Asked::Command(words) => words.clone(),
            Asked::Line(line) => vec![line.clone()],
        };
        let own_network = request.inside.is_some_and(|inside| inside.own_network);
        let facts = [
            matches!(request.asked, Asked::Line(_)),
            own_network,
            self.shares_terminal,
            request.purpose == Purpose::Explain,
        ];
        let browser = request.browser.clone().unwrap_or_default();
        let of_browser = [request.browser.is_some(), browser.pipe, browser.port, browser.without_sandbox];
        let mut out = Vec::new();
        push(&mut out, request.flags.to_toml()?.as_bytes());
        push(&mut out, &facts.map(u8::from));
        push(&mut out, &of_browser.map(u8::from));
        for place in [browser.profile, browser.downloads] {
            push(&mut out, place.unwrap_or_default().as_os_str().as_bytes());
        }
        push(&mut out, &self.blocked.iter().map(|signal| *signal as u8).collect::<Vec<_>>());
        push(&mut out, request.cwd.as_os_str().as_bytes());
        push(&mut out, request.starts_in.as_deref().unwrap_or(Path::new("")).as_os_str().as_bytes());
        push(&mut out, request.home.as_deref().unwrap_or(Path::new("")).as_os_str().as_bytes());
        push(&mut out, &(words.len() as u32).to_le_bytes());
        words.iter().for_each(|word| push(&mut out, word.as_bytes()));
        for (name, value) in &request.environment {
            push(&mut out, name.as_bytes());
            push(&mut out, value.as_bytes());
        }
        Ok(out)
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Handover, HandoverError> {
        let mut parts = Parts(bytes);
        let toml = parts.next()?;
        let flags: Document = policy::parse(toml, Path::new("handed over.toml"))?;
        let [line, own_network, shares_terminal, explain] = parts.next()? else { return Err(HandoverError::Broken) };
        let [is_browser, pipe, port, without_sandbox] = parts.next()? else { return Err(HandoverError::Broken) };
        let mut place = || Ok::<_, HandoverError>(Some(path(parts.next()?)).filter(|path| path.is_absolute()));
        let browser = Browser {
            pipe: *pipe == 1,
            port: *port == 1,
            without_sandbox: *without_sandbox == 1,
            profile: place()?,
            downloads: place()?,
            ..Browser::default()
        };
        let blocked = parts.next()?.iter().map(|signal| i32::from(*signal)).collect();
        let cwd = path(parts.next()?);
        let starts_in = Some(path(parts.next()?)).filter(|directory| directory.is_absolute());
        let home = Some(path(parts.next()?)).filter(|home| home.is_absolute());
        let count = parts.next()?.try_into().map(u32::from_le_bytes).map_err(|_| HandoverError::Broken)?;
        let mut words = Vec::new();
        for _ in 0..count {
            words.push(text(parts.next()?));
        }
        let asked = match (line, words.as_slice()) {
            (1, [line]) => Asked::Line(line.clone()),
            _ => Asked::Command(words),
        };
        let mut environment = Vec::new();
        while !parts.0.is_empty() {
            environment.push((text(parts.next()?), text(parts.next()?)));
        }
        let request = Request {
            asked,
            cwd,
            starts_in,
            environment,
            home,
            flags: Document { sources: Vec::new(), ..flags },
            config: None,
            keep_tmp: false,
            helper: Some(PathBuf::from("/proc/self/exe")),
            purpose: if *explain == 1 { Purpose::Explain } else { Purpose::Confine },
            inside: Some(Inside { own_network: *own_network == 1 }),
            browser: (*is_browser == 1).then_some(browser),
            also_written: Vec::new(),
        };
        Ok(Handover { request, blocked, shares_terminal: *shares_terminal == 1 })
    }
}

struct Parts<'a>(&'a [u8]);

impl<'a> Parts<'a> {
    fn next(&mut self) -> Result<&'a [u8], HandoverError> {
        let (length, rest) = self.0.split_first_chunk::<4>().ok_or(HandoverError::Broken)?;
        let (part, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or(HandoverError::Broken)?;
        self.0 = rest;
        Ok(part)
    }
}

fn push(out: &mut Vec<u8>, part: &[u8]) {
    out.extend_from_slice(&(part.len() as u32).to_le_bytes());
    out.extend_from_slice(part);
}

fn text(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}

fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(text(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_handed_over_arrives() {
        let odd = OsString::from_vec(vec![b'a', 0xff, b'\n']);
        let mut flags = Document::default();
        flags.paths.write.push(PathBuf::from("/x"));
        let request = Request {
            asked: Asked::Command(vec!["echo".into(), odd.clone(), "".into()]),
            cwd: PathBuf::from("/w"),
            starts_in: Some(PathBuf::from("/w/sub")),
            environment: vec![("A".into(), odd.clone()), ("B".into(), "".into())],
            home: None,
            flags,
            config: None,
            keep_tmp: false,
            helper: None,
            purpose: Purpose::Explain,
            inside: Some(Inside { own_network: true }),
            browser: Some(Browser { pipe: true, profile: Some(PathBuf::from("/p")), ..Browser::default() }),
            also_written: Vec::new(),
        };
        let sent = Handover { request, blocked: vec![2, 15], shares_terminal: true };
        let bytes = sent.to_bytes().expect("printable");
        let got = Handover::from_bytes(&bytes).expect("whole");
        assert_eq!(got.request.asked, sent.request.asked);
        assert_eq!(got.request.environment, sent.request.environment);
        assert_eq!(
            (&got.request.cwd, &got.request.starts_in, &got.request.home),
            (&sent.request.cwd, &sent.request.starts_in, &None)
        );
        assert_eq!(got.request.flags.paths, sent.request.flags.paths);
        assert_eq!((got.request.purpose, got.request.inside), (Purpose::Explain, sent.request.inside));
        assert_eq!(got.request.browser, sent.request.browser);
        assert_eq!((got.blocked, got.shares_terminal), (vec![2, 15], true));
        for end in 0..bytes.len() {
            let cut = Handover::from_bytes(&bytes[..end]);
            assert!(cut.is_err() || end > bytes.len() - 30, "cut at {end}");
        }
    }
}
