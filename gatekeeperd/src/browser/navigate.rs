//! Loading an address.

use super::state::{Notice, NoticeKind, Page, State};
use super::{Browser, BrowserError};
use gatekeeper::Denial;
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;
use url::Url;

/// How long a denial may take to arrive after the page that failed because of it.
const BEHIND: Duration = Duration::from_millis(300);
/// How long a click's consequences get: to begin a navigation, and to finish it.
const BEGIN: Duration = Duration::from_millis(120);
const SETTLE: Duration = Duration::from_secs(5);
const LONGEST_ADDRESS: usize = 16 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Navigated {
    /// The HTTP status; absent for about:blank and for a move within the page.
    pub status: Option<u16>,
    pub final_url: String,
    pub title: String,
}

/// The address, if a session may go there.
fn check(url: &str) -> Result<Url, BrowserError> {
    let wrong = |why| BrowserError::Address { url: url.chars().take(200).collect(), why };
    if url.len() > LONGEST_ADDRESS {
        return Err(wrong("the address is too long"));
    }
    let parsed = Url::parse(url).map_err(|_| wrong("not an address; write it with http:// or https://"))?;
    match parsed.scheme() {
        // The message must not repeat the password.
        "http" | "https" if !parsed.username().is_empty() || parsed.password().is_some() => {
            Err(BrowserError::Address {
                url: parsed.host_str().unwrap_or_default().to_owned(),
                why: "an address must not contain a user name or password: it would appear in the audit",
            })
        }
        "http" | "https" => Ok(parsed),
        "about" if parsed.as_str() == "about:blank" => Ok(parsed),
        _ => Err(wrong("only http, https and about:blank are allowed")),
    }
}

impl Browser {
    /// Loads an address in the page that is shown, and waits until it has loaded.
    pub async fn navigate(&self, url: &str) -> Result<Navigated, BrowserError> {
        let url = check(url)?;
        let _acting = self.inner.acting.lock().await;
        let deadline = Instant::now() + self.inner.options.action_timeout;
        let page = self.fresh_page().await?;
        let before = (self.next_notice(), self.denied(&url).map_or(0, |denial| denial.count));
        match tokio::time::timeout_at(deadline, self.load(&page, &url)).await {
            Ok(Err(error)) => Err(self.cause(&url, before).await.unwrap_or(error)),
            Ok(Ok(status)) => {
                // The proxy answers plain HTTP with a page.
                if status == Some(403)
                    && let Some(cause) = self.cause(&url, before).await
                {
                    return Err(cause);
                }
                self.navigated(&page, status).await
            }
            Err(_) => self.late(&page, &url).await,
        }
    }

    /// The page that is shown, or a new one in place of one that hangs: its address would be loaded by the renderer that
    /// hangs.
    async fn fresh_page(&self) -> Result<Page, BrowserError> {
        let shared = &self.inner.shared;
        let page = self.page()?;
        // A crashed page gets a new renderer when it loads something.
        shared.change(|state| state.page_mut(&page.session).map(|page| page.crashed = false));
        if !page.hangs {
            return Ok(page);
        }
        let within = self.inner.options.action_timeout;
        let params = json!({"url": "about:blank"});
        let made = shared.connection.call(None, "Target.createTarget", params, within).await;
        let made = made.map_err(|error| self.failed("opening a new page", error))?;
        let target = made["targetId"].as_str().unwrap_or_default();
        let found = shared.until(|state| state.pages.iter().find(|page| page.ready && page.target == target).cloned());
        let late = || BrowserError::Timeout { what: "opening a new page".to_owned(), within };
        let found = tokio::time::timeout(within, found).await.map_err(|_| late())??;
        shared.connection.post(None, "Target.closeTarget", json!({"targetId": page.target}));
        Ok(found)
    }

    async fn load(&self, page: &Page, url: &Url) -> Result<Option<u16>, BrowserError> {
        let shared = &self.inner.shared;
        let params = json!({"url": url.as_str()});
        let call =
            shared.connection.call(Some(&page.session), "Page.navigate", params, self.inner.options.action_timeout);
        let answer = call.await.map_err(|error| self.failed("loading the page", error))?;
        let failed = answer["errorText"].as_str().unwrap_or_default();
        if !failed.is_empty() {
            return Err(BrowserError::Load { url: url.to_string(), error: failed.to_owned() });
        }
        let Some(loader) = answer["loaderId"].as_str() else { return Ok(None) };
        shared
            .until(|state| match state.page(&page.session) {
                Some(page) if page.crashed => Some(Err(BrowserError::Crashed)),
                Some(page) if page.loaded.iter().any(|loaded| loaded == loader) => Some(Ok(page.status(loader))),
                // The page led to another one before it had loaded.
                Some(now) if !now.loading && now.loads > page.loads => {
                    Some(Ok(now.loaded.back().and_then(|last| now.status(last))))
                }
                Some(_) => None,
                None => Some(Ok(None)),
            })
            .await?
    }

