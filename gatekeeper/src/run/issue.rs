//! What a run issues so that the proxy can look into requests: an authority, placeholders for secrets, and the files by
//! which clients trust the authority.

#[cfg(feature = "http")]
use super::prepare::hostile;
use crate::enforce::rundir::RunDir;
use crate::plan::refusal::Refusal;
use crate::plan::{Made, Plan, Trust};
use crate::policy::Policy;
use crate::request::{Issued, Purpose, Request};
use std::sync::Arc;

#[cfg(feature = "http")]
pub type Means = crate::proxy::inspect::Means;
#[cfg(not(feature = "http"))]
pub type Means = std::convert::Infallible;

/// Placeholders in a plan that is only printed.
const BUNDLE: &str = "(certificates of the run)";
const PLACEHOLDER: &str = "(placeholder)";

type Refused<T> = Result<T, Box<Refusal>>;

fn refuse(why: impl std::fmt::Display) -> Box<Refusal> {
    Box::new(Refusal::setup(format!("proxy: {why}")))
}

/// Makes what the policy's rules for requests need. Nothing, if it has none.
pub fn issue(
    policy: &mut Policy,
    request: &Request,
    run_dir: &RunDir,
    for_real: bool,
    made: &mut Made,
) -> Refused<(Option<Arc<Means>>, Option<Issued>)> {
    if !policy.inspects() || request.purpose == Purpose::Learn {
        return Ok((None, None));
    }
    if !cfg!(feature = "http") {
        return Err(refuse("this gatekeeper was built without the feature http, which looks into requests"));
    }
    if !for_real {
        let variables =
            policy.network.credentials.iter().map(|one| (one.env.clone(), PLACEHOLDER.to_owned())).collect();
        made.trust = Some(Trust { bundle: BUNDLE.into(), java: BUNDLE.into(), wget: BUNDLE.into(), variables });
        return Ok((None, None));
    }
    let (means, issued) = match (&request.issued, request.inside) {
        (Some(issued), _) => (None, issued.clone()),
        // The gatekeeper outside has the secrets, and hands over what is public.
        (None, Some(_)) => return Err(refuse("nothing was handed over for the rules of requests")),
        (None, None) => make(policy, request)?,
    };
    let bundle = run_dir.file("ca.pem", issued.bundle.clone(), 0o444);
    let settings = format!("passive_ftp = on\nca_certificate = {}\n", bundle.display());
    made.trust = Some(Trust {
        wget: run_dir.file("wgetrc", settings.into_bytes(), 0o444),
        bundle,
        java: run_dir.file("ca.jks", issued.java.clone(), 0o444),
        variables: issued.placeholders.clone(),
    });
    Ok((means, Some(issued)))
}

#[cfg(not(feature = "http"))]
fn make(_: &mut Policy, _: &Request) -> Refused<(Option<Arc<Means>>, Issued)> {
    Err(refuse("this gatekeeper was built without the feature http"))
}

#[cfg(feature = "http")]
fn make(policy: &mut Policy, request: &Request) -> Refused<(Option<Arc<Means>>, Issued)> {
    use crate::policy::{SecretFrom, pattern};
    use crate::proxy::inspect::{ca::Authority, trust};
    use crate::proxy::secrets::Secrets;
    let read = |from: &SecretFrom| secret(from, request);
    let secrets = Secrets::new(&policy.network.credentials, &read).map_err(refuse)?;
    // The command must not read the secret where gatekeeper has read it.
    for credential in &policy.network.credentials {
        if let Some(file) = file_of(&credential.from, request) {
            policy.paths.deny.push(pattern::literal(&file.canonicalize().unwrap_or(file)));
        }
    }
    let extra = policy.network.upstream_ca.iter().map(|path| located(path, request)).collect::<Vec<_>>();
    let extra = trust::named(&extra).map_err(refuse)?;
    let authority = Authority::new().map_err(|error| refuse(format!("certificate authority: {error}")))?;
    let files = trust::Files::new(&authority);
    let issued = Issued { bundle: files.bundle, java: files.java, placeholders: secrets.placeholders() };
    Ok((Some(Arc::new(Means { authority, secrets: Arc::new(secrets), extra })), issued))
}

/// Reads one secret.
#[cfg(feature = "http")]
fn secret(from: &crate::policy::SecretFrom, request: &Request) -> Result<zeroize::Zeroizing<String>, String> {
    use std::io::Read;
    use zeroize::Zeroizing;
    if let crate::policy::SecretFrom::Env(name) = from {
        let value = request.variable(name).ok_or_else(|| format!("the variable {name} is not set"))?;
        return value.to_str().map(|text| Zeroizing::new(text.to_owned())).ok_or_else(|| "it is no UTF-8".to_owned());
    }
    let file = file_of(from, request).ok_or("CREDENTIALS_DIRECTORY is not set; systemd sets it for a service")?;
    let (opened, _) = crate::trust::open_regular(&file, &hostile(request)).map_err(|error| error.to_string())?;
    let mut text = Zeroizing::new(String::new());
    opened.take(64 * 1024).read_to_string(&mut text).map_err(|error| error.to_string())?;
    Ok(text)
}

#[cfg(feature = "http")]
fn file_of(from: &crate::policy::SecretFrom, request: &Request) -> Option<std::path::PathBuf> {
    use crate::policy::SecretFrom;
    match from {
        SecretFrom::Env(_) => None,
        SecretFrom::File(path) => Some(located(path, request)),
        SecretFrom::Systemd(name) => Some(std::path::Path::new(request.variable("CREDENTIALS_DIRECTORY")?).join(name)),
    }
}

/// A path of the policy: absolute, below the home directory with `~`, or relative to the working directory.
#[cfg(feature = "http")]
fn located(path: &std::path::Path, request: &Request) -> std::path::PathBuf {
    match (path.strip_prefix("~"), &request.home) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => request.cwd.join(path),
    }
}

/// Refuses a plan that would give the command a real secret: in its arguments, or in another variable.
pub fn keep_out(means: Option<&Arc<Means>>, plan: &Plan) -> Refused<()> {
    #[cfg(feature = "http")]
    if let Some(means) = means {
        use std::os::unix::ffi::OsStrExt;
        if let Some(env) = plan.argv.iter().find_map(|word| means.secrets.reveals(word.as_bytes())) {
            return Err(refuse(format!(
                "the command line holds the secret of {env} itself; write '${env}' in single quotes inside sh -c, so that the \
                 placeholder is used"
            )));
        }
        for (name, value) in &plan.environment {
            if let Some(env) = means.secrets.reveals(value.as_bytes()) {
                let name = name.to_string_lossy();
                return Err(refuse(format!(
                    "the variable {name} holds the secret of {env}; do not pass it to the command"
                )));
            }
        }
    }
    let _ = (means, plan);
    Ok(())
}
