//! What git's configuration names that git executes or obeys: hooks, programs, and more configuration.
//!
//! Conditions of includes are taken as fulfilled, and where the configuration does not say which directory a path is
//! relative to, all that are possible count: to protect too much is harmless. The files may be below a tree that
//! commands write, so their size and number are limited, and only files are opened.

use super::super::{Kind, Places, Tree, homes};
use super::config::{Setting, parse};
use super::words::Words;
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Git's own limit on includes in included files.
const DEEPEST: usize = 10;
/// How much to read for one plan, and how many paths in it to look at. A hostile tree could name millions.
const MOST_FILES: usize = 2048;
const MOST_BYTES: usize = 16 << 20;
const MOST_SETTINGS: usize = 20_000;
const MOST_NAMES: usize = 8192;
const MOST_ASKED: usize = 32_768;
/// How many of the files that were not read are listed.
const MOST_UNREAD: usize = 100;
/// The settings of the machine, where Git's packages and its own makefile have them.
const SYSTEM: &[&str] = &["/etc/gitconfig", "/usr/local/etc/gitconfig"];
/// Relative to the home directory.
const GLOBAL: &[&str] = &[".gitconfig", ".config/git/config"];
/// Keys of settings whose value is a command line, in whichever section, and so is that of each that ends in `command` or `cmd`.
const COMMANDS: &[&[u8]] = &[
    b"askpass",
    b"browser",
    b"clean",
    b"difffilter",
    b"driver",
    b"editor",
    b"external",
    b"fsmonitor",
    b"gitproxy",
    b"helper",
    b"httpd",
    b"packobjectshook",
    b"pager",
    b"process",
    b"program",
    b"receivepack",
    b"recentobjectshook",
    b"smudge",
    b"textconv",
    b"tunnel",
    b"uploadpack",
];

/// Whether git takes the value of a setting for a command line or the path of a program.
fn is_command(section: &[u8], key: &[u8], value: &[u8]) -> bool {
    match (section, key) {
        (b"pager", _) | (b"sendemail", b"smtpserver") => true,
        (b"browser" | b"difftool" | b"lfs" | b"man" | b"mergetool", b"path") => true,
        (b"alias", _) | (b"submodule", b"update") if value.starts_with(b"!") => true,
        (b"remote", b"url" | b"pushurl") => value.starts_with(b"ext::"),
        (_, key) => COMMANDS.contains(&key) || key.ends_with(b"command") || key.ends_with(b"cmd"),
    }
}

/// What variables of the caller say to git.
#[derive(Debug, Default)]
pub struct Variables {
    files: Vec<PathBuf>,
    settings: Vec<Setting>,
}

impl Variables {
    pub fn of(variable: &dyn Fn(&str) -> Option<OsString>, places: &Places) -> Variables {
        let named = |name| variable(name).filter(|value| !value.is_empty()).map(|value| places.cwd.join(value));
        let mut files: Vec<PathBuf> =
            ["GIT_CONFIG_SYSTEM", "GIT_CONFIG_GLOBAL"].into_iter().filter_map(named).collect();
        files.extend(named("XDG_CONFIG_HOME").map(|directory| directory.join("git/config")));
        let count = variable("GIT_CONFIG_COUNT").and_then(|count| count.to_str()?.parse::<usize>().ok());
        let settings = (0..count.unwrap_or(0).min(MOST_NAMES)).map_while(|at| {
            let name = variable(&format!("GIT_CONFIG_KEY_{at}"))?;
            let value = variable(&format!("GIT_CONFIG_VALUE_{at}"))?.as_bytes().to_vec();
            // The subsection keeps its case, and no section that matters here has one with capital letters.
            Some(Setting { name: name.as_bytes().to_ascii_lowercase(), value: Some(value), certain: true })
        });
        Variables { files, settings: settings.collect() }
    }
}

/// Reads configurations, and collects what they name.
pub struct Reader<'a> {
    tree: &'a dyn Tree,
    homes: &'a [PathBuf],
    /// The files of the configuration that is being read.
    read: BTreeSet<PathBuf>,
    /// How many files and bytes may still be read, and how many paths looked at.
    left: usize,
    bytes: usize,
    asked: usize,
    /// /etc/passwd, if a path begins with a user's name.
    passwd: OnceCell<Vec<u8>>,
    names: BTreeSet<PathBuf>,
    /// The settings that hold in every repository.
    global: Vec<Setting>,
    /// Existing files and directories that git executes or obeys.
    pub there: Vec<PathBuf>,
    /// Files that do not exist, and that the configuration includes.
    pub absent: Vec<PathBuf>,
    /// Directories of hooks that do not exist.
    pub no_hooks: BTreeSet<PathBuf>,
    /// Configuration that could not be read or understood to the end.
    pub unread: BTreeSet<PathBuf>,
    /// Settings that name a program by variables or other commands, so that it is not known which.
    pub unclear: BTreeSet<String>,
}

