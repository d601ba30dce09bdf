//! From a request to a plan, and what the run has of its own.

use crate::check::{Context, Disk as Files, Preload, Verdict, check};
use crate::enforce::rundir::{RunDir, Wanted};
use crate::host::Host;
use crate::plan::paths::SUMMARY;
use crate::plan::refusal::Refusal;
use crate::plan::{Made, Plan, disk::Disk};
use crate::policy::{self, Document, NetworkMode, Policy, PolicyError};
use crate::proxy;
use crate::request::{Purpose, Request};
use crate::sys::probe::{self, Attempt};
use crate::sys::process;
use crate::trust::Hostile;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;

/// What stands in a plan for what only a run makes.
const PRIVATE_TMP: &str = "(private TMPDIR)";
const EMBEDDED: &str = "(embedded libsandbox.so)";

/// Without it the processes of a command can be neither ended nor told apart.
const NO_PROC: &str = "proc: /proc is not mounted, or is that of another PID namespace; mount it here (mount -t proc proc /proc, unshare --mount-proc)";

/// A plan, and the directory that it uses.
pub struct Prepared {
    pub plan: Arc<Plan>,
    pub(crate) run_dir: RunDir,
    /// Where the proxy listens, where hosts are listed.
    pub(super) listener: Option<TcpListener>,
}

/// Makes the plan of a request. `for_real`: with a private temporary directory made, not only named.
pub fn prepare(request: &Request, for_real: bool) -> Result<Prepared, Box<Refusal>> {
    let policy = policy_of(request)?;
    if for_real && !process::has_own_proc() {
        return Err(Box::new(Refusal::setup(NO_PROC.to_owned())));
    }
    if let Some(library) =
        policy.libsandbox.as_ref().filter(|path| request.inside.is_none() && !request.cwd.join(path).exists())
    {
        let message = "no such file; leave libsandbox (libsandboxPath) out to use the embedded one";
        return Err(Box::new(Refusal::setup(format!("libsandbox: {}: {message}", library.display()))));
    }
    let host = Host::probe();
    let run_dir = RunDir::new(temporary(request, &policy), request.keep_tmp)
        .map_err(|error| Refusal::setup(format!("run directory: {error}")))?;
    let mut made = make(&policy, request.purpose, &run_dir, for_real);
    if let Some(browser) = &request.browser {
        made.no_inner_sandbox = no_inner_sandbox(for_real);
        if let Some(downloads) = &browser.downloads {
            run_dir.file(USER_DIRS, format!("XDG_DOWNLOAD_DIR=\"{}\"\n", downloads.display()).into_bytes(), 0o400);
        }
    }
    let listener = proxy_port(&policy, request, for_real, &mut made)?;
    let files = Files::new();
    let preload = match &made.library {
        Some(library) if policy.libsandbox.is_some() => Preload::at(library, &request.cwd, &files),
        // The guardian writes it there when the run starts.
        Some(library) if for_real => Preload::embedded().to_be_at(library),
        _ => Preload::embedded(),
    };
    let context = context(request, preload);
    let words = request.words();
    let Some(command) = words.first() else { return Err(Box::new(Refusal::refused("no command was given"))) };
    let checked = check(command, &context, &files);
    let look_up = |name: &std::ffi::OsStr| -> Verdict { check(name, &context, &files).verdict };
    let plan = Plan::new(request, policy, &host, checked, &look_up, &Disk, made)?;
    if plan.places.summary().is_some() {
        // Where a directory is made anyway; alone it would cost more than everything else that is made for a command.
        run_dir.file(SUMMARY, plan.summary().into_bytes(), 0o400);
    }
    Ok(Prepared { plan: Arc::new(plan), run_dir, listener })
}

/// Where programs look for the user's own directories, below XDG_CONFIG_HOME.
const USER_DIRS: &str = "tmp/user-dirs.dirs";

