//! `--ask` with `--isolate`: the gatekeeper outside of bubblewrap asks, and opens what is approved through its own mounts.

use super::each::{home, names, outcomes, was_all_made};
use super::{Ran, always, ask};
use crate::isolate::works;
use crate::plumbing::{Place, users};
use crate::support::{has, probe};
use std::fs;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

/// A place outside of /tmp, which is a private directory inside bubblewrap. Removed at the end.
pub(crate) struct Elsewhere(Place);

impl Elsewhere {
    pub(crate) fn new(user: Option<u32>) -> Elsewhere {
        static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let top = format!("/var/tmp/gatekeeper-asked-{}-{count}", std::process::id());
        fs::create_dir(&top).expect("/var/tmp is writable");
        Elsewhere(Place::below(top.into(), user))
    }

    /// Runs a Python script isolated, with `H` as the home.
    #[track_caller]
    fn python(
        &self,
        body: &str,
        answer: impl FnMut(&serde_json::Value, &std::os::unix::net::UnixStream) -> Option<String>,
    ) -> Ran {
        let script = format!("import os,sys,socket,threading,time\nH='{}'\n{PYTHON}{body}", self.at("home").display());
        ask(self, &["--isolate", "required", "--profile", "write", "--", "python3", "-c", &script], answer)
    }

    #[track_caller]
    fn line(&self, line: &str, decision: &str) -> Ran {
        ask(self, &["--isolate", "required", "--profile", "write", "-c", line], always(decision))
    }
}

/// Prints how a call ended.
const PYTHON: &str =
    "def t(n, f):\n try: r = f(); print(n, 'ok'); return r\n except OSError as e: print(n, os.strerror(e.errno))\n";

impl Deref for Elsewhere {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.0
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = self.at("work").parent().map(fs::remove_dir_all);
    }
}

#[test]
fn every_call_is_carried_out_after_a_yes_and_fails_after_a_no() {
    if !works() || !has("python3") {
        return;
    }
    for user in users() {
        let place = Elsewhere::new(user);
        let _listener = home(&place);
        let (ended, asked) = outcomes(&place, &["--isolate", "required"], "deny");
        let before = names(&place);
        let wrong = |(name, how): &(&String, &String)| {
            let expected = match name.as_str() {
                // The network is a private one: nothing to ask about.
                "listen" => "ok",
                "connect to an address" => "ECONNREFUSED",
                // The file does not exist inside, and a no leaves it so.
                "create" | "create exclusively" | "create unnamed" | "mkdir" | "symlink" | "mkfifo" | "bind" => {
                    "EACCES"
                }
                _ => "ENOENT",
            };
            how.as_str() != expected
        };
        assert!(!ended.iter().any(|call| wrong(&call)), "denied: {:?}", ended.iter().filter(wrong).collect::<Vec<_>>());
        assert_eq!((ended.len(), asked.len()), (27, 24), "{asked:?}");
        assert_eq!(before, [".ssh", "connect", "cut", "empty", "file", "gone", "old", "short"], "nothing was done");

        let (mut ended, asked) = outcomes(&place, &["--isolate", "required"], "once");
        let private: Vec<_> =
            ["chdir", "connect to an address"].iter().filter_map(|name| ended.remove(*name)).collect();
        assert_eq!(private, ["ENOENT", "ECONNREFUSED"]);
        assert!(ended.values().all(|how| how == "ok"), "approved: {ended:?}");
        // A rename and a link have two names each; fchmod has to open the file first.
        assert_eq!(asked.len(), 27, "{asked:?}");
        was_all_made(&place);
    }
}

#[test]
fn what_is_not_mounted_is_asked_by_its_path_and_both_ways_of_naming_it_are_shown() {
    if !works() {
        return;
    }
    for user in users() {
        let place = Elsewhere::new(user);
        fs::write(place.at("home/note"), "note\n").expect("own directory");
        std::os::unix::fs::symlink(place.at("home/note"), place.at("work/link")).expect("own directory");
        let ran = place.line("cat link; cat ../home/note; cat ../home/none", "run");
        ran.done.prints("note\nnote\n");
        let note = place.at("home/note");
        assert_eq!(ran.asked(), [format!("read {}", note.display())], "{}", ran.done);
        assert_eq!(ran.questions()[0]["named"], "link");
        assert_eq!(ran.decisions(), ["run answer"]);
        assert_eq!(ran.questions()[0]["allow_with"], format!("--read {}", note.display()));
        place.line("cat link", "deny").done.exits(1).prints("");
    }
}

