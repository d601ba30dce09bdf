//! More attacks on `--ask`: mounts and links between a question and its answer, processes that change while they wait, floods,
//! and an answering side that does not follow.

use crate::ask::{always, ask, drive};
use crate::plumbing::{Place, eventually};
use crate::support::{has, is_root, skip};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

const WRITE: [&str; 4] = ["--profile", "write", "--", "python3"];

/// A script with `H`, the closed home, and `t`, which prints how a call ended.
fn script(place: &Place, body: &str) -> String {
    format!(
        "import ctypes,os,signal,socket,sys,threading,time\nlibc=ctypes.CDLL(None,use_errno=True)\nH='{}'\n\
         def t(n,f):\n try: f(); print(n,'ok')\n except OSError as e: print(n,os.strerror(e.errno))\n{body}",
        place.at("home").display()
    )
}

/// Mounts `from` over `to` in the mount namespace of a process.
fn mount(pid: &str, from: &Path, to: &Path) {
    let mut command = Command::new("nsenter");
    command.args(["-t", pid, "-m", "mount", "--bind"]).arg(from).arg(to);
    let output = command.output().expect("nsenter runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The approval holds for the file and the directory that were found when the question was made, whatever is mounted over them
/// then: in the namespace of the command, or in the one that gatekeeper shares with the user.
#[test]
fn a_mount_over_the_asked_path_changes_nothing() {
    if !is_root() {
        return skip("only root can mount in the namespace of another process");
    }
    for (where_, flags) in
        [("command", &[][..]), ("gatekeeper", &[][..]), ("gatekeeper", &["--isolate", "required"][..])]
    {
        if !flags.is_empty() && !crate::isolate::works() {
            continue;
        }
        // Not in /tmp, which is private inside bubblewrap.
        let top = Path::new("/var/tmp").join(format!("gatekeeper-mounted-{}", std::process::id()));
        let _ = fs::remove_dir_all(&top);
        fs::create_dir(&top).expect("/var/tmp is writable");
        let place = Place::below(top.clone(), None);
        for name in ["asked", "decoy"] {
            fs::create_dir(place.at(name)).expect("own directory");
            fs::write(place.at(name).join("file"), name).expect("own directory");
            fs::write(place.at(name).join("gone"), name).expect("own directory");
        }
        let (asked, decoy, report) = (place.at("asked"), place.at("decoy"), place.at("work/report.json"));
        let line = format!("echo written > {0}/file; rm {0}/gone; echo new > {0}/new", asked.display());
        let gatekeeper = crate::support::gatekeeper_for_all().to_str().expect("text");
        let report_text = report.to_str().expect("text");
        let words = ["-m", gatekeeper, "run", "--ask-fd", "9", "--report", report_text, "--profile", "write"];
        let mut command = place.any("/usr/bin/unshare".as_ref(), &[&words[..], flags, &["-c", &line]].concat());
        let mut mounted = 0;
        let ran = drive(
            &mut command,
            |question, ours| {
                let pid = question["pid"].to_string();
                let front = front_of(&pid);
                let path = question["path"].as_str().unwrap_or_default().to_owned();
                // The file itself the first time, then the directory. What was mounted before stays.
                let (from, to) = if path.ends_with("/file") {
                    (decoy.join("file"), asked.join("file"))
                } else {
                    (decoy.clone(), asked.clone())
                };
                if mounted < 2 {
                    mount(if where_ == "command" { &pid } else { &front }, &from, &to);
                }
                mounted += 1;
                always("once")(question, ours)
            },
            &report,
        );
        let text = |path: std::path::PathBuf| fs::read_to_string(path).unwrap_or_default();
        assert_eq!(text(asked.join("file")), "written\n", "{where_} {flags:?} {}", ran.done);
        assert!(!asked.join("gone").exists(), "{where_} {flags:?} {}", ran.done);
        assert_eq!(text(decoy.join("file")), "decoy", "{where_} {flags:?}");
        assert_eq!(text(decoy.join("gone")), "decoy", "{where_} {flags:?}");
        assert_eq!(ran.questions().len(), 3, "{where_} {flags:?} {}", ran.done);
        assert_eq!(ran.questions()[0]["path"], asked.join("file").to_str().expect("text"));
        assert_eq!(text(asked.join("new")) + &text(decoy.join("new")), "new\n", "it was made once");
        fs::remove_dir_all(&top).expect("own directory");
    }
}

/// gatekeeper's first process above the one that asks.
fn front_of(pid: &str) -> String {
    let parent = |pid: &String| -> Option<String> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let parent = stat.rsplit(") ").next()?.split(' ').nth(1)?.to_owned();
        (parent != "0" && parent != "1").then_some(parent)
    };
    let is_gatekeeper = |pid: &String| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.windows(9).any(|word| word == b"\0--ask-fd") && words.windows(10).any(|word| word == b"gatekeeper")
    };
    let above = std::iter::successors(Some(pid.to_owned()), parent).filter(is_gatekeeper);
    above.last().expect("gatekeeper runs it")
}

