//! How the outer gatekeeper passes a request to the one inside bubblewrap: as JSON in a memory file. The policy travels
//! as the TOML document that the printer and the parser of policies already share.

use crate::policy::{self, Document, PolicyError};
use crate::request::{Asked, Browser, Inside, Purpose, Request};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// A request, and what the inner process cannot find out by itself.
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
    #[error("cannot pass on the policy: {0}")]
    Policy(#[from] PolicyError),
    #[error("cannot pass on the request: {0}")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A [`Handover`] in types that serialize without loss: serde takes an `OsString` byte by byte, but a `Path` only if it is
/// UTF-8.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    policy: String,
    asked: Asked,
    cwd: OsString,
    starts_in: Option<OsString>,
    environment: Vec<(OsString, OsString)>,
    home: Option<OsString>,
    config: Option<OsString>,
    keep_tmp: bool,
    helper: Option<OsString>,
    purpose: Purpose,
    inside: Option<Inside>,
    browser: Option<WireBrowser>,
    also_written: Vec<OsString>,
    blocked: Vec<i32>,
    shares_terminal: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireBrowser {
    pipe: bool,
    port: bool,
    without_sandbox: bool,
    profile: Option<OsString>,
    downloads: Option<OsString>,
    etc: Vec<OsString>,
    devices: Vec<OsString>,
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

    fn try_from(Handover { request, blocked, shares_terminal }: Handover) -> Result<Wire, HandoverError> {
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
            also_written,
        } = request;
        Ok(Wire {
            policy: flags.to_toml()?,
            asked,
            cwd: cwd.into(),
            starts_in: starts_in.map(OsString::from),
            environment,
            home: home.map(OsString::from),
            config: config.map(OsString::from),
            keep_tmp,
            helper: helper.map(OsString::from),
            purpose,
            inside,
            browser: browser.map(WireBrowser::from),
            also_written: converted(also_written),
            blocked,
            shares_terminal,
        })
    }
}

impl TryFrom<Wire> for Handover {
    type Error = HandoverError;

    fn try_from(wire: Wire) -> Result<Handover, HandoverError> {
        let flags = policy::parse(wire.policy.as_bytes(), Path::new("handed over.toml"))?;
        let request = Request {
            asked: wire.asked,
            cwd: wire.cwd.into(),
            starts_in: wire.starts_in.map(PathBuf::from),
            environment: wire.environment,
            home: wire.home.map(PathBuf::from),
            // The text came through memory: no file of that name has to be protected.
            flags: Document { sources: Vec::new(), ..flags },
            config: wire.config.map(PathBuf::from),
            keep_tmp: wire.keep_tmp,
            helper: wire.helper.map(PathBuf::from),
            purpose: wire.purpose,
            inside: wire.inside,
            browser: wire.browser.map(Browser::from),
            also_written: converted(wire.also_written),
        };
        Ok(Handover { request, blocked: wire.blocked, shares_terminal: wire.shares_terminal })
    }
}

impl From<Browser> for WireBrowser {
    fn from(browser: Browser) -> WireBrowser {
        let Browser { pipe, port, without_sandbox, profile, downloads, etc, devices } = browser;
        WireBrowser {
            pipe,
            port,
            without_sandbox,
            profile: profile.map(OsString::from),
            downloads: downloads.map(OsString::from),
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

fn converted<A, B: From<A>>(list: Vec<A>) -> Vec<B> {
    list.into_iter().map(B::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

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
                also_written: path("written").into_iter().collect(),
            };
            let sent = Handover { request, blocked: vec![2, 15], shares_terminal: true };
            let bytes = sent.clone().into_bytes().expect("printable");
            let got = Handover::from_bytes(&bytes).expect("whole");
            assert_eq!(format!("{got:?}"), format!("{sent:?}"));
            assert!((0..bytes.len()).all(|end| Handover::from_bytes(&bytes[..end]).is_err()), "a cut text is an error");
        }
    }

    #[test]
    fn a_request_of_defaults_stays_one() {
        let request = Request::new(Asked::Command(Vec::new()), PathBuf::from("/w"), Vec::new());
        let sent = Handover { request, blocked: Vec::new(), shares_terminal: false };
        let got = Handover::from_bytes(&sent.clone().into_bytes().expect("printable")).expect("whole");
        assert_eq!(format!("{got:?}"), format!("{sent:?}"));
    }
}