/// A descriptor of a directory outside would lead to everything, past the mounts of the program.
#[test]
fn directories_and_what_is_private_inside_are_never_asked() {
    if !works() || !has("python3") {
        return;
    }
    for user in users() {
        let place = Elsewhere::new(user);
        fs::create_dir(place.at("home/d")).expect("own directory");
        let secret = crate::support::fresh("private").join("secret");
        fs::write(&secret, "s").expect("own directory");
        fs::create_dir_all(place.at("work/.git/hooks")).expect("own directory");
        let body = format!(
            "t('directory', lambda: os.open(H+'/d', os.O_RDONLY))\n\
             t('by O_PATH', lambda: os.open(H+'/d', os.O_PATH))\n\
             t('list', lambda: os.listdir(H+'/d'))\n\
             t('root', lambda: os.open('/proc/self/root/var', os.O_RDONLY))\n\
             t('tmp', lambda: open('{0}'))\n\
             t('tmp by another name', lambda: open('/var/../{0}'))\n\
             t('hooks', lambda: open('.git/hooks/pre-commit', 'w'))\n\
             t('kernel', lambda: open('/proc/sys/kernel/hostname', 'w'))\n\
             t('move', lambda: os.rename('/tmp', H+'/tmp'))\n\
             t('tree', lambda: os.rename(os.getcwd(), H+'/work'))",
            secret.display()
        );
        let ran = place.python(&body, always("once"));
        ran.done.exits(0);
        assert_eq!(ran.asked(), [""; 0], "{}", ran.done);
        assert!(!ran.done.stdout().lines().any(|line| line.ends_with(" ok") && line != "root ok"), "{}", ran.done);
        assert!(!place.at("work/.git/hooks/pre-commit").exists() && !place.at("home/work").exists());
    }
}

/// Landlock grants the whole tree, so only the mount keeps a closed file in it from being written. What is handed in must not
/// lead around it.
#[test]
fn a_closed_file_in_a_writable_tree_can_be_read_but_not_written_after_a_yes() {
    if !has("python3") {
        return;
    }
    for user in users() {
        for flags in crate::isolate::ways() {
            let place = Elsewhere::new(user);
            fs::write(place.at("work/.env"), "KEY=1\n").expect("own directory");
            fs::set_permissions(place.at("work/.env"), PermissionsExt::from_mode(0o666)).expect("own file");
            // One thread exchanges two paths of the same length for the time between the check and the call.
            let body = "import ctypes\nlibc=ctypes.CDLL(None)\n\
                f=os.open('.env',os.O_RDONLY); print(os.read(f,100).decode(),end='')\n\
                bad=('/proc/self/fd/%d'%f).encode(); good=b'./'+b'/'*(len(bad)-3)+b'x'\n\
                open('x','w').close()\n\
                path=ctypes.create_string_buffer(good,len(bad)+1)\nstop=False\n\
                def swap():\n\
                \u{20}while not stop: path.value=bad; path.value=good\n\
                threading.Thread(target=swap).start()\nend=time.time()+2\n\
                while time.time()<end:\n\
                \u{20}d=libc.open(path,os.O_RDWR)\n\
                \u{20}if d>=0: libc.write(d,b'HACKED',6); os.close(d)\n\
                stop=True";
            let script = format!("import os,threading,time\n{body}");
            let words = [flags, &["--profile", "write", "--", "python3", "-c", &script][..]].concat();
            let ran = ask(&place, &words, |question, ours| {
                always(if question["access"] == "read" { "once" } else { "deny" })(question, ours)
            });
            ran.done.exits(0).prints("KEY=1\n");
            assert_eq!(ran.asked()[0], format!("read {}", place.at("work/.env").display()));
            assert_eq!(fs::read_to_string(place.at("work/.env")).expect("there"), "KEY=1\n", "{flags:?} {}", ran.done);
        }
    }
}

