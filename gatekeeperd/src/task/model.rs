//! The model: any endpoint with OpenAI's chat interface that takes pictures.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use url::Url;
use zeroize::Zeroizing;

/// How long one answer may take, and how long it may be.
const ANSWER: Duration = Duration::from_secs(120);
const LONGEST: usize = 1024 * 1024;
const LONGEST_KEY: u64 = 64 * 1024;

/// What the numbers of the model's boxes mean. Models differ, so it is configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Coordinates {
    /// Pixels of the picture as UI-TARS 1.5 and Qwen2.5-VL resize it: sides in multiples of 28, at most 1.06 million pixels.
    #[default]
    Resized,
    /// Pixels of the picture that is sent.
    Pixels,
    /// Thousandths of each side, as UI-TARS 1.0 answers.
    Thousandths,
}

impl std::str::FromStr for Coordinates {
    type Err = String;

    fn from_str(word: &str) -> Result<Coordinates, String> {
        match word {
            "resized" => Ok(Coordinates::Resized),
            "pixels" => Ok(Coordinates::Pixels),
            "thousandths" => Ok(Coordinates::Thousandths),
            _ => Err(format!("{word:?}: expected resized, pixels or thousandths")),
        }
    }
}

impl Coordinates {
    /// The size that the model's numbers refer to, for a picture of this size.
    pub fn size(self, (width, height): (u32, u32)) -> (f64, f64) {
        match self {
            Coordinates::Pixels => (f64::from(width), f64::from(height)),
            Coordinates::Thousandths => (1000.0, 1000.0),
            Coordinates::Resized => resized(f64::from(width), f64::from(height)),
        }
    }

    /// How much smaller a picture of this size is sent. Models differ in the size above which they shrink a picture
    /// themselves. One that is small enough for all of them leaves no doubt about what their numbers mean.
    pub fn scale(self, (width, height): (u32, u32)) -> f64 {
        let (width, height) = (f64::from(width), f64::from(height));
        match self {
            Coordinates::Resized if area(rounded(width, height)) > MOST_PIXELS => {
                let (wide, high) = resized(width, height);
                (wide / width).min(high / height)
            }
            _ => 1.0,
        }
    }
}

const PATCH: f64 = 28.0;
/// The most pixels that are sent: 1.06 million.
const MOST_PIXELS: f64 = 1350.0 * PATCH * PATCH;
const FEWEST_PIXELS: f64 = 100.0 * PATCH * PATCH;

fn rounded(width: f64, height: f64) -> (f64, f64) {
    let round = |side: f64| (side / PATCH).round_ties_even().max(1.0) * PATCH;
    (round(width), round(height))
}

fn area((width, height): (f64, f64)) -> f64 {
    width * height
}

/// `smart_resize` of Qwen2-VL's picture processor, with UI-TARS's limits.
fn resized(width: f64, height: f64) -> (f64, f64) {
    let usual = rounded(width, height);
    let scaled = |most: f64| (width * height / most).sqrt();
    if area(usual) > MOST_PIXELS {
        let beta = scaled(MOST_PIXELS);
        let floor = |side: f64| (side / beta / PATCH).floor().max(1.0) * PATCH;
        (floor(width), floor(height))
    } else if area(usual) < FEWEST_PIXELS {
        let beta = 1.0 / scaled(FEWEST_PIXELS);
        let ceil = |side: f64| (side * beta / PATCH).ceil() * PATCH;
        (ceil(width), ceil(height))
    } else {
        usual
    }
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    #[error("model {url}: {why}")]
    Address { url: String, why: &'static str },
    #[error("the key of the model in {file}: {why}")]
    Key { file: String, why: String },
    #[error("the model did not answer: {0}")]
    Call(String),
    #[error("the model answered with status {0}")]
    Status(u16),
    #[error("the model's answer is not that of a chat endpoint")]
    Answer,
}

/// An endpoint and how to use it.
#[derive(Clone)]
pub struct Model {
    url: Url,
    name: String,
    key: Option<Arc<Zeroizing<String>>>,
    pub coordinates: Coordinates,
    client: reqwest::Client,
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model").field("url", &self.url.as_str()).field("name", &self.name).finish_non_exhaustive()
    }
}

impl Model {
    /// `url` is the base of the interface, such as `http://127.0.0.1:8000/v1`.
    pub fn new(url: &str, name: &str, key_file: Option<&Path>, coordinates: Coordinates) -> Result<Model, ModelError> {
        // The address may contain a password, or a key in its query: the message has only the scheme and the host.
        let address = |url: &str, why| ModelError::Address { url: url.to_owned(), why };
        let parsed = Url::parse(url);
        let mut parsed = parsed.map_err(|_| address("URL", "not an address; write it with http:// or https://"))?;
        let shown = format!("{}://{}", parsed.scheme(), parsed.host_str().unwrap_or_default());
        let wrong = |why| address(&shown, why);
        if !matches!(parsed.scheme(), "http" | "https") || parsed.host_str().is_none() {
            return Err(wrong("expected http or https"));
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(wrong("an address must not contain a user name or password; write the key into a file"));
        }
        let path = format!("{}/chat/completions", parsed.path().trim_end_matches('/'));
        parsed.set_path(&path);
        let key = key_file.map(key).transpose()?;
        if key.is_some() && parsed.scheme() == "http" && !is_loopback(&parsed) {
            return Err(wrong("the key would be sent unencrypted; use https"));
        }
        // Another user of the process may have chosen one already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).timeout(ANSWER);
        if parsed.scheme() == "http" {
            // A proxy of the environment would get the key and the pictures in the clear. Over https it passes on what it
            // cannot read.
            client = client.no_proxy();
        }
        let client = client.build().map_err(|error| ModelError::Call(error.to_string()))?;
        Ok(Model { url: parsed, name: name.to_owned(), key: key.map(Arc::new), coordinates, client })
    }

