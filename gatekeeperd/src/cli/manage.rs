//! The commands that manage a store. Who can read the store's file or database is its operator, so they need no token; each
//! leaves a row in the audit trail.

use super::Failure;
use super::args::{Common, Credential, Grant, Session, Token};
use super::output::{print, table};
use super::serve::{settings, vault};
use crate::api::{shown_credential, shown_grant, shown_session};
use crate::session::{close_from_outside, reap, write_audit};
use crate::store::iso;
use crate::vault::{Caller, Issue, Vault};
use serde_json::{Value, json};
use std::io::Read;
use std::path::Path;
use zeroize::Zeroizing;

/// The longest file of cookies.
const LONGEST: u64 = 16 << 20;

/// This program, acting for a tenant.
fn cli(tenant: &str) -> Caller {
    Caller { id: "cli".to_owned(), tenant: tenant.to_owned(), operator: true }
}

async fn audit(vault: &Vault, tenant: &str, action: &str, detail: Value) -> Result<(), Failure> {
    write_audit(vault.store(), &cli(tenant), None, action, detail).await?;
    Ok(())
}

pub async fn token(common: &Common, token: Token) -> Result<(), Failure> {
    let vault = vault(common).await?;
    match token {
        Token::Create { tenant, operator } => {
            crate::vault::check_tenant(&tenant)?;
            audit(&vault, &tenant, "create_token", json!({ "operator": operator })).await?;
            let (token, caller) = vault.create_token(&tenant, operator).await?;
            let value = json!({ "token": *token, "id": caller.id, "tenant": tenant, "operator": operator });
            // Programs read this answer, so it is JSON with and without --json.
            print(true, &value, &[])
        }
        Token::List { tenant } => {
            let rows = vault.store().tokens(tenant.as_deref()).await?;
            let value = rows.iter().map(|row| {
                json!({ "id": row.id, "tenant": row.tenant, "operator": row.operator, "created_at": iso(row.created_at) })
            });
            let lines = rows.iter().map(|row| {
                let kind = if row.operator { "operator" } else { "tenant" };
                vec![row.id.clone(), row.tenant.clone(), kind.to_owned(), iso(row.created_at)]
            });
            let lines = table(&["ID", "TENANT", "KIND", "CREATED"], &lines.collect::<Vec<_>>());
            print(common.json, &json!({ "tokens": value.collect::<Vec<_>>() }), &lines)
        }
        Token::Rm { id } => {
            let row = vault.store().tokens(None).await?.into_iter().find(|row| row.id == id);
            let row = row.ok_or_else(|| Failure(format!("there is no token {id}")))?;
            audit(&vault, &row.tenant, "remove_token", json!({ "id": id })).await?;
            vault.store().remove_token(&id).await?;
            print(common.json, &json!({ "removed": id }), &[format!("removed token {id}")])
        }
    }
}

pub async fn grant(common: &Common, grant: Grant) -> Result<(), Failure> {
    let vault = vault(common).await?;
    match grant {
        Grant::Issue { tenant, domain, ttl, multi_use } => {
            let issue = Issue {
                tenant: tenant.clone(),
                domains: domain.clone(),
                ttl,
                single_use: !multi_use,
                operator_id: "cli".to_owned(),
                origin_session_id: None,
            };
            crate::vault::check_tenant(&tenant)?;
            let detail = json!({ "domains": domain, "single_use": !multi_use, "ttl_seconds": ttl.as_secs() });
            audit(&vault, &tenant, "issue_grant", detail).await?;
            let issued = vault.issue_grant(issue).await?;
            let mut value = shown_grant(&issued.grant);
            value["grant_token"] = json!(*issued.grant_token);
            // As for a token.
            print(true, &value, &[])
        }
        Grant::Revoke { jti } => {
            let row = vault.store().grants(None).await?.into_iter().find(|row| row.jti == jti);
            let row = row.ok_or_else(|| Failure(format!("there is no grant {jti}")))?;
            audit(&vault, &row.tenant, "revoke_grant", json!({ "jti": jti })).await?;
            vault.store().remove_grant(&jti, None).await?;
            print(common.json, &json!({ "revoked": jti }), &[format!("revoked grant {jti}")])
        }
        Grant::List { tenant } => {
            let rows = vault.store().grants(tenant.as_deref()).await?;
            let lines: Vec<Vec<String>> = rows
                .iter()
                .map(|row| {
                    let used = row.consumed_at.map_or_else(|| "no".to_owned(), iso);
                    vec![row.jti.clone(), row.tenant.clone(), row.allowed_domains.join(","), iso(row.expires_at), used]
                })
                .collect();
            let value = json!({ "grants": rows.iter().map(shown_grant).collect::<Vec<_>>() });
            print(common.json, &value, &table(&["JTI", "TENANT", "HOSTS", "EXPIRES", "USED"], &lines))
        }
    }
}

