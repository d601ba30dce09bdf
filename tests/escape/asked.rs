//! Attacks on `--ask`: what changes between a question and its answer must not change what is opened.

use crate::ask::{always, ask};
use crate::plumbing::{Place, users};
use crate::support::has;
use std::fs;

/// Runs a Python script with one thread that attacks, under profile write; `SECRET` is closed, `home` is asked.
fn script(place: &Place, body: &str) -> String {
    format!("import os,threading,time,socket\nH='{}'\n{body}", place.at("home").display())
}

#[test]
fn a_link_that_is_swapped_while_the_question_waits_leads_nowhere() {
    if !has("python3") {
        return;
    }
    for user in users() {
        let place = Place::new(user);
        fs::write(place.at("home/asked"), "asked\n").expect("own directory");
        fs::write(place.at("home/other"), "other\n").expect("own directory");
        fs::set_permissions(place.at("home/asked"), std::os::unix::fs::PermissionsExt::from_mode(0o666)).expect("own");
        fs::set_permissions(place.at("home/other"), std::os::unix::fs::PermissionsExt::from_mode(0o666)).expect("own");
        // The link is in the writable tree, and is replaced as soon as the question is out.
        let body = "os.symlink(H+'/asked','l')\n\
            def swap():\n time.sleep(0.5); os.symlink(H+'/other','m'); os.rename('m','l'); open('swapped','w').close()\n\
            t=threading.Thread(target=swap); t.start()\nf=open('l','w'); f.write('written\\n'); f.close(); t.join()";
        let ran =
            ask(&place, &["--profile", "write", "--", "python3", "-c", &script(&place, body)], |question, ours| {
                crate::plumbing::eventually("the link is swapped", || place.at("work/swapped").exists());
                always("once")(question, ours)
            });
        ran.done.exits(0);
        assert_eq!(ran.asked(), [format!("write {}", place.at("home/asked").display())]);
        assert_eq!(fs::read_to_string(place.at("home/asked")).expect("there"), "written\n");
        assert_eq!(fs::read_to_string(place.at("home/other")).expect("there"), "other\n");
    }
}

#[test]
fn a_path_that_changes_in_memory_or_a_directory_that_moves_changes_nothing() {
    if !has("python3") {
        return;
    }
    let place = Place::new(None);
    // The buffer that holds the path, and the descriptor that it is relative to, are replaced while the call waits.
    let body = "import ctypes\nlibc=ctypes.CDLL(None,use_errno=True)\n\
        path=ctypes.create_string_buffer((H+'/asked').encode(),4096)\n\
        def change():\n time.sleep(0.5); path.value=(H+'/other').encode(); open('swapped','w').close()\n\
        t=threading.Thread(target=change); t.start()\n\
        fd=libc.open(path,os.O_WRONLY|os.O_CREAT,0o600); os.write(fd,b'x'); t.join()\n\
        d=os.open(H,os.O_PATH); e=os.open('/etc',os.O_PATH)\n\
        def close():\n time.sleep(0.5); os.dup2(e,d); open('swapped2','w').close()\n\
        t=threading.Thread(target=close); t.start()\n\
        f=os.open('relative',os.O_WRONLY|os.O_CREAT,0o600,dir_fd=d); t.join(); print(os.readlink('/proc/self/fd/%d'%f))";
    let mut turn = 0;
    let ran = ask(&place, &["--profile", "write", "--", "python3", "-c", &script(&place, body)], |question, ours| {
        turn += 1;
        let mark = place.at(if turn == 1 { "work/swapped" } else { "work/swapped2" });
        crate::plumbing::eventually("it is swapped", || mark.exists());
        always("once")(question, ours)
    });
    let home = place.at("home");
    ran.done.exits(0).prints(&format!("{}/relative\n", home.display()));
    assert!(home.join("asked").exists() && !home.join("other").exists() && home.join("relative").exists());
    let asked = ran.asked();
    assert_eq!(asked, [format!("write {}/asked", home.display()), format!("write {}/relative", home.display())]);
}

#[test]
fn a_name_that_becomes_a_link_is_not_followed() {
    let place = Place::new(None);
    let other = place.at("other");
    let new = place.at("home/new");
    // A process outside puts a link there between question and answer.
    let line = format!("echo x > {}", new.display());
    let ran = ask(&place, &["--profile", "write", "-c", &line], |question, ours| {
        std::os::unix::fs::symlink(&other, &new).expect("own directory");
        always("once")(question, ours)
    });
    ran.done.exits(2);
    assert!(!other.exists(), "{}", ran.done);
}

