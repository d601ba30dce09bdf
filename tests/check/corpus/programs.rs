//! Programs as compilers and linkers produce them, and every kind of PT_INTERP.

use super::*;

/// The probe with different linker flags.
pub fn linked(corpus: &mut Corpus) {
    let mut of = |flags: &[&str], verdict, code, real| corpus.add(&probe("check_probe", flags), verdict, code, real);
    of(&[], "preload", "", Confined);
    of(&["-no-pie"], "preload", "", Confined);
    of(&["-s"], "preload", "", Confined);
    of(&["-Wl,-z,now"], "preload", "", Confined);
    of(&["-Wl,-z,norelro", "-Wl,-z,lazy"], "preload", "", Confined);
    of(&["-Wl,--hash-style=sysv"], "preload", "", Confined);
    of(&["-rdynamic"], "preload", "", Confined);
    of(&["-DIFUNC"], "preload", "", Confined);
    of(&["-DPREINIT"], "preload", "", Confined);
    of(&["-static"], "enforce", "static", Unconfined);
    of(&["-static-pie"], "enforce", "static_pie", Unconfined);
    of(&["-static", "-s"], "enforce", "static", Unconfined);
    // A library that makes its own syscalls cannot be deceived by functions of the program.
    let calls = gatekeeper::check::Preload::embedded().calls;
    let (verdict, code, real) = if calls.contains(&"syscall") {
        ("enforce", "preload_unusable", Unconfined)
    } else {
        ("preload", "", Confined)
    };
    of(&["-DOWN_SYSCALL", "-DOWN_PRCTL"], verdict, code, real);
    of(&["-DOWN_SYSCALL", "-rdynamic", "-Wl,--hash-style=sysv"], verdict, code, real);
    let bytes = std::fs::read(probe("check_probe", &["-DOWN_SYSCALL", "-DOWN_PRCTL"])).expect("just built");
    let hidden = Image(bytes).segment(PT_DYNAMIC, P_OFFSET, 64).segment(PT_DYNAMIC, P_FILESZ, 0);
    let hidden = program(&probe("check_probe", &[]).with_file_name("own-syscall-hidden"), hidden.0);
    of(&["-DOWN_SYSCALL"], verdict, code, real);
    if !calls.contains(&"getenv") {
        of(&["-DOWN_GETENV"], "preload", "", Confined);
    }
    corpus.add(&hidden, verdict, code, real);
}

/// Every kind of file that PT_INTERP can name.
pub fn loaders(corpus: &mut Corpus) {
    let dir = corpus.directory.clone();
    let named = |name: &Path| dynamic().interpreter(&[name.as_os_str().as_bytes(), b"\0"].concat());
    let system = std::fs::read(LOADER).expect("glibc is here");

    let copy = program(&dir.join("loader-copy"), &system);
    corpus.image("copied-loader", named(&copy), "preload", "", Confined);
    let theirs = program(&dir.join("loader-copy-of-nobody"), &system);
    if is_root() {
        chown(&theirs, Some(NOBODY), None).expect("root may");
    }
    corpus.image("true-copy-of-another", named(&theirs), "preload", "", Confined);
    let altered = program(&dir.join("loader-altered"), Image(system.clone()).append(b"x").0);
    if is_root() {
        chown(&altered, Some(NOBODY), None).expect("root may");
        corpus.image("altered-loader-of-another", named(&altered), "enforce", "unknown_loader", Confined);
    } else {
        skip("only root can make a loader of another user");
    }
    corpus.image("loader-missing", named(Path::new("/nonexistent/ld.so")), "refuse", "missing_loader", Dead);
    corpus.image("loader-static", named(&probe("check_probe", &["-static"])), "enforce", "unknown_loader", Dead);
    corpus.image(
        "loader-static-pie",
        named(&probe("check_probe", &["-static-pie"])),
        "enforce",
        "unknown_loader",
        Dead,
    );
    let own = probe("check_loader", &["-static", "-nostdlib", "-fno-stack-protector"]);
    corpus.image("loader-own", named(&own), "enforce", "unknown_loader", Unconfined);
    let script = program(&dir.join("loader-script"), b"#!/bin/sh\n");
    corpus.image("loader-is-a-script", named(&script), "refuse", "corrupt", Dead);
    let empty = program(&dir.join("loader-empty"), b"");
    corpus.image("loader-is-empty", named(&empty), "refuse", "corrupt", Dead);
    let plain = program(&dir.join("loader-0644"), &system);
    chmod(&plain, 0o644);
    corpus.image("loader-not-executable", named(&plain), "refuse", "not_executable", Dead);
    corpus.image("loader-is-a-directory", named(&dir), "refuse", "not_executable", Dead);
    let dangling = dir.join("loader-dangling");
    symlink("nowhere", &dangling).expect("writable");
    corpus.image("loader-dangling-link", named(&dangling), "refuse", "missing_loader", Dead);
    corpus.image(
        "loader-of-another-name",
        dynamic().interpreter(format!("{LOADER}\0junk\0").as_bytes()),
        "preload",
        "",
        Confined,
    );
    let linked = dir.join("loader-link");
    symlink(LOADER, &linked).expect("writable");
    corpus.image("loader-through-link", named(&linked), "preload", "", Confined);

    let musl = Path::new("/lib/ld-musl-x86_64.so.1");
    if musl.exists() {
        corpus.image("glibc-program-under-musl-loader", named(musl), "enforce", "musl", Dead);
        let disguised = program(&dir.join("ld-linux-x86-64.so.2"), std::fs::read(musl).expect("readable"));
        corpus.image("musl-loader-in-disguise", named(&disguised), "enforce", "musl", Dead);
    } else {
        skip("musl's loader is not installed");
    }
    for (name, path, code) in [
        ("loader-of-aarch64", "/usr/aarch64-linux-gnu/lib/ld-linux-aarch64.so.1", "wrong_machine"),
        ("loader-of-i386", "/lib32/ld-linux.so.2", "wrong_class"),
    ] {
        match Path::new(path).exists() && NATIVE {
            true => corpus.image(name, named(Path::new(path)), "refuse", code, Dead),
            false => skip(&format!("{name}: {path} does not exist, or this is not x86_64")),
        }
    }
}

