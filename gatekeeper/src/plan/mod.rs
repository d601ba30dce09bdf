//! Plan: the ordered steps that `run` takes and `plan` prints, from one value.
//!
//! Takes a request, a policy, a verdict and a host; gives a plan or a refusal. It looks at files but changes nothing.

pub mod browser;
pub mod caches;
pub mod commands;
pub mod disk;
pub mod doubts;
pub mod environment;
pub mod paths;
pub mod refusal;
mod search;
pub mod steps;
pub mod summary;
pub mod table;

use crate::check::{Checked, Decision, ReasonCode, Target, Verdict};
use crate::host::{Host, User, floor};
use crate::policy::{NetworkMode, Policy, Profile, StaticBinaries};
use crate::proxy::allow::{Allowlist, PUBLIC};
use crate::proxy::variables;
use crate::report::{Layer, LayerReport, LayerStatus};
use crate::request::{Asked, Browser, Inside, Purpose, Request};
use browser::Added;
use paths::{Found, PathPlan, Places, Tree};
use refusal::Refusal;
use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use table::{Reads, Table};

/// Everything that a run will do. `steps` puts it into words; `enforce` does it.
pub struct Plan {
    pub policy: Policy,
    pub verdict: Verdict,
    pub target: Target,
    /// argv as exec gets it: the checked target's own words, then the caller's.
    pub argv: Vec<OsString>,
    pub command: Vec<OsString>,
    pub places: Places,
    /// Where the command starts.
    pub directory: PathBuf,
    pub environment: Vec<(OsString, OsString)>,
    pub network: NetworkMode,
    /// Where the command finds the proxy, where hosts are listed.
    pub proxy: Option<SocketAddr>,
    pub inside: Option<Inside>,
    pub browser: Option<Browser>,
    /// Why the browser is started without its own sandbox, if it is.
    pub no_inner_sandbox: Option<String>,
    /// Whether new programs and processes may be started.
    pub starts_programs: bool,
    pub seccomp: Seccomp,
    pub landlock: Option<Landlock>,
    /// The library by which an exact list starts at main.
    pub preload: Option<PathBuf>,
    pub user: User,
    pub purpose: Purpose,
    /// What each layer is going to achieve, as far as can be said before.
    pub layers: Vec<LayerReport>,
    /// For stderr before the command starts.
    pub warnings: Vec<String>,
}

pub enum Seccomp {
    /// Not asked for, or left away for a static program as the policy says.
    Off,
    /// Before exec; with a listener unless an outer sandbox has taken it.
    Filter { notify: bool },
}

pub struct Landlock {
    pub abi: i32,
    pub paths: PathPlan,
}

/// What a run makes for itself before it is planned in full; for `plan` alone, names that stand for it.
#[derive(Default)]
pub struct Made {
    /// The private temporary directory, where the profile gives one.
    pub tmp: Option<PathBuf>,
    /// libsandbox.so as a file, where an exact list needs it.
    pub library: Option<PathBuf>,
    /// The proxy's address, where hosts are listed.
    pub proxy: Option<SocketAddr>,
    /// Why a browser cannot have its own sandbox here.
    pub no_inner_sandbox: Option<String>,
}

