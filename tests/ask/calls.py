# Makes every call that can be asked about, and prints how each ended. The arguments: the closed directory, and a port.
import errno, os, socket, sys

H, port = sys.argv[1], int(sys.argv[2])


def opened(name, flags):
    return lambda: os.close(os.open(H + name, flags, 0o600))


def on(method, name, *args):
    return lambda: method(H + name, *args)


def unix(method):
    return lambda: getattr(socket.socket(socket.AF_UNIX), method)(H + "/" + method)


def listen():
    socket_ = socket.socket()
    socket_.bind(("0.0.0.0", 0))
    socket_.listen()


calls = {
    "read": opened("/.ssh/id", os.O_RDONLY),
    "write": opened("/file", os.O_WRONLY),
    "read and write": opened("/file", os.O_RDWR),
    "append": opened("/file", os.O_WRONLY | os.O_APPEND),
    "empty": opened("/cut", os.O_WRONLY | os.O_TRUNC),
    "create": opened("/new", os.O_WRONLY | os.O_CREAT),
    "create exclusively": opened("/newer", os.O_RDONLY | os.O_CREAT | os.O_EXCL),
    "create unnamed": opened("", os.O_WRONLY | os.O_TMPFILE),
    "mkdir": on(os.mkdir, "/made"),
    "rename": on(os.rename, "/old", H + "/renamed"),
    "unlink": on(os.unlink, "/gone"),
    "rmdir": on(os.rmdir, "/empty"),
    "link": on(os.link, "/file", H + "/hard"),
    "symlink": lambda: os.symlink("to", H + "/soft"),
    "mkfifo": on(os.mkfifo, "/fifo"),
    "chmod": on(os.chmod, "/file", 0o640),
    "fchmod": lambda: os.fchmod(os.open(H + "/file", os.O_RDONLY), 0o604),
    "chown": on(os.chown, "/file", os.getuid(), os.getgid()),
    "utime": on(os.utime, "/file", (5, 5)),
    "setxattr": on(os.setxattr, "/file", "user.new", b"1"),
    "removexattr": on(os.removexattr, "/file", "user.old"),
    "truncate": on(os.truncate, "/short", 7),
    "chdir": on(os.chdir, "/.ssh"),
    "bind": unix("bind"),
    "connect to a socket": unix("connect"),
    "connect to an address": lambda: socket.socket().connect(("127.0.0.1", port)),
    "listen": listen,
}
for name, call in calls.items():
    try:
        call()
        print(name, "ok", sep=": ")
    except OSError as error:
        print(name, errno.errorcode[error.errno], sep=": ")
