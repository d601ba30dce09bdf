//! Secrets and their placeholders. The command sees only placeholders; the proxy replaces them, and finds them where they
//! do not belong.

use super::path::lenient;
use crate::policy::{Credential, Placed, SecretFrom};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::io;
use zeroize::Zeroizing;

/// The longest secret.
const LONGEST: usize = 16 * 1024;
/// How many characters of a placeholder are random, at least. With fewer, it could occur by chance.
const LEAST_RANDOM: usize = 12;

/// What tokens of well-known services begin with. A placeholder keeps it, because clients look at it.
const PREFIXES: &[&str] = &[
    "github_pat_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "glpat-",
    "gldt-",
    "sk-ant-api03-",
    "sk-ant-",
    "sk-proj-",
    "sk-or-v1-",
    "sk_live_",
    "sk_test_",
    "pk_live_",
    "pk_test_",
    "sk-",
    "xoxb-",
    "xoxp-",
    "xapp-",
    "npm_",
    "pypi-",
    "hf_",
    "AKIA",
    "ASIA",
    "AIza",
    "ya29.",
    "eyJ",
    "dop_v1_",
    "shpat_",
    "SG.",
    "gsk_",
    "r8_",
    "tskey-",
];

/// A secret, and what the command sees instead.
pub struct Secret {
    pub env: String,
    pub placeholder: String,
    value: Zeroizing<String>,
}

/// Where a secret goes.
pub struct Use {
    pub secret: usize,
    pub credential: Credential,
}

#[derive(Default)]
pub struct Secrets {
    list: Vec<Secret>,
    pub uses: Vec<Use>,
    /// What a placeholder looks like in a request, however it is encoded.
    needles: Vec<(usize, Vec<u8>)>,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.list.iter().map(|secret| &secret.env)).finish()
    }
}