impl Plan {
    /// `look_up` tells what a command's name stands for; `made` is what the run has of its own.
    pub fn new(
        request: &Request,
        policy: Policy,
        host: &Host,
        checked: Checked,
        look_up: &dyn Fn(&OsStr) -> Verdict,
        tree: &dyn Tree,
        made: Made,
    ) -> Result<Plan, Box<Refusal>> {
        let Checked { verdict, target } = checked;
        let words = request.words();
        let refuse = |refusal: Refusal| Box::new(refusal.with_verdict(verdict.clone()));
        commands::permit(request, &policy, &verdict, look_up, tree).map_err(refuse)?;
        let without_filter = judge(&verdict, &policy).map_err(refuse)?;
        let target = target.ok_or_else(|| refuse(Refusal::refused("there is nothing to execute")))?;

        let network = policy.network_mode();
        let starts_programs = matches!(request.asked, Asked::Line(_)) || policy.starts_programs();
        let places = Places {
            home: request.home.clone(),
            cwd: request.cwd.clone(),
            tmp: made.tmp,
            also_written: request.also_written.clone(),
        };
        let mut layers = Vec::new();
        // Said once, out here, of what the caller wrote. A browser's paths are made up by its own settings.
        let written = request.inside.is_none() && request.browser.is_none() && request.purpose != Purpose::Learn;
        let doubts = || doubts::doubts(&policy, &network, &places, tree);
        let mut warnings = if written { doubts() } else { Vec::new() };

        let open = policy.profiles.contains(&Profile::Unrestricted)
            && Table::new(&policy, &network, starts_programs, true).is_open();
        let seccomp = if request.purpose == Purpose::Learn {
            learning(host).map_err(|refusal| refuse(*refusal))?
        } else if open || without_filter {
            let why =
                if open { "the profile asks for none" } else { "left away for a static program, as the policy says" };
            layers.push(LayerReport { layer: Layer::Seccomp, status: LayerStatus::Off, detail: why.to_owned() });
            if without_filter && policy.static_binaries == StaticBinaries::Warn {
                warnings.push(format!("{} is static and runs without a syscall filter", verdict.path.display()));
            }
            Seccomp::Off
        } else {
            match &host.seccomp {
                Ok(()) => Seccomp::Filter { notify: host.user_notification },
                // Without the filter nothing of the profile holds, and there is no rung below it.
                Err(missing) => return Err(refuse(Refusal::no_filter(missing))),
            }
        };
        if request.purpose != Purpose::Learn {
            let notifies = matches!(seccomp, Seccomp::Filter { notify: true });
            let filtered = !matches!(seccomp, Seccomp::Off);
            refusal::network(&policy, &network, filtered, notifies, request.inside).map_err(refuse)?;
        }
        let wanted = wants_paths(&policy);
        let landlock = match (&host.landlock, wanted) {
            (_, false) => {
                let detail = "the profile asks for none".to_owned();
                layers.push(LayerReport { layer: Layer::Landlock, status: LayerStatus::Off, detail });
                None
            }
            (Ok(abi), true) => {
                let closed = commands::closed_directories(&policy, request.variable("PATH"), tree);
                let variable = |name: &str| request.variable(name).cloned();
                let found = Found::new(&policy, &places, &variable, host.user.uid, tree).map_err(refuse)?;
                if written {
                    warnings.extend(doubts::unmatched(&policy, &found.unmatched));
                }
                let mut paths = PathPlan::new(&policy, &places, &closed, &found, tree).map_err(refuse)?;
                paths::check_count(&paths).map_err(refuse)?;
                if let Some(profile) = request.browser.as_ref().and_then(|browser| browser.profile.as_ref()) {
                    // Its HOME is its profile, in which nothing but the browser looks for start-up files.
                    paths.open.retain(|path| !path.starts_with(profile));
                }
                if request.inside.is_some() {
                    // Its /tmp is private and goes away with it, unless the caller named /tmp as well.
                    let private = policy.paths.write.iter().filter(|path| *path == Path::new("/tmp")).count() == 1;
                    let kept = |path: &PathBuf| !private || !path.starts_with("/tmp");
                    let named = |path: &PathBuf| {
                        policy
                            .paths
                            .write
                            .iter()
                            .any(|top| top != Path::new("/tmp") && path.starts_with(places.absolute(top)))
                    };
                    paths.open.retain(|path| kept(path) || named(path));
                }
                commands::confine_execution(&mut paths, look_up, &policy, (&verdict, &target), tree);
                let programs = verdict.chain.iter().map(|link| link.path.as_path());
                paths.keep_reachable(programs.chain([target.path.as_path(), request.directory()]));
                Some(Landlock { abi: *abi, paths })
            }
            (Err(missing), true) if policy.require_sandbox => {
                return Err(refuse(Refusal::missing_layer("Landlock", missing)));
            }
            (Err(missing), true) => {
                warnings.push(format!("paths are not confined: {}; {}", missing.cause, missing.fix));
                let status = LayerStatus::Unavailable;
                layers.push(LayerReport { layer: Layer::Landlock, status, detail: missing.cause.clone() });
                None
            }
        };
        paths::refuse_links(&policy, &places, landlock.as_ref().map(|landlock| &landlock.paths), tree)
            .map_err(refuse)?;
        let mut argv = target.argv.clone();
        argv.extend(words.iter().skip(1).cloned());
        let asked = request.browser.as_ref().is_some_and(|browser| browser.without_sandbox);
        let no_inner_sandbox = made.no_inner_sandbox.or(asked.then(|| "asked for by --no-inner-sandbox".to_owned()));
        if let Some(browser) = &request.browser {
            let private = places.tmp.as_deref().filter(|_| browser.profile.is_none());
            let without_sandbox = no_inner_sandbox.is_some();
            Added { proxy: made.proxy, without_sandbox, private }.to(&mut argv);
        }
        let mut set = vec![("GATEKEEPER_SANDBOX", OsString::from(policy.profile_name()))];
        // A static program cannot be entered: the list, and what its start-up needs, holds it from before exec.
        let preload = made.library.filter(|_| verdict.verdict == Decision::Preload);
        if let Some(library) = &preload {
            set.extend(environment::exact_list(&policy, library, request.variable("LD_PRELOAD")));
        }
        if let Some(tmp) = &places.tmp {
            set.push(("TMPDIR", tmp.clone().into_os_string()));
            set.push(("TMPPREFIX", tmp.join("zsh").into_os_string()));
        }
        if let (Some(browser), Some(tmp)) = (&request.browser, &places.tmp) {
            set.push(("HOME", browser.profile.as_ref().unwrap_or(tmp).clone().into_os_string()));
            set.push(("XDG_RUNTIME_DIR", tmp.clone().into_os_string()));
            set.push(("XDG_CONFIG_HOME", tmp.clone().into_os_string()));
        }
        if let Some(summary) = places.summary() {
            set.push(("GATEKEEPER_SUMMARY", summary.into_os_string()));
        }
        if let Some(proxy) = made.proxy {
            let java = request
                .variable("JAVA_TOOL_OPTIONS")
                .filter(|_| policy.env.pass.iter().any(|name| name == "JAVA_TOOL_OPTIONS"));
            set.extend(variables::set(proxy, &policy.allowlist(), java));
        }
        set.extend(environment::retries(&policy.env, &network));
        let has_network = network == NetworkMode::Full;
        let environment = environment::build(&request.environment, &policy.env, has_network, set);
        Ok(Plan {
            policy,
            verdict,
            target,
            argv,
            command: words,
            places,
            directory: request.directory().to_owned(),
            environment,
            network,
            proxy: made.proxy,
            inside: request.inside,
            browser: request.browser.clone(),
            no_inner_sandbox,
            starts_programs,
            seccomp,
            landlock,
            preload,
            purpose: request.purpose,
            user: host.user,
            layers,
            warnings,
        })
    }