#[test]
fn an_approved_directory_leads_to_nothing_else() {
    if !has("python3") {
        return;
    }
    let place = Place::new(None);
    fs::create_dir(place.at("home/out")).expect("own directory");
    fs::write(place.at("home/secret"), "s").expect("own directory");
    let body = "o=H+'/out'\nopen(o+'/first','w').close()\ntried=[]\n\
        def attempt(f):\n\
        \u{20}try: f(); tried.append('OK')\n\
        \u{20}except OSError as e: tried.append(os.strerror(e.errno))\n\
        os.symlink(H,o+'/up')\n\
        attempt(lambda: open(o+'/up/secret','w'))\n\
        attempt(lambda: os.link(H+'/secret',o+'/hard'))\n\
        attempt(lambda: os.rename(H+'/secret',o+'/moved'))\n\
        attempt(lambda: os.rename(o+'/first',H+'/elsewhere'))\n\
        attempt(lambda: open(o+'/../secret','w'))\n\
        d=os.open(o,os.O_RDONLY)\n\
        attempt(lambda: open('/proc/self/fd/%d/../secret'%d,'w'))\n\
        attempt(lambda: os.chmod(o+'/up/secret',0o777))\n\
        print(*sorted(set(tried)),sep=',')";
    let mut first = true;
    let ran = ask(&place, &["--profile", "write", "--", "python3", "-c", &script(&place, body)], |question, ours| {
        let at = question["path"].as_str().unwrap_or_default().to_owned();
        let out = place.at("home/out");
        let decision = if first || at.starts_with(out.to_str().expect("text")) { "run" } else { "deny" };
        // The first question names the file; approve the directory by its next one.
        first = false;
        always(decision)(question, ours)
    });
    ran.done.exits(0).prints("Operation not permitted,Permission denied\n");
    assert_eq!(fs::read_to_string(place.at("home/secret")).expect("still there"), "s", "{}", ran.done);
}

#[test]
fn gatekeepers_own_files_and_the_kernels_are_never_asked() {
    let place = Place::new(None);
    let policy = place.at("p.toml");
    fs::write(&policy, "profile = \"write\"\n").expect("own directory");
    fs::create_dir_all(place.at("work/.git/hooks")).expect("own directory");
    fs::write(place.at("work/.git/config"), "").expect("own directory");
    fs::write(place.at("work/.git/HEAD"), "ref: refs/heads/main\n").expect("own directory");
    let line = format!(
        "echo x >> {0}; mv {0} {0}.old; rm {0}; chmod 777 {0}; echo x > .git/hooks/pre-commit; mv .git git2; echo x > report.json; \
         cat /proc/1/environ; echo 5 > /proc/self/oom_score_adj; echo x > /proc/$PPID/mem; echo x > /proc/sys/kernel/domainname; \
         ls /proc/$PPID/fd; true",
        policy.display()
    );
    let ran = ask(&place, &["--config", policy.to_str().expect("text"), "-c", &line], always("run"));
    ran.done.exits(0);
    assert_eq!(ran.asked(), [""; 0], "{}", ran.done);
    assert_eq!(fs::read_to_string(&policy).expect("still there"), "profile = \"write\"\n");
    assert!(!place.at("work/.git/hooks/pre-commit").exists() && place.at("work/.git").exists());
}

#[test]
fn a_flood_of_questions_ends_with_the_run() {
    let place = Place::new(None);
    let line = format!("for i in $(seq 300); do (echo $i > {}/$i) & done; wait; echo done", place.at("home").display());
    let words = ["--timeout", "3s", "--processes", "500", "--profile", "write", "-c", &line];
    let ran = ask(&place, &words, |_, _| None);
    ran.done.exits(124);
    // At the end the first ones are withdrawn, and others take their place.
    let open = ran.lines.iter().scan(0i32, |open, line| {
        *open += if line.get("withdrawn").is_some() { -1 } else { 1 };
        Some(*open)
    });
    assert_eq!(open.max(), Some(64), "the rest waits");
    assert_eq!(fs::read_dir(place.at("home")).expect("there").count(), 0);
}

/// The supervisor opens an approved FIFO on a thread, which waits for the other end, also after the call was killed.
#[test]
fn opens_that_block_hold_a_bounded_number_of_threads() {
    if !has("python3") {
        return;
    }
    let place = Place::new(None);
    let body = "import signal\nos.mkfifo(H+'/f')\npids=[]\n\
        for _ in range(100):\n\
        \u{20}pid=os.fork()\n\
        \u{20}if pid==0:\n\
        \u{20} try: os.open(H+'/f',os.O_WRONLY); os._exit(0)\n\
        \u{20} except OSError as e: os._exit(e.errno)\n\
        \u{20}pids.append(pid)\n\
        print(*{os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(36)})\n\
        for pid in pids:\n\
        \u{20}try: os.kill(pid,signal.SIGKILL)\n\
        \u{20}except ProcessLookupError: pass";
    let words = ["--profile", "write", "--processes", "300", "--", "python3", "-c", &script(&place, body)];
    let ran = ask(&place, &words, always("run"));
    ran.done.exits(0).prints(&format!("{}\n", libc::EAGAIN));
    assert_eq!(ran.asked(), [format!("write {}", place.at("home/f").display())]);
}
