//! Random names and tokens from the kernel.

use super::VaultError;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use std::sync::atomic::{AtomicU32, Ordering};
use zeroize::Zeroizing;

pub fn bytes<const N: usize>() -> Result<[u8; N], VaultError> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(VaultError::Random(error.into())),
        }
    }
    Ok(bytes)
}

/// A secret of 256 bits. The prefix lets scanners of repositories and logs recognize it.
pub fn token(prefix: &str) -> Result<Zeroizing<String>, VaultError> {
    let secret = Zeroizing::new(bytes::<32>()?);
    let text = Zeroizing::new(URL_SAFE_NO_PAD.encode(*secret));
    Ok(Zeroizing::new(format!("{prefix}{}", *text)))
}

/// What the store keeps of a token. A plain hash is enough: a random token of 256 bits cannot be guessed.
pub fn hash(token: &str) -> String {
    hex(&Sha256::digest(token.as_bytes()))
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A random UUID (version 4).
pub fn uuid() -> Result<String, VaultError> {
    let mut bytes = bytes::<16>()?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = hex(&bytes);
    Ok([&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-"))
}

/// A unique id that sorts by time, and within a millisecond by the order of calls in this process.
pub fn sortable_id(now: i64) -> Result<String, VaultError> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    Ok(format!("{now:012x}{count:08x}{}", hex(&bytes::<6>()?)))
}
