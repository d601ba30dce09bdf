//! What clients and the proxy trust: the system's certificates, and the one of this run as files that clients read.

use super::ca::Authority;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::io;
use std::path::{Path, PathBuf};

/// The system's certificates, or those that SSL_CERT_FILE and SSL_CERT_DIR of this process name.
pub fn system() -> Vec<CertificateDer<'static>> {
    // Some may be unreadable; the others count.
    rustls_native_certs::load_native_certs().certs
}

/// The certificates in the files of `upstream_ca`.
pub fn named(files: &[PathBuf]) -> Result<Vec<CertificateDer<'static>>, String> {
    let mut all = Vec::new();
    for file in files {
        let wrong = |why: String| format!("network.upstream_ca {}: {why}", file.display());
        let read = read(file).map_err(|error| wrong(error.to_string()))?;
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read).collect();
        let found = found.map_err(|error| wrong(error.to_string()))?;
        if found.is_empty() {
            return Err(wrong("it holds no PEM certificate".to_owned()));
        }
        all.extend(found);
    }
    Ok(all)
}

fn read(file: &Path) -> io::Result<Vec<u8>> {
    use std::io::Read;
    let (opened, _) = crate::trust::open_regular(file, &crate::trust::Hostile::here())?;
    let mut bytes = Vec::new();
    opened.take(16 << 20).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The public files for clients.
pub struct Files {
    /// The certificate of this run and the system's, as PEM.
    pub bundle: Vec<u8>,
    /// The same for Java.
    pub java: Vec<u8>,
}

impl Files {
    pub fn new(authority: &Authority) -> Files {
        let all: Vec<CertificateDer<'_>> = std::iter::once(authority.certificate().clone()).chain(system()).collect();
        Files { bundle: all.iter().map(pem).collect::<String>().into_bytes(), java: jks(&all) }
    }
}

fn pem(certificate: &CertificateDer<'_>) -> String {
    let encoded = STANDARD.encode(certificate);
    let lines: Vec<&str> = encoded.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

/// A Java keystore in the oldest format, which every Java reads. Its checksum is only looked at with a password, and the
/// certificates in it are public, so it has none.
fn jks(certificates: &[CertificateDer<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    let number = |out: &mut Vec<u8>, number: u32| out.extend(number.to_be_bytes());
    let text = |out: &mut Vec<u8>, text: &str| {
        out.extend((text.len() as u16).to_be_bytes());
        out.extend(text.as_bytes());
    };
    number(&mut out, 0xfeed_feed);
    number(&mut out, 2);
    number(&mut out, certificates.len() as u32);
    for (at, certificate) in certificates.iter().enumerate() {
        // A trusted certificate, its alias, and its date.
        number(&mut out, 2);
        text(&mut out, &format!("ca{at}"));
        out.extend(0u64.to_be_bytes());
        text(&mut out, "X.509");
        number(&mut out, certificate.len() as u32);
        out.extend(certificate.as_ref());
    }
    out.extend([0u8; 20]);
    out
}
