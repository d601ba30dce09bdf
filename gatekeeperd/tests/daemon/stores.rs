//! What both stores do alike: tokens, sessions, the audit trail, migrations.

use crate::support::Both;
use gatekeeperd::store::{Address, AuditFilter, AuditRow, SessionRow, Store, iso, now};
use gatekeeperd::vault::sortable_id;
use serde_json::json;
use std::os::unix::fs::PermissionsExt;

#[tokio::test]
async fn a_token_is_known_by_its_hash_only() {
    let both = Both::new().await;
    for (name, vault) in both.each() {
        let (token, made) = vault.create_token("alice", true).await.expect("made");
        assert_eq!(vault.caller(&token).await.expect("runs"), Some(made.clone()), "{name}");
        assert_eq!(vault.caller(&token[..token.len() - 1]).await.expect("runs"), None, "{name}");
        assert_eq!(vault.store().token(&token).await.expect("runs"), None, "{name}: the text is not what is stored");
        assert_eq!(vault.store().tokens(Some("bob")).await.expect("runs"), [], "{name}");
        assert!(vault.store().remove_token(&made.id).await.expect("runs"));
        assert_eq!(vault.caller(&token).await.expect("runs"), None, "{name}: removed");
        for tenant in ["", "..", "a/b", ".a", "a b", &"a".repeat(65)] {
            assert!(vault.create_token(tenant, false).await.is_err(), "{tenant:?}");
        }
    }
}

fn row(id: &str, tenant: &str) -> SessionRow {
    SessionRow {
        id: id.to_owned(),
        tenant: tenant.to_owned(),
        kind: "session".to_owned(),
        credential_mode: "clean".to_owned(),
        domains: vec!["a.org".to_owned()],
        record: "off".to_owned(),
        state: "opening".to_owned(),
        place: "here".to_owned(),
        instance: "i".to_owned(),
        started_at: now(),
        ended_at: None,
        end_reason: None,
        close_requested: false,
    }
}

#[tokio::test]
async fn a_session_ends_once() {
    let both = Both::new().await;
    for (name, vault) in both.each() {
        let store = vault.store();
        store.add_session(&row("one", "alice")).await.expect("added");
        assert!(store.add_session(&row("one", "bob")).await.is_err(), "{name}: ids are unique");
        assert_eq!(
            store.session("one").await.expect("runs"),
            Some(SessionRow { ..store.session("one").await.expect("runs").expect("there") })
        );
        assert!(store.session_opened("one").await.expect("runs"));
        assert_eq!(store.alive_sessions("here").await.expect("runs").len(), 1, "{name}");
        assert_eq!(store.alive_sessions("elsewhere").await.expect("runs"), [], "{name}");
        assert!(store.request_close("one").await.expect("runs"));
        assert!(store.end_session("one", "closed", "first", 5).await.expect("runs"));
        assert!(!store.end_session("one", "reaped", "second", 6).await.expect("runs"), "{name}");
        assert!(!store.session_opened("one").await.expect("runs"), "{name}: it does not come back");
        assert!(!store.request_close("one").await.expect("runs"), "{name}");
        let ended = store.session("one").await.expect("runs").expect("there");
        assert_eq!((ended.ended_at, ended.end_reason.as_deref()), (Some(5), Some("first")), "{name}");
    }
}

#[tokio::test]
async fn the_audit_trail_is_in_order_and_filtered() {
    let both = Both::new().await;
    for (name, vault) in both.each() {
        let at = now();
        for count in 0..20 {
            let row = AuditRow {
                id: sortable_id(at).expect("random"),
                at,
                tenant: if count % 2 == 0 { "alice" } else { "bob" }.to_owned(),
                session_id: (count > 10).then(|| "one".to_owned()),
                actor: "cli".to_owned(),
                action: "navigate".to_owned(),
                detail: json!({ "count": count }),
            };
            vault.store().add_audit(&row).await.expect("added");
        }
        let of = |filter: AuditFilter| async move { vault.store().audit(&filter).await.expect("rows") };
        let all = of(AuditFilter { limit: 100, ..AuditFilter::default() }).await;
        let counts: Vec<_> = all.iter().map(|row| row.detail["count"].as_i64().expect("a number")).collect();
        assert_eq!(counts, (0..20).rev().collect::<Vec<_>>(), "{name}: the newest first, also within a millisecond");
        let alice = Some("alice".to_owned());
        let rows = of(AuditFilter {
            tenant: alice.clone(),
            session: Some("one".to_owned()),
            limit: 3,
            ..AuditFilter::default()
        })
        .await;
        let counts: Vec<_> = rows.iter().map(|row| row.detail["count"].as_i64().expect("a number")).collect();
        assert_eq!(counts, [18, 16, 14], "{name}");
        let next =
            of(AuditFilter { tenant: alice, before: Some(rows[2].id.clone()), limit: 2, ..AuditFilter::default() })
                .await;
        assert_eq!(next[0].detail["count"], 12, "{name}: the next page");
    }
}

#[tokio::test]
async fn programs_that_start_at_once_make_one_schema() {
    let both = Both::new().await;
    let path = both.directory.path().join("new/store.db");
    let opens = (0..6).map(|_| {
        let address = Address::Sqlite(path.clone());
        tokio::spawn(async move { Store::open(&address).await.map(drop) })
    });
    for open in opens.collect::<Vec<_>>() {
        open.await.expect("no panic").expect("opened");
    }
    let mode = |path: &std::path::Path| std::fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(path.parent().expect("a directory")), 0o700);
}

#[test]
fn an_address_that_is_no_store_is_refused_without_its_password() {
    for wrong in ["", "sqlite:", "mysql://root:word@host/db", "/var/db", "postgres:word"] {
        let error = wrong.parse::<Address>().err().unwrap_or_else(|| panic!("{wrong:?}")).to_string();
        assert!(!error.contains("word"), "{error}");
    }
    assert_eq!(iso(1_778_491_800_123), "2026-05-11T09:30:00.123Z");
}

#[test]
fn the_command_line_never_prints_the_password_of_a_store() {
    let state = tempfile::TempDir::new().expect("a temporary directory");
    let knows = "is no store that gatekeeperd knows: write sqlite:FILE or postgres://USER@HOST/DATABASE";
    for (address, said) in [
        ("mysql://me:s3cret@host/d", format!("mysql:// {knows}")),
        ("mysql://host/d?password=s3cret", format!("mysql:// {knows}")),
        ("me:s3cret@host/d", format!("this {knows}")),
        ("s3cret", format!("this {knows}")),
        ("sqlite:", format!("this {knows}")),
        ("postgres://me:s3cret@host:port/d", "cannot open the store: ".to_owned()),
        ("postgres://me:s3cret@localhost/d?host=%2Fnowhere", "cannot open the store: ".to_owned()),
    ] {
        let listing = || {
            let mut listing = crate::support::program();
            listing.args(["token", "list", "--state"]).arg(state.path());
            listing
        };
        let by_flag = listing().args(["--store", address]).output().expect("runs");
        let by_variable = listing().env("GATEKEEPERD_STORE", address).output().expect("runs");
        let is_known = address.starts_with("postgres");
        for (done, code) in [(by_flag, if is_known { 1 } else { 2 }), (by_variable, 1)] {
            let text = String::from_utf8_lossy(&done.stderr).into_owned();
            assert_eq!(done.status.code(), Some(code), "{address}: {text}");
            assert!(text.contains(&said) && !text.contains("s3cret"), "{address}: {text}");
        }
    }
}
