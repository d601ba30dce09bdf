//! Grants on both stores: consumed once, for exact hosts, of one tenant, for a time, revocable.

use crate::support::Both;
use gatekeeperd::vault::{Issue, Vault, VaultError};
use std::time::Duration;

fn issue(domains: &[&str]) -> Issue {
    Issue {
        tenant: "alice".to_owned(),
        domains: domains.iter().map(|domain| (*domain).to_owned()).collect(),
        ttl: Issue::TTL,
        single_use: true,
        operator_id: "cli".to_owned(),
        origin_session_id: None,
    }
}

fn hosts(hosts: &[&str]) -> Vec<String> {
    hosts.iter().map(|host| (*host).to_owned()).collect()
}

async fn race(vault: &Vault, token: &str) -> usize {
    let tasks: Vec<_> = (0..100)
        .map(|at| {
            let (vault, token) = (vault.clone(), token.to_owned());
            tokio::spawn(async move {
                match vault.use_grant(&token, "alice", &hosts(&["a.org"]), &format!("session-{at}")).await {
                    Ok(_) => true,
                    Err(VaultError::Grant) => false,
                    Err(error) => panic!("{error}"),
                }
            })
        })
        .collect();
    let mut won = 0;
    for task in tasks {
        won += usize::from(task.await.expect("no panic"));
    }
    won
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_a_hundred_consumers_at_once_one_wins() {
    let both = Both::new().await;
    for (name, vault) in both.each() {
        for round in 0..3 {
            let single = vault.issue_grant(issue(&["a.org"])).await.expect("issued");
            assert_eq!(race(vault, &single.grant_token).await, 1, "{name}, round {round}");
        }
        let many = vault.issue_grant(Issue { single_use: false, ..issue(&["a.org"]) }).await.expect("issued");
        assert_eq!(race(vault, &many.grant_token).await, 100, "{name}: for many uses");
    }
}

#[tokio::test]
async fn a_grant_is_for_its_tenant_and_hosts_and_time_only() {
    let both = Both::new().await;
    for (name, vault) in both.each() {
        let issued = vault.issue_grant(issue(&["a.org", "b.org"])).await.expect("issued");
        let token = issued.grant_token.as_str();
        let other = vault.use_grant(token, "bob", &hosts(&["a.org"]), "s").await;
        assert!(matches!(other, Err(VaultError::Grant)), "{name}: another tenant");
        for wrong in ["www.a.org", "org", "A.ORG", "a.org.", "*.org", "c.org"] {
            let refused = vault.use_grant(token, "alice", &hosts(&["a.org", wrong]), "s").await;
            assert!(matches!(refused, Err(VaultError::GrantDomain { .. })), "{name}: {wrong}");
        }
        assert!(matches!(vault.use_grant("gkg_x", "alice", &[], "s").await, Err(VaultError::Grant)));
        // None of the failures has consumed it.
        let grant = vault.use_grant(token, "alice", &hosts(&["b.org"]), "mine").await.expect("a subset of the hosts");
        assert_eq!(grant.jti, issued.grant.jti);
        assert!(matches!(vault.use_grant(token, "alice", &hosts(&["b.org"]), "s").await, Err(VaultError::Grant)));
        let row = &vault.store().grants(Some("alice")).await.expect("rows")[0];
        assert_eq!(row.consumed_by.as_deref(), Some("mine"), "{name}");
        assert_eq!(row.expires_at - row.issued_at, 15 * 60 * 1000, "{name}: 15 minutes by default");

        let short =
            vault.issue_grant(Issue { ttl: Duration::from_secs(1), ..issue(&["a.org"]) }).await.expect("issued");
        tokio::time::sleep(Duration::from_millis(1100)).await;
        let late = vault.use_grant(&short.grant_token, "alice", &hosts(&["a.org"]), "s").await;
        assert!(matches!(late, Err(VaultError::Grant)), "{name}: expired");

        let revoked = vault.issue_grant(issue(&["a.org"])).await.expect("issued");
        assert!(!vault.store().remove_grant(&revoked.grant.jti, Some("bob")).await.expect("runs"), "{name}: not bob's");
        assert!(vault.store().remove_grant(&revoked.grant.jti, Some("alice")).await.expect("runs"));
        let gone = vault.use_grant(&revoked.grant_token, "alice", &hosts(&["a.org"]), "s").await;
        assert!(matches!(gone, Err(VaultError::Grant)), "{name}: revoked");
    }
}

#[tokio::test]
async fn hosts_of_a_grant_are_exact() {
    let both = Both::new().await;
    for wrong in ["*.a.org", ".a.org", "a.org.", "A.org", "a.org:80", "http://a.org", "", "a..org", "-a.org", "a b"] {
        let refused = both.sqlite.issue_grant(issue(&[wrong])).await;
        assert!(matches!(refused, Err(VaultError::Value { what: "domain", .. })), "{wrong:?}");
    }
    assert!(both.sqlite.issue_grant(issue(&[])).await.is_err(), "no host");
    assert!(both.sqlite.issue_grant(issue(&["localhost"])).await.is_ok(), "a host without a dot");
}