/// The asked name gets other files by links and renames from outside, after the question.
#[test]
fn a_name_that_gets_another_file_is_not_followed_to_it() {
    let place = Place::new(None);
    let home = place.at("home");
    for name in ["asked", "other"] {
        fs::write(home.join(name), name).expect("own directory");
    }
    let line = format!("echo written > {0}/asked; truncate -s 1 {0}/asked; chmod 600 {0}/other", home.display());
    let mut turn = 0;
    let ran = ask(&place, &["--profile", "write", "-c", &line], |question, ours| {
        turn += 1;
        match turn {
            // Another file takes the name, by rename.
            1 => {
                fs::hard_link(home.join("asked"), home.join("kept")).expect("own directory");
                fs::hard_link(home.join("other"), home.join("new")).expect("own directory");
                fs::rename(home.join("new"), home.join("asked")).expect("own directory");
            }
            // The file of the question gets a second name, which changes nothing either.
            2 => fs::hard_link(home.join("asked"), home.join("again")).expect("own directory"),
            _ => {}
        }
        always("once")(question, ours)
    });
    assert_eq!(fs::read_to_string(home.join("kept")).expect("there"), "written\n", "{}", ran.done);
    assert_eq!(turn, 3, "{}", ran.done);
    assert_eq!(fs::read_to_string(home.join("other")).expect("there").len(), 1, "by the second question: {}", ran.done);
}

/// A call that waits, and its process meanwhile: executes another program, forks, ends the thread, becomes another process.
#[test]
fn a_process_that_changes_while_it_waits_gets_nothing_it_was_not_given() {
    if !has("python3") {
        return;
    }
    let place = Place::new(None);
    let asks =
        "threading.Thread(target=lambda: t('late',lambda: open(H+'/x','w')),daemon=True).start(); time.sleep(0.3)\n";
    let ways = [
        ("executes", "os.execv('/bin/sh',['sh','-c','sleep 1; echo executed'])", "executed\n"),
        ("ends", "sys.stdout.flush(); os._exit(0)", ""),
        (
            "is replaced",
            "pid=os.fork()\nif pid==0: time.sleep(1); print('child'); os._exit(0)\nos.kill(os.getpid(),9)",
            "",
        ),
    ];
    for (name, way, printed) in ways {
        let ran =
            ask(&place, &[&WRITE[..], &["-c", &script(&place, &format!("{asks}{way}"))]].concat(), |question, _| {
                let pid = question["pid"].to_string();
                let thread = fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
                assert!(thread > 0 || !Path::new("/proc").join(&pid).exists());
                None
            });
        assert!(ran.done.stdout().starts_with(printed), "{name}: {}", ran.done);
        assert_eq!(ran.decisions(), ["deny withdrawn"], "{name}: {}", ran.done);
        assert!(!place.at("home/x").exists(), "{name}");
    }
    // The answer comes after the exec: nothing is injected into the new program.
    let way = "os.execv('/bin/sh',['sh','-c','echo > executed; while ! test -e answered; do sleep 0.1; done; ls /proc/self/fd | wc -l'])";
    let body = format!("{asks}{way}");
    let plain = place.run(&["run", "--profile", "write", "-c", "ls /proc/self/fd | wc -l"]);
    let ran = ask(&place, &[&WRITE[..], &["-c", &script(&place, &body)]].concat(), |question, ours| {
        eventually("it is executed", || place.at("work/executed").exists());
        let _ = (&*ours).write_all(format!("{}\n", json!({"id": question["id"], "decision": "run"})).as_bytes());
        fs::write(place.at("work/answered"), "").expect("own directory");
        None
    });
    ran.done.exits(0).prints(&plain.stdout());
}

