//! The corpus: programs built here and now, each with the truth written beside it.

use super::bytes::*;
use super::{NOBODY, chmod, is_root, program};
use crate::support::{fresh, on_path, probe, skip};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What happens when the file is executed with the preload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Real {
    Confined,
    Unconfined,
    /// It does not come to run.
    Dead,
}
use Real::*;

/// One file and what is true of it.
pub struct Case {
    pub name: String,
    pub path: PathBuf,
    pub verdict: &'static str,
    pub code: Option<&'static str>,
    pub real: Real,
    pub as_nobody: bool,
}

pub struct Corpus {
    pub directory: PathBuf,
    pub cases: Vec<Case>,
}

const LOADER: &str =
    if cfg!(target_arch = "aarch64") { "/lib/ld-linux-aarch64.so.1" } else { "/lib64/ld-linux-x86-64.so.2" };
/// gcc finds them for its own class only.
const KERNEL_HEADERS: &str = "-I/usr/include/x86_64-linux-gnu";
const NATIVE: bool = cfg!(target_arch = "x86_64");

impl Corpus {
    fn add(&mut self, path: &Path, verdict: &'static str, code: &'static str, real: Real) {
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        let code = Some(code).filter(|code| !code.is_empty());
        self.cases.push(Case { name, path: path.into(), verdict, code, real, as_nobody: false });
    }

    fn file(
        &mut self,
        name: &str,
        bytes: impl AsRef<[u8]>,
        verdict: &'static str,
        code: &'static str,
        real: Real,
    ) -> PathBuf {
        let path = program(&self.directory.join(name), bytes);
        self.add(&path, verdict, code, real);
        path
    }

    fn image(&mut self, name: &str, image: Image, verdict: &'static str, code: &'static str, real: Real) {
        self.file(name, image.0, verdict, code, real);
    }

    /// Builds the probe with another compiler; whether it could be.
    fn compiled(&mut self, name: &str, compiler: &str, flags: &[&str]) -> Option<PathBuf> {
        let path = self.directory.join(name);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/probes/check_probe.c");
        let built = Command::new(compiler).arg("-o").arg(&path).arg(source).args(flags).output();
        match built {
            Ok(output) if output.status.success() => Some(path),
            other => {
                skip(&format!("{compiler} {flags:?} cannot build {name}: {other:?}"));
                None
            }
        }
    }
}

pub fn build() -> Corpus {
    let mut corpus = Corpus { directory: fresh("corpus"), cases: Vec::new() };
    linked(&mut corpus);
    loaders(&mut corpus);
    other_worlds(&mut corpus);
    headers(&mut corpus);
    segments(&mut corpus);
    cut_short(&mut corpus);
    scripts(&mut corpus);
    through_env(&mut corpus);
    permissions(&mut corpus);
    corpus
}

fn dynamic() -> Image {
    Image(std::fs::read(probe("check_probe", &[])).expect("just built"))
}

/// What a linker makes of the probe.
fn linked(corpus: &mut Corpus) {
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
    // A library that calls the kernel itself cannot be deceived by the program's own functions.
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

/// Everything that PT_INTERP can name.
fn loaders(corpus: &mut Corpus) {
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
        corpus.image("glibc-program-under-musl-loader", named(musl), "enforce", "musl", Confined);
        let disguised = program(&dir.join("ld-linux-x86-64.so.2"), std::fs::read(musl).expect("readable"));
        corpus.image("musl-loader-in-disguise", named(&disguised), "enforce", "musl", Confined);
    }
    for (name, path, code) in [
        ("loader-of-aarch64", "/usr/aarch64-linux-gnu/lib/ld-linux-aarch64.so.1", "wrong_machine"),
        ("loader-of-i386", "/lib32/ld-linux.so.2", "wrong_class"),
    ] {
        match Path::new(path).exists() && NATIVE {
            true => corpus.image(name, named(Path::new(path)), "refuse", code, Dead),
            false => skip(&format!("{name}: no {path} here")),
        }
    }
}

