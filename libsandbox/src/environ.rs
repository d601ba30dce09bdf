//! The request: what the environment asks for.

use crate::failure::Failure;
use crate::raw;
use core::ffi::CStr;
use sandbox_contract::action::Action;
use sandbox_contract::vars;

/// The values borrow the process's environment block, which outlives them: taking a variable out drops a
/// pointer, not a string.
pub struct Request {
    pub allow: Option<&'static [u8]>,
    pub deny: Option<&'static [u8]>,
    pub action: Action,
    pub filter: Option<&'static CStr>,
    pub fs_read: Option<&'static [u8]>,
    pub fs_write: Option<&'static [u8]>,
    pub verbose: bool,
    pub required: bool,
}

impl Request {
    pub fn read() -> Result<Request, Failure<'static>> {
        let get = |name: &str| raw::variable(name).map(CStr::to_bytes);
        let switch = |name: &str| get(name).is_some_and(|value| !matches!(value, b"" | b"0"));
        let action = match get(vars::ACTION) {
            Some(text) => Action::parse(text).ok_or(Failure::UnknownAction(text))?,
            None => Action::Kill,
        };
        let request = Request {
            allow: get(vars::ALLOW),
            deny: get(vars::DENY),
            action,
            filter: raw::variable(vars::FILTER),
            fs_read: get(vars::FS_READ),
            fs_write: get(vars::FS_WRITE),
            verbose: switch(vars::VERBOSE),
            required: switch(vars::REQUIRED),
        };
        // The environment of a setuid program is its caller's, who must not choose which of its calls fail.
        // SAFETY: getauxval only reads the auxiliary vector.
        if !request.is_empty() && unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
            return Err(Failure::Privileged);
        }
        Ok(request)
    }

    /// Whether nothing is to be enforced: an action alone confines nothing.
    pub fn is_empty(&self) -> bool {
        self.allow.is_none()
            && self.deny.is_none()
            && self.filter.is_none()
            && self.fs_read.is_none()
            && self.fs_write.is_none()
    }
}