/// /proc leads to files of other processes, and to roots and working directories that are not the caller's.
#[test]
fn links_of_proc_lead_to_no_question() {
    if !has("python3") {
        return;
    }
    let place = Place::new(None);
    fs::write(place.at("home/secret"), "s").expect("own directory");
    fs::create_dir(place.at("home/.ssh")).expect("own directory");
    fs::write(place.at("home/.ssh/id"), "key").expect("own directory");
    let body = "child=os.fork()\nif child==0: os.chdir(H); time.sleep(5); os._exit(0)\ntime.sleep(0.3)\n\
        P=os.getppid()\n\
        t('cwd of a child',lambda: open('/proc/%d/cwd/secret'%child,'w'))\n\
        t('root of a child',lambda: open('/proc/%d/root%s/.ssh/id'%(child,H)))\n\
        t('cwd of the guardian',lambda: open('/proc/%d/cwd/x'%P,'w'))\n\
        t('root of the guardian',lambda: open('/proc/%d/root%s/.ssh/id'%(P,H)))\n\
        t('memory of the guardian',lambda: open('/proc/%d/mem'%P,'w'))\n\
        t('map_files',lambda: os.listdir('/proc/%d/map_files'%P))\nos.kill(child,9)";
    let ran = ask(&place, &[&WRITE[..], &["-c", &script(&place, body)]].concat(), always("run"));
    ran.done.exits(0);
    assert!(!ran.done.stdout().contains(" ok"), "{}", ran.done);
    assert_eq!(ran.asked(), [""; 0], "{}", ran.done);
    // Its own links lead where they lead, and the question names that.
    let body = "os.chdir(H)\nt('own cwd',lambda: open('/proc/self/cwd/secret','w'))\n\
        t('own root',lambda: open('/proc/self/root'+H+'/.ssh/id').close())\n\
        f=os.open(H+'/secret',os.O_RDONLY)\nt('own descriptor',lambda: open('/proc/self/fd/%d'%f,'w'))\n\
        t('of a thread',lambda: open('/proc/self/task/%d/fd/%d'%(threading.get_native_id(),f),'w'))";
    let ran = ask(&place, &[&WRITE[..], &["-c", &script(&place, body)]].concat(), always("once"));
    ran.done.exits(0).prints("own cwd ok\nown root ok\nown descriptor ok\nof a thread ok\n");
    let secret = format!("write {}", place.at("home/secret").display());
    let expected = [&secret, &format!("read {}", place.at("home/.ssh/id").display()), &secret, &secret];
    assert_eq!(ran.asked().iter().collect::<Vec<_>>(), expected, "{}", ran.done);
}

/// 10,000 calls of 50 threads. Each is answered, and none hangs the supervisor.
#[test]
fn ten_thousand_questions_of_many_threads_are_answered() {
    if !has("python3") {
        return;
    }
    let place = Place::new(None);
    let body = "denied=[0]*50\n\
        def flood(n):\n\
        \u{20}for i in range(200):\n\
        \u{20} if libc.open(b'%s/%d-%d'%(H.encode(),n,i),os.O_WRONLY|os.O_CREAT,0o600)<0: denied[n]+=1\n\
        ts=[threading.Thread(target=flood,args=(n,)) for n in range(50)]\n\
        [x.start() for x in ts]; [x.join() for x in ts]; print(sum(denied))";
    let body = script(&place, body);
    let words = [&["--processes", "200"], &WRITE[..], &["-c", &body]].concat();
    let ran = ask(&place, &words, always("deny"));
    ran.done.exits(0).prints("10000\n");
    let ids: std::collections::BTreeSet<u64> = ran.questions().iter().filter_map(|line| line["id"].as_u64()).collect();
    assert_eq!((ids.len(), ids.last()), (10_000, Some(&10_000)), "each has its own number");
    assert_eq!(fs::read_dir(place.at("home")).expect("there").count(), 0);
    assert_eq!(ran.report["asked"].as_array().map_or(0, Vec::len), 1000, "the report keeps the first ones");
}