/// Why a browser could not have its own sandbox where this process is: tried, because it does not start without.
fn no_inner_sandbox(for_real: bool) -> Option<String> {
    if rustix::process::geteuid().is_root() {
        return Some("as root the browser has none".to_owned());
    }
    match for_real.then(probe::user_namespace)? {
        Ok(Attempt::Works | Attempt::Failed { step: 2.., .. }) => None,
        Ok(Attempt::Failed { errno, .. }) => {
            Some(format!("no user namespace can be made here: {}", io::Error::from_raw_os_error(errno)))
        }
        Ok(Attempt::Killed(_)) => Some("no user namespace can be made here: an outer sandbox kills for it".to_owned()),
        Err(error) => Some(format!("no user namespace can be made here: {error}")),
    }
}

pub(super) fn context(request: &Request, preload: Preload) -> Context {
    let mut context = Context::of_this_process(preload);
    context.path = request.variable("PATH").cloned();
    context.cwd = request.directory().to_owned();
    context.detail = false;
    context
}

/// What the run has of its own: a temporary directory to write in, and the preload where an exact list needs it.
fn make(policy: &Policy, purpose: Purpose, run_dir: &RunDir, for_real: bool) -> Made {
    let mut made = Made::default();
    if policy.starts_programs() || purpose == Purpose::Learn {
        made.tmp = Some(if for_real { run_dir.tmp() } else { PathBuf::from(PRIVATE_TMP) });
    }
    if policy.starts_at_main() {
        made.library = match (&policy.libsandbox, libsandbox_embed::LIBSANDBOX) {
            (Some(path), _) => Some(path.clone()),
            (None, Some(bytes)) if for_real => Some(run_dir.file("libsandbox.so", bytes.to_vec(), 0o500)),
            (None, Some(_)) => Some(PathBuf::from(EMBEDDED)),
            (None, None) => None,
        };
    }
    made
}

/// The port by which a command with a list of hosts reaches them.
fn proxy_port(
    policy: &Policy,
    request: &Request,
    for_real: bool,
    made: &mut Made,
) -> Result<Option<TcpListener>, Box<Refusal>> {
    if !matches!(policy.network_mode(), NetworkMode::Hosts(_)) || request.purpose == Purpose::Learn {
        return Ok(None);
    }
    if !for_real {
        made.proxy = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        return Ok(None);
    }
    let (listener, address) = proxy::listen().map_err(|error| {
        let hint = match error.raw_os_error() {
            // What a filter or a network rule of an outer sandbox answers.
            Some(libc::EPERM | libc::EACCES | libc::EAFNOSUPPORT) => {
                "; listed hosts need a port of this machine, and an outer sandbox forbids it. Give that one \
                 --net loopback, or run here with --net none"
            }
            _ => "",
        };
        Refusal::setup(format!("proxy: no port could be opened: {error}{hint}"))
    })?;
    made.proxy = Some(address);
    Ok(Some(listener))
}

pub(crate) fn policy_of(request: &Request) -> Result<Policy, Box<Refusal>> {
    let refuse = |error: PolicyError| {
        Box::new(match error {
            PolicyError::ExecDisabled { .. } => Refusal::refused(error.to_string()),
            _ => Refusal::setup(format!("policy: {error}")),
        })
    };
    let file =
        request.config.as_ref().map_or(Ok(Document::default()), |path| policy::load_below(path, &hostile(request)));
    let file = file.map_err(refuse)?;
    Policy::resolve(request.flags.clone().over(file)).map_err(refuse)
}

/// Where the run's own directory is made: not where this command writes, nor where one before it may have written.
fn temporary(request: &Request, policy: &Policy) -> Wanted {
    Wanted {
        asked: request.variable("TMPDIR").cloned(),
        runtime: request.variable("XDG_RUNTIME_DIR").cloned(),
        working_directories: std::env::current_dir().into_iter().chain([request.cwd.clone()]).collect(),
        writable: policy.paths.write.iter().map(|path| request.cwd.join(path)).collect(),
    }
}

/// The trees in which a run of this request, or one before it, may have left anything.
fn hostile(request: &Request) -> Hostile {
    let mut hostile = Hostile::here();
    hostile.add_working_directory(&request.cwd);
    hostile
}
