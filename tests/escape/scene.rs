//! The surroundings of an attack: files and servers outside of the sandbox, a victim process, and proof that nothing of
//! it has changed.

use crate::run::{User, become_user, owned_by};
use crate::support::{descriptors, fresh, is_root, probe_of_many};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

pub const SECRET: &str = "SECRET of somebody else\n";
/// Descriptors that a careless caller leaves open: a directory, a credential and a socket.
const LEFT_OPEN: [RawFd; 3] = [70, 71, 72];

/// The program of all attacks.
pub fn attacker() -> PathBuf {
    probe_of_many("escape", &["-lpthread"])
}

/// Programs that attacks start: a static one, and one that is setuid to an unused user id.
pub fn tools() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let dir = fs::canonicalize(fresh("tools")).expect("just made");
        fs::copy(probe_of_many("escape", &["-static"]), dir.join("escape-static")).expect("own directory");
        let setuid = dir.join("escape-setuid");
        fs::copy(attacker(), &setuid).expect("own directory");
        if is_root() {
            std::os::unix::fs::chown(&setuid, Some(4242), None).expect("root may");
            fs::set_permissions(&setuid, fs::Permissions::from_mode(0o4755)).expect("own file");
        }
        dir
    })
}

/// Servers on this machine that a confined command must not reach. They run as long as the tests.
struct Servers {
    directory: PathBuf,
    abstract_name: String,
    granted: u16,
    forbidden: u16,
}

impl Servers {
    fn of(user: User) -> &'static Servers {
        static OWN: OnceLock<Servers> = OnceLock::new();
        static NOBODY: OnceLock<Servers> = OnceLock::new();
        let servers = if user == User::Own { &OWN } else { &NOBODY };
        servers.get_or_init(|| Servers::start(user))
    }

    fn start(user: User) -> Servers {
        let directory = fs::canonicalize(fresh("served")).expect("just made");
        let secret = directory.join("secret");
        fs::write(&secret, SECRET).expect("own directory");
        let abstract_name = format!("escape-{}-{user:?}", std::process::id());
        let address = SocketAddr::from_abstract_name(&abstract_name).expect("a short name");
        let by_name = UnixListener::bind_addr(&address).expect("a new name");
        let by_path = UnixListener::bind(directory.join("socket")).expect("own directory");
        let datagram = UnixDatagram::bind(directory.join("datagram")).expect("own directory");
        for name in ["socket", "datagram"] {
            fs::set_permissions(directory.join(name), fs::Permissions::from_mode(0o777)).expect("own socket");
        }
        for listener in [by_name, by_path] {
            let secret = secret.clone();
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    hand_out(&stream, &File::open(&secret).expect("readable"));
                }
            });
        }
        let (granted, forbidden) = (speaker(b"G"), speaker(b"F"));
        // Somebody has to read: a full queue makes the next attack wait for ever.
        std::thread::spawn(move || while datagram.recv(&mut [0; 64]).is_ok() {});
        Servers { directory, abstract_name, granted, forbidden }
    }
}

/// A server on loopback that sends its letter to every client.
fn speaker(letter: &'static [u8]) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(letter);
        }
    });
    port
}

fn hand_out(stream: &UnixStream, secret: &File) {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
    use std::os::fd::AsFd;
    let fds = [secret.as_fd()];
    let mut space = [std::mem::MaybeUninit::uninit(); 64];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    let _ = rustix::net::sendmsg(stream, &[std::io::IoSlice::new(b"x")], &mut control, SendFlags::NOSIGNAL);
}

/// The loopback port that a command may be granted.
pub fn granted_port(user: User) -> u16 {
    Servers::of(user).granted
}

/// The surroundings for one user.
pub struct Scene {
    pub user: User,
    pub top: PathBuf,
    victim: Child,
    told: BufReader<std::process::ChildStdout>,
    /// The victim's pid, the address of the secret in it, its descriptor of the credential.
    held: Vec<String>,
    terminal: Terminal,
    before: Option<Tree>,
}