/// The other side takes questions and never reads them. The command interrupts its calls and makes them again.
#[test]
fn questions_that_nobody_reads_take_a_bounded_amount_of_memory() {
    if !has("python3") {
        return;
    }
    let place = Place::new(None);
    let body = "signal.signal(signal.SIGALRM,lambda *a: None)\nsignal.siginterrupt(signal.SIGALRM,True)\n\
        end=time.time()+4\nlong='x'*200\n\
        def flood(n):\n\
        \u{20}i=0\n\
        \u{20}while time.time()<end:\n\
        \u{20} i+=1; libc.open(b'%s/%d-%d-%s'%(H.encode(),n,i,long.encode()),os.O_WRONLY|os.O_CREAT,0o600)\n\
        for n in range(40):\n\
        \u{20}if os.fork()==0: signal.setitimer(signal.ITIMER_REAL,0.03,0.03); flood(n); os._exit(0)\n\
        for n in range(40): os.wait()\nprint('done')";
    let body = script(&place, body);
    let gatekeeper = crate::support::gatekeeper_for_all().to_str().expect("text");
    // Pipes: nobody reads the questions, and nobody writes answers.
    let hold = "exec 6<>fifo; exec 5<>fifo2; exec \"$0\" \"$@\" 6>fifo 5<fifo2";
    let made = "mkfifo fifo fifo2; ".to_owned() + hold;
    let words = ["-c", &made, gatekeeper, "run", "--ask-fd", "5,6", "--processes", "200", "--timeout", "60s"];
    let words = [&words[..], &WRITE[..], &["-c", &body]].concat();
    let mut command = place.any("/bin/bash".as_ref(), &words);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut most = 0;
    let status = loop {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let size =
            status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok());
        most = most.max(size.unwrap_or(0u64));
        match child.try_wait().expect("own child") {
            Some(status) => break status,
            None => std::thread::sleep(std::time::Duration::from_millis(20)),
        }
    };
    assert_eq!(status.code(), Some(0));
    assert!(most < 64 * 1024, "{most} KiB resident");
    assert_eq!(fs::read_dir(place.at("home")).expect("there").count(), 0);
}

