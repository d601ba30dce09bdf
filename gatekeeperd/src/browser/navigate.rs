//! Loading an address.

use super::state::{Answered, Notice, NoticeKind, Page, State};
use super::{Browser, BrowserError};
use gatekeeper::Denial;
use serde_json::json;
use std::time::Duration;
use url::Url;

/// How long a denial may take to arrive after the page that failed because of it.
const BEHIND: Duration = Duration::from_millis(300);
/// How long a click's consequences get: to begin a navigation, and to finish it.
const BEGIN: Duration = Duration::from_millis(120);
const SETTLE: Duration = Duration::from_secs(5);
/// How long a page that did not answer gets to show that it does again, and the browser to say what it shows.
const ANSWER: Duration = Duration::from_secs(1);
const LONGEST_ADDRESS: usize = 16 * 1024;
/// How much of the proxy's reason, and of an address to which a site led, a message quotes.
const QUOTED: usize = 300;

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

/// Whether a session may be asked to go there at all. A denial of the host comes later.
pub fn check_address(url: &str) -> Result<(), BrowserError> {
    check(url).map(drop)
}

impl Browser {
    /// Loads an address in the page that is shown, and waits until it has loaded.
    pub async fn navigate(&self, url: &str) -> Result<Navigated, BrowserError> {
        let url = check(url)?;
        let _acting = self.inner.acting.lock().await;
        let page = self.fresh_page().await?;
        let before = (self.next_notice(), self.denials());
        match tokio::time::timeout(self.inner.options.action_timeout, self.load(&page, &url)).await {
            // The limit of the call is the same, so either may be the first.
            Err(_) | Ok(Err(BrowserError::Timeout { .. })) => self.late(&page, &url).await,
            Ok(Err(error)) => Err(self.cause(&page, &url, &before).await.unwrap_or(error)),
            Ok(Ok(answered)) => self.navigated(&page, &url, answered).await,
        }
    }

    /// The page that is shown, or a new one in place of one that hangs: its address would be loaded by the renderer that
    /// hangs.
    async fn fresh_page(&self) -> Result<Page, BrowserError> {
        let shared = &self.inner.shared;
        let page = self.page()?;
        // A crashed page gets a new renderer when it loads something.
        shared.change(|state| state.page_mut(&page.session).map(|page| page.crashed = false));
        if !page.hangs || self.answers(&page).await {
            return Ok(page);
        }
        shared.change(|state| state.replacing = true);
        let found = self.within("opening a new page", self.new_page()).await;
        shared.change(|state| state.replacing = false);
        let found = found?;
        shared.connection.post(None, "Target.closeTarget", json!({"targetId": page.target}));
        Ok(found)
    }

    async fn new_page(&self) -> Result<Page, BrowserError> {
        let shared = &self.inner.shared;
        let params = json!({"url": "about:blank"});
        let made = shared.connection.call(None, "Target.createTarget", params, self.inner.options.action_timeout).await;
        let made = made.map_err(|error| self.failed("opening a new page", error))?;
        let target = made["targetId"].as_str().unwrap_or_default();
        shared.until(|state| state.pages.iter().find(|page| page.ready && page.target == target).cloned()).await
    }

    /// Whether a page that did not answer in time answers again. Its address may have been slow, and not the page itself.
    async fn answers(&self, page: &Page) -> bool {
        let shared = &self.inner.shared;
        let params = json!({"expression": "1"});
        let answered = shared.connection.call(Some(&page.session), "Runtime.evaluate", params, ANSWER).await.is_ok();
        if answered {
            shared.change(|state| state.page_mut(&page.session).map(|page| page.hangs = false));
        }
        answered
    }