impl Secrets {
    /// Reads each secret once, through `read`, and makes its placeholder.
    pub fn new(
        credentials: &[Credential],
        read: &dyn Fn(&SecretFrom) -> Result<Zeroizing<String>, String>,
    ) -> Result<Secrets, String> {
        let mut secrets = Secrets::default();
        for credential in credentials {
            let wrong = |why: &str| format!("the secret of {} ({}): {why}", credential.env, credential.from);
            let known = secrets.list.iter().position(|secret| secret.env == credential.env);
            let secret = match known {
                Some(known) => known,
                None => {
                    let value = checked(read(&credential.from).map_err(|why| wrong(&why))?).map_err(wrong)?;
                    let placeholder = placeholder(&value).map_err(|error| wrong(&error.to_string()))?;
                    secrets.list.push(Secret { env: credential.env.clone(), placeholder, value });
                    secrets.list.len() - 1
                }
            };
            secrets.uses.push(Use { secret, credential: credential.clone() });
        }
        for (at, secret) in secrets.list.iter().enumerate() {
            secrets.needles.extend(forms(&secret.placeholder).into_iter().map(|form| (at, form)));
        }
        Ok(secrets)
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The command's variables with their placeholders.
    pub fn placeholders(&self) -> Vec<(String, String)> {
        self.list.iter().map(|secret| (secret.env.clone(), secret.placeholder.clone())).collect()
    }

    pub fn placeholder(&self, secret: usize) -> &str {
        self.list.get(secret).map_or("", |secret| &secret.placeholder)
    }

    pub fn value(&self, secret: usize) -> &str {
        self.list.get(secret).map_or("", |secret| &secret.value)
    }

    /// The variable whose real secret is in these bytes. Used to keep it out of the command.
    pub fn reveals(&self, bytes: &[u8]) -> Option<&str> {
        let found = self.list.iter().find(|secret| contains(bytes, secret.value.as_bytes()));
        found.map(|secret| secret.env.as_str())
    }

    /// The variable whose placeholder is in these bytes: as it is, in base64, in hexadecimal, or with escapes.
    pub fn sent_in(&self, bytes: &[u8]) -> Option<&str> {
        let plain = |bytes: &[u8]| {
            let found = self.needles.iter().find(|(_, needle)| contains(bytes, needle));
            found.and_then(|(at, _)| self.list.get(*at)).map(|secret| secret.env.as_str())
        };
        plain(bytes).or_else(|| {
            let mut bytes = bytes.to_vec();
            for _ in 0..2 {
                if !bytes.contains(&b'%') {
                    return None;
                }
                bytes = lenient(&bytes);
                if let Some(found) = plain(&bytes) {
                    return Some(found);
                }
            }
            None
        })
    }

    /// The same for the name of a header or a method, which is written in one case.
    pub fn sent_in_name(&self, name: &str) -> Option<&str> {
        let lower = name.to_ascii_lowercase();
        let found = self.list.iter().find(|secret| lower.contains(&secret.placeholder.to_ascii_lowercase()));
        found.map(|secret| secret.env.as_str())
    }

    /// Whether the name of a header, which is written in lower case, holds a secret in some form.
    pub fn is_in_name(&self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        self.list.iter().any(|secret| {
            holds(name.as_bytes(), &secret.value.to_ascii_lowercase())
                || forms(&secret.value)
                    .iter()
                    .any(|form| form.len() >= LEAST_RANDOM && contains(name.as_bytes(), &form.to_ascii_lowercase()))
        })
    }

    /// The longest form of a placeholder: what may be cut in two by a block of a body.
    pub fn longest(&self) -> usize {
        // With every byte escaped twice.
        self.needles.iter().map(|(_, needle)| needle.len() * 9).max().unwrap_or(0)
    }

    /// The text without any real secret; `None` if there is none in it. A secret as it is, or escaped as in a URL, is replaced by
    /// its placeholder in the same form. A text with it in another form is replaced as a whole.
    pub fn masked(&self, text: &[u8]) -> Option<Vec<u8>> {
        let mut masked: Option<Vec<u8>> = None;
        for secret in &self.list {
            let (real, shown) = (secret.value.as_str(), secret.placeholder.as_str());
            let in_url = Zeroizing::new(escaped(real));
            for (real, shown) in [(real, shown.to_owned()), (&in_url, escaped(shown))] {
                let text = masked.as_deref().unwrap_or(text);
                if contains(text, real.as_bytes()) {
                    masked = Some(replaced(text, real.as_bytes(), shown.as_bytes()));
                }
            }
        }
        let left = masked.as_deref().unwrap_or(text);
        if self.list.iter().any(|secret| holds(left, &secret.value)) {
            return Some(b"(masked)".to_vec());
        }
        masked
    }
}

/// Whether a text holds a secret: as it is, in base64 or hexadecimal, with or without escapes, and with + for a blank.
fn holds(text: &[u8], secret: &str) -> bool {
    let forms: Vec<_> = forms(secret).into_iter().map(Zeroizing::new).collect();
    // Of a short secret, base64 has too few characters that do not depend on its neighbours to tell it from other text.
    let plain = |text: &[u8]| {
        forms.iter().any(|form| (form.len() >= LEAST_RANDOM || **form == secret.as_bytes()) && contains(text, form))
    };
    let mut text = Zeroizing::new(text.to_vec());
    for _ in 0..3 {
        let blanks = Zeroizing::new(replaced(&text, b"+", b" "));
        if plain(&text) || plain(&blanks) {
            return true;
        }
        if !text.contains(&b'%') {
            return false;
        }
        text = Zeroizing::new(lenient(&text));
    }
    false
}

/// As the value of a parameter in a URL.
pub fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// Refuses what cannot be a secret, or could not be sent.
fn checked(value: Zeroizing<String>) -> Result<Zeroizing<String>, &'static str> {
    let value = Zeroizing::new(value.trim_end_matches(['\r', '\n']).to_owned());
    match () {
        () if value.is_empty() => Err("it is empty"),
        () if value.len() > LONGEST => Err("it is longer than 16 KiB"),
        () if value.bytes().any(|byte| !byte.is_ascii_graphic() && byte != b' ') => {
            Err("it has a character that a header cannot hold; only printable ASCII is supported")
        }
        () => Ok(value),
    }
}

