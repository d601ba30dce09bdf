//! The paths that a learned policy grants, and notes on those that it leaves out because no grant would be narrow.

use super::trees::{Around, MANY, gathered, outermost};
use crate::check::Verdict;
use crate::plan::Plan;
use crate::plan::disk::Disk;
use crate::plan::paths::{DEVICES, Places, SYSTEM, TERMINALS, credentials};
use crate::supervise::lesson::Lesson;
use crate::supervise::remedy::is_typeable;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// What the grants depend on, and what is found out on the way.
pub struct Found<'a> {
    around: Around<'a>,
    cwd: Option<PathBuf>,
    home: Option<PathBuf>,
    /// The credentials, as they were before the command ran and as they are now.
    secret: BTreeSet<PathBuf>,
    pub notes: Vec<String>,
    /// The credentials to grant for reading, by their exact paths.
    pub read: BTreeSet<PathBuf>,
    /// The same for writing.
    pub written: BTreeSet<PathBuf>,
}

impl Found<'_> {
    pub fn new(places: &Places, mut secret: BTreeSet<PathBuf>) -> Found<'_> {
        secret.extend(credentials(places, &Disk));
        let cwd = places.cwd.canonicalize().ok();
        let home = places.home.as_ref().and_then(|home| home.canonicalize().ok());
        let home = home.filter(|home| home.parent().is_some());
        let (notes, read, written) = Default::default();
        Found { around: Around { places }, cwd, home, secret, notes, read, written }
    }

    /// The credential that this path is, or that it is in.
    fn secret(&self, path: &Path) -> Option<&PathBuf> {
        self.secret.iter().find(|secret| path.starts_with(secret))
    }

    /// Whether a policy can name a path. Otherwise a grant of its directory would have to do, so it is left out with a note.
    pub fn can_name(&mut self, doing: &str, path: &Path) -> bool {
        let named = is_typeable(&self.spelled(path));
        if !named {
            self.leave_out(doing, path, "which a policy file cannot name");
        }
        named
    }

    fn leave_out(&mut self, doing: &str, path: &Path, why: &str) {
        let note = format!("not granted: {doing} {}, {why}", path.display());
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Why a directory must not be granted as a whole.
    fn unfit(&self, directory: &Path) -> Option<&'static str> {
        match () {
            () if self.around.too_wide(directory) => Some("which is too wide to grant as a whole"),
            () if self.secret(directory).is_some() => Some("which holds credentials"),
            () if !is_typeable(&self.spelled(directory)) => Some("which a policy file cannot name"),
            () => None,
        }
    }

    /// A path as the policy file writes it: relative to `.` in the working directory, to `~` in the home directory.
    fn spelled(&self, path: &Path) -> PathBuf {
        let below = |top: &Option<PathBuf>| Some(path.strip_prefix(top.as_ref()?).ok()?.to_owned());
        match (below(&self.cwd), below(&self.home)) {
            (Some(rest), _) if rest.as_os_str().is_empty() => PathBuf::from("."),
            (Some(rest), _) if self.cwd.as_ref().is_some_and(|cwd| cwd.parent().is_some()) => Path::new(".").join(rest),
            (_, Some(rest)) => Path::new("~").join(rest),
            _ => path.to_owned(),
        }
    }

    pub fn all_spelled(&self, paths: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
        paths.iter().map(|path| self.spelled(path)).collect()
    }

    /// Grants writing one file, or one directory as a whole.
    fn write(&mut self, path: &Path, places: &mut BTreeSet<PathBuf>) {
        if path.is_dir() {
            match self.unfit(path) {
                Some(why) => self.leave_out("changing", path, why),
                None => drop(places.insert(path.to_owned())),
            }
        } else if self.can_name("writing", path) {
            match self.secret(path) {
                Some(_) => self.written.insert(path.to_owned()),
                None => places.insert(path.to_owned()),
            };
        }
    }
}

/// The paths to grant for writing, without credentials. A new file needs a grant of its directory. If that must not be
/// granted, the file itself is granted, provided that it exists now.
pub fn written(lesson: &Lesson, found: &mut Found<'_>) -> BTreeSet<PathBuf> {
    let device = |path: &Path| {
        DEVICES.iter().chain(TERMINALS).any(|device| path.starts_with(device)) || path.starts_with("/proc")
    };
    let mut places = BTreeSet::new();
    for entry in lesson.entries.iter().filter(|entry| !device(entry)) {
        let Some(parent) = entry.parent() else { continue };
        match found.unfit(parent) {
            None => {
                places.insert(parent.to_owned());
                if !entry.is_dir() && found.secret(entry).is_some() {
                    found.write(entry, &mut places);
                }
            }
            Some(_) if entry.exists() => found.write(entry, &mut places),
            Some(why) => found.leave_out("new files in", parent, why),
        }
    }
    for file in lesson.written.iter().filter(|file| !device(file) && file.exists()) {
        found.write(file, &mut places);
    }
    for secret in &found.written {
        found.notes.push(granted("wrote", secret));
    }
    let places = outermost(places);
    // Three or more directories in the working directory: grant all of it.
    match found.around.work() {
        Some(work) if places.iter().filter(|place| place.starts_with(&work)).count() >= 3 => {
            outermost(places.into_iter().chain([work]).collect())
        }
        _ => gathered(places, &found.around),
    }
}

