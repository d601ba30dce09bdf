//! Cookies: encrypted at rest, injected only against a grant, shown nowhere, rotated.

use crate::support::{Both, Daemon, cookie, echo};
use gatekeeperd::vault::{KeyFile, Vault, VaultError};
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const VALUE: &str = "cookie-value-that-must-stay-secret";

fn cookies(domain: &str) -> Vec<gatekeeperd::browser::Cookie> {
    Vault::parse_cookies(json!([cookie("sid", VALUE, domain)]).to_string().as_bytes()).expect("cookies")
}

/// Every byte below a directory.
pub fn contents(directory: &Path, into: &mut Vec<u8>) {
    for entry in std::fs::read_dir(directory).expect("a directory").filter_map(Result::ok) {
        match entry.file_type().expect("a type").is_dir() {
            true => contents(&entry.path(), into),
            false => into.extend(std::fs::read(entry.path()).unwrap_or_default()),
        }
    }
}

pub fn finds(haystack: &[u8], needle: &str) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle.as_bytes())
}

#[tokio::test]
async fn cookies_are_encrypted_and_bound_to_tenant_and_host() {
    let both = Both::new().await;
    for (name, vault) in both.each() {
        let imported = vault
            .store_cookies("alice", "a.org", &[cookies(".a.org"), cookies("www.a.org")].concat())
            .await
            .expect("stored");
        assert_eq!((imported.stored, imported.left_out), (1, 1), "{name}: exact hosts");
        let hosts = ["a.org".to_owned()];
        assert_eq!(vault.cookies("alice", &hosts).await.expect("decrypts")[0].value, VALUE, "{name}");
        assert!(matches!(vault.cookies("bob", &hosts).await, Err(VaultError::NoCredential { .. })), "{name}");
        let row = vault.store().credential("alice", "a.org").await.expect("runs").expect("there");
        assert!(!row.cookies_encrypted.contains(VALUE));
        // The ciphertext in the row of another tenant, or of another host, does not decrypt.
        for (tenant, domain) in [("bob", "a.org"), ("alice", "b.org")] {
            let moved = gatekeeperd::store::CredentialRow {
                id: format!("{tenant}{domain}"),
                tenant: tenant.to_owned(),
                domain: domain.to_owned(),
                ..row.clone()
            };
            vault.store().put_credential(&moved).await.expect("stored");
            let refused = vault.cookies(tenant, &[domain.to_owned()]).await;
            assert!(matches!(refused, Err(VaultError::Tampered { .. })), "{name}: {tenant} {domain}");
            vault.store().remove_credential(tenant, domain).await.expect("removed");
        }
        // A new key: everything is encrypted anew, and the old key is gone.
        let before = std::fs::read_to_string(both.directory.path().join("key")).expect("the key file");
        assert_eq!(vault.rotate().await.expect("rotated"), 1, "{name}");
        let after = std::fs::read_to_string(both.directory.path().join("key")).expect("the key file");
        assert!(after.lines().count() == 1 && after != before, "{name}");
        assert_eq!(vault.cookies("alice", &hosts).await.expect("decrypts")[0].value, VALUE, "{name}");
        assert_ne!(vault.store().credential("alice", "a.org").await.expect("runs").expect("there").key_id, row.key_id);
        vault.store().remove_credential("alice", "a.org").await.expect("removed");
    }
    let mut stored = Vec::new();
    contents(both.directory.path(), &mut stored);
    assert!(!finds(&stored, VALUE), "not even in SQLite's journal");
}

#[tokio::test]
async fn a_key_file_that_others_may_read_is_refused() {
    let both = Both::new().await;
    let path = both.directory.path().join("given");
    let vault = Vault::new(both.sqlite.store().clone(), KeyFile::choose(Some(&path), both.directory.path()));
    let store = || vault.store_cookies("alice", "a.org", &[]);
    assert!(store().await.is_err(), "no cookies");
    let try_it = || async {
        vault.store_cookies("alice", "a.org", &cookies("a.org")).await.map(drop).map_err(|error| error.to_string())
    };
    assert!(try_it().await.expect_err("missing").contains("No such file"), "a given file is not created");
    let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("own file");
    std::fs::write(&path, "c2hvcnQ=\n").expect("own directory");
    mode(0o600);
    assert!(try_it().await.expect_err("short").contains("32 bytes"));
    std::fs::write(&path, "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n").expect("own file");
    mode(0o640);
    assert!(try_it().await.expect_err("readable").contains("chmod 600"));
    mode(0o600);
    try_it().await.expect("good");
    // Its name does not make it systemd's: only the directory of credentials has files with an ACL.
    let named = both.directory.path().join("gatekeeperd-key");
    std::fs::copy(&path, &named).expect("own file");
    std::fs::set_permissions(&named, std::fs::Permissions::from_mode(0o660)).expect("own file");
    let vault = Vault::new(both.sqlite.store().clone(), KeyFile::choose(Some(&named), both.directory.path()));
    let error = vault.store_cookies("alice", "a.org", &cookies("a.org")).await.map(drop).expect_err("readable");
    assert!(error.to_string().contains("chmod 600"), "{error}");
    let file = both.directory.path().join("cookies.json");
    std::fs::write(&file, json!([cookie("sid", VALUE, "a.org")]).to_string()).expect("own directory");
    let import = |credentials: &Path| {
        let mut command = crate::support::program();
        command.args(["credential", "import", "--tenant", "alice", "--domain", "a.org", "--file"]).arg(&file);
        command.arg("--state").arg(both.directory.path().join("state")).arg("--key-file").arg(&named);
        command.env("CREDENTIALS_DIRECTORY", credentials).output().expect("runs").status.code()
    };
    assert_eq!((import(both.directory.path()), import(Path::new("/run/credentials/other"))), (Some(0), Some(1)));
}

