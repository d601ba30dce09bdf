//! Each call that can be asked, carried out as the program would have done it.

use super::{always, ask};
use crate::plumbing::{Place, users};
use crate::support::has;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

#[test]
fn a_refused_file_is_made_once_and_belongs_to_the_user() {
    for user in users() {
        let place = Place::new(user);
        let new = place.at("home/new");
        let new = new.to_str().expect("text");
        let line = format!("umask 027; echo hi > {new}; cat {new}; echo again > {new}");
        let mut left = 1;
        let ran = ask(&place, &["--profile", "write", "-c", &line], |question, ours| {
            left -= 1;
            always(if left == 0 { "once" } else { "deny" })(question, ours)
        });
        ran.done.exits(2).prints("hi\n");
        assert_eq!(ran.asked(), [format!("write {new}"), format!("write {new}")], "{}", ran.done);
        let question = ran.questions()[0].clone();
        assert_eq!((&question["kind"], &question["syscall"]), (&"path".into(), &"openat".into()), "{question}");
        let home = place.at("home");
        assert_eq!(question["allow_with"], format!("--write {}", home.display()), "{question}");
        let meta = fs::metadata(new).expect("it was made");
        let me = user.unwrap_or_else(|| rustix::process::geteuid().as_raw());
        assert_eq!((meta.uid(), meta.mode() & 0o777), (me, 0o640));
        assert_eq!(ran.decisions(), ["once answer", "deny answer"]);
        assert_eq!(ran.report["denials"].as_array().map(Vec::len), Some(1), "{}", ran.report);
    }
}

#[test]
fn what_is_approved_for_the_run_holds_for_everything_below() {
    for user in users() {
        let place = Place::new(user);
        let top = place.at("home/d");
        let top = top.to_str().expect("text");
        let line = format!(
            "umask 027; mkdir {top} && echo x > {top}/a && mv {top}/a {top}/b && ln {top}/b {top}/c && ln -s /etc {top}/l \
             && mkfifo {top}/f && chmod 600 {top}/b && truncate -s 5 {top}/b && touch -d @5 {top}/c && stat -c '%n %a %s %Y' {top}/b \
             {top}/f && cat {top}/l/hostname > /dev/null && rm -r {top}"
        );
        let ran = ask(&place, &["--profile", "write", "-c", &line], always("run"));
        ran.done.exits(0);
        assert_eq!(ran.done.stdout().lines().next(), Some(format!("{top}/b 600 5 5").as_str()), "{}", ran.done);
        assert!(ran.done.stdout().contains(&format!("{top}/f 640 0")), "{}", ran.done);
        assert_eq!(ran.asked(), [format!("write {top}")], "{}", ran.done);
        assert!(!place.at("home/d").exists());
    }
}

#[test]
fn calls_that_the_profile_lacks_are_asked_too() {
    let place = Place::new(None);
    let top = place.at("home/m");
    let path = top.to_str().expect("text");
    ask(&place, &["--", "mkdir", path], always("once")).done.exits(0);
    ask(&place, &["--", "chmod", "700", path], always("once")).done.exits(0);
    assert_eq!(fs::metadata(&top).expect("it was made").permissions().mode() & 0o777, 0o700);
    let ran = ask(&place, &["--", "rmdir", path], always("deny"));
    ran.done.exits(1);
    assert!(top.exists() && ran.asked() == [format!("write {path}")], "{}", ran.done);
}

#[test]
fn an_approval_holds_for_where_a_link_leads() {
    let place = Place::new(None);
    let to = place.at("home/to");
    symlink(&to, place.at("work/link")).expect("own directory");
    let ran = ask(&place, &["--profile", "write", "-c", "echo x > link"], always("once"));
    ran.done.exits(0);
    assert_eq!(ran.asked(), [format!("write {}", to.display())]);
    assert_eq!(ran.questions()[0]["named"], "link");
    assert_eq!(fs::read_to_string(&to).expect("made where the link leads"), "x\n");
}

#[test]
fn closed_files_are_read_after_a_yes() {
    let place = Place::new(None);
    fs::create_dir(place.at("home/.ssh")).expect("own directory");
    fs::write(place.at("home/.ssh/id_x"), "key\n").expect("own directory");
    fs::write(place.at("work/.env"), "KEY=1\n").expect("own directory");
    for path in [place.at("home/.ssh/id_x"), place.at("work/.env")] {
        let path = path.to_str().expect("text");
        let ran = ask(&place, &["--profile", "write", "--", "cat", path], always("once"));
        ran.done.exits(0);
        assert_eq!(ran.asked(), [format!("read {path}")], "{}", ran.done);
        assert!(!ran.done.stdout().is_empty());
        ask(&place, &["--profile", "write", "--", "cat", path], always("deny")).done.exits(1).prints("");
    }
    // A directory above credentials does not open them.
    let home = place.at("home");
    let line = format!("ls {0}/.ssh; cat {0}/.ssh/id_x", home.display());
    let ran = ask(&place, &["--profile", "write", "-c", &line], |question, ours| {
        let directory = question["path"].as_str().is_some_and(|path| path.ends_with(".ssh"));
        always(if directory { "once" } else { "deny" })(question, ours)
    });
    ran.done.exits(1).prints("id_x\n");
}

