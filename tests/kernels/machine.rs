//! A machine: a kernel of Debian, and an initramfs with gatekeeper, a shell and this test program, under qemu's own
//! emulation (KVM is not needed).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The files of an initramfs, by their path inside it.
#[derive(Default, Clone)]
pub struct Files(BTreeMap<String, (u32, Vec<u8>)>);

const DIRECTORY: u32 = 0o040_755;
const LINK: u32 = 0o120_777;

impl Files {
    pub fn add(&mut self, path: &str, mode: u32, bytes: impl Into<Vec<u8>>) {
        let path = path.trim_start_matches('/');
        for (end, _) in path.match_indices('/') {
            self.0.entry(path[..end].to_owned()).or_insert((DIRECTORY, Vec::new()));
        }
        self.0.insert(path.to_owned(), (0o100_000 | mode, bytes.into()));
    }

    pub fn add_file(&mut self, path: &str, from: &Path) {
        let bytes = fs::read(from).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
        let mode = fs::metadata(from).expect("just read").permissions().mode() & 0o777;
        self.add(path, mode, bytes);
    }

    /// Adds a program, and the loader and libraries that it needs, at their paths on this machine.
    pub fn add_program(&mut self, path: &str, from: &Path) {
        self.add_file(path, from);
        let listed = Command::new("ldd").arg(from).output().expect("ldd is part of the C library");
        for word in String::from_utf8_lossy(&listed.stdout).split_whitespace().filter(|word| word.starts_with('/')) {
            self.add_file(word, &fs::canonicalize(word).expect("ldd found it"));
        }
    }

    /// Adds everything below a directory, such as an unpacked package.
    pub fn add_tree(&mut self, below: &Path) {
        let mut waiting = vec![below.to_owned()];
        while let Some(directory) = waiting.pop() {
            for entry in fs::read_dir(&directory).expect("readable").flatten() {
                let path = entry.path();
                let name = path.strip_prefix(below).expect("below it").to_str().expect("text").to_owned();
                if path.is_symlink() {
                    let to = fs::read_link(&path).expect("a link");
                    self.add(&name, 0o777, to.to_str().expect("text"));
                    self.0.get_mut(&name).expect("just added").0 = LINK;
                } else if path.is_dir() {
                    waiting.push(path);
                } else {
                    self.add_file(&name, &path);
                }
            }
        }
    }

    /// The archive, in the format "newc" of cpio(5), which is what the kernel unpacks.
    fn archive(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let end = ("TRAILER!!!".to_owned(), (0, Vec::new()));
        let entries = self.0.iter().map(|(name, (mode, content))| (name, *mode, content));
        for (number, (name, mode, content)) in entries.chain([(&end.0, end.1.0, &end.1.1)]).enumerate() {
            let links = if mode & 0o170_000 == 0o040_000 { 2 } else { 1 };
            let size = content.len();
            let fields = [number + 1, mode as usize, 0, 0, links, 0, size, 0, 0, 0, 0, name.len() + 1, 0];
            bytes.extend_from_slice(b"070701");
            for field in fields {
                bytes.extend_from_slice(format!("{field:08x}").as_bytes());
            }
            for part in [name.as_bytes(), b"\0".as_slice()] {
                bytes.extend_from_slice(part);
            }
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes.extend_from_slice(content);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }
}

/// The processor of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Processor {
    X86,
    Arm,
}

impl Processor {
    pub fn qemu(self) -> &'static str {
        match self {
            Processor::X86 => "qemu-system-x86_64",
            Processor::Arm => "qemu-system-aarch64",
        }
    }

    /// As Debian names it.
    pub fn debian(self) -> &'static str {
        match self {
            Processor::X86 => "amd64",
            Processor::Arm => "arm64",
        }
    }

    fn arguments(self) -> (&'static [&'static str], &'static str) {
        match self {
            // On a busy machine the emulated timer is late, and the kernel would give up.
            Processor::X86 => (&["-machine", "q35", "-cpu", "max,la57=off"], "ttyS0 no_timer_check"),
            // Pointer authentication as the architecture defines it is slow to emulate.
            Processor::Arm => (&["-machine", "virt", "-cpu", "max,pauth-impdef=on"], "ttyAMA0"),
        }
    }
}