fn granted(did: &str, secret: &Path) -> String {
    let secret = secret.display();
    format!("CREDENTIALS: it {did} {secret}, which is granted below; remove that unless the command needs it")
}

/// The paths to grant for reading, beyond those of the system and those that may be written, by a grant or `by_write`, the
/// profile; `None` if no list would be narrow.
pub fn read(
    lesson: &Lesson,
    (written, by_write): (&BTreeSet<PathBuf>, &[PathBuf]),
    found: &mut Found<'_>,
) -> Option<BTreeSet<PathBuf>> {
    let tmp = found.around.places.tmp.clone();
    let implied = |path: &Path| {
        let known = SYSTEM.iter().chain(DEVICES).chain(TERMINALS).any(|known| {
            let real = Path::new(known).canonicalize();
            path.starts_with(known) || real.is_ok_and(|real| path.starts_with(real))
        });
        let tmp = tmp.as_ref().is_some_and(|tmp| path.starts_with(tmp));
        known || tmp || written.iter().any(|place| path.starts_with(place))
    };
    let work = found.around.work();
    let (mut places, mut secrets) = (BTreeSet::new(), BTreeMap::<PathBuf, BTreeSet<PathBuf>>::new());
    for path in lesson.read.iter().chain(&lesson.listed) {
        if found.written.contains(path) {
            continue;
        } else if let Some(secret) = found.secret(path) {
            secrets.entry(secret.clone()).or_default().insert(path.clone());
        } else if implied(path) || by_write.iter().any(|top| top.parent().is_some() && path.starts_with(top)) {
            continue;
        } else if work.as_ref().is_some_and(|work| path.starts_with(work)) {
            places.extend(work.clone());
        } else {
            places.insert(path.clone());
        }
    }
    for (secret, files) in secrets {
        // In a writable tree a mount covers the credential as a whole.
        let covered = written.iter().chain(by_write).any(|top| secret.starts_with(top));
        let few = !covered && files.len() < MANY && files.iter().all(|file| is_typeable(&found.spelled(file)));
        let named = if few { outermost(files) } else { BTreeSet::from([secret]) };
        for path in named.into_iter().filter(|path| found.can_name("reading", path)).collect::<Vec<_>>() {
            found.notes.push(granted("read", &path));
            found.read.insert(path);
        }
    }
    let wide = |path: &&PathBuf| !implied(path) && found.around.too_wide(path);
    if let Some(wide) = lesson.listed.iter().find(wide) {
        let note = format!("it listed {}, so everything except credentials may be read", wide.display());
        found.notes.push(note);
        let all = found.read.iter().cloned().chain([PathBuf::from("/")]);
        return (!found.read.is_empty()).then(|| all.collect());
    }
    places.retain(|place| found.can_name("reading", place));
    let mut all = gathered(places, &found.around);
    // A grant of a parent directory does not open credentials: name each of them.
    all.extend(found.read.iter().cloned());
    Some(all)
}

/// The executed programs, with their interpreters and loaders.
pub fn executed(
    lesson: &Lesson,
    plan: &Plan,
    look_up: &dyn Fn(&OsStr) -> Verdict,
    found: &mut Found<'_>,
) -> BTreeSet<PathBuf> {
    let mut programs: BTreeSet<PathBuf> = BTreeSet::from([plan.target.path.clone()]);
    programs.extend(crate::plan::commands::files_of(&plan.verdict));
    for program in &lesson.executed {
        programs.insert(program.clone());
        programs.extend(crate::plan::commands::files_of(&look_up(program.as_os_str())));
    }
    let real = programs.iter().map(|program| program.canonicalize().unwrap_or_else(|_| program.clone()));
    // A program that the command built itself will be another file next time: grant its directory. If the command made that
    // too, as for a virtual environment, grant the one that was there before.
    let made = |path: &Path| lesson.entries.contains(path) || lesson.written.contains(path);
    let above = |program: &Path| program.ancestors().find(|above| !made(above)).map(Path::to_owned);
    let real = real.map(|program| match made(&program) {
        true => above(&program).filter(|above| found.unfit(above).is_none()).unwrap_or(program),
        false => program,
    });
    let real: BTreeSet<PathBuf> = real.collect();
    outermost(real.into_iter().filter(|program| found.can_name("executing", program)).collect())
}
