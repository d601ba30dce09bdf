//! How the outer gatekeeper passes a request to the one inside bubblewrap: as JSON in a memory file. The policy travels
//! as the TOML document that the printer and the parser of policies already share.

use crate::policy::{self, Document, PolicyError};
use crate::request::{Ask, Asked, Browser, Inside, Issued, Purpose, Request};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A request, and what the inner process cannot find out by itself.
#[derive(Debug, Clone)]
pub struct Handover {
    pub request: Request,
    /// Signals that are blocked when the command starts.
    pub blocked: Vec<i32>,
    /// Whether the command shares the caller's terminal.
    pub shares_terminal: bool,
    /// The name of the audit file in the directory that is handed over, and the id of the run.
    pub audit: Option<(OsString, String)>,
}

#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    #[error("cannot pass on the policy: {0}")]
    Policy(#[from] PolicyError),
    #[error("cannot pass on the request: {0}")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A [`Handover`] in types that serialize without loss.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    policy: String,
    asked: WireAsked,
    cwd: Text,
    starts_in: Option<Text>,
    environment: Vec<(Text, Text)>,
    home: Option<Text>,
    config: Option<Text>,
    keep_tmp: bool,
    helper: Option<Text>,
    purpose: Purpose,
    inside: Option<Inside>,
    browser: Option<WireBrowser>,
    also_written: Vec<Text>,
    asks: bool,
    issued: Option<Issued>,
    blocked: Vec<i32>,
    shares_terminal: bool,
    audit: Option<(Text, String)>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireBrowser {
    pipe: bool,
    port: bool,
    without_sandbox: bool,
    profile: Option<Text>,
    downloads: Option<Text>,
    etc: Vec<Text>,
    devices: Vec<Text>,
}

#[derive(Serialize, Deserialize)]
enum WireAsked {
    Command(Vec<Text>),
    Line(Text),
}

/// A path, word or variable. serde would refuse a path that is not UTF-8, and write each `OsString` as a list of numbers,
/// which takes seven times as long as text.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Text {
    Utf8(String),
    Bytes(Vec<u8>),
}

impl Handover {
    pub fn into_bytes(self) -> Result<Vec<u8>, HandoverError> {
        Ok(serde_json::to_vec(&Wire::try_from(self)?)?)
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Handover, HandoverError> {
        Handover::try_from(serde_json::from_slice::<Wire>(bytes)?)
    }
}

// Every pattern below names all fields, without `..`: a new field of Request does not compile until it is handed over.

impl TryFrom<Handover> for Wire {
    type Error = HandoverError;

    fn try_from(Handover { request, blocked, shares_terminal, audit }: Handover) -> Result<Wire, HandoverError> {
        let Request {
            asked,
            cwd,
            starts_in,
            environment,
            home,
            flags,
            config,
            keep_tmp,
            helper,
            purpose,
            inside,
            browser,
            stage: _,
            also_written,
            ask,
            issued,
            // The gatekeeper outside has opened it.
            audit: _,
            // The gatekeeper outside has looked at it.
            socket: _,
        } = request;
        Ok(Wire {
            policy: flags.to_toml()?,
            asked: asked.into(),
            cwd: cwd.into(),
            starts_in: starts_in.map(Text::from),
            environment: environment.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
            home: home.map(Text::from),
            config: config.map(Text::from),
            keep_tmp,
            helper: helper.map(Text::from),
            purpose,
            inside,
            browser: browser.map(WireBrowser::from),
            also_written: converted(also_written),
            asks: ask.is_some(),
            issued,
            blocked,
            shares_terminal,
            audit: audit.map(|(name, run)| (name.into(), run)),
        })
    }
}

impl TryFrom<Wire> for Handover {
    type Error = HandoverError;

