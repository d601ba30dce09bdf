//! The key file: one key of 256 bits per line, in base64. The first one encrypts, all of them decrypt. The file is read for
//! every use, so that a rotation takes effect in a running daemon and no key stays in its memory.

use super::{VaultError, random};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use rustix::fs::FlockOperation;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// The name of the systemd credential with the keys.
const CREDENTIAL: &str = "gatekeeperd-key";

#[derive(Debug, Clone)]
pub struct KeyFile {
    path: PathBuf,
    /// Only gatekeeperd writes this file: a missing one is created, and a rotation rewrites it.
    own: bool,
    /// It is in the directory in which systemd shows a service its credentials.
    credential: bool,
}

type Secret = Zeroizing<[u8; 32]>;

impl KeyFile {
    /// The given file; or the systemd credential `gatekeeperd-key`; or `key` in the state directory, created when needed.
    pub fn choose(given: Option<&Path>, state: &Path) -> KeyFile {
        let directory = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from).filter(|path| path.is_absolute());
        if let Some(path) = given {
            let credential = directory.is_some() && path.parent() == directory.as_deref();
            return KeyFile { path: path.to_owned(), own: false, credential };
        }
        match directory.map(|directory| directory.join(CREDENTIAL)).filter(|path| path.exists()) {
            Some(path) => KeyFile { path, own: false, credential: true },
            None => KeyFile { path: state.join("key"), own: true, credential: false },
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether `rotate` may write the file.
    pub fn is_own(&self) -> bool {
        self.own
    }

    /// Encrypts with the first key; `bound` has to be the same at decryption. Returns the ciphertext and the key's id.
    pub fn seal(&self, plain: &[u8], bound: &[u8]) -> Result<(String, String), VaultError> {
        let keys = self.read(true)?;
        let key = keys.first().ok_or_else(|| self.wrong("it contains no key"))?;
        let nonce = random::bytes::<24>()?;
        let cipher = XChaCha20Poly1305::new((&**key).into());
        let sealed = cipher
            .encrypt(&XNonce::from(nonce), Payload { msg: plain, aad: bound })
            .map_err(|_| self.wrong("the cookies are too long to encrypt"))?;
        Ok((STANDARD.encode([&nonce[..], &sealed].concat()), id(key)))
    }

    /// Decrypts with the key of this id. `Ok(None)` if the ciphertext or `bound` is not what was sealed.
    pub fn open(
        &self,
        sealed: &str,
        key_id: &str,
        bound: &[u8],
        domain: &str,
    ) -> Result<Option<Zeroizing<Vec<u8>>>, VaultError> {
        let keys = self.read(false)?;
        let key = keys.iter().find(|key| id(key) == key_id).ok_or_else(|| VaultError::KeyMissing {
            domain: domain.to_owned(),
            key_id: key_id.to_owned(),
            path: self.path.clone(),
        })?;
        let Ok(bytes) = STANDARD.decode(sealed) else { return Ok(None) };
        let Some((nonce, sealed)) = bytes.split_first_chunk::<24>() else { return Ok(None) };
        let cipher = XChaCha20Poly1305::new((&**key).into());
        let plain = cipher.decrypt(&XNonce::from(*nonce), Payload { msg: sealed, aad: bound });
        Ok(plain.ok().map(Zeroizing::new))
    }

    /// Waits for the lock of the key file. Those who encrypt and store share it, so that a rotation, which holds it alone,
    /// never drops a key whose ciphertext is still on its way to the store.
    pub async fn lock(&self, alone: bool) -> Result<Option<File>, VaultError> {
        if !self.own {
            return Ok(None);
        }
        let path = self.path.with_extension("lock");
        let how = if alone { FlockOperation::LockExclusive } else { FlockOperation::LockShared };
        let lock = move || {
            if let Some(directory) = path.parent() {
                std::fs::create_dir_all(directory)?;
            }
            let file = File::options().write(true).create(true).truncate(false).mode(0o600).open(&path)?;
            rustix::fs::flock(&file, how)?;
            std::io::Result::Ok(file)
        };
        let locked = tokio::task::spawn_blocking(lock).await.map_err(std::io::Error::other).and_then(|locked| locked);
        locked.map(Some).map_err(|error| self.wrong(&error.to_string()))
    }

    /// The id of the key that encrypts.
    pub fn current(&self) -> Result<String, VaultError> {
        let keys = self.read(true)?;
        keys.first().map(id).ok_or_else(|| self.wrong("it contains no key"))
    }

    /// Puts a new key before the others.
    pub fn add(&self) -> Result<(), VaultError> {
        let mut keys = self.read(true)?;
        keys.insert(0, Zeroizing::new(random::bytes()?));
        self.write(&keys)
    }

    /// Removes all keys but the first.
    pub fn drop_old(&self) -> Result<(), VaultError> {
        let keys = self.read(false)?;
        self.write(keys.get(..1).unwrap_or_default())
    }

    fn read(&self, create: bool) -> Result<Vec<Secret>, VaultError> {
        let file = match rustix::fs::open(
            &self.path,
            rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC | rustix::fs::OFlags::NOCTTY,
            rustix::fs::Mode::empty(),
        ) {
            Ok(file) => File::from(file),
            Err(rustix::io::Errno::NOENT) if self.own && create => {
                self.create()?;
                return self.read(false);
            }
            Err(error) => return Err(self.wrong(&error.to_string())),
        };
        let about = file.metadata().map_err(|error| self.wrong(&error.to_string()))?;
        if !about.is_file() {
            return Err(self.wrong("it is not a regular file"));
        }
        let me = rustix::process::geteuid().as_raw();
        if about.uid() != me && about.uid() != 0 {
            return Err(self.wrong("it belongs to another user"));
        }
        // systemd gives the service access to its credential by an ACL, which shows as group permissions.
        let others = if self.credential { 0o007 } else { 0o077 };
        if about.mode() & others != 0 {
            return Err(self.wrong("other users may read it; run chmod 600 on it"));
        }
        let mut text = Zeroizing::new(String::new());
        file.take(1 << 16).read_to_string(&mut text).map_err(|error| self.wrong(&error.to_string()))?;
        let keys: Result<Vec<Secret>, VaultError> =
            text.lines().filter(|line| !line.trim().is_empty()).map(|line| self.parse(line)).collect();
        keys
    }

    fn parse(&self, line: &str) -> Result<Secret, VaultError> {
        let mut key = Zeroizing::new([0; 32]);
        let mut bytes = Zeroizing::new([0; 36]);
        let count = STANDARD.decode_slice(line.trim(), &mut *bytes).unwrap_or(0);
        if count != 32 {
            return Err(
                self.wrong("each line has to be a key of 32 bytes in base64; `openssl rand -base64 32` makes one")
            );
        }
        key.copy_from_slice(&bytes[..32]);
        Ok(key)
    }

    /// Creates the file with one key, unless another process has just done so.
    fn create(&self) -> Result<(), VaultError> {
        let fresh = self.fresh(&[Zeroizing::new(random::bytes()?)])?;
        let linked = std::fs::hard_link(&fresh, &self.path);
        let _ = std::fs::remove_file(&fresh);
        match linked {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(self.wrong(&error.to_string())),
            _ => Ok(()),
        }
    }

    fn write(&self, keys: &[Secret]) -> Result<(), VaultError> {
        let fresh = self.fresh(keys)?;
        std::fs::rename(&fresh, &self.path).map_err(|error| self.wrong(&error.to_string()))
    }

    /// A complete file under another name, so that the real one never has half a content.
    fn fresh(&self, keys: &[Secret]) -> Result<PathBuf, VaultError> {
        let path = self.path.with_extension(random::hex(&random::bytes::<8>()?));
        let write = || {
            if let Some(directory) = self.path.parent() {
                std::fs::create_dir_all(directory)?;
            }
            let mut file = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
            for key in keys {
                let line = Zeroizing::new(format!("{}\n", *Zeroizing::new(STANDARD.encode(**key))));
                file.write_all(line.as_bytes())?;
            }
            file.sync_all()
        };
        write().map_err(|error: std::io::Error| self.wrong(&error.to_string()))?;
        Ok(path)
    }

    fn wrong(&self, why: &str) -> VaultError {
        VaultError::Key { path: self.path.clone(), why: why.to_owned() }
    }
}

/// The id says which key it is, and nothing about the key.
fn id(key: &Secret) -> String {
    let digest = Sha256::digest([&b"gatekeeperd key id\0"[..], &key[..]].concat());
    random::hex(&digest[..8])
}
