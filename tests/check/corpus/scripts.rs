//! Scripts, scripts with env, and files with different modes, owners and links.

use super::*;

pub fn scripts(corpus: &mut Corpus) {
    let dir = corpus.directory.clone();
    let probe_path = probe("check_probe", &[]).display().to_string();
    let static_path = probe("check_probe", &["-static"]).display().to_string();
    symlink(&probe_path, dir.join("p")).expect("writable");
    let mut script = |name: &str, text: String, verdict, code, real| corpus.file(name, text, verdict, code, real);
    script("script", format!("#!{probe_path}\n"), "preload", "", Confined);
    script("script-argument", format!("#!{probe_path} one two\n"), "preload", "", Confined);
    script("script-blanks", format!("#! \t{probe_path} \t\n"), "preload", "", Confined);
    script("script-no-newline", format!("#!{probe_path}"), "preload", "", Confined);
    script("script-nul", format!("#!{probe_path}\0junk\n"), "preload", "", Confined);
    script("script-crlf", format!("#!{probe_path}\r\n"), "refuse", "not_found", Dead);
    script("script-relative", "#!p\n".into(), "preload", "", Confined);
    script("script-static", format!("#!{static_path}\n"), "enforce", "static", Unconfined);
    script("script-of-nothing", "#!\n".into(), "refuse", "corrupt", Dead);
    script("script-of-blanks", "#! \t \n".into(), "refuse", "corrupt", Dead);
    script("script-two-bytes", "#!".into(), "refuse", "not_found", Dead);
    script("script-missing", "#!/nonexistent/sh\n".into(), "refuse", "not_found", Dead);
    script("script-of-a-directory", "#!/tmp\n".into(), "refuse", "not_executable", Dead);
    script("script-of-a-device", "#!/dev/null\n".into(), "refuse", "not_executable", Dead);
    script("script-long-name", format!("#!/{}\n", "a".repeat(300)), "refuse", "corrupt", Dead);
    script("script-long-argument", format!("#!{probe_path} {}\n", "a".repeat(300)), "preload", "", Confined);
    let itself = dir.join("script-of-itself");
    script("script-of-itself", format!("#!{}\n", itself.display()), "refuse", "chain_too_deep", Dead);
    let mut interpreter = probe_path;
    for depth in 1..=7 {
        let (verdict, code, real) =
            if depth <= 5 { ("preload", "", Confined) } else { ("refuse", "chain_too_deep", Dead) };
        let path = script(&format!("chain-of-{depth}"), format!("#!{interpreter}\n"), verdict, code, real);
        interpreter = path.display().to_string();
    }
}

/// Scripts that start with env, which executes their program under its own filter.
pub fn through_env(corpus: &mut Corpus) {
    let probe_path = probe("check_probe", &[]).display().to_string();
    let mut script = |name: &str, line: String, verdict, code, real| {
        corpus.file(name, format!("#!/usr/bin/env {line}\n"), verdict, code, real)
    };
    script("env-path", probe_path.clone(), "preload", "", Confined);
    script("env-split", format!("-S {probe_path} -u 'a b'"), "preload", "", Confined);
    script("env-split-attached", format!("-S{probe_path}"), "preload", "", Confined);
    script("env-sets", format!("-S A=1 {probe_path}"), "preload", "", Confined);
    script("env-unsets", format!("-S -u HOME {probe_path}"), "preload", "", Confined);
    script("env-two-words", format!("{probe_path} -u"), "refuse", "not_found", Dead);
    script("env-missing", "nosuchprogram".into(), "refuse", "not_found", Dead);
    script("env-of-a-script", corpus_script(&probe_path), "preload", "", Confined);
    script("env-static", probe("check_probe", &["-static"]).display().to_string(), "enforce", "static", Confined);
}

fn corpus_script(probe_path: &str) -> String {
    let path = program(&fresh("env").join("inner"), format!("#!{probe_path}\n"));
    path.display().to_string()
}

/// Modes, owners, attributes and links.
pub fn permissions(corpus: &mut Corpus) {
    let dir = corpus.directory.clone();
    let bytes = dynamic().0;
    let plain = corpus.file("mode-0644", &bytes, "refuse", "not_executable", Dead);
    chmod(&plain, 0o644);
    let link = dir.join("symlink");
    symlink(probe("check_probe", &[]), &link).expect("writable");
    corpus.add(&link, "preload", "", Confined);
    let dangling = dir.join("symlink-dangling");
    symlink("nowhere", &dangling).expect("writable");
    corpus.add(&dangling, "refuse", "not_found", Dead);
    let circle = dir.join("symlink-circle");
    symlink("symlink-circle", &circle).expect("writable");
    corpus.add(&circle, "refuse", "not_found", Dead);
    corpus.add(&dir.join("never-made"), "refuse", "not_found", Dead);
    corpus.add(&probe("check_probe", &[]).join("below-a-file"), "refuse", "not_found", Dead);
    let odd = dir.join(std::ffi::OsStr::from_bytes(b"not-utf-8-\xff\xfe"));
    program(&odd, &bytes);
    corpus.add(&odd, "preload", "", Confined);
    let folder = dir.join("directory");
    std::fs::create_dir(&folder).expect("writable");
    corpus.add(&folder, "refuse", "not_executable", Dead);
    let pipe = dir.join("pipe");
    let made = Command::new("mkfifo").args(["-m", "777"]).arg(&pipe).status();
    assert!(made.is_ok_and(|status| status.success()), "mkfifo");
    corpus.add(&pipe, "refuse", "not_executable", Dead);
    corpus.add(Path::new("/dev/null"), "refuse", "not_executable", Dead);
    if !is_root() {
        return skip("only root can create setuid programs, capabilities and files of other users");
    }
    for (name, mode, verdict, code, real) in [
        ("setuid", 0o4755, "enforce", "setuid", Unconfined),
        ("setgid", 0o2755, "enforce", "setuid", Unconfined),
        ("setgid-without-group", 0o2745, "preload", "", Confined),
        ("mode-0711", 0o711, "enforce", "unreadable", Confined),
        ("mode-0700", 0o700, "refuse", "not_executable", Dead),
        ("mode-0744", 0o744, "refuse", "not_executable", Dead),
    ] {
        let path = corpus.file(name, &bytes, verdict, code, real);
        chmod(&path, mode);
        corpus.cases.last_mut().expect("just added").as_nobody = true;
    }
    let capable = corpus.file("file-caps", &bytes, "enforce", "file_caps", Unconfined);
    corpus.cases.last_mut().expect("just added").as_nobody = true;
    let set = Command::new("setcap").arg("cap_net_raw+ep").arg(&capable).status();
    if !set.is_ok_and(|status| status.success()) {
        corpus.cases.pop();
        skip("setcap does not work here");
    }
    let setuid = corpus.cases.iter().find(|case| case.name == "setuid").expect("above").path.display().to_string();
    corpus.file("script-of-setuid", format!("#!{setuid}\n"), "enforce", "setuid", Unconfined);
    corpus.cases.last_mut().expect("just added").as_nobody = true;
    let script =
        corpus.file("setuid-script", format!("#!{}\n", probe("check_probe", &[]).display()), "preload", "", Confined);
    chmod(&script, 0o4755);
    corpus.cases.last_mut().expect("just added").as_nobody = true;
}
