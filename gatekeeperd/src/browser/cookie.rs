//! Cookies in the shape of the debugging protocol. Their values appear in no message and no debug output.

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

fn root() -> String {
    "/".to_owned()
}

impl std::fmt::Debug for Cookie {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cookie").field("domain", &self.domain).finish_non_exhaustive()
    }
}

impl Drop for Cookie {
    fn drop(&mut self) {
        self.value.zeroize();
    }
}

impl Browser {
    /// Puts cookies into the browser. Call it before the first page: requests that were sent earlier did not carry them.
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
        let set = self.inner.shared.connection.call(None, "Storage.setCookies", json!({"cookies": list}), START).await;
        // The browser's own message could name a cookie.
        set.map(drop).map_err(|error| match self.failed("set cookies", error) {
            BrowserError::Refused(_) => BrowserError::Wrong("the browser refused a stored cookie".to_owned()),
            other => other,
        })
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
