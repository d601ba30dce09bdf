use super::*;
use crate::policy::Document;
use crate::run::prepare::prepare_again;
use crate::warden::{Warden, hire};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

/// A home, a project, two directories of programs, and a policy that extends another.
struct Scene {
    top: tempfile::TempDir,
    request: Request,
    _turn: MutexGuard<'static, ()>,
}

/// One scene at a time: a plan depends on what is beside the scene as well.
static TURN: Mutex<()> = Mutex::new(());

const POLICY: &str = "extends = \"base.toml\"\n[env]\nset = { A = \"1\" }\n";
const BASE: &str = "timeout = \"50s\"\n";

impl Scene {
    fn new(profile: Profile) -> Scene {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        // Beside the build, where no other program makes files: /tmp and /var/tmp change all the time.
        let quiet = std::env::current_exe().expect("this test").ancestors().nth(2).expect("a build").to_owned();
        let top = tempfile::Builder::new().prefix("kept").tempdir_in(quiet).expect("a directory");
        let at = |name: &str| top.path().join(name);
        for name in ["home/.config", "home/.ssh/keys", "work/a/b/c", "first", "second", "conf"] {
            fs::create_dir_all(at(name)).expect("new");
        }
        fs::copy("/bin/true", at("second/tool")).expect("new");
        fs::write(at("home/.netrc"), "machine x password y").expect("new");
        symlink("../absent", at("home/.ssh/dangling")).expect("new");
        fs::write(at("work/a/file"), "text").expect("new");
        fs::write(at("conf/policy.toml"), POLICY).expect("new");
        fs::write(at("conf/base.toml"), BASE).expect("new");
        let path = std::env::join_paths([at("first"), at("second")]).expect("no colon");
        let environment = vec![("PATH".into(), path), ("HOME".into(), at("home").into_os_string())];
        let asked = Asked::Command(vec!["tool".into(), "one".into()]);
        let flags = Document { profile: Some(vec![profile]), ..Document::default() };
        let request = Request::new(asked, at("work").canonicalize().expect("there"), environment);
        let request = Request { flags, config: Some(at("conf/policy.toml")), ..request };
        Scene { top, request, _turn: turn }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.top.path().join(name)
    }

