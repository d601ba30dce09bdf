//! The exec chain from a command to the ELF file that the kernel starts: PATH, `#!`, env, registered handlers, loader.
//!
//! Takes a command, gives its verdict and the descriptor to execute. Follows the kernel step by step, and stops where the
//! kernel would refuse.

use super::dynamic::Dynamic;
use super::env::{self, Followed};
use super::files::{Files, Opened, Pages};
use super::loader::{self, Loader};
use super::lookup::{self, Found};
use super::verdict::{Kind, Libc, Link, Linkage, Reason, ReasonCode, Verdict};
use super::{Checked, Context, Target, elf, notes, script};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// How many interpreters the kernel follows for one exec (exec_binprm).
const DEPTH: usize = 5;
/// How many executions by env to follow; a script can run itself through env without end.
const EXECS: usize = 5;

/// Checks commands, and caches the verdicts on loaders. Each thread that checks many files has its own.
pub struct Checker<'a> {
    pub(super) context: &'a Context,
    pub(super) files: &'a dyn Files,
    loaders: RefCell<HashMap<PathBuf, Loader>>,
    /// Libraries, and whether they have DF_1_INITFIRST.
    pub(super) first: RefCell<HashMap<PathBuf, bool>>,
}

/// The state of a walk.
struct Walk {
    verdict: Verdict,
    /// The words that replace argv[0].
    argv: Vec<OsString>,
    /// How many interpreters this exec has used, and how many execs there were.
    depth: usize,
    execs: usize,
}

/// What to do after a file was examined.
enum Next {
    Open(Found),
    Execute(Box<dyn Opened>, PathBuf),
    Stop,
}

