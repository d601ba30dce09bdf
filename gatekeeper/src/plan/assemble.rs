//! Assembles a plan: decides for each layer whether it is used and how, or refuses the run.

use super::browser::Added;
use super::paths::{self, Access, Found, Grant, PathPlan, Places, Tree, Used};
use super::refusal::{self, Refusal};
use super::table::Table;
use super::{Landlock, Made, Plan, Seccomp, Staged, Trust, commands, doubts, environment};
use crate::check::{Checked, Decision, ReasonCode, Target, Verdict};
use crate::host::{Host, floor};
use crate::policy::{Isolate, NetworkMode, Policy, Profile, StaticBinaries};
use crate::proxy::variables;
use crate::report::{Layer, LayerReport, LayerStatus};
use crate::request::{Asked, Purpose, Request};
use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// What nothing confines without Landlock. The mounts that protect files belong to its plan of paths.
const UNCONFINED: &str = "files, signals and /proc of other processes are not confined";

impl Plan {
    /// `look_up` checks the program that a command's name stands for; `made` holds what the run created beforehand.
    pub fn new(
        request: &Request,
        policy: Policy,
        host: &Host,
        checked: Checked,
        look_up: &dyn Fn(&OsStr) -> Verdict,
        tree: &dyn Tree,
        made: Made,
    ) -> Result<Plan, Box<Refusal>> {
        let network = policy.network_mode();
        let starts_programs = matches!(request.asked, Asked::Line(_)) || policy.starts_programs();
        let places = Places {
            home: request.home.clone(),
            cwd: request.cwd.clone(),
            tmp: made.tmp,
            also_written: request.also_written.clone(),
            staged: made.stage.is_some(),
            copy: made.stage.as_ref().and_then(Staged::copy),
        };
        let Checked { verdict, target } = checked;
        let inputs = Inputs {
            request,
            policy: &policy,
            network: &network,
            host,
            verdict: &verdict,
            look_up,
            places: &places,
            starts_programs,
            stage: made.stage.as_ref(),
            tree,
            trust: made.trust.as_ref(),
        };
        let (target, layers) = match inputs.choose_layers(target) {
            Ok(chosen) => chosen,
            Err(refusal) => return Err(Box::new(refusal.with_verdict(verdict))),
        };
        let asked = request.browser.as_ref().is_some_and(|browser| browser.without_sandbox);
        let no_inner_sandbox = made.no_inner_sandbox.or(asked.then(|| "asked for by --no-inner-sandbox".to_owned()));
        let argv = inputs.argv_of(&target, made.proxy, no_inner_sandbox.is_some());
        // libsandbox.so cannot enter a static program. There the filter applies the list, widened by what start-up
        // needs, from before exec.
        let preload = made.library.filter(|_| verdict.verdict == Decision::Preload);
        let environment = inputs.environment_of(preload.as_deref(), made.proxy);
        let Layers { seccomp, landlock, reports, warnings } = layers;
        let mut plan = Plan {
            policy,
            verdict,
            target,
            argv,
            command: request.words(),
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
            stage: made.stage,
            preload,
            purpose: request.purpose,
            ask: request.ask.clone(),
            user: host.user,
            layers: reports,
            warnings,
            lost_network: made.no_own_network.is_some(),
            unmounted: AtomicBool::new(false),
        };
        if let Some(why) = made.no_own_network {
            plan.warnings.insert(
                0,
                format!(
                    "no network at all: network mode own needs a network namespace, which cannot be made here: {why}"
                ),
            );
        }
        if warns_about_policy(request) {
            plan.warnings.extend(doubts::network_opened(&plan));
        }
        Ok(plan)
    }
}

/// Only the outermost run of a policy that the caller wrote warns about it. A browser's paths come from its settings.
fn warns_about_policy(request: &Request) -> bool {
    request.inside.is_none() && request.browser.is_none() && request.purpose != Purpose::Learn
}