#[test]
fn sockets_addresses_and_ports_are_asked() {
    if !has("python3") {
        return;
    }
    let place = Place::new(None);
    let server = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("loopback");
    let address = server.local_addr().expect("bound");
    let unix = place.at("home/s");
    let _listener = UnixListener::bind(&unix).expect("a short path");
    let script = format!(
        "import socket\ns=socket.socket();s.connect(('127.0.0.1',{}))\nu=socket.socket(socket.AF_UNIX);u.connect('{}')\n\
         l=socket.socket();l.bind(('0.0.0.0',0));l.listen()\nprint(l.getsockname()[0])",
        address.port(),
        unix.display()
    );
    let ran = ask(&place, &["--profile", "write", "--", "python3", "-c", &script], always("once"));
    ran.done.exits(0).prints("0.0.0.0\n");
    let asked = ran.asked();
    assert_eq!(asked[..2], [format!("connect {address}"), format!("connect {}", unix.display())], "{}", ran.done);
    assert_eq!(ran.questions()[1]["kind"], "socket");
    assert_eq!(ran.questions()[2]["syscall"], "listen");
    let denied = ask(&place, &["--profile", "write", "--", "python3", "-c", &script], always("deny"));
    denied.done.exits(1);
    assert_eq!(denied.report["denials"][0]["errno"], "ENETUNREACH", "{}", denied.report);
}

#[test]
fn a_host_that_the_proxy_refuses_is_asked_by_name() {
    if !has("curl") {
        return;
    }
    let place = Place::new(None);
    let server = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("loopback");
    let port = server.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        for client in server.incoming().flatten() {
            let mut client = client;
            let _ = client.read(&mut [0; 1000]);
            let _ = client.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let url = format!("http://localhost:{port}/");
    let line = format!("curl -s --noproxy '' {url}; curl -s --noproxy '' {url}");
    let ran = ask(&place, &["--profile", "write", "-c", &line], always("run"));
    ran.done.exits(0).prints("okok");
    assert_eq!(ran.asked()[0], format!("connect localhost:{port}"), "{}", ran.done);
    // The name leads to a private address, which is a second question; the second request asks nothing.
    assert_eq!(ran.asked().len(), 2, "{}", ran.done);
    let denied = ask(&place, &["--profile", "write", "-c", &format!("curl -sf --noproxy '' {url}")], always("deny"));
    denied.done.exits(22);
}

#[test]
fn execution_is_never_asked() {
    let place = Place::new(None);
    fs::write(place.at("work/p.toml"), "profile = \"read\"\n[commands]\nallow = [\"sh\"]\n").expect("own directory");
    let policy = place.at("work/p.toml");
    let policy = policy.to_str().expect("text");
    let ran = ask(&place, &["--config", policy, "--", "sh", "-c", "/usr/bin/env true"], always("once"));
    ran.done.exits(126);
    assert_eq!(ran.asked(), [""; 0], "{}", ran.done);
}

#[test]
fn no_approval_moves_a_directory_that_contains_credentials_or_a_writable_tree() {
    let place = Place::new(None);
    fs::create_dir_all(place.at("home/.config/gh")).expect("own directory");
    fs::write(place.at("home/.config/gh/hosts.yml"), "token\n").expect("own directory");
    fs::create_dir_all(place.at("home/plain")).expect("own directory");
    let (home, work) = (place.at("home"), place.at("work"));
    let line = format!(
        "mv -T {0}/plain moved && echo moved; mv -T {0}/.config stolen; cat stolen/gh/hosts.yml; mv -T {1} {0}/w",
        home.display(),
        work.display()
    );
    let ran = ask(&place, &["--profile", "write", "-c", &line], always("run"));
    ran.done.prints("moved\n");
    assert_eq!(ran.asked(), [format!("write {}/plain", home.display())], "{}", ran.done);
    assert!(home.join(".config/gh/hosts.yml").exists() && work.exists(), "{}", ran.done);
}

#[test]
fn what_is_never_asked_is_not_created_by_opening_it_for_reading() {
    if !has("python3") {
        return;
    }
    let place = Place::new(None);
    // gatekeeper's own directory, which does not exist yet.
    fs::create_dir_all(place.at("home/.local/state")).expect("own directory");
    let (never, other) = (place.at("home/.local/state/gatekeeper"), place.at("home/other"));
    let script = "import os,sys\nfor p in sys.argv[1:]:\n try: os.open(p, os.O_RDONLY|os.O_CREAT); print('made')\n \
                  except OSError as e: print(e.errno)";
    let (never, other) = (never.to_str().expect("text"), other.to_str().expect("text"));
    let words = ["--profile", "write", "--", "python3", "-c", script, never, other];
    let ran = ask(&place, &words, always("once"));
    ran.done.prints("13\nmade\n");
    assert_eq!(ran.asked(), [format!("write {other}")], "{}", ran.done);
}
