//! From a request to a plan, and the run's own directory and proxy port.

use super::home::with_home;
use super::issue::{Means, issue, keep_out};
use super::kept::{self, Around, Supposed};
use crate::check::{Caller, Context, Disk, Files, HANDLERS, Preload, Verdict, check, registered_handlers};
use crate::enforce::landlock::Reused;
use crate::enforce::mounts::no_namespaces;
use crate::enforce::rundir::{RunDir, Wanted};
use crate::host::Host;
use crate::operation::Operation;
use crate::plan::paths::SUMMARY;
use crate::plan::paths::Tree;
use crate::plan::record::{Noticed, Noting, Record};
use crate::plan::refusal::Refusal;
use crate::plan::{Made, Plan, glance::Glance};
use crate::policy::{self, Document, Isolate, NetworkMode, Policy, PolicyError};
use crate::proxy;
use crate::request::{Issued, Purpose, Request};
use crate::stage::{Held, View};
use crate::sys::probe::{self, Attempt};
use crate::sys::process;
use crate::trust::Hostile;
use crate::warden::Warden;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Placeholders in a plan that is only printed, for files that only a run makes.
const PRIVATE_TMP: &str = "(private TMPDIR)";
const EMBEDDED: &str = "(embedded libsandbox.so)";

/// Without /proc of our own PID namespace, the supervisor can neither identify nor kill the command's processes.
const NO_PROC: &str = "proc: /proc is not mounted, or belongs to another PID namespace; mount it here (mount -t proc proc /proc, unshare --mount-proc)";

/// A plan, and the resources that a run of it uses.
pub struct Prepared {
    pub plan: Arc<Plan>,
    pub(crate) run_dir: RunDir,
    /// The Landlock rules of a plan that is used again.
    pub(super) reused: Option<Arc<Reused>>,
    /// The guardian program that was found to serve this thread while the plan was checked.
    pub(super) warden: Option<Arc<Warden>>,
    /// Set while it is unknown whether the plan, which is used again, is still right: nothing may be executed before.
    pub(super) supposed: Option<Supposed>,
    /// The stage of the run, locked until its end.
    pub(super) stage: Mutex<Option<Held>>,
    /// The proxy's listening socket, if the policy lists hosts.
    pub(super) listener: Option<TcpListener>,
    /// What looks into requests, if the policy has rules for them and this gatekeeper runs the proxy.
    /// Without the feature http it is always `None`.
    #[cfg_attr(not(feature = "http"), expect(dead_code))]
    pub(super) means: Option<Arc<Means>>,
    /// The public part of it, for a gatekeeper inside bubblewrap.
    pub(super) issued: Option<Issued>,
}

impl Prepared {
    /// One that has nothing but a plan and a run directory.
    pub(super) fn plain(plan: Plan, run_dir: RunDir, reused: Arc<Reused>) -> Prepared {
        let (plan, reused) = (Arc::new(plan), Some(reused));
        Prepared {
            plan,
            run_dir,
            reused,
            warden: None,
            supposed: None,
            listener: None,
            stage: Mutex::new(None),
            means: None,
            issued: None,
        }
    }
}

/// Makes the plan of a request. With `for_real` the run directory and the proxy port are real; otherwise the plan only names them.
pub fn prepare(request: &Request, for_real: bool) -> Result<Prepared, Box<Refusal>> {
    make_plan(request, for_real, None)
}

/// Whether this process has prepared a run before.
static RAN: AtomicBool = AtomicBool::new(false);

/// Makes the plan of a request, or takes one that was kept, in a process that may run many commands.
pub(super) fn prepare_again(request: &Request, warden: Arc<Warden>) -> Result<Prepared, Box<Refusal>> {
    // Noting what a plan looks at takes time, and many programs run one command.
    if !RAN.swap(true, Ordering::Relaxed) {
        return make_plan(request, true, None);
    }
    if !process::has_own_proc() {
        return Err(Box::new(Refusal::setup(NO_PROC.to_owned())));
    }
    let number = Some(warden.number());
    if kept::is_known(request) {
        // It gets ready while the facts are looked at.
        warden.expect_launch();
    }
    if let Some(prepared) = kept::find(request, number)? {
        kept::compare(request, &prepared);
        return Ok(Prepared { warden: Some(warden), ..prepared });
    }
    let Some(record) = Record::begin() else { return make_plan(request, true, None) };
    let around = around(number);
    let prepared = make_plan(request, true, Some(&record))?;
    if kept::is_repeatable(request, &prepared)
        && let Some(facts) = record.facts(kept::granted(&prepared))
    {
        kept::keep(request, &prepared, around, facts);
    }
    Ok(prepared)
}