pub async fn credential(common: &Common, credential: Credential) -> Result<(), Failure> {
    let vault = vault(common).await?;
    match credential {
        Credential::Import { tenant, domain, file } => {
            let text = read(&file).map_err(|error| Failure(format!("{}: {error}", file.display())))?;
            let cookies =
                Vault::parse_cookies(&text).map_err(|error| Failure(format!("{}: {error}", file.display())))?;
            crate::vault::check_tenant(&tenant)?;
            audit(&vault, &tenant, "import_credential", json!({ "domain": domain })).await?;
            let done = vault.store_cookies(&tenant, &domain, &cookies).await?;
            let value = json!({ "tenant": tenant, "domain": domain, "stored": done.stored, "left_out": done.left_out });
            let mut lines = vec![format!("stored {} of {domain}", cookies_in_words(done.stored))];
            if done.left_out > 0 {
                lines.push(format!("left out {} of other hosts", cookies_in_words(done.left_out)));
            }
            print(common.json, &value, &lines)
        }
        Credential::List { tenant } => {
            let stored = vault.credentials(tenant.as_deref()).await?;
            let lines: Vec<Vec<String>> = stored
                .iter()
                .map(|one| {
                    let injected = one.last_injected_at.map_or_else(|| "never".to_owned(), iso);
                    let count = one.cookie_count.to_string();
                    vec![one.tenant.clone(), one.domain.clone(), count, iso(one.last_refreshed_at), injected]
                })
                .collect();
            let value = json!({ "credentials": stored.iter().map(shown_credential).collect::<Vec<_>>() });
            print(common.json, &value, &table(&["TENANT", "HOST", "COOKIES", "REFRESHED", "INJECTED"], &lines))
        }
        Credential::Rm { tenant, domain } => {
            crate::vault::check_tenant(&tenant)?;
            audit(&vault, &tenant, "remove_credential", json!({ "domain": domain })).await?;
            match vault.store().remove_credential(&tenant, &domain).await? {
                true => {
                    print(common.json, &json!({ "removed": domain }), &[format!("removed the cookies of {domain}")])
                }
                false => Err(Failure(format!("no cookies of {domain} are stored for {tenant}"))),
            }
        }
        Credential::Rotate => {
            let count = vault.rotate().await?;
            print(
                common.json,
                &json!({ "encrypted": count }),
                &[format!("encrypted the cookies of {count} hosts anew")],
            )
        }
    }
}

fn cookies_in_words(count: usize) -> String {
    if count == 1 { "1 cookie".to_owned() } else { format!("{count} cookies") }
}

fn read(file: &Path) -> std::io::Result<Zeroizing<Vec<u8>>> {
    let mut text = Zeroizing::new(Vec::new());
    let count = match file == Path::new("-") {
        true => std::io::stdin().take(LONGEST + 1).read_to_end(&mut text)?,
        false => std::fs::File::open(file)?.take(LONGEST + 1).read_to_end(&mut text)?,
    };
    match u64::try_from(count).is_ok_and(|count| count <= LONGEST) {
        true => Ok(text),
        false => Err(std::io::Error::other("it is longer than 16 MiB")),
    }
}

pub async fn session(common: &Common, session: Session) -> Result<(), Failure> {
    let vault = vault(common).await?;
    let settings = settings(common)?;
    match session {
        Session::List { tenant } => {
            let rows = vault.store().sessions(tenant.as_deref()).await?;
            let value = rows.iter().map(|row| {
                let mut value = shown_session(row);
                value["tenant"] = json!(row.tenant);
                value
            });
            let lines: Vec<Vec<String>> = rows
                .iter()
                .map(|row| {
                    vec![row.id.clone(), row.tenant.clone(), row.kind.clone(), row.state.clone(), iso(row.started_at)]
                })
                .collect();
            let lines = table(&["ID", "TENANT", "KIND", "STATE", "STARTED"], &lines);
            print(common.json, &json!({ "sessions": value.collect::<Vec<_>>() }), &lines)
        }
        Session::Close { id } => {
            let row = vault.store().session(&id).await?.ok_or_else(|| Failure(format!("there is no session {id}")))?;
            write_audit(vault.store(), &cli(&row.tenant), Some(&id), "close_session", json!({})).await?;
            if !close_from_outside(vault.store(), &settings, &id).await? {
                return Err(Failure(format!("session {id} has ended already")));
            }
            print(common.json, &json!({ "closed": id }), &[format!("closed session {id}")])
        }
        Session::Reap => {
            let done = reap(vault.store(), &settings).await?;
            let lines = [format!("reaped {} sessions and {} directories", done.sessions.len(), done.directories)];
            print(common.json, &json!({ "reaped": done.sessions, "directories": done.directories }), &lines)
        }
    }
}