#[test]
fn a_wrong_file_of_cookies_is_refused_without_its_values() {
    for wrong in [
        format!("[{{\"name\":\"a\",\"value\":\"{VALUE}\"}}]"),
        format!("[{{\"name\":\"a\",\"value\":[\"{VALUE}\"],\"domain\":\"a.org\"}}]"),
        format!("{{\"value\":\"{VALUE}\"}}"),
        format!("\"{VALUE}\""),
        format!("[\"{VALUE}\"]"),
        VALUE.to_owned(),
    ] {
        let error = Vault::parse_cookies(wrong.as_bytes()).map(drop).expect_err(&wrong).to_string();
        assert!(!error.contains(VALUE), "{error}");
    }
    // Nothing that a browser refuses is stored: it would be found out only when a grant is used up.
    let with = |key: &str, value: serde_json::Value| {
        let mut bad = cookie("sid", VALUE, "a.org");
        bad[key] = value;
        Vault::parse_cookies(json!([cookie("a", "b", "a.org"), bad]).to_string().as_bytes()).map(|all| all.len())
    };
    for (key, value) in [
        ("value", json!(format!("{VALUE};"))),
        ("value", json!(format!("{VALUE}\n"))),
        ("name", json!("__Secure-x")),
        ("name", json!("__Host-x")),
        ("name", json!("a=b")),
        ("partitionKey", json!("https://a.org")),
        ("value", json!("x".repeat(5000))),
    ] {
        let error = with(key, value.clone()).expect_err(key).to_string();
        assert!(error.starts_with("cookie 1 would be refused") && !error.contains(VALUE), "{error}");
    }
    for (key, value) in [
        ("value", json!("a=b \"c\" é")),
        ("partitionKey", json!({ "topLevelSite": "https://a.org", "hasCrossSiteAncestor": false })),
        ("secure", json!(true)),
    ] {
        assert_eq!(with(key, value).expect(key), 2);
    }
}

#[tokio::test]
async fn a_grant_gives_a_session_the_cookies_and_nothing_shows_them() {
    let port = echo();
    let daemon = Daemon::start(&["--local-port", &port.to_string()]);
    let (alice, operator, bob) =
        (daemon.token("alice", false), daemon.token("alice", true), daemon.token("bob", false));
    let file = daemon.state.path().join("cookies.json");
    std::fs::write(&file, json!({ "cookies": [cookie("sid", VALUE, "localhost")] }).to_string())
        .expect("own directory");
    let path = file.display().to_string();
    let imported =
        daemon.json(&["credential", "import", "--tenant", "alice", "--domain", "localhost", "--file", &path]);
    assert_eq!(imported["stored"], 1);
    std::fs::remove_file(&file).expect("own file");

    let (status, refused) = daemon.post(&alice, "/v1/grants", json!({ "domains": ["localhost"] })).await;
    assert_eq!((status, refused["error"]["code"].as_str()), (403, Some("forbidden")), "issuing needs an operator");
    let (status, issued) = daemon.post(&operator, "/v1/grants", json!({ "domains": ["localhost"] })).await;
    assert_eq!(status, 201, "{issued}");
    let grant = issued["grant_token"].as_str().expect("a token");
    let request =
        json!({ "credential_mode": "operator", "domains": ["localhost"], "grant_token": grant, "record": "off" });
    let (status, refused) = daemon.post(&bob, "/v1/sessions", request.clone()).await;
    assert_eq!((status, refused["error"]["code"].as_str()), (403, Some("grant_invalid")), "the grant is not bob's");
    let id = daemon.open(&alice, request.clone()).await;
    let url = format!("http://localhost:{port}/");
    daemon.act(&alice, &id, "navigate", json!({ "url": url })).await;
    let dom = daemon.act(&alice, &id, "read_dom", json!({})).await;
    assert!(dom["html"].as_str().expect("text").contains(&format!("[sid={VALUE}]")), "{dom}");
    let (status, used) = daemon.post(&alice, "/v1/sessions", request).await;
    assert_eq!((status, used["error"]["code"].as_str()), (403, Some("grant_invalid")), "single use");

    // Another session of the same tenant starts empty.
    let clean = daemon.open(&alice, json!({ "record": "off" })).await;
    daemon.act(&alice, &clean, "navigate", json!({ "url": url })).await;
    let dom = daemon.act(&alice, &clean, "read_dom", json!({})).await;
    assert!(dom["html"].as_str().expect("text").contains("[none]"), "{dom}");

    // The session got a new cookie from the site; it is not written back.
    let before = daemon.json(&["credential", "list"]);
    daemon.ask(&alice, "DELETE", &format!("/v1/sessions/{id}"), None).await;
    assert_eq!(
        daemon.json(&["credential", "list"])["credentials"][0]["cookie_count"],
        before["credentials"][0]["cookie_count"]
    );

    let mut shown = String::new();
    for path in ["/v1/credentials", "/v1/grants", "/v1/audit?limit=1000", "/v1/sessions"] {
        shown += &daemon.ask(&operator, "GET", path, None).await.1.to_string();
    }
    for secret in [VALUE, grant, alice.as_str()] {
        assert!(!shown.contains(secret), "{shown}");
        let mut stored = Vec::new();
        contents(daemon.state.path(), &mut stored);
        assert!(!finds(&stored, secret), "a secret is in a file of the state directory or in the log");
    }
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", daemon.pid().as_raw_pid()));
    let core = limits.ok().and_then(|text| text.lines().find(|line| line.starts_with("Max core")).map(str::to_owned));
    assert!(core.is_none_or(|line| line.split_whitespace().nth(4) == Some("0")), "no core dumps");
}
