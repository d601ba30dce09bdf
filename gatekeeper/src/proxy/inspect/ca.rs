//! The certificate authority of one run. Its key exists only in this process's memory.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

/// A run may take days; clients reject certificates of more than 398.
const LIFETIME: Duration = Duration::from_secs(90 * 86_400);
const DAY: Duration = Duration::from_secs(86_400);
/// The most certificates that are kept.
const MOST: usize = 1000;

pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    /// The key of all leaf certificates.
    key: KeyPair,
    made: Mutex<HashMap<String, Arc<ServerConfig>>>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority")
    }
}

impl Authority {
    pub fn new() -> io::Result<Authority> {
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let mut params = CertificateParams::new(Vec::new()).map_err(io::Error::other)?;
        params.distinguished_name.push(DnType::CommonName, "gatekeeper, for one run only");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        lasts(&mut params);
        let certificate = params.self_signed(&key).map_err(io::Error::other)?.der().clone();
        Ok(Authority {
            issuer: Issuer::new(params, key),
            certificate,
            key: KeyPair::generate().map_err(io::Error::other)?,
            made: Mutex::default(),
        })
    }

    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// The settings of a server that poses as this host, to a client that speaks HTTP/2 or HTTP/1.1.
    pub fn poses_as(&self, host: &str) -> io::Result<Arc<ServerConfig>> {
        let mut made = self.made.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(known) = made.get(host) {
            return Ok(known.clone());
        }
        let config = Arc::new(self.make(host)?);
        if made.len() < MOST {
            made.insert(host.to_owned(), config.clone());
        }
        Ok(config)
    }

    fn make(&self, host: &str) -> io::Result<ServerConfig> {
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let mut names = vec![bare.clone()];
        if bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback()) {
            // What Node's clients call an address behind a proxy.
            names.push("localhost".to_owned());
        }
        let mut params = CertificateParams::new(names).map_err(io::Error::other)?;
        // A common name has at most 64 characters.
        params.distinguished_name.push(DnType::CommonName, bare.chars().take(64).collect::<String>());
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        // OpenSSL's strict mode, the default of Python 3.13, asks for it.
        params.use_authority_key_identifier_extension = true;
        lasts(&mut params);
        let leaf = params.signed_by(&self.key, &self.issuer).map_err(io::Error::other)?.der().clone();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_single_cert(vec![leaf, self.certificate.clone()], key)
            .map_err(io::Error::other)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

fn lasts(params: &mut CertificateParams) {
    let now = SystemTime::now();
    // The clock of the client may differ a little.
    params.not_before = (now - DAY).into();
    params.not_after = (now + LIFETIME).into();
}