    fn try_from(wire: Wire) -> Result<Handover, HandoverError> {
        let flags = policy::parse(wire.policy.as_bytes(), Path::new("handed over.toml"))?;
        let request = Request {
            asked: wire.asked.into(),
            cwd: wire.cwd.into(),
            starts_in: wire.starts_in.map(PathBuf::from),
            environment: wire.environment.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
            home: wire.home.map(PathBuf::from),
            // The text came through memory: no file of that name has to be protected.
            flags: Document { sources: Vec::new(), ..flags },
            config: wire.config.map(PathBuf::from),
            keep_tmp: wire.keep_tmp,
            helper: wire.helper.map(PathBuf::from),
            purpose: wire.purpose,
            inside: wire.inside,
            browser: wire.browser.map(Browser::from),
            // A stage is not combined with bubblewrap.
            stage: None,
            also_written: converted(wire.also_written),
            // The gatekeeper outside counts the time, and knows what is never asked.
            ask: wire.asks.then(Ask::default),
            issued: wire.issued,
            audit: None,
            socket: None,
        };
        let audit = wire.audit.map(|(name, run)| (name.into(), run));
        Ok(Handover { request, blocked: wire.blocked, shares_terminal: wire.shares_terminal, audit })
    }
}

impl From<Browser> for WireBrowser {
    fn from(browser: Browser) -> WireBrowser {
        let Browser { pipe, port, without_sandbox, profile, downloads, etc, devices } = browser;
        WireBrowser {
            pipe,
            port,
            without_sandbox,
            profile: profile.map(Text::from),
            downloads: downloads.map(Text::from),
            etc: converted(etc),
            devices: converted(devices),
        }
    }
}

impl From<WireBrowser> for Browser {
    fn from(wire: WireBrowser) -> Browser {
        Browser {
            pipe: wire.pipe,
            port: wire.port,
            without_sandbox: wire.without_sandbox,
            profile: wire.profile.map(PathBuf::from),
            downloads: wire.downloads.map(PathBuf::from),
            etc: converted(wire.etc),
            devices: converted(wire.devices),
        }
    }
}

impl From<Asked> for WireAsked {
    fn from(asked: Asked) -> WireAsked {
        match asked {
            Asked::Command(words) => WireAsked::Command(converted(words)),
            Asked::Line(line) => WireAsked::Line(line.into()),
        }
    }
}

impl From<WireAsked> for Asked {
    fn from(asked: WireAsked) -> Asked {
        match asked {
            WireAsked::Command(words) => Asked::Command(converted(words)),
            WireAsked::Line(line) => Asked::Line(line.into()),
        }
    }
}

impl From<OsString> for Text {
    fn from(text: OsString) -> Text {
        text.into_string().map_or_else(|bytes| Text::Bytes(bytes.into_vec()), Text::Utf8)
    }
}

impl From<PathBuf> for Text {
    fn from(path: PathBuf) -> Text {
        path.into_os_string().into()
    }
}

impl From<Text> for OsString {
    fn from(text: Text) -> OsString {
        match text {
            Text::Utf8(text) => text.into(),
            Text::Bytes(bytes) => OsString::from_vec(bytes),
        }
    }
}

impl From<Text> for PathBuf {
    fn from(text: Text) -> PathBuf {
        OsString::from(text).into()
    }
}

fn converted<A, B: From<A>>(list: Vec<A>) -> Vec<B> {
    list.into_iter().map(B::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_arrives_byte_for_byte() {
        let odd = OsString::from_vec(vec![b'a', 0xff, b'\n', b'"', 0x01]);
        let path = |name: &str| Some(PathBuf::from("/").join(&odd).join(name));
        let mut flags = Document::default();
        flags.paths.write.push(PathBuf::from("/x"));
        for asked in [Asked::Command(vec!["echo".into(), odd.clone(), "".into()]), Asked::Line(odd.clone())] {
            let request = Request {
                asked,
                cwd: PathBuf::from("/w"),
                starts_in: path("sub"),
                environment: vec![("A".into(), odd.clone()), ("B".into(), "".into())],
                home: path("home"),
                flags: flags.clone(),
                config: path("config"),
                keep_tmp: true,
                helper: path("helper"),
                purpose: Purpose::Explain,
                inside: Some(Inside { own_network: true }),
                browser: Some(Browser {
                    pipe: true,
                    port: true,
                    without_sandbox: true,
                    profile: path("profile"),
                    downloads: path("downloads"),
                    etc: path("etc").into_iter().collect(),
                    devices: path("devices").into_iter().collect(),
                }),
                stage: None,
                also_written: path("written").into_iter().collect(),
                ask: Some(Ask::default()),
                issued: Some(Issued {
                    bundle: b"pem".to_vec(),
                    java: vec![0xfe, 0xed],
                    placeholders: vec![("A".to_owned(), "x".to_owned())],
                }),
                audit: None,
                socket: None,
            };
            let sent = Handover {
                request,
                blocked: vec![2, 15],
                shares_terminal: true,
                audit: Some((odd.clone(), "r".to_owned())),
            };
            let bytes = sent.clone().into_bytes().expect("printable");
            let got = Handover::from_bytes(&bytes).expect("whole");
            assert_eq!(format!("{got:?}"), format!("{sent:?}"));
            assert!((0..bytes.len()).all(|end| Handover::from_bytes(&bytes[..end]).is_err()), "a cut text is an error");
        }
    }

    #[test]
    fn a_request_of_defaults_stays_one() {
        let request = Request::new(Asked::Command(Vec::new()), PathBuf::from("/w"), Vec::new());
        let sent = Handover { request, blocked: Vec::new(), shares_terminal: false, audit: None };
        let got = Handover::from_bytes(&sent.clone().into_bytes().expect("printable")).expect("whole");
        assert_eq!(format!("{got:?}"), format!("{sent:?}"));
    }
}