    async fn load(&self, page: &Page, url: &Url) -> Result<Option<Answered>, BrowserError> {
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
                Some(page) if page.loaded.iter().any(|loaded| loaded == loader) => Some(Ok(page.answer(loader))),
                // The page led to another one before it had loaded.
                Some(now) if !now.loading && now.loads > page.loads => {
                    Some(Ok(now.loaded.back().and_then(|last| now.answer(last))))
                }
                Some(_) => None,
                None => Some(Ok(None)),
            })
            .await?
    }

    async fn navigated(&self, page: &Page, url: &Url, answered: Option<Answered>) -> Result<Navigated, BrowserError> {
        // The proxy answers plain HTTP with a page of its own.
        if let Some(answered) = answered.as_ref().filter(|answered| answered.by_proxy) {
            return Err(self.unanswered(page, url, answered).await);
        }
        let page = self.page().unwrap_or_else(|_| page.clone());
        let (final_url, title) = self.shown(&page).await?;
        Ok(Navigated { status: answered.map(|answered| answered.status), final_url, title })
    }

    /// Why the proxy answered in place of the host: it denies the host, or could not reach it.
    async fn unanswered(&self, page: &Page, url: &Url, answered: &Answered) -> BrowserError {
        let host = Url::parse(&answered.url).ok().and_then(|url| host(&url));
        if let Some(host) = host.filter(|_| answered.status == 403) {
            let denied = self.inner.shared.until(|state| denied_in(state, &host, &[]));
            if let Ok(Ok(denial)) = tokio::time::timeout(BEHIND, denied).await {
                return BrowserError::Denied { url: url.to_string(), denial: Box::new(denial) };
            }
        }
        let text = self.evaluate(page, "document.documentElement.textContent.slice(0, 1000)");
        let text = tokio::time::timeout(ANSWER, text).await.ok();
        let text = text
            .and_then(Result::ok)
            .and_then(|text| Some(text.as_str()?.lines().next()?.to_owned()))
            .unwrap_or_default();
        let error = match text.strip_prefix("gatekeeper: ") {
            Some(why) => why.chars().filter(|c| !c.is_control()).take(QUOTED).collect(),
            None => format!("the proxy of the sandbox answered with {}", answered.status),
        };
        BrowserError::Load { url: answered.url.chars().take(QUOTED).collect(), error }
    }

    /// The time is over. A page whose document is complete can be used.
    async fn late(&self, page: &Page, url: &Url) -> Result<Navigated, BrowserError> {
        let shared = &self.inner.shared;
        shared.connection.post(Some(&page.session), "Page.stopLoading", json!({}));
        let answered = {
            let state = shared.state();
            let now = state.page(&page.session);
            let loader = now.and_then(|now| now.parsed.back().filter(|last| page.parsed.back() != Some(last)));
            // The blank page of the beginning may be reported late. It has no answer.
            loader.and_then(|loader| now?.answer(loader))
        };
        match answered {
            Some(answered) => {
                let text = format!("{url}: parts of the page were still loading when the time was over");
                shared.change(|state| state.notice(NoticeKind::Unfinished, &text));
                self.navigated(page, url, Some(answered)).await
            }
            None => {
                self.note_hanging(page);
                Err(BrowserError::Timeout { what: format!("loading {url}"), within: self.inner.options.action_timeout })
            }
        }
    }

    /// Why a page did not load, if it was a denial or a download. Both may arrive a moment later.
    async fn cause(&self, page: &Page, url: &Url, (notices, denials): &(u64, Vec<Denial>)) -> Option<BrowserError> {
        let known = |state: &State| {
            let is_download = |notice: &Notice| notice.number >= *notices && notice.kind == NoticeKind::Download;
            if state.notices.iter().any(is_download) {
                return Some(BrowserError::Download { url: url.to_string() });
            }
            // A redirect may have led to another host.
            let asked = state.page(&page.session).and_then(|page| Url::parse(&page.asked).ok());
            let denial = denied_in(state, &host(asked.as_ref().unwrap_or(url))?, denials)?;
            Some(BrowserError::Denied { url: url.to_string(), denial: Box::new(denial) })
        };
        tokio::time::timeout(BEHIND, self.inner.shared.until(known)).await.ok()?.ok()
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

/// A denial of this host that has happened since these were all.
fn denied_in(state: &State, host: &str, before: &[Denial]) -> Option<Denial> {
    let is_new = |denial: &&Denial| {
        let known = before.iter().find(|known| known.host == denial.host && known.rule == denial.rule);
        known.is_none_or(|known| known.count < denial.count)
    };
    state.denials.iter().filter(|denial| denial.host.as_deref() == Some(host)).find(is_new).cloned()
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