/// Other libcs, classes, machines and languages.
fn other_worlds(corpus: &mut Corpus) {
    let mut compiled = |name: &str, compiler: &str, flags: &[&str], verdict, code, real| {
        if let Some(path) = corpus.compiled(name, compiler, flags) {
            corpus.add(&path, verdict, code, real);
        }
    };
    // musl finds what little the library asks of a C library, and it holds there; but that is luck and no promise, so
    // the verdict does not build on it.
    compiled("musl-dynamic", "musl-gcc", &[], "enforce", "musl", Confined);
    compiled("musl-dynamic-exec", "musl-gcc", &["-no-pie"], "enforce", "musl", Confined);
    compiled("musl-static", "musl-gcc", &["-static"], "enforce", "static", Unconfined);
    if NATIVE {
        compiled("i386-dynamic", "gcc", &["-m32", KERNEL_HEADERS], "refuse", "wrong_class", Unconfined);
        compiled("i386-static", "gcc", &["-m32", "-static", KERNEL_HEADERS], "refuse", "wrong_class", Unconfined);
        compiled("x32-static", "gcc", &["-mx32", "-static", KERNEL_HEADERS], "refuse", "wrong_class", Dead);
        compiled("aarch64-dynamic", "aarch64-linux-gnu-gcc", &[], "refuse", "wrong_machine", Dead);
        compiled("aarch64-static", "aarch64-linux-gnu-gcc", &["-static"], "refuse", "wrong_machine", Dead);
    }
    if !on_path("go") {
        return skip("no Go compiler");
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

/// Fields of the ELF header: those that the kernel reads, and those that it does not.
fn headers(corpus: &mut Corpus) {
    let mut image = |name: &str, image: Image, verdict, code, real| corpus.image(name, image, verdict, code, real);
    image("ei-class-32", dynamic().u8(4, 1), "preload", "", Confined);
    image("ei-class-none", dynamic().u8(4, 0), "preload", "", Confined);
    image("ei-data-big-endian", dynamic().u8(5, 2), "preload", "", Confined);
    image("ei-data-none", dynamic().u8(5, 9), "preload", "", Confined);
    image("ei-version-9", dynamic().u8(6, 9), "preload", "", Confined);
    image("osabi-77", dynamic().u8(7, 77), "preload", "", Confined);
    image("e-version-0", dynamic().u8(20, 0), "preload", "", Confined);
    image("sections-are-nonsense", dynamic().u64(E_SHOFF, u64::MAX - 3).u16(E_SHNUM, 0xffff), "preload", "", Confined);
    image("no-sections", dynamic().u64(E_SHOFF, 0).u16(E_SHNUM, 0), "preload", "", Confined);
    image("trailing-bytes", dynamic().append(&[0xa5; 5000]), "preload", "", Confined);
    image("type-none", dynamic().u16(E_TYPE, 0), "refuse", "corrupt", Dead);
    image("type-object", dynamic().u16(E_TYPE, 1), "refuse", "not_executable", Dead);
    image("type-core", dynamic().u16(E_TYPE, 4), "refuse", "not_executable", Dead);
    image("type-unknown", dynamic().u16(E_TYPE, 0xfe00), "refuse", "corrupt", Dead);
    image("machine-none", dynamic().u16(E_MACHINE, 0), "refuse", "corrupt", Dead);
    image("machine-riscv", dynamic().u16(E_MACHINE, 243), "refuse", "wrong_machine", Dead);
    image("machine-i386-by-name-only", dynamic().u16(E_MACHINE, 3), "refuse", "wrong_class", Dead);
    image("phentsize-57", dynamic().u16(E_PHENTSIZE, 57), "refuse", "corrupt", Dead);
    image("phentsize-32", dynamic().u16(E_PHENTSIZE, 32), "refuse", "corrupt", Dead);
    image("phnum-0", dynamic().u16(E_PHNUM, 0), "refuse", "corrupt", Dead);
    image("phnum-ffff", dynamic().u16(E_PHNUM, 0xffff), "refuse", "corrupt", Dead);
    image("phnum-1171", dynamic().u16(E_PHNUM, 1171).append(&[0; 70000]), "refuse", "corrupt", Dead);
    image("phoff-past-the-end", dynamic().u64(E_PHOFF, 1 << 40), "refuse", "corrupt", Dead);
    image("phoff-all-ones", dynamic().u64(E_PHOFF, u64::MAX), "refuse", "corrupt", Dead);
    image("phoff-negative", dynamic().u64(E_PHOFF, 1 << 63), "refuse", "corrupt", Dead);
}

/// Program headers.
fn segments(corpus: &mut Corpus) {
    let mut image = |name: &str, image: Image, verdict, code, real| corpus.image(name, image, verdict, code, real);
    image("interp-one-byte", dynamic().segment(PT_INTERP, P_FILESZ, 1), "refuse", "corrupt", Dead);
    image("interp-too-long", dynamic().segment(PT_INTERP, P_FILESZ, 4097), "refuse", "corrupt", Dead);
    image("interp-huge", dynamic().segment(PT_INTERP, P_FILESZ, u64::MAX), "refuse", "corrupt", Dead);
    let length = dynamic().segment_field(PT_INTERP, P_FILESZ);
    image("interp-without-end", dynamic().segment(PT_INTERP, P_FILESZ, length - 1), "refuse", "corrupt", Dead);
    image("interp-past-the-end", dynamic().segment(PT_INTERP, P_OFFSET, 1 << 32), "refuse", "corrupt", Dead);
    image("interp-empty-name", dynamic().interpreter(b"\0\0"), "refuse", "missing_loader", Dead);
    let (first, last) = (dynamic().header(PT_INTERP), dynamic().last_header());
    image("interp-last", dynamic().swap(first, last), "preload", "", Confined);
    image("interp-twice", dynamic().retype(PT_NOTE, PT_INTERP), "preload", "", Confined);
    image("interp-gone", dynamic().retype(PT_INTERP, PT_NULL), "enforce", "static_pie", Dead);
    image("dynamic-gone", dynamic().retype(PT_DYNAMIC, PT_NULL), "refuse", "corrupt", Dead);
    image("dynamic-offset-lies", dynamic().segment(PT_DYNAMIC, P_OFFSET, 64), "preload", "", Confined);
    image("dynamic-size-lies", dynamic().segment(PT_DYNAMIC, P_FILESZ, 16), "preload", "", Confined);
    image("nothing-loaded", dynamic().retype_all(PT_LOAD, PT_NULL), "refuse", "corrupt", Dead);
    image("load-larger-in-file", dynamic().segment(PT_LOAD, P_MEMSZ, 16), "refuse", "corrupt", Dead);
    image(
        "load-in-kernel-space",
        dynamic().segment(PT_LOAD, P_VADDR, 0xffff_8000_0000_0000),
        "refuse",
        "corrupt",
        Dead,
    );
    image("load-enormous", dynamic().segment(PT_LOAD, P_MEMSZ, u64::MAX), "refuse", "corrupt", Dead);
    image("load-misaligned", dynamic().segment(PT_LOAD, P_OFFSET, 8), "refuse", "corrupt", Dead);
}

/// Truncation and emptiness.
fn cut_short(corpus: &mut Corpus) {
    for length in [0, 1, 3, 4, 10, 63, 64, 100, 700] {
        corpus.image(&format!("cut-at-{length}"), dynamic().cut(length), "refuse", "corrupt", Dead);
    }
    let half = dynamic().0.len() / 2;
    corpus.image("cut-in-half", dynamic().cut(half), "refuse", "corrupt", Dead);
    corpus.file("garbage", [0xde, 0xad, 0xbe, 0xef, 0, 1, 2, 3], "refuse", "corrupt", Dead);
    corpus.file("text-without-line", "echo hello\n", "refuse", "not_executable", Dead);
    corpus.file("blank-before-magic", " #!/bin/sh\n", "refuse", "not_executable", Dead);
}

fn scripts(corpus: &mut Corpus) {
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

/// Scripts of env. Their programs are executed by env, under the filter that env has.
fn through_env(corpus: &mut Corpus) {
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
fn permissions(corpus: &mut Corpus) {
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
        return skip("setuid, capabilities and other users' files need root");
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