/// What a plan depends on besides the request and files.
pub(super) fn around(warden: Option<u64>) -> Around {
    Around {
        warden,
        host: Host::probe(),
        caller: Caller::of_this_process(),
        handlers: registered_handlers(Path::new(HANDLERS)),
    }
}

/// Makes the plan of a request, and notes what it looks at.
pub(super) fn make_plan(request: &Request, for_real: bool, record: Option<&Record>) -> Result<Prepared, Box<Refusal>> {
    let mut policy = policy_of(request)?;
    let request = &*with_home(request, &policy)?;
    if for_real && !process::has_own_proc() {
        return Err(Box::new(Refusal::setup(NO_PROC.to_owned())));
    }
    require_library(request, &policy)?;
    let no_own_network = without_own_network(&mut policy, request, for_real)?;
    let host = Host::probe();
    let run_dir = RunDir::new(temporary(request, &policy), request.keep_tmp)
        .map_err(|error| Refusal::setup(format!("run directory: {error}")))?;
    let mut made = Made { no_own_network, ..make(&policy, request.purpose, &run_dir, for_real) };
    if let Some(browser) = &request.browser {
        made.no_inner_sandbox = no_inner_sandbox(for_real);
        if let Some(downloads) = &browser.downloads {
            run_dir.file(USER_DIRS, format!("XDG_DOWNLOAD_DIR=\"{}\"\n", downloads.display()).into_bytes(), 0o400);
        }
    }
    let (means, issued) = issue(&mut policy, request, &run_dir, for_real, &mut made)?;
    let mut staged = super::staged::prepare(request, &policy, for_real)?;
    let request = staged.request();
    let listener = proxy_port(&policy, request, for_real, &mut made)?;
    let disk = Disk::new();
    let view = View { disk: &disk, stage: staged.stage.as_ref() };
    let noting = record.map(|record| Noting { files: &view, record });
    let files: &dyn Files = noting.as_ref().map_or(&view, |noting| noting);
    let glance = Glance::default();
    let noticed = record.map(|record| Noticed { tree: &glance, record });
    let tree: &dyn Tree = noticed.as_ref().map_or(&glance, |noticed| noticed);
    if let Some(record) = record {
        policy.sources.iter().for_each(|file| record.read(file));
    }
    let preload = match &made.library {
        Some(library) if policy.libsandbox.is_some() => Preload::at(library, &request.cwd, files),
        // The guardian writes the library there when the run starts.
        Some(library) if for_real => Preload::embedded().to_be_at(library),
        _ => Preload::embedded(),
    };
    let context = context(request, preload);
    let words = request.words();
    let Some(command) = words.first() else { return Err(Box::new(Refusal::refused("no command was given"))) };
    let checked = check(command, &context, files);
    let look_up = |name: &std::ffi::OsStr| -> Verdict { check(name, &context, files).verdict };
    let made = Made { stage: staged.stage.clone(), ..made };
    let plan = Plan::new(request, policy, &host, checked, &look_up, tree, made);
    // A program of the policy that could not be looked up would count as missing.
    if let Some(trouble) = disk.trouble() {
        return Err(Box::new(Refusal::setup(format!("{trouble}, so what may be executed is not known"))));
    }
    let mut plan = plan?;
    super::staged::leave_out_removed(&mut plan);
    super::staged::permit(&plan)?;
    keep_out(means.as_ref(), &plan)?;
    permit_socket(request, &plan)?;
    if !for_real && plan.operations().contains(&Operation::Mounts) && no_namespaces(false).is_some() {
        // A run finds out when it starts the command.
        plan.unmounted.store(true, Ordering::Relaxed);
    }
    if plan.places.summary().is_some() {
        // Only if the run has a directory anyway: making one costs more than everything else that is made for a command.
        run_dir.file(SUMMARY, plan.summary().into_bytes(), 0o400);
    }
    let stage = Mutex::new(staged.take());
    let (plan, reused, warden, supposed) = (Arc::new(plan), None, None, None);
    Ok(Prepared { plan, run_dir, reused, warden, supposed, listener, stage, means, issued })
}

/// Refuses a command that could put something in the place of the server's socket file.
fn permit_socket(request: &Request, plan: &Plan) -> Result<(), Box<Refusal>> {
    let Some(socket) = &request.socket else { return Ok(()) };
    let is_below = |trees: Vec<PathBuf>| trees.iter().any(|tree| socket.starts_with(tree));
    // What is mounted for the command is not the directory in which the socket is.
    if !is_below(plan.written()) || is_below(plan.mounted()) {
        return Ok(());
    }
    Err(Box::new(Refusal::refused(format!(
        "this command may write where the socket of this server is ({}), and could replace it; start the server with --socket in \
         another directory, such as $XDG_RUNTIME_DIR",
        socket.display()
    ))))
}

