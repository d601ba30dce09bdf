//! The tool `browser`: starts and ends the browser's container, and opens and closes tabs in it. Its token stays here.

use super::catalogue::Arguments;
use crate::container::{self, Boxed, Endpoint};
use serde_json::{Value, json};

pub fn act(main: &Boxed, given: &Arguments) -> Result<Value, String> {
    let boxed = main.browser()?;
    match given.action.as_deref().unwrap_or_default() {
        "status" => Ok(boxed.found().map_or(json!({"running": false}), |found| told(&found))),
        "start" => boxed.browse(&|_| ()).map(|found| told(&found)),
        "stop" => stop(&boxed),
        "tabs" => tabs(&running(&boxed)?),
        "open" => {
            let url = address(given.url.as_deref().unwrap_or_default())?;
            let opened = running(&boxed)?.ask("PUT", &format!("/json/new?{url}"))?;
            Ok(tab(&opened))
        }
        "close" => {
            let id = tab_id(given)?;
            running(&boxed)?.ask("GET", &format!("/json/close/{id}"))?;
            Ok(json!({"closed": id}))
        }
        action => Err(format!("action {action:?}: use status, start, stop, tabs, open or close")),
    }
}

/// The tab that is meant.
pub fn tab_id(given: &Arguments) -> Result<&str, String> {
    let id = given.tab.as_deref().unwrap_or_default();
    match !id.is_empty() && id.chars().all(|letter| letter.is_ascii_alphanumeric()) {
        true => Ok(id),
        false => Err(format!("tab {id:?}: not the id of a tab; the action tabs lists them")),
    }
}

/// The browser; started if that is allowed to happen by itself.
fn running(boxed: &Boxed) -> Result<Endpoint, String> {
    if let Some(found) = boxed.found() {
        return Ok(found);
    }
    let auto = &boxed.settings.browser.auto_start;
    match auto.value {
        true => boxed.browse(&|_| ()),
        false => Err(format!("no browser runs, and autoStart is false ({}); use the action start", auto.decided_by())),
    }
}

fn told(found: &Endpoint) -> Value {
    json!({"running": true, "container": found.name, "version": found.version, "started": found.made})
}

fn stop(boxed: &Boxed) -> Result<Value, String> {
    let Some(note) = boxed.state.note(&boxed.name) else { return Ok(json!({"running": false})) };
    container::remove(&note.engine, &|entry| entry.name == boxed.name, true)?;
    Ok(json!({"running": false}))
}

fn tab(value: &Value) -> Value {
    json!({"id": value["id"], "title": value["title"], "url": value["url"]})
}

fn tabs(found: &Endpoint) -> Result<Value, String> {
    let listed = found.ask("GET", "/json/list")?;
    let pages = listed.as_array().into_iter().flatten().filter(|value| value["type"] == "page");
    Ok(json!({"tabs": pages.map(tab).collect::<Vec<_>>()}))
}

/// An address as it goes into a request line. Files of the container are no pages.
pub fn address(text: &str) -> Result<String, String> {
    let scheme = ["http://", "https://", "about:"].iter().any(|scheme| text.starts_with(scheme));
    if !scheme || text.len() > 4096 {
        return Err(format!("url {text:?}: use an address with http, https or about"));
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/?@!$'()*,;=[]".contains(&byte);
    let encoded = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    Ok(text.bytes().map(encoded).collect())
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn an_address_cannot_leave_its_place_in_the_request() {
        assert_eq!(address("http://x/a b&c#d\r\nHost: y").as_deref(), Ok("http://x/a%20b%26c%23d%0D%0AHost:%20y"));
        for text in ["", "file:///etc/passwd", "javascript:x", "/etc"] {
            assert!(address(text).is_err(), "{text}");
        }
    }
}