/// What each step of the assembly reads.
struct Inputs<'a> {
    request: &'a Request,
    policy: &'a Policy,
    network: &'a NetworkMode,
    host: &'a Host,
    verdict: &'a Verdict,
    look_up: &'a dyn Fn(&OsStr) -> Verdict,
    places: &'a Places,
    starts_programs: bool,
    stage: Option<&'a Staged>,
    tree: &'a dyn Tree,
    trust: Option<&'a Trust>,
}

/// The layers of a run: those in use, and what to report about those that are not.
struct Layers {
    seccomp: Seccomp,
    landlock: Option<Landlock>,
    reports: Vec<LayerReport>,
    warnings: Vec<String>,
}

impl Layers {
    fn report(&mut self, layer: Layer, status: LayerStatus, detail: &str) {
        self.reports.push(LayerReport { layer, status, detail: detail.to_owned() });
    }
}

impl Inputs<'_> {
    /// Decides the layers, or refuses the run before anything is set up.
    fn choose_layers(&self, target: Option<Target>) -> Result<(Target, Layers), Refusal> {
        commands::permit(self.request, self.policy, self.verdict, self.look_up, self.tree)?;
        let without_filter = judge(self.verdict, self.policy)?;
        let target = target.ok_or_else(|| Refusal::refused("there is nothing to execute"))?;
        let mut layers = Layers {
            seccomp: Seccomp::Off { marked: false },
            landlock: None,
            reports: Vec::new(),
            warnings: Vec::new(),
        };
        layers.seccomp = self.choose_filter(without_filter, &mut layers)?;
        self.require_notifications(&layers.seccomp)?;
        self.require_network_layer(&layers.seccomp)?;
        layers.landlock = self.confine_paths(&target, &mut layers)?;
        // Only now: the tree has looked at listed paths directory by directory, which is faster than one by one.
        if warns_about_policy(self.request) {
            let doubts = doubts::doubts(self.policy, self.network, self.places, self.tree);
            layers.warnings.splice(0..0, self.policy.warnings.iter().cloned().chain(doubts));
        }
        let confined = layers.landlock.as_ref().map(|landlock| &landlock.paths);
        paths::refuse_links(self.policy, self.places, confined, self.tree)?;
        if let Some(trouble) = self.tree.trouble() {
            return Err(Refusal::setup(trouble));
        }
        Ok((target, layers))
    }

    fn choose_filter(&self, without_filter: bool, layers: &mut Layers) -> Result<Seccomp, Refusal> {
        if self.request.purpose == Purpose::Learn {
            return learning(self.host);
        }
        let open = self.policy.profiles.contains(&Profile::Unrestricted)
            && Table::new(self.policy, self.network, self.starts_programs, true).is_open();
        if open || without_filter {
            let why = match open {
                true => "the profile asks for none",
                false => "off for a static program, as static_binaries says",
            };
            layers.report(Layer::Seccomp, LayerStatus::Off, why);
            if without_filter && self.policy.static_binaries == StaticBinaries::Warn {
                let path = self.verdict.path.display();
                layers.warnings.push(format!("{path} is static and runs without a syscall filter"));
            }
            return Ok(Seccomp::Off { marked: self.host.seccomp.is_ok() });
        }
        match &self.host.seccomp {
            Ok(()) => Ok(Seccomp::Filter { notify: self.host.user_notification }),
            // No other layer can stand in for the filter, whatever require_sandbox says.
            Err(missing) => Err(Refusal::no_filter(missing)),
        }
    }

    /// Refuses to ask where no refused call would be noticed.
    fn require_notifications(&self, seccomp: &Seccomp) -> Result<(), Refusal> {
        let reason = match seccomp {
            _ if self.request.ask.is_none() => return Ok(()),
            Seccomp::Filter { notify: true } => return Ok(()),
            Seccomp::Filter { notify: false } => {
                format!("this kernel has no seccomp notifications (Linux {} or newer)", floor::NOTIFICATION.kernel)
            }
            Seccomp::Off { .. } => "this run has no syscall filter, by which refused calls are noticed".to_owned(),
        };
        Err(Refusal::setup(format!("--ask is not possible: {reason}")))
    }

    /// Refuses a network mode that no layer of this run would enforce.
    fn require_network_layer(&self, seccomp: &Seccomp) -> Result<(), Refusal> {
        if self.request.purpose == Purpose::Learn {
            return Ok(());
        }
        let notifies = matches!(seccomp, Seccomp::Filter { notify: true });
        let filtered = !matches!(seccomp, Seccomp::Off { .. });
        refusal::network(self.policy, self.network, filtered, notifies, self.request.inside)
    }

    fn confine_paths(&self, target: &Target, layers: &mut Layers) -> Result<Option<Landlock>, Refusal> {
        if !wants_paths(self.policy) {
            layers.report(Layer::Landlock, LayerStatus::Off, "the profile asks for none");
            return Ok(None);
        }
        match &self.host.landlock {
            Ok(abi) => {
                let paths = self.plan_paths(target, &mut layers.warnings)?;
                Ok(Some(Landlock { abi: *abi, paths }))
            }
            // Without Landlock, the command could read the secret in /proc of the process that started gatekeeper.
            Err(missing) if self.policy.require_sandbox || !self.policy.network.credentials.is_empty() => {
                Err(Refusal::missing_layer("Landlock", missing))
            }
            Err(missing) => {
                layers.warnings.push(format!("paths are not confined: {}; {}", missing.cause, missing.fix));
                layers.report(Layer::Landlock, LayerStatus::Unavailable, &format!("{}; {UNCONFINED}", missing.cause));
                Ok(None)
            }
        }
    }

    fn plan_paths(&self, target: &Target, warnings: &mut Vec<String>) -> Result<PathPlan, Refusal> {
        let mut closed = commands::closed_directories(self.policy, self.request.variable("PATH"), self.tree);
        closed.extend(self.stage.iter().flat_map(|stage| stage.closed(self.tree)));
        let variable = |name: &str| self.request.variable(name).cloned();
        let found = Found::new(self.policy, self.places, &variable, self.host.user.uid, self.tree)?;
        if warns_about_policy(self.request) {
            warnings.extend(doubts::unmatched(self.policy, &found.unmatched));
        }
        self.refuse_closed_program(target, &found)?;
        let programs = self.verdict.chain.iter().map(|link| link.path.as_path());
        let used: Vec<&Path> = programs.chain([target.path.as_path(), self.request.directory()]).collect();
        let mut paths = PathPlan::new(self.policy, self.places, &closed, &used, &found, self.tree)?;
        // A mount hides the names in it too; Landlock would let them be listed.
        paths.covered.extend(self.stage.iter().flat_map(|stage| stage.covered()));
        paths::check_count(&paths)?;
        let files = self.trust.into_iter().flat_map(|trust| [&trust.bundle, &trust.java, &trust.wget]);
        let granted: Vec<Grant> = files.map(|path| Grant { path: path.clone(), access: Access::Read }).collect();
        paths.without_mounts.iter_mut().for_each(|(grants, _)| grants.extend(granted.iter().cloned()));
        paths.grants.extend(granted);
        self.drop_unused_startup_files(&mut paths);
        if warns_about_policy(self.request) {
            warnings.extend(doubts::held(self.policy, &paths, self.places, self.tree));
        }
        commands::confine_execution(&mut paths, self.look_up, self.policy, (self.verdict, target), self.tree);
        if self.replaces_temporary() {
            self.make_temporary(target, &mut paths);
        }
        Ok(paths)
    }

    /// Refuses a program that the policy denies, or whose interpreter or loader it denies: executing it would fail.
    fn refuse_closed_program(&self, target: &Target, found: &Found) -> Result<(), Refusal> {
        if self.request.purpose == Purpose::Learn {
            return Ok(());
        }
        let real = |path: &Path| self.tree.resolve(path);
        let plain = paths::plain(self.policy);
        let denied = plain.iter().filter_map(|rule| Some((rule, real(&self.places.absolute(rule))?)));
        let denied: Vec<_> = denied.chain(found.denied.iter().map(|path| (path, path.clone()))).collect();
        if denied.is_empty() {
            return Ok(());
        }
        for program in commands::files_of(self.verdict).iter().chain([&target.path]) {
            let Some(real) = real(program) else { continue };
            if let Some((rule, _)) = denied.iter().find(|(_, closed)| real.starts_with(closed)) {
                let (program, rule) = (program.display(), rule.display());
                return Err(Refusal::refused(format!(
                    "{program} must be read to start the command, and --deny-path (paths.deny) closes {rule}"
                )));
            }
        }
        Ok(())
    }

    /// Whether /tmp and /var/tmp become private. Inside bubblewrap /tmp is private already.
    fn replaces_temporary(&self) -> bool {
        let plain = self.request.inside.is_none() && self.policy.bubblewrap.isolate == Isolate::Disabled;
        plain && self.policy.profiles.contains(&Profile::Write) && self.request.purpose != Purpose::Learn
    }

    fn make_temporary(&self, target: &Target, paths: &mut PathPlan) {
        let (request, policy) = (self.request, self.policy);
        let programs = self.verdict.chain.iter().map(|link| link.path.clone());
        let stage = self.stage.iter().flat_map(|stage| [stage.tree.clone(), stage.store.clone()]);
        let files = [target.path.clone(), request.directory().to_owned()].into_iter();
        let files = files.chain(policy.libsandbox.clone()).chain(programs).chain(stage).collect();
        let words = request.words();
        let environment = environment::build(&request.environment, &policy.env, true, Vec::new());
        let values = environment.iter().map(|(_, value)| value);
        let texts = words.iter().chain(values).map(|text| text.as_bytes()).collect();
        paths.make_temporary(&Used { policy, places: self.places, paths: files, texts }, self.tree);
    }

    /// Start-up files that no program outside the sandbox will read need no warning.
    fn drop_unused_startup_files(&self, paths: &mut PathPlan) {
        if let Some(profile) = self.request.browser.as_ref().and_then(|browser| browser.profile.as_ref()) {
            // The browser's HOME is its profile, and only the browser reads start-up files there.
            paths.open.retain(|path| !path.starts_with(profile));
        }
        if self.request.inside.is_none() {
            return;
        }
        // Inside bubblewrap /tmp is private and removed with it. The isolation itself adds one /tmp to the writable
        // paths; a second one means that the caller named the real /tmp too.
        let tmp = Path::new("/tmp");
        let write = &self.policy.paths.write;
        let private = write.iter().filter(|path| *path == tmp).count() == 1;
        let named = |path: &PathBuf| write.iter().any(|top| top != tmp && path.starts_with(self.places.absolute(top)));
        paths.open.retain(|path| !private || !path.starts_with(tmp) || named(path));
    }

    /// The target's own words, the caller's, and what a browser needs to know about this run.
    fn argv_of(&self, target: &Target, proxy: Option<SocketAddr>, without_sandbox: bool) -> Vec<OsString> {
        let mut argv = target.argv.clone();
        argv.extend(self.request.words().into_iter().skip(1));
        if let Some(browser) = &self.request.browser {
            let private = self.places.tmp.as_deref().filter(|_| browser.profile.is_none());
            Added { proxy, without_sandbox, private }.to(&mut argv);
        }
        argv
    }

    fn environment_of(&self, preload: Option<&Path>, proxy: Option<SocketAddr>) -> Vec<(OsString, OsString)> {
        let (policy, request) = (self.policy, self.request);
        let mut set: Vec<(&str, OsString)> = vec![("GATEKEEPER_SANDBOX", OsString::from(policy.profile_name()))];
        if let Some(library) = preload {
            set.extend(environment::exact_list(policy, library, request.variable("LD_PRELOAD")));
        }
        set.extend(self.directory_variables());
        if let Some(proxy) = proxy {
            let passed = policy.env.pass.iter().any(|name| name == "JAVA_TOOL_OPTIONS");
            let java = request.variable("JAVA_TOOL_OPTIONS").filter(|_| passed);
            let store = self.trust.map(|trust| trust.java.as_path());
            set.extend(variables::set(proxy, &policy.allowlist(), java, store));
        }
        if let Some(trust) = self.trust {
            set.extend(variables::trusting(&trust.bundle));
            set.push(("SYSTEM_WGETRC", trust.wget.as_os_str().to_owned()));
            set.extend(trust.variables.iter().map(|(name, shown)| (name.as_str(), OsString::from(shown))));
        }
        set.extend(environment::retries(&policy.env, self.network));
        set.extend(environment::sanitizers(policy));
        let has_network = *self.network == NetworkMode::Full;
        environment::build(&request.environment, &policy.env, has_network, set)
    }

    /// The variables that point into the private temporary directory.
    fn directory_variables(&self) -> Vec<(&'static str, OsString)> {
        let mut set = Vec::new();
        let mut add = |name, path: &Path| set.push((name, path.as_os_str().to_owned()));
        if let Some(tmp) = &self.places.tmp {
            add("TMPDIR", tmp);
            add("TMPPREFIX", &tmp.join("zsh"));
            if let Some(browser) = &self.request.browser {
                add("HOME", browser.profile.as_ref().unwrap_or(tmp));
                add("XDG_RUNTIME_DIR", tmp);
                add("XDG_CONFIG_HOME", tmp);
            }
        }
        if let Some(summary) = self.places.summary() {
            add("GATEKEEPER_SUMMARY", &summary);
        }
        set
    }
}