    /// Makes plans until one is kept: what was made a moment ago cannot be told from what changes now.
    fn settle(&self) -> Prepared {
        let warden = warden();
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            prepare_again(&self.request, warden.clone()).unwrap_or_else(|refusal| panic!("{}", refusal.message));
            if let Some(prepared) = find(&self.request, number()).expect("no refusal") {
                return prepared;
            }
            assert!(Instant::now() < until, "no plan is ever kept");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn is_found(&self) -> bool {
        find(&self.request, number()).expect("no refusal").is_some()
    }
}

/// The guardian program of this process, which stays the same: no test changes what a command inherits.
fn warden() -> Arc<Warden> {
    hire().expect("this machine executes memory files")
}

fn number() -> Option<u64> {
    Some(warden().number())
}

type Change = fn(&Scene);

/// Each input of a plan, changed by itself.
const CHANGES: &[(&str, Change)] = &[
    ("a credential appears", |scene| fs::write(scene.at("home/.npmrc"), "").expect("new")),
    ("a credential appears in a new directory", |scene| {
        fs::create_dir(scene.at("home/.aws")).expect("new");
        fs::write(scene.at("home/.aws/credentials"), "").expect("new");
    }),
    ("a credential disappears", |scene| fs::remove_file(scene.at("home/.netrc")).expect("there")),
    ("a link appears in a directory of credentials", |scene| {
        symlink("../../key", scene.at("home/.ssh/id")).expect("new");
    }),
    ("a link appears deep in a directory of credentials", |scene| {
        symlink("../../../key", scene.at("home/.ssh/keys/id")).expect("new");
    }),
    ("a link in a directory of credentials gets a target", |scene| {
        fs::write(scene.at("home/absent"), "").expect("new");
    }),
    ("a credential gets a second name", |scene| {
        fs::hard_link(scene.at("home/.netrc"), scene.at("home/.config/other")).expect("new");
    }),
    ("a directory of credentials is closed", |scene| {
        fs::set_permissions(scene.at("home/.config"), fs::Permissions::from_mode(0o000)).expect("own");
    }),
    ("a secret appears in the project", |scene| fs::write(scene.at("work/.env"), "").expect("new")),
    ("a secret appears deep in the project", |scene| fs::write(scene.at("work/a/b/.env"), "").expect("new")),
    ("a directory becomes a link", |scene| {
        fs::rename(scene.at("work/a"), scene.at("work/z")).expect("there");
        symlink(scene.at("home"), scene.at("work/a")).expect("new");
    }),
    ("the project is exchanged", |scene| {
        fs::rename(scene.at("work"), scene.at("old")).expect("there");
        fs::create_dir(scene.at("work")).expect("new");
    }),
    ("the project becomes a link", |scene| {
        fs::rename(scene.at("work"), scene.at("old")).expect("there");
        symlink("old", scene.at("work")).expect("new");
    }),
    ("home is exchanged", |scene| {
        fs::rename(scene.at("home"), scene.at("old")).expect("there");
        fs::create_dir(scene.at("home")).expect("new");
    }),
    ("the program is replaced", |scene| {
        fs::copy("/bin/false", scene.at("second/new")).expect("new");
        fs::rename(scene.at("second/new"), scene.at("second/tool")).expect("there");
    }),
    ("the program is written to", |scene| {
        let file = fs::OpenOptions::new().append(true).open(scene.at("second/tool")).expect("own");
        file.set_len(file.metadata().expect("open").len() + 1).expect("own");
    }),
    ("the program cannot be executed", |scene| {
        fs::set_permissions(scene.at("second/tool"), fs::Permissions::from_mode(0o644)).expect("own");
    }),
    ("a program of the same name comes first", |scene| {
        fs::copy("/bin/false", scene.at("first/tool")).expect("new");
    }),
    ("the policy changes, and keeps its size and time", |scene| {
        let file = scene.at("conf/policy.toml");
        let time = fs::metadata(&file).and_then(|found| found.modified()).expect("there");
        fs::write(&file, POLICY.replace('1', "2")).expect("own");
        fs::File::options().write(true).open(&file).and_then(|file| file.set_modified(time)).expect("own");
    }),
    ("what the policy extends changes", |scene| {
        fs::write(scene.at("conf/base.toml"), BASE.replace("50s", "60s")).expect("own");
    }),
    ("what the policy extends is exchanged", |scene| {
        fs::write(scene.at("conf/new"), BASE).expect("new");
        fs::rename(scene.at("conf/new"), scene.at("conf/base.toml")).expect("there");
    }),
    ("a hook appears", |scene| {
        fs::create_dir_all(scene.at("work/.git/hooks")).expect("new");
        fs::write(scene.at("work/.git/hooks/post-commit"), "").expect("new");
    }),
];

#[test]
fn a_plan_is_used_again_until_any_of_its_inputs_changes() {
    for profile in [Profile::Minimal, Profile::Write] {
        for (what, change) in CHANGES {
            let scene = Scene::new(profile);
            // The text of a file that only the command reads is no input. A plan may end for another reason: other programs make
            // files beside the scene.
            let stays = |_: &usize| {
                scene.settle();
                fs::write(scene.at("work/a/file"), "other").expect("own");
                scene.is_found()
            };
            assert!((0..200).any(|at| stays(&at)), "{profile:?}: found again before: {what}");
            change(&scene);
            assert!(!scene.is_found(), "{profile:?}: {what}");
            let _ = fs::set_permissions(scene.at("home/.config"), fs::Permissions::from_mode(0o700));
        }
    }
}

#[test]
fn a_plan_that_is_used_again_equals_a_new_one() {
    for profile in [Profile::Minimal, Profile::Read, Profile::Write] {
        let scene = Scene::new(profile);
        // Other programs make files beside the scene; then the plan is not found any more.
        assert!((0..200).any(|_| equals_a_new_one(&scene, profile)), "{profile:?}");
    }
}

fn equals_a_new_one(scene: &Scene, profile: Profile) -> bool {
    let again = scene.settle();
    let new = make_plan(&scene.request, true, None).unwrap_or_else(|refusal| panic!("{}", refusal.message));
    let moved = new.run_dir.path().zip(again.run_dir.path()).map(|(from, to)| Moved { from, to });
    assert_eq!(moved.is_some(), profile != Profile::Minimal);
    let program = new.plan.target.file.try_clone().expect("descriptors");
    let difference = new.plan.again(program, scene.request.words(), moved).difference(&again.plan);
    let Some(other) = find(&scene.request, number()).expect("no refusal") else { return false };
    assert_eq!(difference, None, "{profile:?}");
    // The directory for temporary files is never shared.
    assert_eq!(other.plan.places.tmp.is_some(), profile != Profile::Minimal);
    assert!(other.plan.places.tmp.is_none() || other.plan.places.tmp != again.plan.places.tmp);
    true
}

#[test]
fn another_request_gets_another_plan() {
    let scene = Scene::new(Profile::Write);
    scene.settle();
    let base = &scene.request;
    let with = |change: &dyn Fn(&mut Request)| {
        let mut request = base.clone();
        change(&mut request);
        find(&request, number()).expect("no refusal")
    };
    // Other arguments are put in.
    let words = vec!["tool".into(), "other".into(), "words".into()];
    let other = with(&|request| request.asked = Asked::Command(words.clone())).expect("the same plan");
    assert_eq!((&other.plan.argv, &other.plan.command), (&words, &words));
    let first = base.environment.clone();
    assert!(with(&|request| request.asked = Asked::Command(vec!["other".into()])).is_none());
    assert!(with(&|request| request.asked = Asked::Line("tool".into())).is_none());
    // It may name a file that a private /tmp would hide.
    assert!(with(&|request| request.asked = Asked::Command(vec!["tool".into(), "/tmp/x".into()])).is_none());
    assert!(with(&|request| request.cwd = scene.at("work/a")).is_none());
    assert!(with(&|request| request.environment = [first.clone(), vec![("B".into(), "c".into())]].concat()).is_none());
    assert!(with(&|request| request.flags.profile = Some(vec![Profile::Read])).is_none());
    assert!(with(&|request| request.config = None).is_none());
    assert!(with(&|request| request.keep_tmp = true).is_none());
    assert!(with(&|request| request.also_written = vec![Path::new("/var").to_owned()]).is_none());
    assert!(scene.is_found());
}

#[test]
fn another_guardian_program_means_another_plan() {
    let scene = Scene::new(Profile::Minimal);
    scene.settle();
    let another = number().map(|number| number + 1);
    // Other programs make files beside the scene; then the plan is not found any more.
    let found = |_: usize| {
        scene.settle();
        scene.is_found()
    };
    assert!((0..200).any(found));
    assert!(find(&scene.request, another).expect("no refusal").is_none());
}

#[test]
fn a_plan_that_was_supposed_wrongly_starts_nothing() {
    use crate::run::{Options, execute::execute, run};
    use crate::supervise::Embedding;
    let scene = Scene::new(Profile::Minimal);
    let request = Request { config: None, ..scene.request.clone() };
    let null = || Some(File::open("/dev/null").expect("there").into());
    let cancel = || rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("descriptors");
    let embedding = Embedding { streams: [null(), null(), null()], cancel: cancel() };
    let options = Options {
        capture: true,
        spill: None,
        signals: None,
        warn: &|_| {},
        outside: None,
        embedding: Some(&embedding),
        answerer: None,
        audit: None,
        refused: None,
    };
    let until = Instant::now() + Duration::from_secs(60);
    let supposed = || loop {
        let report = run(&request, &options);
        assert_eq!(report.exit_code, 0, "{report:?}");
        if let Some(prepared) = suppose(&request) {
            return prepared;
        }
        assert!(Instant::now() < until, "no plan is ever supposed");
        std::thread::sleep(Duration::from_millis(5));
    };
    // Other programs make files beside the scene; then the plan does not hold either.
    let right = |_: usize| execute(&supposed(), &options).is_ok_and(|(report, _)| report.exit_code == 0);
    assert!((0..200).any(right));

    let prepared = supposed();
    fs::write(scene.at("home/.npmrc"), "").expect("new");
    assert!(execute(&prepared, &options).is_err());
    assert!(prepared.supposed.as_ref().is_some_and(|supposed| !supposed.is_confirmed()));
    assert!(!is_known(&request) && suppose(&request).is_none());
    // A new plan is made.
    assert_eq!(run(&request, &options).exit_code, 0);
}

/// Bytes that change without a trace in the file's times: through a mapping whose page is dirty already.
#[test]
fn a_change_through_a_mapping_is_seen() {
    use std::io::{BufRead, BufReader, Write};
    let scene = Scene::new(Profile::Minimal);
    let script = "import mmap,sys\nf=open(sys.argv[1],'r+b'); m=mmap.mmap(f.fileno(),0)\nm[-1:]=m[-1:]\n\
                  print(flush=True); sys.stdin.readline(); m[40:41]=b'\\xff'; print(flush=True); sys.stdin.readline()";
    let mut python = std::process::Command::new("python3");
    let python = python.args(["-c", script]).arg(scene.at("second/tool"));
    let python = python.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn();
    let Ok(mut python) = python else { return eprintln!("SKIPPED: python3 is not installed") };
    let (mut input, output) = (python.stdin.take().expect("piped"), python.stdout.take().expect("piped"));
    let mut output = BufReader::new(output).lines();
    output.next().expect("mapped").expect("text");
    scene.settle();
    writeln!(input).expect("it reads");
    output.next().expect("changed").expect("text");
    assert!(!scene.is_found());
    drop(input);
    python.wait().expect("own child");
}