#[test]
fn sockets_and_names_are_asked_outside() {
    if !works() || !has("python3") || !has("curl") {
        return;
    }
    for user in users() {
        let place = Elsewhere::new(user);
        let unix = place.at("home/s");
        let listener = UnixListener::bind(&unix).expect("a short path");
        fs::set_permissions(&unix, PermissionsExt::from_mode(0o777)).expect("own file");
        let greets = std::thread::spawn(move || {
            use std::io::Write;
            listener.accept().expect("a client").0.write_all(b"hello").expect("it listens");
        });
        let body = "s=socket.socket(socket.AF_UNIX); s.connect(H+'/s'); print(s.recv(9).decode())";
        let ran = place.python(body, always("once"));
        ran.done.exits(0).prints("hello\n");
        greets.join().expect("the server");
        assert_eq!(ran.asked(), [format!("connect {}", unix.display())]);
        assert_eq!(ran.questions()[0]["kind"], "socket");

        let server = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("loopback");
        let port = server.local_addr().expect("bound").port();
        std::thread::spawn(move || {
            use std::io::{Read, Write};
            for mut client in server.incoming().flatten() {
                let _ = client.read(&mut [0; 1000]);
                let _ = client.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok");
            }
        });
        let line =
            format!("curl -s --noproxy '' http://localhost:{port}/; curl -s --noproxy '' http://localhost:{port}/");
        let ran = place.line(&line, "run");
        ran.done.exits(0).prints("okok");
        assert_eq!(ran.asked(), [format!("connect localhost:{port}"), format!("connect 127.0.0.1:{port}")]);
        place.line(&format!("curl -sf --noproxy '' http://localhost:{port}/"), "deny").done.exits(22);
    }
}

/// Between the question and its answer: the link in the tree, the path in memory and the directory descriptor change.
#[test]
fn what_changes_while_the_question_waits_changes_nothing() {
    if !works() || !has("python3") {
        return;
    }
    let place = Elsewhere::new(None);
    for name in ["asked", "other"] {
        fs::write(place.at("home").join(name), name).expect("own directory");
    }
    let body = "import ctypes\nlibc=ctypes.CDLL(None)\n\
        os.symlink(H+'/asked','l'); p=ctypes.create_string_buffer(b'l',4096)\n\
        def change():\n time.sleep(0.3); os.symlink(H+'/other','m'); os.rename('m','l'); p.value=(H+'/other').encode(); \
        open('swapped','w').close()\n\
        t=threading.Thread(target=change); t.start()\n\
        f=libc.open(p,os.O_WRONLY|os.O_TRUNC); os.write(f,b'written'); t.join()";
    let ran = place.python(body, |question, ours| {
        crate::plumbing::eventually("it is swapped", || place.at("work/swapped").exists());
        always("once")(question, ours)
    });
    ran.done.exits(0);
    assert_eq!(ran.asked(), [format!("write {}", place.at("home/asked").display())]);
    let text = |name: &str| fs::read_to_string(place.at("home").join(name)).expect("there");
    assert_eq!((text("asked"), text("other")), ("written".to_owned(), "other".to_owned()));
}

#[test]
fn the_stage_stays_the_only_place_that_is_written() {
    if !works() || !has("python3") {
        return;
    }
    let place = Elsewhere::new(None);
    fs::write(place.at("work/a"), "a\n").expect("own directory");
    let line = "echo b > a; echo c > ../home/c; mv a ../home/a; mv ../home/c c";
    let words = ["--isolate", "required", "--profile", "write", "--stage", "asked", "-c", line];
    let ran = ask(&place, &words, always("once"));
    assert_eq!(fs::read_to_string(place.at("work/a")).expect("there"), "a\n", "{}", ran.done);
    assert!(!place.at("work/c").exists(), "{}", ran.done);
    assert_eq!(fs::read_to_string(place.at("home/a")).expect("copied by mv"), "b\n", "{}", ran.done);
    place.run(&["stage", "discard", "asked"]).exits(0);
}