/// Learning needs the notification listener and no other layer.
fn learning(host: &Host) -> Result<Seccomp, Refusal> {
    match (&host.seccomp, host.user_notification) {
        (Ok(()), true) => Ok(Seccomp::Filter { notify: true }),
        (Err(missing), _) => Err(Refusal::no_filter(missing)),
        (Ok(()), false) => Err(Refusal::setup(format!(
            "learning needs seccomp notifications (Linux {} or newer)",
            floor::NOTIFICATION.kernel
        ))),
    }
}

/// Whether to confine paths at all: profiles without a sandbox do so only if the policy names a path or a command.
pub(super) fn wants_paths(policy: &Policy) -> bool {
    let loose = |profile: &Profile| matches!(profile, Profile::Unrestricted | Profile::Custom);
    let paths = &policy.paths;
    let named = paths.read.is_some() || paths.execute.is_some() || !paths.write.is_empty() || !paths.deny.is_empty();
    let secrets = !policy.network.credentials.is_empty();
    named || secrets || !policy.commands.allow.is_empty() || !policy.profiles.iter().all(loose)
}

/// Whether the program runs without the syscall filter, as `static_binaries` may say; or why it must not run.
fn judge(verdict: &Verdict, policy: &Policy) -> Result<bool, Refusal> {
    match verdict.verdict {
        Decision::Preload => Ok(false),
        Decision::Refuse if verdict.has(ReasonCode::NotFound) => Err(Refusal::not_found(verdict)),
        Decision::Refuse => Err(Refusal::verdict(verdict)),
        Decision::Enforce => match policy.static_binaries {
            StaticBinaries::Enforce => Ok(false),
            StaticBinaries::Block => Err(Refusal::static_blocked(verdict)),
            // Only static programs may run without the filter. Any other program that the preload cannot enter keeps it.
            StaticBinaries::Warn | StaticBinaries::Allow => Ok(verdict.only_static()),
        },
    }
}