impl<'a> Reader<'a> {
    /// Reads the configuration of the machine and of the user.
    pub fn new(tree: &'a dyn Tree, homes: &'a [PathBuf], variables: &Variables) -> Reader<'a> {
        let mut reader = Reader {
            tree,
            homes,
            read: BTreeSet::new(),
            left: MOST_FILES,
            bytes: MOST_BYTES,
            asked: MOST_ASKED,
            passwd: OnceCell::new(),
            names: BTreeSet::new(),
            global: variables.settings.clone(),
            there: Vec::new(),
            absent: Vec::new(),
            no_hooks: BTreeSet::new(),
            unread: BTreeSet::new(),
            unclear: BTreeSet::new(),
        };
        let mut settings = Vec::new();
        let of_user = homes.iter().flat_map(|home| GLOBAL.iter().map(|name| home.join(name)));
        for file in SYSTEM.iter().map(PathBuf::from).chain(of_user) {
            reader.settings(&file, DEEPEST, &mut settings);
        }
        for file in &variables.files {
            reader.include(file, DEEPEST, &mut settings);
        }
        for setting in &variables.settings {
            reader.included(setting, Path::new("/"), DEEPEST, &mut settings);
        }
        reader.global.append(&mut settings);
        reader.name_all(&[], &[]);
        reader
    }

    /// Reads the configuration files of a repository, as far as they exist. `tops`: its working trees.
    pub fn repository(&mut self, files: &[PathBuf], git: &Path, mut tops: Vec<PathBuf>) {
        let mut own = Vec::new();
        // Another repository may include the same file, whose relative paths then lead elsewhere.
        self.read.clear();
        for file in files {
            self.settings(file, DEEPEST, &mut own);
        }
        let elsewhere = own.iter().filter(|setting| setting.name == b"core.worktree");
        tops.extend(elsewhere.filter_map(|setting| Some(git.join(path(setting.value.as_deref()?)))));
        // In a bare repository, hooks run in the git directory.
        if tops.is_empty() {
            tops.push(git.to_owned());
        }
        self.name_all(&own, &tops);
        if self.names.len() >= MOST_NAMES || self.asked == 0 {
            self.leave(git);
        }
    }

    /// Notes what is not read.
    fn leave(&mut self, file: &Path) {
        if self.unread.len() < MOST_UNREAD {
            self.unread.insert(file.to_owned());
        }
    }

    /// Adds the settings of a file and of those that it includes. Returns whether the file exists.
    fn settings(&mut self, file: &Path, deeper: usize, settings: &mut Vec<Setting>) -> bool {
        if self.read.contains(file) {
            return true;
        }
        if self.asked == 0 {
            self.leave(file);
            return true;
        }
        self.asked -= 1;
        self.read.insert(file.to_owned());
        let Some(real) = self.tree.resolve(file) else {
            // A link that leads nowhere yet, or a file in a directory that a command may open again.
            let may_appear = self.tree.look(file).is_some() || self.tree.shut(file).is_some();
            if may_appear {
                self.there.push(file.to_owned());
                self.leave(file);
            }
            return may_appear;
        };
        // The usual way to have no such file.
        if real == Path::new("/dev/null") {
            return true;
        }
        self.there.push(file.to_owned());
        // The same file by another path.
        if real != file && !self.read.insert(real.clone()) {
            return true;
        }
        let is_file = self.tree.look(&real).is_some_and(|found| found.kind == Kind::File);
        let within = deeper > 0 && self.left > 0 && self.bytes > 0;
        let Some(bytes) = Some(real).filter(|_| is_file && within).and_then(|real| self.tree.contents(&real)) else {
            self.leave(file);
            return true;
        };
        self.left -= 1;
        self.bytes = self.bytes.saturating_sub(bytes.len());
        let (found, understood) = parse(&bytes);
        if !understood {
            self.leave(file);
        }
        for setting in found {
            if settings.len() >= MOST_SETTINGS {
                self.leave(file);
                break;
            }
            let first = settings.len();
            self.included(&setting, file.parent().unwrap_or(file), deeper - 1, settings);
            if setting.parts().0 == b"includeif" {
                settings[first..].iter_mut().for_each(|setting| setting.certain = false);
            }
            settings.push(setting);
        }
        true
    }

    /// Adds the settings of the file that a setting includes, if it does.
    fn included(&mut self, setting: &Setting, above: &Path, deeper: usize, settings: &mut Vec<Setting>) {
        let value = match setting.parts() {
            (b"include" | b"includeif", b"path") => setting.value.as_deref().filter(|value| !value.is_empty()),
            _ => None,
        };
        for path in value.map(|value| self.expanded(value)).unwrap_or_default() {
            self.include(&above.join(path), deeper, settings);
        }
    }

    fn include(&mut self, file: &Path, deeper: usize, settings: &mut Vec<Setting>) {
        if !self.settings(file, deeper, settings) {
            self.absent.extend(self.tree.place(file));
        }
    }

    /// Adds what the settings of a repository and those of all repositories name.
    fn name_all(&mut self, own: &[Setting], tops: &[PathBuf]) {
        let global = std::mem::take(&mut self.global);
        let names_hooks = |setting: &Setting| setting.name == b"core.hookspath";
        let last = own.iter().rposition(|setting| setting.certain && names_hooks(setting));
        let overrides = last.map_or(0, |last| global.len() + last);
        for (at, setting) in global.iter().chain(own).enumerate() {
            match names_hooks(setting) {
                true => self.name_hooks(setting, tops, at < overrides),
                false => self.name(setting, tops),
            }
        }
        self.global = global;
    }

    /// Adds the directory of hooks that a setting names. `overridden`: a later setting does so too.
    fn name_hooks(&mut self, setting: &Setting, tops: &[PathBuf], overridden: bool) {
        let Some(value) = setting.value.as_deref().filter(|value| !value.is_empty()) else { return };
        for path in self.found(value, tops) {
            match self.tree.look(&path).is_some() || self.tree.shut(&path).is_some() {
                true => {
                    // The hooks that husky generates run those beside their directory.
                    let above =
                        path.parent().filter(|_| path.ends_with("_") && self.tree.look(&path.join("h")).is_some());
                    self.there.extend(above.map(Path::to_owned));
                    self.there.push(path);
                }
                false if overridden => {}
                false => self.no_hooks.extend(self.tree.place(&path)),
            }
        }
    }

    /// Adds what another setting names. `tops`: what a relative path may start from.
    fn name(&mut self, setting: &Setting, tops: &[PathBuf]) {
        let Some(value) = setting.value.as_deref().filter(|value| !value.is_empty()) else { return };
        match setting.parts() {
            (b"core", b"attributesfile") | (b"init", b"templatedir") => {
                let found = self.found(value, tops);
                self.there.extend(found);
            }
            (section, key) if is_command(section, key, value) => self.name_programs(setting, value, tops),
            _ => {}
        }
    }

    /// Adds the files that a command line names.
    fn name_programs(&mut self, setting: &Setting, value: &[u8], tops: &[PathBuf]) {
        let Words { paths, rests, mut unclear } = Words::of(value);
        for path in paths {
            let found: Vec<PathBuf> =
                self.found(&path, tops).into_iter().filter(|path| self.is_program(path)).collect();
            self.there.extend(found);
        }
        for (rest, must) in rests {
            let looks = 2 * (tops.len() + self.homes.len());
            if self.asked < looks {
                self.asked = 0;
                return;
            }
            self.asked -= looks;
            let homes = self.homes.iter().flat_map(|home| [home.clone(), home.join(".config")]);
            let bases = tops.iter().flat_map(|top| [top.clone(), top.join(".git")]).chain(homes);
            let found: Vec<PathBuf> =
                bases.map(|base| base.join(path(&rest))).filter(|path| self.is_program(path)).collect();
            unclear |= must && found.is_empty();
            self.there.extend(found.into_iter().filter(|path| self.names.insert(path.clone())));
        }
        if unclear && !tops.is_empty() && self.unclear.len() < MOST_UNREAD {
            self.unclear.insert(String::from_utf8_lossy(&setting.name).into_owned());
        }
    }

    /// Whether a path is not that of a directory. What is in a directory that a command may open again is not known.
    fn is_program(&self, path: &Path) -> bool {
        match self.tree.look(path) {
            Some(found) => found.kind != Kind::Directory && !self.tree.is_directory(path),
            None => self.tree.shut(path).is_some(),
        }
    }

    /// The paths that a value may mean, without those that were returned before.
    fn found(&mut self, value: &[u8], tops: &[PathBuf]) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for path in self.expanded(value) {
            let absolute = path.is_absolute().then(|| path.clone());
            let tops = if absolute.is_some() { &[] } else { tops };
            let relative = tops.iter().map(|top| top.join(&path));
            for path in absolute.into_iter().chain(relative) {
                if self.asked == 0 || self.names.len() >= MOST_NAMES {
                    return found;
                }
                self.asked -= 1;
                if self.names.insert(path.clone()) {
                    found.push(path);
                }
            }
        }
        found
    }

    /// A path as git takes it: `~/` is the home directory, `~user/` that of another user.
    fn expanded(&self, value: &[u8]) -> Vec<PathBuf> {
        let value = value.strip_prefix(b":(optional)").unwrap_or(value);
        if let Some(rest) = value.strip_prefix(b"%(prefix)/") {
            return vec![Path::new("/usr").join(path(rest))];
        }
        let Some(rest) = value.strip_prefix(b"~") else { return vec![path(value).to_owned()] };
        let user = rest.split(|byte| *byte == b'/').next().unwrap_or_default();
        let rest = path(rest.get(user.len() + 1..).unwrap_or_default());
        if user.is_empty() {
            return self.homes.iter().map(|home| home.join(rest)).collect();
        }
        let passwd = self.passwd.get_or_init(|| self.tree.contents(Path::new("/etc/passwd")).unwrap_or_default());
        homes::of(passwd, user).map(|home| home.join(rest)).into_iter().collect()
    }
}

fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}