/// A random text of the same shape: the same known prefix, length, and kind of character at each place.
fn placeholder(value: &str) -> io::Result<String> {
    let prefix = PREFIXES.iter().find(|prefix| value.starts_with(**prefix)).copied().unwrap_or("");
    let rest = value.strip_prefix(prefix).unwrap_or(value);
    let hex = rest.bytes().all(|byte| !byte.is_ascii_alphabetic() || byte.is_ascii_hexdigit());
    let mut random = Random::default();
    let mut out = prefix.to_owned();
    let mut changed = 0;
    for byte in rest.bytes() {
        let letters: &[u8] = match byte {
            b'0'..=b'9' => b"0123456789",
            b'a'..=b'z' if hex => b"abcdef",
            b'A'..=b'Z' if hex => b"ABCDEF",
            b'a'..=b'z' => b"abcdefghijklmnopqrstuvwxyz",
            b'A'..=b'Z' => b"ABCDEFGHIJKLMNOPQRSTUVWXYZ",
            _ => {
                out.push(char::from(byte));
                continue;
            }
        };
        changed += 1;
        out.push(char::from(random.one_of(letters)?));
    }
    // Too short to be unmistakable.
    if changed < LEAST_RANDOM || out == value || out.contains(value) {
        out = format!("{prefix}gatekeeper");
        for _ in 0..24 {
            out.push(char::from(random.one_of(b"abcdefghijklmnopqrstuvwxyz0123456789")?));
        }
    }
    Ok(out)
}

#[derive(Default)]
struct Random(Vec<u8>);

impl Random {
    /// Each letter with the same probability: bytes that would favour the first ones are thrown away.
    fn one_of(&mut self, letters: &[u8]) -> io::Result<u8> {
        let whole = 256 - 256 % letters.len();
        loop {
            if self.0.is_empty() {
                self.0 = vec![0; 256];
                rustix::rand::getrandom(&mut self.0, rustix::rand::GetRandomFlags::empty())?;
            }
            let byte = usize::from(self.0.pop().unwrap_or(0));
            if byte < whole {
                return Ok(letters.get(byte % letters.len()).copied().unwrap_or(b'x'));
            }
        }
    }
}

/// A placeholder as it is, in hexadecimal, and in base64 at each of the three positions it can have there, without the characters at the
/// edges, which depend on its neighbours.
fn forms(placeholder: &str) -> Vec<Vec<u8>> {
    let lower: String = placeholder.bytes().map(|byte| format!("{byte:02x}")).collect();
    let mut forms = vec![placeholder.as_bytes().to_vec(), lower.to_ascii_uppercase().into_bytes(), lower.into_bytes()];
    for shift in 0..3 {
        let padded: Vec<u8> = std::iter::repeat_n(0u8, shift).chain(placeholder.bytes()).collect();
        let encoded = STANDARD.encode(&padded);
        let from = [0, 2, 3].get(shift).copied().unwrap_or(0);
        let until = padded.len() * 8 / 6;
        let inner = encoded.get(from..until).unwrap_or_default();
        forms.push(inner.as_bytes().to_vec());
        forms.push(inner.replace('+', "-").replace('/', "_").into_bytes());
    }
    forms.sort();
    forms.dedup();
    forms
}

pub fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    position(bytes, needle).is_some()
}

/// Looks for the first byte with memchr's speed, then compares.
fn position(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    let (first, length) = (*needle.first()?, needle.len());
    let mut from = 0;
    while let Some(found) = bytes.get(from..)?.iter().position(|byte| *byte == first) {
        let at = from + found;
        if bytes.get(at..at + length)? == needle {
            return Some(at);
        }
        from = at + 1;
    }
    None
}

pub fn replaced(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = position(rest, from) {
        let (before, after) = rest.split_at(at);
        out.extend_from_slice(before);
        out.extend_from_slice(to);
        rest = after.get(from.len()..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
    out
}

/// In words, for refusals.
pub fn belongs(placed: &Placed) -> String {
    match placed {
        Placed::Bearer => "in Authorization: Bearer".to_owned(),
        Placed::Basic => "in Authorization: Basic".to_owned(),
        Placed::Header(name) => format!("in the header {name}"),
        Placed::Query(name) => format!("in the parameter {name} of the query"),
    }
}

#[cfg(test)]
#[path = "secrets_tests.rs"]
mod tests;