/// Other libcs, classes, machines and languages.
pub fn other_worlds(corpus: &mut Corpus) {
    let mut compiled = |name: &str, compiler: &str, flags: &[&str], verdict, code, real| {
        if let Some(path) = corpus.compiled(name, compiler, flags) {
            corpus.add(&path, verdict, code, real);
        }
    };
    // The library needs a symbol that only glibc has: musl passes constructors no environment, and a program that
    // defines `environ` itself would run unconfined.
    compiled("musl-dynamic", "musl-gcc", &[], "enforce", "musl", Dead);
    compiled("musl-dynamic-exec", "musl-gcc", &["-no-pie"], "enforce", "musl", Dead);
    compiled("musl-static", "musl-gcc", &["-static"], "enforce", "static", Unconfined);
    if NATIVE {
        compiled("i386-dynamic", "gcc", &["-m32", KERNEL_HEADERS], "refuse", "wrong_class", Unconfined);
        compiled("i386-static", "gcc", &["-m32", "-static", KERNEL_HEADERS], "refuse", "wrong_class", Unconfined);
        compiled("x32-static", "gcc", &["-mx32", "-static", KERNEL_HEADERS], "refuse", "wrong_class", Dead);
        compiled("aarch64-dynamic", "aarch64-linux-gnu-gcc", &[], "refuse", "wrong_machine", Dead);
        compiled("aarch64-static", "aarch64-linux-gnu-gcc", &["-static"], "refuse", "wrong_machine", Dead);
    } else {
        skip("programs of other classes and machines are built on x86_64 only");
    }
    if !has("go") {
        return;
    }
    let source = corpus.directory.join("probe.go");
    let text = "package main\nimport (\"fmt\"; \"syscall\")\nfunc main() {\n_, e := syscall.Socket(syscall.AF_UNIX, \
        syscall.SOCK_STREAM, 0)\nif e == syscall.EXDEV { fmt.Println(\"confined\") } else { fmt.Println(\"unconfined\") }\n}\n";
    std::fs::write(&source, text).expect("writable");
    let modes: [(&str, &[&str], &str, &str, Real); 2] =
        [("go-static", &[], "enforce", "static", Unconfined), ("go-pie", &["-buildmode=pie"], "preload", "", Confined)];
    for (name, flags, verdict, code, real) in modes {
        let path = corpus.directory.join(name);
        let mut go = Command::new("go");
        go.args(["build", "-o"]).arg(&path).args(flags).arg(&source);
        go.env("CGO_ENABLED", "0").env("GOFLAGS", "-mod=mod").env("GO111MODULE", "off");
        go.env("GOCACHE", corpus.directory.join("gocache")).env("HOME", &corpus.directory);
        match go.output() {
            Ok(output) if output.status.success() => corpus.add(&path, verdict, code, real),
            other => skip(&format!("go {flags:?}: {other:?}")),
        }
    }
}
