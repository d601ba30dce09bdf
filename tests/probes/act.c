// Makes the calls named by its arguments, and prints the name and errno of each (0: success).
// act OP ARGS... [, OP ARGS...]*
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static int done(long answer) { return answer < 0 ? errno : 0; }

static int opened(const char *path, int flags) {
    int fd = open(path, flags, 0644);
    if (fd < 0) return errno;
    close(fd);
    return 0;
}

static int filled(const char *path, int flags, const char *text) {
    int fd = open(path, flags, 0644);
    if (fd < 0) return errno;
    int failed = write(fd, text, strlen(text)) < 0 ? errno : 0;
    close(fd);
    return failed;
}

static socklen_t address(struct sockaddr_un *to, const char *name) {
    memset(to, 0, sizeof *to);
    to->sun_family = AF_UNIX;
    if (name[0] == '@') {
        strncpy(to->sun_path + 1, name + 1, sizeof to->sun_path - 2);
        return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    }
    strncpy(to->sun_path, name, sizeof to->sun_path - 1);
    return sizeof *to;
}

static int connected(const char *name, int type) {
    struct sockaddr_un to;
    socklen_t size = address(&to, name);
    int fd = socket(AF_UNIX, type, 0);
    if (fd < 0) return 1000 + errno;
    int failed = done(connect(fd, (struct sockaddr *)&to, size));
    if (!failed) {
        char byte = 0;
        // The server's byte proves that this socket is connected.
        if (read(fd, &byte, 1) != 1) failed = 2000 + errno;
    }
    close(fd);
    return failed;
}

static int sent(const char *name) {
    struct sockaddr_un to;
    socklen_t size = address(&to, name);
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (fd < 0) return 1000 + errno;
    int failed = done(sendto(fd, "x", 1, 0, (struct sockaddr *)&to, size));
    close(fd);
    return failed;
}

static int spawned(char *program) {
    pid_t child = fork();
    if (child < 0) return 1000 + errno;
    if (child == 0) {
        execl(program, program, (char *)0);
        _exit(200);
    }
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int act(char **w) {
    const char *op = w[0];
    struct timespec times[2] = {{1000000000, 0}, {1000000000, 0}};
#define IS(name) (strcmp(op, name) == 0)
    if (IS("read")) return opened(w[1], O_RDONLY);
    if (IS("list")) return opened(w[1], O_RDONLY | O_DIRECTORY);
    if (IS("write")) return filled(w[1], O_WRONLY, "changed\n");
    if (IS("create")) return filled(w[1], O_WRONLY | O_CREAT, "made\n");
    if (IS("exclusive")) return filled(w[1], O_WRONLY | O_CREAT | O_EXCL, "made\n");
    if (IS("append")) return filled(w[1], O_WRONLY | O_APPEND, "more\n");
    if (IS("open-truncate")) return opened(w[1], O_WRONLY | O_TRUNC);
    if (IS("truncate")) return done(truncate(w[1], 0));
    if (IS("rename")) return done(rename(w[1], w[2]));
    if (IS("exchange")) return done(renameat2(AT_FDCWD, w[1], AT_FDCWD, w[2], RENAME_EXCHANGE));
    if (IS("link")) return done(link(w[1], w[2]));
    if (IS("symlink")) return done(symlink(w[1], w[2]));
    if (IS("unlink")) return done(unlink(w[1]));
    if (IS("rmdir")) return done(rmdir(w[1]));
    if (IS("mkdir")) return done(mkdir(w[1], 0755));
    if (IS("chmod")) return done(chmod(w[1], 0777));
    if (IS("fchmod")) {
        int fd = open(w[1], O_RDONLY);
        return fd < 0 ? 1000 + errno : done(fchmod(fd, 0777));
    }
    if (IS("fchmodat")) {
        int fd = open(w[1], O_PATH | O_DIRECTORY);
        return fd < 0 ? 1000 + errno : done(fchmodat(fd, w[2], 0777, 0));
    }
    if (IS("proc-chmod")) {
        char path[64];
        int fd = open(w[1], O_RDONLY);
        if (fd < 0) return 1000 + errno;
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        return done(chmod(path, 0777));
    }
    if (IS("chown")) return done(chown(w[1], getuid(), getgid()));
    if (IS("lchown")) return done(lchown(w[1], getuid(), getgid()));
    if (IS("times")) return done(utimensat(AT_FDCWD, w[1], times, 0));
    if (IS("link-times")) return done(utimensat(AT_FDCWD, w[1], times, AT_SYMLINK_NOFOLLOW));
    if (IS("ftimes")) {
        int fd = open(w[1], O_RDONLY);
        return fd < 0 ? 1000 + errno : done(futimens(fd, times));
    }
    if (IS("setxattr")) return done(setxattr(w[1], "user.gatekeeper", "x", 1, 0));
    if (IS("removexattr")) return done(removexattr(w[1], "user.gatekeeper"));
    if (IS("chdir")) return done(chdir(w[1]));
    if (IS("connect")) return connected(w[1], SOCK_STREAM);
    if (IS("connect-packet")) return connected(w[1], SOCK_SEQPACKET);
    if (IS("send")) return sent(w[1]);
    if (IS("tcp")) return done(socket(AF_INET, SOCK_STREAM, 0));
    if (IS("udp")) return done(socket(AF_INET, SOCK_DGRAM, 0));
    if (IS("exec")) {
        execl(w[1], w[1], (char *)0);
        return errno;
    }
    if (IS("spawn")) return spawned(w[1]);
    if (IS("fork")) {
        pid_t child = fork();
        if (child == 0) _exit(0);
        return done(child);
    }
    if (IS("signal")) return done(kill(atoi(w[1]), 0));
    if (IS("fd")) return done(fcntl(atoi(w[1]), F_GETFD));
    if (IS("ptrace")) return done(syscall(SYS_ptrace, 0, 0, 0, 0));
    if (IS("unshare")) return done(syscall(SYS_unshare, 0x10000000));
    if (IS("mount")) return done(syscall(SYS_mount, 0, 0, 0, 0, 0));
    if (IS("die")) return raise(atoi(w[1]));
    if (IS("exit")) exit(atoi(w[1]));
    return 9999;
#undef IS
}

int main(int argc, char **argv) {
    setvbuf(stdout, 0, _IOLBF, 0);
    for (int at = 1; at < argc;) {
        int end = at;
        while (end < argc && strcmp(argv[end], ",") != 0) end++;
        argv[end] = 0;
        const char *op = argv[at];
        printf("%s %d\n", op, act(argv + at));
        at = end + 1;
    }
    return 0;
}
