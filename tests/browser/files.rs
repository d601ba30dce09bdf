//! Which files a browser can load by address, without a driver.

use super::{Desk, layer, ready};
use crate::plumbing::users;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};

#[test]
fn secrets_and_other_folders_do_not_load_and_media_do() {
    if !ready() {
        return;
    }
    for user in users() {
        let desk = Desk::new(user);
        let secrets = [
            desk.place.at("home").join(".ssh/id_ed25519"),
            desk.place.at("home").join("notes.html"),
            desk.workspace().join("src/main.html"),
            desk.workspace().join("media/other/page.html"),
        ];
        for file in secrets.iter().chain([&desk.media("browser").join("page.html")]) {
            fs::create_dir_all(file.parent().expect("below")).expect("own");
            fs::write(file, "<p>the contents</p>").expect("own");
        }
        // From here on they belong to the browser's user.
        for directory in ["", "browser", "downloads"].map(|name| desk.media(name)) {
            fs::create_dir_all(&directory).expect("own");
            chown(&directory, user, user).expect("own, or root's to give");
            fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).expect("own");
        }

        let visible = desk.dump(&[], &format!("file://{}", desk.media("browser").join("page.html").display()));
        visible.exits(0);
        assert!(visible.stdout().contains("the contents"), "{visible}");
        let report = desk.report();
        assert_eq!(report["browser"]["inner_sandbox"], "on", "{report:#}");
        assert_eq!(layer(&report, "seccomp"), ("enforced", "profile browser, before exec, denials recorded"));
        assert_eq!(layer(&report, "landlock").0, "enforced", "{report:#}");
        assert!(layer(&report, "namespaces").1.starts_with("bubblewrap: user, mount, pid, ipc, uts; "), "{report:#}");
        assert_eq!(report["denials"], serde_json::json!([]), "{report:#}");

        let mut browser = desk.driven(&[], &[]);
        let page = browser.tab("about:blank");
        let hidden = secrets.iter().map(|file| file.display().to_string());
        for file in hidden.chain(["/root", "/etc/shadow", "/etc/ssl/private"].map(str::to_owned)) {
            assert_eq!(browser.go(&page, &format!("file://{file}")), "net::ERR_FILE_NOT_FOUND", "{file}");
        }
        assert_eq!(browser.go(&page, "file:///etc/passwd"), "");
        let users = browser.eval(&page, "document.body.textContent");
        let users = users.as_str().expect("text");
        assert_eq!(users.matches(":x:").count(), 1, "{users}");
        assert!(!users.contains(":x:0:") && users.ends_with(":/usr/sbin/nologin\n"), "{users}");
        assert_eq!(browser.close().code(), Some(0));
    }
}

#[test]
fn a_screenshot_is_written_to_media_and_nowhere_else() {
    if !ready() {
        return;
    }
    let desk = Desk::plain();
    let page = "data:text/html,<body style='background:rgb(255,0,0)'>";
    let shot = desk.media("browser").join("shot.png");
    let written = crate::support::run(&mut desk.browser(&[], &[&format!("--screenshot={}", shot.display()), page]));
    written.exits(0);
    assert!(fs::read(&shot).is_ok_and(|bytes| bytes.starts_with(b"\x89PNG")), "{written}");
    let outside = desk.place.at("home").join("shot.png");
    let refused = crate::support::run(&mut desk.browser(&[], &[&format!("--screenshot={}", outside.display()), page]));
    assert!(refused.stderr().contains("Failed to write file"), "{refused}");
    assert!(!outside.exists(), "{refused}");
}