    /// Real paths of the trees in which the command may write.
    pub fn writable(&self) -> Vec<PathBuf> {
        let grants = self.landlock.iter().flat_map(|landlock| &landlock.paths.grants);
        grants.filter(|grant| grant.access.writes()).map(|grant| grant.path.clone()).collect()
    }

    /// Real paths inside those trees that stay as they are.
    pub fn protected(&self) -> Vec<PathBuf> {
        let paths = self.landlock.iter().map(|landlock| &landlock.paths);
        paths.flat_map(|paths| paths.protected.iter().chain(&paths.covered).cloned()).collect()
    }

    /// Where a path of the policy leads; nowhere, where a link that a command may have made decides it.
    pub fn real(&self, path: &Path) -> Option<PathBuf> {
        let hostile = self.places.hostile(&disk::Disk, &self.writable());
        disk::Disk.reach(&self.places.absolute(path), &hostile).ok().flatten()
    }

    /// Descriptors of the caller's that the command gets: the pipe by which a browser is driven.
    pub fn inherited(&self) -> Vec<i32> {
        let driven = self.browser.as_ref().is_some_and(|browser| browser.pipe);
        if driven { vec![3, 4] } else { Vec::new() }
    }

    /// What a list of commands does not reach, where there is one.
    pub fn commands_limit(&self) -> Option<&'static str> {
        self.policy.limits_execution().then_some(COMMANDS_LIMIT)
    }

    pub fn table(&self, supervised: bool) -> Table {
        let table = Table::new(&self.policy, &self.network, self.starts_programs, supervised);
        let table = table.for_user(&self.policy, self.user);
        let table = if self.landlock.is_some() { table } else { table.without_paths(&self.policy) };
        // A list that no preload puts on at main has to deny from the first instruction what it denies.
        if self.widened() { table.without_main().denying(&self.policy) } else { table }
    }

    /// Whether an exact list is widened by what starting a program needs, with no preload to narrow it again.
    pub fn widened(&self) -> bool {
        self.policy.starts_at_main() && self.preload.is_none()
    }

    /// Which reads are looked at, so that those which the path layers refuse are recorded.
    pub fn reads(&self) -> Reads {
        match self.purpose {
            Purpose::Explain => Reads::All,
            // A browser opens files all the time, and its own parts have another root.
            _ if self.browser.is_some() => Reads::Unseen,
            _ => Reads::ByPath,
        }
    }

    /// The same, with a look at calls that the path layers may refuse.
    pub fn watched_table(&self, supervised: bool) -> Table {
        match self.purpose {
            Purpose::Learn => Table::learning(),
            _ if supervised && self.landlock.is_some() => self.table(supervised).watching(self.reads()),
            _ => self.table(supervised),
        }
    }
}