impl Scene {
    pub fn new(user: User) -> Scene {
        let top = fs::canonicalize(fresh("escape")).expect("just made");
        for name in ["work/.git/hooks", "home/.ssh", "outside/empty"] {
            fs::create_dir_all(top.join(name)).expect("own directory");
        }
        let servers = Servers::of(user);
        for (name, text) in [
            ("home/.ssh/id", SECRET),
            ("work/.env", SECRET),
            ("work/.git/HEAD", "ref: refs/heads/main\n"),
            ("work/.git/config", "[core]\n"),
            ("work/.git/hooks/pre-commit", "#!/bin/sh\n"),
            ("outside/mark", "mark\n"),
        ] {
            fs::write(top.join(name), text).expect("own directory");
        }
        symlink(top.join("outside/mark"), top.join("work/way-out")).expect("own directory");
        symlink(top.join("home/.ssh/id"), top.join("work/way-to-credential")).expect("own directory");
        symlink(servers.directory.join("socket"), top.join("work/way-to-socket")).expect("own directory");
        walk(&top, &mut |path| owned_by(user, path));
        let mut command = Command::new(attacker());
        command.arg("hold").env("ESCAPE_SECRET", top.join("home/.ssh/id")).current_dir(top.join("home"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        become_user(&mut command, user);
        let mut victim = command.spawn().expect("the probe starts");
        let mut told = BufReader::new(victim.stdout.take().expect("piped"));
        let mut line = String::new();
        told.read_line(&mut line).expect("readable");
        let held = line.split_whitespace().map(str::to_owned).collect();
        let terminal = Terminal::open(user);
        let mut scene = Scene { user, top, victim, told, held, terminal, before: None };
        scene.before = Some(scene.look());
        scene
    }

    pub fn work(&self) -> PathBuf {
        self.top.join("work")
    }

    /// The arguments that describe the scene to the attacker.
    pub fn words(&self) -> Vec<String> {
        let servers = Servers::of(self.user);
        let path = |key: &str, path: PathBuf| format!("{key}={}", path.display());
        let mut words = vec![
            path("work", self.work()),
            path("outside", self.top.join("outside")),
            path("home", self.top.join("home")),
            path("tools", tools().to_owned()),
            path("socket", servers.directory.join("socket")),
            path("datagram", servers.directory.join("datagram")),
            format!("abstract=@{}", servers.abstract_name),
            format!("port={}", servers.granted),
            format!("forbidden={}", servers.forbidden),
            format!("pty={}", self.terminal.number),
        ];
        let keys = ["victim", "secret", "victim_fd"];
        words.extend(keys.iter().zip(&self.held).map(|(key, value)| format!("{key}={value}")));
        words
    }

    /// Leaves descriptors open to a command, as a careless caller might. Keep what it returns until the command has
    /// ended: it holds the other end of the socket.
    #[must_use]
    pub fn careless(&self, command: &mut Command) -> Vec<OwnedFd> {
        let (near, far) = UnixStream::pair().expect("a pair");
        let directory = File::open(self.top.join("home")).expect("readable");
        let secret = File::open(self.top.join("home/.ssh/id")).expect("readable");
        command.env("ESCAPE_API_KEY", "SECRET").env("HOME", self.top.join("home")).current_dir(self.work());
        let [at_directory, at_secret, at_socket] = LEFT_OPEN;
        let (a, b, c) = (directory.as_raw_fd(), secret.as_raw_fd(), near.as_raw_fd());
        descriptors::place(command, [(a, at_directory), (b, at_secret), (c, at_socket)]);
        vec![directory.into(), secret.into(), near.into(), far.into()]
    }

    fn look(&self) -> Tree {
        let mut seen = Tree::new();
        for name in ["home", "outside", "work/.git"] {
            walk(&self.top.join(name), &mut |path| {
                let meta = path.symlink_metadata().expect("there");
                let text = if meta.is_file() { fs::read(path).unwrap_or_default() } else { Vec::new() };
                seen.insert(path.to_owned(), (meta.mode(), meta.uid(), meta.mtime(), meta.nlink(), text));
            });
        }
        seen
    }

    /// Ends the scene, and asserts that everything outside of the sandbox is unchanged.
    #[track_caller]
    pub fn unchanged(mut self, after: &str) {
        assert_eq!(self.before.take(), Some(self.look()), "after {after}");
        assert_eq!(fs::read_to_string(self.work().join(".env")).expect("there"), SECRET, "after {after}");
        drop(self.victim.stdin.take());
        let mut text = String::new();
        self.told.read_to_string(&mut text).expect("readable");
        let status = self.victim.wait().expect("our child");
        assert!(status.success() && text == SECRET, "the victim after {after}: {status}, holds {text:?}");
    }

    /// Ends the scene of an unconfined control, which may have changed anything.
    pub fn spent(mut self) {
        let _ = self.victim.kill();
        let _ = self.victim.wait();
    }
}

type Tree = BTreeMap<PathBuf, (u32, u32, i64, u64, Vec<u8>)>;

fn walk(path: &Path, visit: &mut dyn FnMut(&Path)) {
    visit(path);
    if path.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
        for entry in fs::read_dir(path).expect("readable").flatten() {
            walk(&entry.path(), visit);
        }
    }
}

/// Another terminal of the user, into which a secret was typed.
struct Terminal {
    number: u32,
    _master: File,
}

impl Terminal {
    fn open(user: User) -> Terminal {
        // SAFETY: the calls take a descriptor of ours and a local variable; the File then owns the descriptor.
        let (mut master, number) = unsafe {
            let fd = libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC);
            assert!(fd >= 0 && libc::unlockpt(fd) == 0, "a terminal");
            let mut number: libc::c_uint = 0;
            assert_eq!(libc::ioctl(fd, libc::TIOCGPTN, &mut number), 0);
            (File::from_raw_fd(fd), number)
        };
        owned_by(user, &PathBuf::from(format!("/dev/pts/{number}")));
        master.write_all(SECRET.as_bytes()).expect("its buffer is empty");
        Terminal { number, _master: master }
    }
}