impl<'a> Checker<'a> {
    pub fn new(context: &'a Context, files: &'a dyn Files) -> Checker<'a> {
        Checker { context, files, loaders: RefCell::default(), first: RefCell::default() }
    }

    pub fn check(&self, command: &OsStr) -> Checked {
        match lookup::find(command, self.context, self.files) {
            Ok(found) => self.walk(command, found, 0),
            Err((path, reason)) => {
                let mut verdict = Verdict::new(&path);
                verdict.add(reason);
                Checked { verdict, target: None }
            }
        }
    }

    fn walk(&self, command: &OsStr, found: Found, execs: usize) -> Checked {
        let verdict = Verdict::new(&found.path);
        let mut walk = Walk { verdict, argv: vec![command.into()], depth: 0, execs };
        let mut found = found;
        let target = loop {
            match self.step(&mut walk, found) {
                Next::Open(next) => found = next,
                Next::Execute(file, path) => break Some((file, path)),
                Next::Stop => break None,
            }
        };
        let Walk { verdict, argv, .. } = walk;
        let target = target
            .filter(|_| verdict.verdict != super::Decision::Refuse)
            .and_then(|(file, path)| Some(Target { file: file.into_file()?, path, argv }));
        Checked { verdict, target }
    }

    fn step(&self, walk: &mut Walk, found: Found) -> Next {
        let Found { path, file } = found;
        let mut link = self.link(&path, file.as_ref());
        if !file.facts().readable {
            walk.verdict.chain.push(link);
            self.privileges(walk, file.as_ref());
            walk.verdict.add(Reason::new(
                ReasonCode::Unreadable,
                format!("{} may be executed but not read, so its type is unknown", path.display()),
            ));
            return Next::Execute(file, path);
        }
        let pages = match Pages::new(file.as_ref()) {
            Ok(pages) => pages,
            Err(error) => {
                walk.verdict.chain.push(link);
                let text = format!("{} cannot be read: {error}", path.display());
                walk.verdict.add(Reason::new(ReasonCode::Corrupt, text));
                return Next::Stop;
            }
        };
        if let Some(handler) = self.context.handlers.iter().find(|handler| handler.takes(&path, pages.head())) {
            let native = elf::is_elf(pages.head()) && elf::read(&pages, self.context.machine).problem.is_none();
            if native || !elf::is_elf(pages.head()) {
                link.kind = Kind::Handler;
                link.interpreter = Some(handler.interpreter.clone().into());
                walk.verdict.chain.push(link);
                return self.handled(walk, handler, path);
            }
            walk.verdict.note(format!(
                "the binfmt_misc handler {} would run it with {}, which the preload does not reach",
                handler.name,
                Path::new(&handler.interpreter).display()
            ));
        }
        if script::is_script(pages.head()) {
            return self.script(walk, link, path, pages.head());
        }
        if !elf::is_elf(pages.head()) {
            walk.verdict.chain.push(link);
            walk.verdict.add(no_format(&path, pages.head()));
            return Next::Stop;
        }
        let runs = self.program(walk, link, &path, file.as_ref(), &pages);
        drop(pages);
        match walk.verdict.chain.len() > 1 && env::is_env(path.as_os_str()) && runs {
            true => self.through_env(walk, file, path),
            false => Next::Execute(file, path),
        }
    }

    fn script(&self, walk: &mut Walk, mut link: Link, path: PathBuf, head: &[u8]) -> Next {
        let parsed = script::parse(head);
        link.kind = Kind::Script;
        link.interpreter = parsed.as_ref().ok().map(|line| PathBuf::from(&line.interpreter));
        walk.verdict.chain.push(link);
        match parsed {
            Ok(line) => self.interpreted(walk, path, line),
            Err(why) => {
                let text = format!("{}: {}", path.display(), why.text());
                walk.verdict.add(Reason::new(ReasonCode::Corrupt, text));
                Next::Stop
            }
        }
    }

    fn link(&self, path: &Path, file: &dyn Opened) -> Link {
        let facts = file.facts();
        let mut link = Link::new(path, Kind::Unknown);
        link.setuid = facts.setuid();
        link.setgid = facts.setgid();
        link.file_caps = facts.file_caps;
        if self.context.detail {
            link.resolved = file.resolved().filter(|resolved| *resolved != self.context.cwd.join(path));
        }
        link
    }

    /// Examines an ELF file: adds all reasons against the preload, and returns whether the kernel would start it.
    fn program(&self, walk: &mut Walk, mut link: Link, path: &Path, file: &dyn Opened, pages: &Pages) -> bool {
        let elf = elf::read(pages, self.context.machine);
        link.kind = Kind::Elf;
        link.machine = Some(elf::machine_name(elf.machine));
        link.class = elf.class;
        link.linkage = elf.linkage;
        link.interpreter = elf.interpreter.as_ref().map(PathBuf::from);
        if let Some(problem) = elf.problem {
            walk.verdict.chain.push(link);
            walk.verdict.add(Reason::new(problem.code, format!("{}: {}", path.display(), problem.text)));
            return false;
        }
        let dynamic = Dynamic::read(pages, &elf.segments);
        if let (Some(dynamic), true) = (&dynamic, self.context.detail) {
            link.needed = dynamic.needed();
        }
        let mut loader = None;
        match &elf.interpreter {
            Some(name) => {
                let judged = self.loader(Path::new(name));
                link.libc = Some(judged.libc);
                loader = Some(judged);
            }
            None => link.libc = Some(Libc::None),
        }
        walk.verdict.chain.push(link);
        self.preload_reasons(&mut walk.verdict, path, elf.linkage, loader, dynamic.as_ref());
        if let (Some(dynamic), true) = (&dynamic, self.context.detail) {
            notes::before_the_filter(&mut walk.verdict, path, dynamic, elf.interpreter.as_deref(), self);
        }
        self.privileges(walk, file);
        !walk.verdict.reasons.iter().any(|reason| reason.code.decision() == super::Decision::Refuse)
    }

    /// Adds why the preload cannot enter a program.
    fn preload_reasons(
        &self,
        verdict: &mut Verdict,
        path: &Path,
        linkage: Option<Linkage>,
        loader: Option<Loader>,
        dynamic: Option<&Dynamic<'_>>,
    ) {
        match (linkage, loader) {
            (_, Some(loader)) => {
                if let Some(reason) = loader.reason {
                    verdict.add(Reason::new(reason.code, format!("{}: {}", path.display(), reason.text)));
                } else if let Some(dynamic) = dynamic {
                    let unusable = self.context.preload.unusable_under(loader.release);
                    let unusable = unusable.or_else(|| notes::interposed(path, dynamic, &self.context.preload));
                    unusable.into_iter().for_each(|why| verdict.add(Reason::new(ReasonCode::PreloadUnusable, why)));
                    loader.note.into_iter().for_each(|note| verdict.note(note));
                } else {
                    // glibc's ld.so crashes with SIGSEGV on these.
                    let text = format!("{} names a loader but has no PT_DYNAMIC for it to load", path.display());
                    verdict.add(Reason::new(ReasonCode::Corrupt, text));
                }
            }
            (Some(Linkage::StaticPie), None) => verdict.add(Reason::new(
                ReasonCode::StaticPie,
                format!("{} is static (position independent): no loader runs that could preload", path.display()),
            )),
            _ => verdict.add(Reason::new(
                ReasonCode::Static,
                format!("{} is static: no loader runs that could preload", path.display()),
            )),
        }
    }

    /// Adds the privileges that exec would grant. With them the loader ignores LD_PRELOAD (AT_SECURE).
    fn privileges(&self, walk: &mut Walk, file: &dyn Opened) {
        let facts = file.facts();
        let path = walk.verdict.chain.last().map(|link| link.path.display().to_string()).unwrap_or_default();
        if facts.nosuid && (facts.setuid() || facts.setgid() || facts.file_caps) {
            walk.verdict.note(format!("{path} is on a nosuid mount: its privileges have no effect"));
            return;
        }
        if facts.setuid() || facts.setgid() {
            let which = if facts.setuid() { "setuid" } else { "setgid" };
            let text = format!("{path} is {which}: the loader drops LD_PRELOAD when exec changes the user or group");
            walk.verdict.add(Reason::new(ReasonCode::Setuid, text));
        }
        if facts.file_caps {
            let text = format!("{path} has file capabilities: the loader drops LD_PRELOAD when exec grants them");
            walk.verdict.add(Reason::new(ReasonCode::FileCaps, text));
        }
    }

    fn loader(&self, path: &Path) -> Loader {
        if let Some(known) = self.loaders.borrow().get(path) {
            return known.clone();
        }
        let judged = loader::judge(path, self.context, self.files);
        self.loaders.borrow_mut().insert(path.into(), judged.clone());
        judged
    }

    fn interpreted(&self, walk: &mut Walk, script: PathBuf, line: script::Shebang) -> Next {
        let mut words = vec![line.interpreter.clone()];
        words.extend(line.argument);
        words.push(script.clone().into());
        walk.argv.splice(..1, words);
        let interpreter = PathBuf::from(line.interpreter);
        self.go_on(walk, interpreter, |reason| {
            let mut text = format!("{}: its interpreter {}", script.display(), reason.text);
            if reason.text.contains('\r') {
                text =
                    format!("{}: its #! line ends in a carriage return (CRLF); dos2unix removes it", script.display());
            }
            Reason::new(reason.code, text)
        })
    }

    fn handled(&self, walk: &mut Walk, handler: &super::Handler, file: PathBuf) -> Next {
        if handler.needs_the_kernel() {
            let text = format!(
                "{} is run by the binfmt_misc handler {}, through a descriptor that only the kernel can pass",
                file.display(),
                handler.name
            );
            walk.verdict.add(Reason::new(ReasonCode::NotExecutable, text));
            return Next::Stop;
        }
        let mut words = vec![handler.interpreter.clone(), file.clone().into()];
        if handler.flags.contains('P') {
            words.extend(walk.argv.first().cloned());
        }
        walk.argv.splice(..1, words);
        self.go_on(walk, PathBuf::from(&handler.interpreter), |reason| {
            Reason::new(reason.code, format!("{}: its handler {}", file.display(), reason.text))
        })
    }

    fn go_on(&self, walk: &mut Walk, interpreter: PathBuf, blame: impl FnOnce(Reason) -> Reason) -> Next {
        walk.depth += 1;
        if walk.depth > DEPTH {
            let text = format!("more than {DEPTH} interpreters in a row; the kernel gives up");
            walk.verdict.add(Reason::new(ReasonCode::ChainTooDeep, text));
            return Next::Stop;
        }
        match lookup::open(&interpreter, self.context, self.files) {
            Ok(found) => Next::Open(found),
            Err(reason) => {
                walk.verdict.add(blame(reason));
                Next::Stop
            }
        }
    }

    fn through_env(&self, walk: &mut Walk, env_file: Box<dyn Opened>, env_path: PathBuf) -> Next {
        let words = walk.argv.get(1..).unwrap_or_default();
        let (program, stays) = match env::follow(words) {
            Followed::To(words) => (words, false),
            Followed::Changes(Some(words)) => (words, true),
            Followed::Changes(None) => {
                walk.verdict.note("env decides at run time what it executes; the program runs under env's filter");
                return Next::Execute(env_file, env_path);
            }
        };
        walk.execs += 1;
        walk.depth = 0;
        if walk.execs > EXECS {
            walk.verdict.add(Reason::new(ReasonCode::ChainTooDeep, "env runs the script through itself without end"));
            return Next::Stop;
        }
        let Some(name) = program.first() else { return Next::Stop };
        match lookup::find(name, self.context, self.files) {
            Err((_, reason)) => {
                let mut text = format!("env: {}", reason.text);
                if name.to_string_lossy().contains(' ') {
                    text.push_str("; #!/usr/bin/env -S splits a line into words");
                }
                walk.verdict.add(Reason::new(reason.code, text));
                Next::Stop
            }
            Ok(found) if stays => {
                walk.verdict.note(format!("env changes the environment and then executes {}", found.path.display()));
                let checked = self.walk(name, found, walk.execs);
                walk.verdict.chain.extend(checked.verdict.chain);
                checked.verdict.reasons.into_iter().for_each(|reason| walk.verdict.add(reason));
                Next::Execute(env_file, env_path)
            }
            Ok(found) => {
                walk.argv = program;
                Next::Open(found)
            }
        }
    }
}

/// The reason for a file whose format the kernel does not execute.
fn no_format(path: &Path, head: &[u8]) -> Reason {
    let path = path.display();
    let start = String::from_utf8_lossy(head.get(..64).unwrap_or(head));
    let is_text = start.chars().all(|c| !c.is_control() || c.is_ascii_whitespace());
    if head.is_empty() {
        Reason::new(ReasonCode::Corrupt, format!("{path} is empty"))
    } else if is_text {
        let text =
            format!("{path} is text without a #! line; the kernel does not run it (add #!/bin/sh as first line)");
        Reason::new(ReasonCode::NotExecutable, text)
    } else {
        Reason::new(ReasonCode::Corrupt, format!("{path} is neither an ELF file nor a script"))
    }
}
