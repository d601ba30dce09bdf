//! Cookies in the shape of the debugging protocol. Their values appear in no message and no debug output.

use super::state::NoticeKind;
use super::{Browser, BrowserError, START};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use zeroize::Zeroize;

/// A cookie as `Network.getCookies` returns it.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cookie {
    pub name: String,
    pub value: String,
    pub domain: String,
    #[serde(default = "root")]
    pub path: String,
    /// Seconds since 1970; absent or -1 for a cookie that lasts as long as the browser.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<f64>,
    #[serde(default)]
    pub http_only: bool,
    #[serde(default)]
    pub secure: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_site: Option<SameSite>,
    /// The site in whose frames a partitioned cookie is sent. Without it, the cookie would be sent everywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition_key: Option<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SameSite {
    Strict,
    Lax,
    None,
}

/// The most bytes of name and value that browsers take.
const LONGEST: usize = 4096;

fn root() -> String {
    "/".to_owned()
}

impl std::fmt::Debug for Cookie {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cookie").field("domain", &self.domain).finish_non_exhaustive()
    }
}

impl Cookie {
    /// Why no browser would take this cookie, as far as that can be known beforehand.
    pub fn fault(&self) -> Option<&'static str> {
        let odd = |text: &str| text.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t' || byte == b';');
        let prefixed =
            |prefix: &str| self.name.get(..prefix.len()).is_some_and(|name| name.eq_ignore_ascii_case(prefix));
        if odd(&self.name) || odd(&self.value) || odd(&self.path) || self.name.contains('=') {
            return Some("its name, value or path has a character that no cookie has");
        }
        if self.name.len() + self.value.len() > LONGEST {
            return Some("it is longer than 4096 bytes");
        }
        if (prefixed("__Secure-") || prefixed("__Host-")) && !self.secure {
            return Some("a name with __Secure- or __Host- needs secure");
        }
        if prefixed("__Host-") && (self.path != "/" || self.domain.starts_with('.')) {
            return Some("a name with __Host- needs the path / and a domain without a leading dot");
        }
        match &self.partition_key {
            Some(key) if !key["topLevelSite"].is_string() => Some("its partitionKey is no object with topLevelSite"),
            _ => None,
        }
    }
}

impl Drop for Cookie {
    fn drop(&mut self) {
        self.value.zeroize();
    }
}

impl Browser {
    /// Puts cookies into the browser. Call it before the first page: requests that were sent earlier did not carry them. A
    /// cookie that the browser refuses is left out and reported as a notice.
    ///
    /// # Errors
    /// The browser refused all of them, or has ended.
    pub async fn set_cookies(&self, cookies: &[Cookie]) -> Result<(), BrowserError> {
        if cookies.is_empty() {
            return Ok(());
        }
        let mut list = Vec::new();
        for cookie in cookies {
            let mut one = json!(cookie);
            if cookie.expires.is_none_or(|at| at < 0.0)
                && let Some(fields) = one.as_object_mut()
            {
                fields.remove("expires");
            }
            list.push(one);
        }
        // One that is refused makes the browser refuse the whole list.
        match self.put_cookies(&list).await {
            Err(BrowserError::Refused(_)) => {}
            done => return done,
        }
        let mut refused = 0;
        for (at, (one, cookie)) in list.iter().zip(cookies).enumerate() {
            match self.put_cookies(std::slice::from_ref(one)).await {
                // The browser's own message could name the cookie.
                Err(BrowserError::Refused(_)) => {
                    refused += 1;
                    let host = cookie.domain.trim_start_matches('.');
                    let text = format!("the browser refused cookie {at} of this session, which belongs to {host}");
                    self.inner.shared.change(|state| state.notice(NoticeKind::Cookie, &text));
                }
                done => done?,
            }
        }
        match refused == list.len() {
            true => Err(BrowserError::Wrong("the browser refused every stored cookie".to_owned())),
            false => Ok(()),
        }
    }

    async fn put_cookies(&self, list: &[Value]) -> Result<(), BrowserError> {
        let params = json!({"cookies": list});
        let set = self.inner.shared.connection.call(None, "Storage.setCookies", params, START).await;
        set.map(drop).map_err(|error| self.failed("set cookies", error))
    }

    /// All cookies of the browser, for storing them after a login.
    pub async fn cookies(&self) -> Result<Vec<Cookie>, BrowserError> {
        let got = self.inner.shared.connection.call(None, "Storage.getCookies", json!({}), START).await;
        let mut got = got.map_err(|error| self.failed("get cookies", error))?;
        serde_json::from_value(got["cookies"].take()).map_err(|_| {
            BrowserError::Wrong("the browser's list of cookies has another shape than expected".to_owned())
        })
    }
}