/// Answers of a side that is confused, or of another run.
#[test]
fn an_odd_answer_denies_or_is_ignored_and_never_approves() {
    let write = |place: &Place| format!("echo x > {}/x", place.at("home").display());
    let odd: [(&str, &str); 12] = [
        ("a fraction", r#"{"id": 1.0, "decision": "once"}"#),
        ("a text", r#"{"id": "1", "decision": "once"}"#),
        ("a number that is too large", r#"{"id": 18446744073709551617, "decision": "once"}"#),
        ("the largest number", r#"{"id": 18446744073709551615, "decision": "once"}"#),
        ("a negative number", r#"{"id": -1, "decision": "once"}"#),
        ("zero", r#"{"id": 0, "decision": "once"}"#),
        ("of another run", r#"{"id": 2, "decision": "run"}"#),
        ("two numbers", r#"{"id": 1, "id": 1, "decision": "once"}"#),
        ("two decisions", r#"{"id": 1, "decision": "deny", "decision": "once"}"#),
        ("more keys", r#"{"id": 1, "decision": "once", "path": "/"}"#),
        ("capitals", r#"{"id": 1, "decision": "ONCE"}"#),
        ("two answers in a line", r#"{"id": 1, "decision": "once"} {"id": 1, "decision": "once"}"#),
    ];
    for (name, line) in odd {
        let place = Place::new(None);
        let ran = ask(&place, &["--profile", "write", "-c", &write(&place)], |_, _| Some(line.to_owned()));
        ran.done.exits(2);
        assert_eq!(ran.decisions(), ["deny invalid"], "{name}: {}", ran.done);
        assert!(!place.at("home/x").exists(), "{name}");
    }
    for bytes in
        [&b"{\"id\": 1, \"decision\": \"once\"\0}\n"[..], b"\0{\"id\": 1, \"decision\": \"once\"}\n", b"\xff\xfe\n"]
    {
        let place = Place::new(None);
        let ran = ask(&place, &["--profile", "write", "-c", &write(&place)], |_, mut ours| {
            ours.write_all(bytes).expect("it reads");
            None
        });
        assert_eq!(ran.decisions(), ["deny invalid"], "{bytes:?}: {}", ran.done);
    }
    // A second answer to the same question comes too late, and approves nothing else.
    let place = Place::new(None);
    let line = format!("{0}; {0}2", write(&place));
    let mut first = true;
    let ran = ask(&place, &["--profile", "write", "-c", &line], |question, mut ours| {
        if std::mem::take(&mut first) {
            let twice = format!("{0}\n{0}\n", json!({"id": question["id"], "decision": "once"}));
            ours.write_all(twice.as_bytes()).expect("it reads");
            return None;
        }
        Some(json!({"id": question["id"], "decision": "deny"}).to_string())
    });
    assert_eq!(ran.decisions(), ["once answer", "deny answer"], "{}", ran.done);
    assert!(place.at("home/x").exists() && !place.at("home/x2").exists());
    // An answer before its question.
    let place = Place::new(None);
    let line = format!("{}; {}2", write(&place), write(&place));
    let ran = ask(&place, &["--profile", "write", "-c", &line], |question, mut ours| {
        let id = question["id"].as_u64().unwrap_or(0);
        let early = format!("{}\n", json!({"id": id + 1, "decision": "run"}));
        ours.write_all(early.as_bytes()).expect("it reads");
        None
    });
    assert_eq!(ran.decisions(), ["deny invalid"; 2], "{}", ran.done);
}

#[test]
fn the_time_to_answer_may_be_nothing_or_very_long() {
    let place = Place::new(None);
    let line = format!("echo x > {}/x", place.at("home").display());
    let none = ask(&place, &["--ask-timeout", "0s", "--profile", "write", "-c", &line], |_, _| None);
    none.done.exits(2);
    assert_eq!(none.decisions(), ["deny timeout"], "{}", none.done);
    for long in ["100000d", "9999999999999s", "18446744073709551615s"] {
        let ran = ask(&place, &["--ask-timeout", long, "--profile", "write", "-c", &line], always("once"));
        match ran.done.code() {
            // Or it is said to be too long, and nothing runs.
            Some(2 | 125) => assert!(ran.done.stderr().contains("--ask-timeout"), "{}", ran.done),
            code => assert_eq!((code, ran.decisions().len()), (Some(0), 1), "{}", ran.done),
        }
    }
}

/// Stopped, gatekeeper decides nothing; continued, it goes on where it was.
#[test]
fn a_gatekeeper_that_is_stopped_opens_nothing_meanwhile() {
    let place = Place::new(None);
    let line = format!("echo x > {}/x; echo went on", place.at("home").display());
    let ran = ask(&place, &["--profile", "write", "-c", &line], |question, mut ours| {
        let front: u32 = front_of(&question["pid"].to_string()).parse().expect("a number");
        crate::plumbing::signal(front, "STOP");
        ours.write_all(format!("{}\n", json!({"id": question["id"], "decision": "once"})).as_bytes()).expect("open");
        let state = || fs::read_to_string(format!("/proc/{front}/stat")).unwrap_or_default();
        eventually("it is stopped", || state().contains(") T "));
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert!(!place.at("home/x").exists());
        crate::plumbing::signal(front, "CONT");
        None
    });
    ran.done.exits(0).prints("went on\n");
    assert!(place.at("home/x").exists());
}

/// Names, arguments and command names are the program's own words. In the JSON they stay inside of their strings.
#[test]
fn forged_text_stays_inside_of_its_question() {
    if !has("python3") {
        return;
    }
    let place = Place::new(None);
    let forged = "x\",\"decision\":\"once\"}\n{\"id\":2,\"decision\":\"run\"}\r\u{1b}]0;y\u{7}\u{202e}";
    let body = "name=sys.argv[1]\nlibc.prctl(15,name.encode()[:15],0,0,0)\nt('open',lambda: open(H+'/'+name,'w'))";
    let body = script(&place, body);
    let words = [&WRITE[..], &["-c", &body, forged]].concat();
    let ran = ask(&place, &words, always("deny"));
    ran.done.exits(0).prints("open Permission denied\n");
    let [question] = ran.questions()[..] else { panic!("one question: {:?}", ran.lines) };
    assert_eq!(question["path"], format!("{}/{forged}", place.at("home").display()));
    assert_eq!(question["argv"].as_array().and_then(|argv| argv.last()), Some(&Value::from(forged)));
    assert!(question["comm"].as_str().is_some_and(|comm| comm.starts_with("x\",\"decision")), "{question}");
}