    async fn navigated(&self, page: &Page, status: Option<u16>) -> Result<Navigated, BrowserError> {
        let page = self.page().unwrap_or_else(|_| page.clone());
        let (final_url, title) = self.shown(&page).await?;
        Ok(Navigated { status, final_url, title })
    }

    /// The time is over. A page whose document is complete can be used.
    async fn late(&self, page: &Page, url: &Url) -> Result<Navigated, BrowserError> {
        let shared = &self.inner.shared;
        shared.connection.post(Some(&page.session), "Page.stopLoading", json!({}));
        let status = {
            let state = shared.state();
            let now = state.page(&page.session);
            let loader = now.and_then(|now| now.parsed.back().filter(|last| page.parsed.back() != Some(last)));
            loader.and_then(|loader| now.map(|now| now.status(loader)))
        };
        match status {
            Some(status) => {
                let text = format!("{url}: parts of the page were still loading when the time was over");
                shared.change(|state| state.notice(NoticeKind::Unfinished, &text));
                self.navigated(page, status).await
            }
            None => {
                Err(BrowserError::Timeout { what: format!("loading {url}"), within: self.inner.options.action_timeout })
            }
        }
    }

    /// Why a page did not load, if it was a denial or a download. Both may arrive a moment later.
    async fn cause(&self, url: &Url, (notices, denied): (u64, u64)) -> Option<BrowserError> {
        let host = host(url)?;
        let known = |state: &State| {
            let is_download = |notice: &Notice| notice.number >= notices && notice.kind == NoticeKind::Download;
            if state.notices.iter().any(is_download) {
                return Some(BrowserError::Download { url: url.to_string() });
            }
            let denial = denied_in(state, &host).filter(|denial| denial.count > denied)?;
            Some(BrowserError::Denied { url: url.to_string(), denial: Box::new(denial) })
        };
        tokio::time::timeout(BEHIND, self.inner.shared.until(known)).await.ok()?.ok()
    }

    fn denied(&self, url: &Url) -> Option<Denial> {
        denied_in(&self.inner.shared.state(), &host(url)?)
    }

    /// Waits until what an action began has finished loading, for a few seconds at most.
    pub async fn settle(&self) {
        tokio::time::sleep(BEGIN).await;
        let loaded = self.inner.shared.until(|state| {
            let busy = state.pages.last().is_some_and(|page| !page.ready || page.loading || page.loaded.is_empty());
            (!busy).then_some(())
        });
        let _ = tokio::time::timeout(SETTLE.min(self.inner.options.action_timeout), loaded).await;
    }
}

/// Host and port as the proxy names them.
fn host(url: &Url) -> Option<String> {
    Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?))
}

fn denied_in(state: &State, host: &str) -> Option<Denial> {
    state.denials.iter().find(|denial| denial.host.as_deref() == Some(host)).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_web_addresses_and_the_blank_page_are_allowed() {
        for url in ["http://a.org", "HTTPS://a.org/x?y#z", "about:blank", " https://a.org/ "] {
            assert!(check(url).is_ok(), "{url}");
        }
        let refused = [
            "file:///etc/passwd",
            "chrome://settings",
            "devtools://devtools/bundled/inspector.html",
            "view-source:https://a.org",
            "javascript:alert(1)",
            "java\nscript:alert(1)",
            "data:text/html,x",
            "blob:https://a.org/1",
            "ftp://a.org",
            "about:srcdoc",
            "about:blank#x",
            "a.org",
            "",
        ];
        for url in refused {
            assert!(matches!(check(url), Err(BrowserError::Address { .. })), "{url}");
        }
    }

    #[test]
    fn a_password_is_refused_and_not_repeated() {
        let error = check("https://me:secret@a.org/").expect_err("refused").to_string();
        assert!(error.starts_with("a.org: an address must not contain") && !error.contains("secret"), "{error}");
    }
}
