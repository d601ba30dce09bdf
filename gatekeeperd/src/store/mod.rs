//! The tables, in SQLite or PostgreSQL. Every statement is written once and runs on both: sqlx numbers parameters as `$1`
//! for both, and the schema uses only TEXT and BIGINT. Each change of state is a single statement, so that a daemon that
//! is killed leaves no half of a change.
//!
//! This room stores what it gets. It hashes, encrypts and decides nothing; [`crate::vault`] and [`crate::session`] do.

mod audit;
mod credentials;
mod grants;
mod sessions;
mod tokens;

pub use audit::{AuditFilter, AuditRow};
pub use credentials::CredentialRow;
pub use grants::GrantRow;
pub use sessions::SessionRow;
pub use tokens::TokenRow;

use sqlx::AnyPool;
use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::migrate::{Migration, MigrationType, Migrator};
use std::borrow::Cow;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The scripts of `migrations/`, in order. A script that was released never changes; a change is a new script.
const MIGRATIONS: [(i64, &str, &str); 1] = [(1, "first", include_str!("../../migrations/0001_first.sql"))];

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Of the address, only the scheme is known: the rest may contain a password.
    #[error("{0} is no store that gatekeeperd knows: write sqlite:FILE or postgres://USER@HOST/DATABASE")]
    Address(String),
    #[error("cannot create {}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    /// The address is left out: it may contain a password.
    #[error("cannot open the store: {0}")]
    Open(#[source] sqlx::Error),
    #[error("cannot bring the tables of the store up to date: {0}")]
    Migrate(#[source] sqlx::migrate::MigrateError),
    #[error("the store failed: {0}")]
    Statement(#[from] sqlx::Error),
    #[error("the store contains {what} that is not valid: {value:?}")]
    Value { what: &'static str, value: String },
}

/// Where the tables are.
#[derive(Clone, PartialEq, Eq)]
pub enum Address {
    Sqlite(PathBuf),
    Postgres(String),
}

impl FromStr for Address {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Address, StoreError> {
        let file = text.strip_prefix("sqlite://").or_else(|| text.strip_prefix("sqlite:"));
        match file {
            Some(file) if !file.is_empty() && !file.contains('\0') => Ok(Address::Sqlite(file.into())),
            None if text.starts_with("postgres://") || text.starts_with("postgresql://") => {
                Ok(Address::Postgres(text.to_owned()))
            }
            _ => Err(StoreError::Address(scheme(text).map_or("this".to_owned(), |scheme| format!("{scheme}://")))),
        }
    }
}

fn scheme(text: &str) -> Option<&str> {
    let (scheme, _) = text.split_once("://")?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    (!scheme.is_empty() && scheme.len() <= 20 && scheme.bytes().all(plain)).then_some(scheme)
}

/// An open store. Clones share its connections.
#[derive(Clone)]
pub struct Store {
    pool: AnyPool,
}

impl Store {
    /// Opens the store, creates it if it is a missing file, and brings its tables up to date.
    pub async fn open(address: &Address) -> Result<Store, StoreError> {
        sqlx::any::install_default_drivers();
        let (options, sqlite) = match address {
            Address::Sqlite(path) => {
                create(path).map_err(|source| StoreError::File { path: path.clone(), source })?;
                (AnyConnectOptions::from_str(&sqlite_url(path)).map_err(StoreError::Open)?, true)
            }
            Address::Postgres(url) => (AnyConnectOptions::from_str(url).map_err(StoreError::Open)?, false),
        };
        let pool = AnyPoolOptions::new()
            .max_connections(if sqlite { 4 } else { 8 })
            .acquire_timeout(Duration::from_secs(30))
            .after_connect(move |connection, _| {
                Box::pin(async move {
                    if sqlite {
                        // Readers do not wait for a writer, and writers of other processes wait for each other.
                        for pragma in ["PRAGMA busy_timeout = 15000", "PRAGMA journal_mode = WAL"] {
                            sqlx::query(pragma).execute(&mut *connection).await?;
                        }
                    }
                    Ok(())
                })
            })
            .connect_with(options)
            .await
            .map_err(StoreError::Open)?;
        // sqlx does not lock SQLite for a migration, so of two programs that start at once one may fail; its second try
        // finds the tables up to date.
        let mut migrated = migrations().run(&pool).await;
        for _ in 0..3 {
            if migrated.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
            migrated = migrations().run(&pool).await;
        }
        migrated.map_err(StoreError::Migrate)?;
        Ok(Store { pool })
    }

    pub async fn close(&self) {
        self.pool.close().await;
    }
}

fn migrations() -> Migrator {
    let scripts = MIGRATIONS.map(|(version, name, sql)| {
        let sql = sqlx::SqlSafeStr::into_sql_str(sql);
        Migration::new(version, Cow::Borrowed(name), MigrationType::Simple, sql, false)
    });
    Migrator::with_migrations(scripts.into())
}

/// The file and its directory belong to this user alone. SQLite gives its journal the file's permissions.
fn create(path: &Path) -> std::io::Result<()> {
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path).map(drop)
}

fn sqlite_url(path: &Path) -> String {
    let mut url = "sqlite://".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' => url.push(char::from(*byte)),
            other => url.push_str(&format!("%{other:02X}")),
        }
    }
    url
}

/// Whether a row may have such a text. PostgreSQL has none with NUL, and fails when it is asked for one.
fn is_text(text: &str) -> bool {
    !text.contains('\0')
}

/// Milliseconds since 1970.
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The time as text: `2026-05-11T09:30:00.000Z`.
pub fn iso(milliseconds: i64) -> String {
    let since = Duration::from_millis(u64::try_from(milliseconds).unwrap_or_default());
    humantime::format_rfc3339_millis(UNIX_EPOCH + since).to_string()
}

/// The JSON text of a list of names.
fn list(names: &[String]) -> String {
    serde_json::to_string(names).unwrap_or_else(|_| "[]".to_owned())
}

fn names(what: &'static str, text: &str) -> Result<Vec<String>, StoreError> {
    serde_json::from_str(text).map_err(|_| StoreError::Value { what, value: text.to_owned() })
}