const COMMANDS_LIMIT: &str = "only listed programs are executed; what they read and run themselves is not held by that \
                              (scripts, libraries, a file given to ld.so)";

impl Policy {
    /// Whether only some programs may be executed.
    pub fn limits_execution(&self) -> bool {
        !self.commands.allow.is_empty() || self.paths.execute.is_some()
    }

    /// Whether the command gets shared memory of its own, for semaphores and `shm_open`.
    pub fn private_shm(&self) -> bool {
        self.starts_programs()
    }

    /// Whether processes map their own ids in user namespaces that they make, as the sandbox of a browser does.
    pub fn maps_ids(&self) -> bool {
        self.profiles.contains(&Profile::Browser)
    }

    /// How the network is to be: as the policy says, else as its profiles do.
    pub fn network_mode(&self) -> NetworkMode {
        let by_profile = || match self.profiles.iter().any(|profile| {
            matches!(profile, Profile::Network | Profile::Unrestricted | Profile::Browser | Profile::Custom)
        }) {
            true => NetworkMode::Full,
            false => NetworkMode::None,
        };
        match self.network.mode.clone().unwrap_or_else(by_profile) {
            NetworkMode::Full if self.network.deny_private => NetworkMode::Hosts(self.public_hosts()),
            mode => mode,
        }
    }

    /// Every public host, and the listed ports of this machine, as the proxy lets them through.
    fn public_hosts(&self) -> Vec<String> {
        let local = |port: &u16| ["127.0.0.1", "[::1]"].map(|host| format!("{host}:{port}"));
        std::iter::once(PUBLIC.to_owned()).chain(self.network.local_ports.iter().flat_map(local)).collect()
    }

    /// The hosts that may be reached; none where the mode is another.
    pub fn allowlist(&self) -> Allowlist {
        match &self.network_mode() {
            NetworkMode::Hosts(hosts) => Allowlist::new(hosts, &self.network.ports),
            _ => Allowlist::default(),
        }
    }

    /// The profiles as `--profile` names them.
    pub fn profile_name(&self) -> String {
        let word = |profile: &Profile| match profile {
            Profile::Minimal => "minimal",
            Profile::Read => "read",
            Profile::Network => "network",
            Profile::Write => "write",
            Profile::Unrestricted => "unrestricted",
            Profile::Browser => "browser",
            Profile::Custom => "custom",
        };
        self.profiles.iter().map(word).collect::<Vec<_>>().join("+")
    }
}

/// Learning needs the listener, and nothing beside it.
fn learning(host: &Host) -> Result<Seccomp, Box<Refusal>> {
    match (&host.seccomp, host.user_notification) {
        (Ok(()), true) => Ok(Seccomp::Filter { notify: true }),
        (Err(missing), _) => Err(Box::new(Refusal::no_filter(missing))),
        (Ok(()), false) => Err(Box::new(Refusal::setup(format!(
            "learning needs a kernel whose filters notify ({} or newer)",
            floor::NOTIFICATION.kernel
        )))),
    }
}

/// Whether paths are confined at all: not where no sandbox was asked for, and no path named.
fn wants_paths(policy: &Policy) -> bool {
    let loose = |profile: &Profile| matches!(profile, Profile::Unrestricted | Profile::Custom);
    let paths = &policy.paths;
    let named = paths.read.is_some() || paths.execute.is_some() || !paths.write.is_empty() || !paths.deny.is_empty();
    named || !policy.commands.allow.is_empty() || !policy.profiles.iter().all(loose)
}

/// What a verdict means for the run: go on, go on without the filter (`true`), or refuse.
fn judge(verdict: &Verdict, policy: &Policy) -> Result<bool, Refusal> {
    match verdict.verdict {
        Decision::Preload => Ok(false),
        Decision::Refuse if verdict.has(ReasonCode::NotFound) => Err(Refusal::not_found(verdict)),
        Decision::Refuse => Err(Refusal::verdict(verdict)),
        Decision::Enforce => match policy.static_binaries {
            StaticBinaries::Enforce => Ok(false),
            StaticBinaries::Block => Err(Refusal::static_blocked(verdict)),
            // Leaving the filter away is for static programs, as the policy names them; all others it still holds.
            StaticBinaries::Warn | StaticBinaries::Allow => Ok(verdict.only_static()),
        },
    }
}