    /// One answer to a conversation.
    pub async fn ask(&self, messages: &[Value]) -> Result<String, ModelError> {
        let body =
            json!({"model": self.name, "messages": messages, "temperature": 0, "max_tokens": 1024, "stream": false});
        let mut request = self.client.post(self.url.clone()).json(&body);
        if let Some(key) = &self.key {
            request = request.bearer_auth(key.as_str());
        }
        let call = |error: reqwest::Error| ModelError::Call(error.without_url().to_string());
        let mut answer = request.send().await.map_err(call)?;
        if !answer.status().is_success() {
            return Err(ModelError::Status(answer.status().as_u16()));
        }
        let mut bytes = Vec::new();
        while let Some(part) = answer.chunk().await.map_err(call)? {
            bytes.extend_from_slice(&part);
            if bytes.len() > LONGEST {
                return Err(ModelError::Answer);
            }
        }
        let answer: Value = serde_json::from_slice(&bytes).map_err(|_| ModelError::Answer)?;
        content(&answer["choices"][0]["message"]["content"]).ok_or(ModelError::Answer)
    }
}

/// The text of a message, which is a string or a list of parts.
fn content(content: &Value) -> Option<String> {
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) if !parts.is_empty() => {
            parts.iter().map(|part| part["text"].as_str().filter(|_| part["type"] == "text")).collect()
        }
        _ => None,
    }
}

/// A picture as a part of a message.
pub fn image(png: &[u8]) -> Value {
    json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{}", STANDARD.encode(png))}})
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

/// The key, from a file that only its owner reads.
fn key(file: &Path) -> Result<Zeroizing<String>, ModelError> {
    use std::io::Read;
    use std::os::unix::fs::MetadataExt;
    let wrong = |why: String| ModelError::Key { file: file.display().to_string(), why };
    let opened = std::fs::File::open(file).map_err(|error| wrong(error.to_string()))?;
    let mode = opened.metadata().map_err(|error| wrong(error.to_string()))?.mode();
    if mode & 0o077 != 0 {
        return Err(wrong(format!("others may read it (mode {:o}); chmod 600 it", mode & 0o7777)));
    }
    let mut text = Zeroizing::new(String::new());
    opened.take(LONGEST_KEY).read_to_string(&mut text).map_err(|error| wrong(error.to_string()))?;
    let key = Zeroizing::new(text.trim().to_owned());
    match key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Err(wrong("it is empty or has characters that no key has".to_owned())),
        false => Ok(key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_scaled_as_configured() {
        assert_eq!(Coordinates::Resized.size((1280, 800)), (1288.0, 812.0));
        assert_eq!(Coordinates::Resized.size((1920, 1080)), (1344.0, 756.0));
        assert_eq!(Coordinates::Resized.size((100, 100)), (280.0, 280.0));
        assert_eq!(Coordinates::Pixels.size((1280, 800)), (1280.0, 800.0));
        assert_eq!(Coordinates::Thousandths.size((1280, 800)), (1000.0, 1000.0));
    }

    #[test]
    fn a_picture_is_sent_so_small_that_no_model_shrinks_it_further() {
        assert_eq!(Coordinates::Resized.scale((1280, 800)), 1.0, "the default viewport");
        assert_eq!(Coordinates::Resized.scale((1920, 1080)), 0.7);
        assert_eq!(Coordinates::Pixels.scale((1920, 1080)), 1.0);
        for width in (100..=8192).step_by(37) {
            for height in (100..=8192).step_by(41) {
                let scale = Coordinates::Resized.scale((width, height));
                // The browser may round a side up.
                let side = |side: u32| (f64::from(side) * scale).ceil();
                let sent = (side(width), side(height));
                let size = Coordinates::Resized.size((sent.0 as u32, sent.1 as u32));
                assert!(area(size) <= MOST_PIXELS, "{width} x {height}");
                assert!(
                    sent == (f64::from(width), f64::from(height)) || size == rounded(sent.0, sent.1),
                    "{width} x {height}"
                );
            }
        }
    }

    #[test]
    fn an_answer_is_text_or_a_list_of_texts() {
        let part = |text: &str| json!({"type": "text", "text": text});
        assert_eq!(content(&json!("wait()")).as_deref(), Some("wait()"));
        assert_eq!(content(&json!([part("Action: "), part("wait()")])).as_deref(), Some("Action: wait()"));
        for wrong in [json!(null), json!([]), json!(["wait()"]), json!([part("x"), {"type": "image_url"}]), json!({})] {
            assert_eq!(content(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_key_is_sent_neither_in_the_clear_nor_from_a_file_that_others_read() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("key");
        std::fs::write(&file, "sk-1\n").expect("own");
        let new = |url: &str| Model::new(url, "m", Some(&file), Coordinates::Pixels);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).expect("own");
        assert!(matches!(new("https://a.org/v1"), Err(ModelError::Key { .. })));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("own");
        let model = new("https://a.org/v1/").expect("sound");
        assert_eq!(model.url.as_str(), "https://a.org/v1/chat/completions");
        assert!(!format!("{model:?}").contains("sk-1"));
        assert!(new("http://127.0.0.1:8000/v1").is_ok());
        assert!(matches!(new("http://a.org/v1"), Err(ModelError::Address { .. })));
        assert!(matches!(new("file:///v1"), Err(ModelError::Address { .. })));
        for url in
            ["ftp://me:s3cret@a.org/", "https://me:s3cret@a.org/v1", "http://a.org/?key=s3cret", "me:s3cret@a.org"]
        {
            let error = new(url).expect_err(url).to_string();
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}