/// Boots a machine, waits until it is off, and returns what it printed. `Err` with the same if that takes too long. What it prints also
/// goes to a log, as it comes.
pub fn boot(
    (processor, kernel): (Processor, &Path),
    files: &Files,
    words: &str,
    limit: Duration,
    mut log: impl Write + Send + 'static,
) -> Result<Vec<String>, Vec<String>> {
    let initramfs = crate::support::fresh("machine").join("initramfs");
    fs::write(&initramfs, files.archive()).expect("own directory");
    let (arguments, console) = processor.arguments();
    let mut command = Command::new(processor.qemu());
    command.args(arguments).args(["-accel", "tcg", "-smp", "1", "-m", "768", "-nodefaults", "-display", "none"]);
    command.args(["-no-reboot", "-serial", "stdio", "-kernel"]).arg(kernel).arg("-initrd").arg(&initramfs);
    command.args(["-append", &format!("console={console} quiet loglevel=1 panic=-1 {words}")]);
    // SAFETY: prctl is async-signal-safe. The machine ends with this thread, which waits for it, even if the tests are killed.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    };
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("qemu starts");
    let (sender, receiver) = channel();
    let mut console = BufReader::new(child.stdout.take().expect("piped"));
    let reader = std::thread::spawn(move || {
        let mut line = Vec::new();
        while console.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
            let _ = log.write_all(&line);
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            line.clear();
            if sender.send(text).is_err() {
                return;
            }
        }
    });
    let until = Instant::now() + limit;
    let mut lines = Vec::new();
    let in_time = loop {
        match receiver.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => lines.push(line),
            Err(RecvTimeoutError::Disconnected) => break true,
            Err(RecvTimeoutError::Timeout) => break false,
        }
    };
    let _ = child.kill();
    let _ = child.wait();
    let _ = reader.join();
    let _ = fs::remove_file(initramfs);
    if in_time { Ok(lines) } else { Err(lines) }
}

/// A kernel of Debian and a module for it, downloaded once into target/kernels. `Err` says why there is none.
pub struct Kernel {
    pub image: PathBuf,
    pub overlay: Option<PathBuf>,
}

pub fn kernel(version: &str, processor: Processor) -> Result<Kernel, String> {
    let printed = script(&[version, processor.debian()])?;
    let text = String::from_utf8_lossy(&printed).into_owned();
    let mut lines = text.lines().map(PathBuf::from);
    let image = lines.next().ok_or("scripts/kernel printed nothing")?;
    Ok(Kernel { image, overlay: lines.next() })
}

/// What scripts/kernel prints; `Err` with its message if it fails.
fn script(words: &[&str]) -> Result<Vec<u8>, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/kernel");
    let done = Command::new(script).args(words).output().map_err(|error| error.to_string())?;
    match done.status.success() {
        true => Ok(done.stdout),
        false => Err(String::from_utf8_lossy(&done.stderr).trim().to_owned()),
    }
}

/// A policy for AppArmor that grants gatekeeper and what it starts everything but capabilities. Compiled
/// here, so that the machine needs no parser.
pub fn policy() -> Result<Vec<u8>, String> {
    // Where the tests inside keep the copy that every user may execute.
    const TEXT: &str = "profile restricted /tmp/gatekeeper-tests-*/gatekeeper {
        file, network, unix, signal, ptrace, mount, umount, pivot_root, change_profile, dbus,
    }";
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/kernels/apparmor");
    let parser = unpacked.join("sbin/apparmor_parser");
    if !parser.exists() {
        script(&["--packages", "amd64", unpacked.to_str().ok_or("a path that is not UTF-8")?, "apparmor"])?;
    }
    let source = crate::support::fresh("policy").join("restricted");
    fs::write(&source, TEXT).map_err(|error| error.to_string())?;
    let mut command = Command::new(parser);
    command.args(["--quiet", "--skip-kernel-load", "--skip-cache", "--stdout", "--features-file"]);
    let done = command.arg(unpacked.join("etc/apparmor.d/abi/3.0")).arg(source).output();
    let done = done.map_err(|error| error.to_string())?;
    match done.status.success() && !done.stdout.is_empty() {
        true => Ok(done.stdout),
        false => Err(String::from_utf8_lossy(&done.stderr).trim().to_owned()),
    }
}

/// A copy of a program without symbols and debug information, which are most of it.
pub fn stripped(program: &Path, strip: &str) -> PathBuf {
    let copy = crate::support::fresh("stripped").join(program.file_name().unwrap_or(OsStr::new("program")));
    crate::support::run(Command::new(strip).arg("-o").arg(&copy).arg(program)).exits(0);
    copy
}