#[test]
fn signals_limits_and_threads_work_while_a_question_waits() {
    if !works() || !has("python3") {
        return;
    }
    for user in users() {
        let place = Elsewhere::new(user);
        // A handler without SA_RESTART ends the wait; threads ask at the same time, and by their own numbers.
        let body = "import signal\nfor n in range(4): open('r%d'%n,'w').close()\n\
            signal.signal(signal.SIGALRM, lambda *a: (_ for _ in ()).throw(InterruptedError()))\n\
            signal.setitimer(signal.ITIMER_REAL, 0.3)\n\
            try: open(H+'/interrupted','w')\nexcept InterruptedError: print('interrupted')\n\
            ts=[threading.Thread(target=lambda n=n: open(H+'/%d'%n,'w').write('x')) for n in range(8)]\n\
            [t.start() for t in ts]; [t.join() for t in ts]; print('done')";
        let ran = place.python(body, |question, ours| {
            let interrupted = question["path"].as_str().is_some_and(|path| path.ends_with("interrupted"));
            if interrupted { None } else { always("once")(question, ours) }
        });
        ran.done.exits(0).prints("interrupted\ndone\n");
        assert!((0..8).all(|name| place.at("home").join(name.to_string()).exists()), "{}", ran.done);
        assert_eq!(ran.lines.iter().filter(|line| line["withdrawn"] == true).count(), 1);
        assert!(!place.at("home/interrupted").exists());

        let line = format!("echo x > {}/late", place.at("home").display());
        let words = ["--isolate", "required", "--profile", "write", "--timeout", "1s", "-c", &line];
        ask(&place, &words, |_, _| None).done.exits(124);
        let words = ["--isolate", "required", "--profile", "write", "--ask-timeout", "1s", "-c", &line];
        let ran = ask(&place, &words, |_, _| None);
        ran.done.exits(2);
        assert_eq!(ran.decisions(), ["deny timeout"]);
        assert!(!place.at("home/late").exists());
    }
}

#[test]
fn the_user_at_the_terminal_answers_and_the_command_is_stopped_meanwhile() {
    if !works() || !has("bash") {
        return;
    }
    for user in users() {
        let place = Elsewhere::new(user);
        let gatekeeper = crate::support::gatekeeper_for_all().to_str().expect("text");
        let line = format!(
            "echo x > {0}/1; (echo y > {0}/2); echo after-\"all\"; read word; echo got-$word",
            place.at("home").display()
        );
        let steps = ["</1;", "<more: ", ">y", "</2;", "<more: ", ">a", "<after-all", ">hello\\r", "<got-hello"];
        let words =
            ["run", "--ask", "--isolate", "required", "--profile", "write", "--", "bash", "--norc", "-c", &line];
        let all: Vec<&str> = steps.into_iter().chain(["--", gatekeeper]).chain(words).collect();
        let mut command = place.any(&probe("pty", &[]), &all);
        command.env("TERM", "xterm");
        crate::support::run(&mut command).exits(0);
        assert!(place.at("home/1").exists() && place.at("home/2").exists());
    }
}

/// Without bubblewrap, `preferred` asks as if isolation had not been requested. gatekeeper executes only a bubblewrap that belongs
/// to root, so a broken one is mounted.
#[test]
fn a_run_that_cannot_be_isolated_still_asks() {
    let place = Elsewhere::new(None);
    let policy = "profile = \"write\"\n[bubblewrap]\nmode = \"preferred\"\npath = \"/opt/bwrap\"\n";
    fs::write(place.at("p.toml"), policy).expect("own directory");
    let install = "mount -t tmpfs -o mode=755 tmpfs /opt; printf '#!/bin/sh\\nexit 3\\n' > /opt/bwrap; chmod 755 /opt/bwrap; \
                   exec \"$@\"";
    let how = if crate::support::is_root() { "-m" } else { "-rm" };
    let (report, asked) = (place.at("work/report.json"), place.at("home/x"));
    let text = |path: &std::path::Path| path.to_str().expect("text").to_owned();
    let (gatekeeper, policy) = (text(crate::support::gatekeeper_for_all()), text(&place.at("p.toml")));
    let report_text = text(&report);
    let line = format!("echo x > {}", asked.display());
    let own = ["run", "--ask-fd", "9", "--report", &report_text, "--config", &policy, "-c", &line];
    let words = [&[how, "sh", "-ec", install, "sh", &gatekeeper][..], &own].concat();
    let mut command = place.any("/usr/bin/unshare".as_ref(), &words);
    let ran = super::drive(&mut command, always("once"), &report);
    ran.done.exits(0);
    assert!(ran.done.stderr().contains("not isolated"), "{}", ran.done);
    assert_eq!(ran.asked(), [format!("write {}", asked.display())], "{}", ran.done);
    assert!(asked.exists());
}