/// Takes the network away from a policy whose command is to have one of its own, if this host makes none and the policy does not
/// insist. Returns why. A run that insists finds out when it starts the command.
fn without_own_network(policy: &mut Policy, request: &Request, for_real: bool) -> Result<Option<String>, Box<Refusal>> {
    let makes_one = policy.network_mode() == NetworkMode::Own
        && request.purpose != Purpose::Learn
        && request.inside.is_none()
        && policy.bubblewrap.isolate == Isolate::Disabled;
    if !makes_one || for_real && policy.require_sandbox {
        return Ok(None);
    }
    let Some(why) = no_namespaces(true) else { return Ok(None) };
    if policy.require_sandbox {
        return Err(Box::new(Refusal::no_own_network(&why)));
    }
    policy.network.mode = Some(NetworkMode::None);
    Ok(Some(why))
}

/// Refuses a policy that names a libsandbox.so which does not exist. Inside bubblewrap, the outer gatekeeper has checked it.
fn require_library(request: &Request, policy: &Policy) -> Result<(), Box<Refusal>> {
    let missing = |path: &&PathBuf| request.inside.is_none() && !request.cwd.join(path).exists();
    let Some(library) = policy.libsandbox.as_ref().filter(missing) else { return Ok(()) };
    let hint = "no such file; remove libsandbox (libsandboxPath) to use the embedded one";
    Err(Box::new(Refusal::setup(format!("libsandbox: {}: {hint}", library.display()))))
}

/// Where programs look up the user's download directory, relative to the run directory (XDG_CONFIG_HOME is its `tmp`).
const USER_DIRS: &str = "tmp/user-dirs.dirs";

const NO_USER_NAMESPACE: &str = "user namespaces do not work here";

/// Why the browser's own sandbox cannot work here, found by trying: a browser that cannot sandbox itself refuses to start.
fn no_inner_sandbox(for_real: bool) -> Option<String> {
    if rustix::process::geteuid().is_root() {
        return Some("browsers do not sandbox themselves when run as root".to_owned());
    }
    match for_real.then(probe::user_namespace)? {
        Ok(Attempt::Works | Attempt::Failed { step: 2.., .. }) => None,
        Ok(Attempt::Failed { errno, .. }) => {
            Some(format!("{NO_USER_NAMESPACE}: {}", io::Error::from_raw_os_error(errno)))
        }
        Ok(Attempt::Killed(_)) => Some(format!("{NO_USER_NAMESPACE}: an outer sandbox kills processes that try")),
        Err(error) => Some(format!("{NO_USER_NAMESPACE}: {error}")),
    }
}

pub(super) fn context(request: &Request, preload: Preload) -> Context {
    let path = request.variable("PATH").cloned();
    let context = Context::of_this_user(preload, path, request.directory().to_owned());
    Context { detail: false, ..context }
}

/// The files that the run makes for the command: a private temporary directory, and the preload if the policy is an exact list.
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

/// Opens the proxy's port, if the policy lists hosts.
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
            // Typical answers of an outer sandbox's filter or network rules.
            Some(libc::EPERM | libc::EACCES | libc::EAFNOSUPPORT) => {
                "; --net hosts=... needs a port on the loopback interface, and an outer sandbox forbids it. Give the \
                 outer one --net loopback, or run here with --net none"
            }
            _ => "",
        };
        Refusal::setup(format!("proxy: cannot open a port: {error}{hint}"))
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
    let mut policy = Policy::resolve(request.flags.clone().over(file)).map_err(refuse)?;
    if request.ask.is_some() {
        // Without a network there would be no socket whose address could be asked about. An empty list of hosts refuses as
        // much, and says which host it is.
        if policy.network_mode() == NetworkMode::None {
            policy.network.mode = Some(NetworkMode::Hosts(Vec::new()));
        }
    }
    Ok(policy)
}

/// Where to make the run directory: outside every tree that this command, or an earlier one, may write.
pub(super) fn temporary(request: &Request, policy: &Policy) -> Wanted {
    Wanted {
        asked: request.variable("TMPDIR").cloned(),
        runtime: request.variable("XDG_RUNTIME_DIR").cloned(),
        working_directories: std::env::current_dir().into_iter().chain([request.cwd.clone()]).collect(),
        writable: policy.paths.write.iter().map(|path| request.cwd.join(path)).collect(),
    }
}

/// The trees that this run or an earlier one may have written.
pub(super) fn hostile(request: &Request) -> Hostile {
    let mut hostile = Hostile::here();
    hostile.add_working_directory(&request.cwd);
    hostile
}
