use super::*;

fn has(args: &[OsString], words: &[&str]) -> bool {
    args.windows(words.len()).any(|window| window.iter().zip(words).all(|(one, other)| one == other))
}

#[test]
fn the_default_mounts_the_system_read_only_and_the_working_directory_read_write() {
    let config = SandboxConfig::for_working_dir(Path::new("/home/user/project"));
    let args = config.build_args("echo hello");
    assert!(config.rw_paths.contains(&PathBuf::from("/home/user/project")));
    assert!(config.ro_paths.contains(&PathBuf::from("/usr")));
    for words in [
        &["--ro-bind-try", "/usr", "/usr"][..],
        &["--bind-try", "/home/user/project", "/home/user/project"],
        &["--ro-bind-try", "/etc/passwd", "/etc/passwd"],
        &["--dev", "/dev"],
        &["--proc", "/proc"],
        &["--tmpfs", "/tmp"],
        &["--chdir", "/home/user/project"],
        &["--die-with-parent"],
        &["--unshare-ipc"],
        &["--unshare-uts"],
        &["--unshare-pid"],
        &["--unshare-net"],
        &["--new-session"],
        &["--cap-drop", "ALL"],
        &["--", "sh", "-c", "echo hello"],
    ] {
        assert!(has(&args, words), "{words:?} in {args:?}");
    }
    for secret in ["/etc/shadow", "/etc", "/home", "/root", "/", "/run", "/var", "/etc/sudoers"] {
        assert!(!has(&args, &[secret, secret]), "{secret} is not mounted");
    }
}

#[test]
fn the_network_is_shared_only_where_it_is_asked_for() {
    let mut config = SandboxConfig::for_working_dir(Path::new("/srv"));
    assert!(!has(&config.options(), &["/etc/resolv.conf"]));
    config.isolate_network = false;
    assert!(!has(&config.options(), &["--unshare-net"]));
    assert!(has(&config.options(), &["--ro-bind-try", "/etc/resolv.conf", "/etc/resolv.conf"]));
}

#[test]
fn a_terminal_keeps_its_session() {
    let mut config = SandboxConfig::for_working_dir(Path::new("/srv"));
    config.new_session = false;
    assert!(!has(&config.options(), &["--new-session"]));
}

#[test]
fn what_is_inside_comes_after_what_is_around_it() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let work = dir.path().canonicalize().expect("real");
    std::fs::create_dir_all(work.join(".git/hooks")).expect("new");
    let mut config = SandboxConfig::for_working_dir(&work);
    config.protected_paths.push(work.join(".git/config"));
    let args = config.options();
    let at = |path: &Path| args.iter().rposition(|arg| arg == path.as_os_str()).expect("mounted");
    let last_but_directory = args.iter().position(|arg| arg == "--chdir").expect("there");
    assert!(args.iter().position(|arg| arg == work.as_os_str()).expect("there") < at(&work.join(".git/config")));
    assert!(at(&work.join(".git/hooks")) < last_but_directory);
    assert!(has(&args, &["--tmpfs", work.join(".git/hooks").to_str().expect("UTF-8")]));
    let tmp = args.windows(2).position(|pair| pair[0] == "--tmpfs" && pair[1] == "/tmp").expect("there");
    assert!(
        tmp < args.iter().position(|arg| arg == work.as_os_str()).expect("there"),
        "what is below /tmp is not covered"
    );
}

#[test]
fn only_what_is_mounted_and_missing_leaves_a_stub() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let work = dir.path().canonicalize().expect("real");
    let mut config = SandboxConfig::for_working_dir(&work);
    config.blocked_paths = vec![work.join(".ssh"), work.join(".git/hooks"), PathBuf::from("/elsewhere/.ssh")];
    assert_eq!(config.stubs(), [work.join(".ssh")], "where there is no .git there can be no hooks");
    std::fs::create_dir(work.join(".ssh")).expect("new");
    assert!(config.stubs().is_empty());
    assert!(has(&config.options(), &["--tmpfs", work.join(".ssh").to_str().expect("UTF-8")]));
}

#[test]
fn links_of_a_merged_usr_stay_links() {
    if std::fs::read_link("/bin").is_err() {
        return;
    }
    let args = SandboxConfig::for_working_dir(Path::new("/srv")).options();
    assert!(has(&args, &["--symlink", "usr/bin", "/bin"]), "{args:?}");
}

#[test]
fn what_leads_to_a_closed_place_cannot_be_renamed_away() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let work = dir.path().canonicalize().expect("real");
    std::fs::create_dir_all(work.join(".git/hooks")).expect("new");
    let args = SandboxConfig::for_working_dir(&work).options();
    let git = work.join(".git");
    let git = git.to_str().expect("UTF-8");
    assert!(has(&args, &["--bind-try", git, git]), "{args:?}");
    let at = |option: &str, path: &str| args.windows(2).position(|pair| pair[0] == option && pair[1] == path);
    assert!(at("--bind-try", git) < at("--tmpfs", &format!("{git}/hooks")));
}
