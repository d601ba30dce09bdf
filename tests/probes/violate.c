/* Makes the call named by its arguments, and exits with its errno, or 0 if it was allowed. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static int done(long answer) { return answer < 0 ? errno : 0; }

static socklen_t unix_address(struct sockaddr_un *address, const char *name) {
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    size_t size = strlen(name);
    if (name[0] == '@') {
        memcpy(address->sun_path, name, size);
        address->sun_path[0] = 0;
        return offsetof(struct sockaddr_un, sun_path) + size;
    }
    strncpy(address->sun_path, name, sizeof address->sun_path - 1);
    return sizeof *address;
}

static struct sockaddr_in inet_address(const char *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static void *socket_thread(void *result) {
    *(int *)result = done(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    return NULL;
}

static char *flipped;
static volatile int stop;

static void *flipper(void *letter) {
    while (!stop) {
        flipped[0] = '/';
        flipped[0] = *(char *)letter;
        flipped[0] = 0;
    }
    return NULL;
}

/* Opens a path for writing while another thread changes it, and counts how often a file outside was opened. */
static int race(const char *path, int rounds) {
    flipped = strdup(path);
    pthread_t thread;
    if (pthread_create(&thread, NULL, flipper, "x")) return 99;
    int through = 0;
    for (int i = 0; i < rounds; i++) {
        int fd = open(flipped, O_WRONLY | O_CREAT, 0600);
        if (fd >= 0) close(fd);
        if (access(path, F_OK) == 0) through++;
    }
    stop = 1;
    pthread_join(thread, NULL);
    return through ? 98 : 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    const char *a = argc > 2 ? argv[2] : "", *b = argc > 3 ? argv[3] : "";
#define IS(word) (strcmp(what, word) == 0)
    if (IS("open")) return done(open(a, O_WRONLY | O_CREAT | O_CLOEXEC, 0640));
    if (IS("open-existing")) return done(open(a, O_RDWR));
    if (IS("open-trunc")) return done(open(a, O_RDONLY | O_TRUNC));
    if (IS("open-tmpfile")) return done(open(a, O_TMPFILE | O_RDWR, 0600));
    if (IS("open-read")) return done(open(a, O_RDONLY));
    if (IS("openat")) return done(openat(open(a, O_PATH | O_DIRECTORY), b, O_WRONLY | O_CREAT, 0600));
    if (IS("openat-cwd")) { if (chdir(a)) return errno; return done(open(b, O_WRONLY | O_CREAT, 0600)); }
    if (IS("creat")) return done(syscall(SYS_creat, a, 0600));
    if (IS("mkdir")) return done(mkdir(a, 0755));
    if (IS("mkdirat")) return done(mkdirat(open(a, O_PATH | O_DIRECTORY), b, 0711));
    if (IS("rmdir")) return done(rmdir(a));
    if (IS("unlink")) return done(unlink(a));
    if (IS("rename")) return done(rename(a, b));
    if (IS("link")) return done(link(a, b));
    if (IS("symlink")) return done(symlink(a, b));
    if (IS("truncate")) return done(truncate(a, 3));
    if (IS("mkfifo")) return done(mkfifo(a, 0600));
    if (IS("chmod")) return done(chmod(a, 0600));
    if (IS("fchmod")) return done(fchmod(open(a, O_RDONLY), 0600));
    if (IS("socket")) return done(socket(atoi(a), atoi(b), argc > 4 ? atoi(argv[4]) : 0));
    if (IS("socket-thread")) {
        int result = 99;
        pthread_t thread;
        if (pthread_create(&thread, NULL, socket_thread, &result)) return 99;
        pthread_join(thread, NULL);
        return result;
    }
    if (IS("bind-unix") || IS("connect-unix")) {
        struct sockaddr_un address;
        socklen_t size = unix_address(&address, a);
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        if (fd < 0) return 99;
        return done(IS("bind-unix") ? bind(fd, (void *)&address, size) : connect(fd, (void *)&address, size));
    }
    if (IS("connect") || IS("bind") || IS("sendto") || IS("sendmsg")) {
        struct sockaddr_in address = inet_address(a);
        int datagram = IS("sendto") || IS("sendmsg");
        int fd = socket(AF_INET, datagram ? SOCK_DGRAM : SOCK_STREAM, 0);
        if (fd < 0) return 99;
        if (IS("connect")) return done(connect(fd, (void *)&address, sizeof address));
        if (IS("bind")) return done(bind(fd, (void *)&address, sizeof address));
        if (IS("sendto")) return done(sendto(fd, "x", 1, 0, (void *)&address, sizeof address));
        struct iovec part = {"x", 1};
        struct msghdr message = {.msg_name = &address, .msg_namelen = sizeof address, .msg_iov = &part, .msg_iovlen = 1};
        return done(sendmsg(fd, &message, MSG_NOSIGNAL));
    }
    if (IS("clone-user")) {
        long pid = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
        if (pid == 0) _exit(0);
        return done(pid);
    }
    if (IS("fork")) { pid_t pid = syscall(SYS_fork); if (pid == 0) _exit(0); return done(pid); }
    if (IS("unshare")) return done(unshare(CLONE_NEWUSER));
    if (IS("ptrace")) return done(ptrace(PTRACE_TRACEME, 0, 0, 0));
    if (IS("tiocsti")) return done(ioctl(0, TIOCSTI, "x"));
    if (IS("personality")) return done(syscall(SYS_personality, 0x0040000));
    if (IS("prlimit")) { struct rlimit l; return done(syscall(SYS_prlimit64, getppid(), RLIMIT_CORE, NULL, &l)); }
    if (IS("sethostname")) return done(sethostname("x", 1));
    if (IS("setuid")) return done(syscall(SYS_setuid, getuid()));
    if (IS("setuid-other")) return done(syscall(SYS_setuid, getuid() + 1));
    if (IS("keyctl")) return done(syscall(SYS_keyctl, 0, -3, 0, 0, 0)) == EPERM ? EPERM : 0;
    if (IS("future")) return done(syscall(1000));
    if (IS("loop")) { int e = 0; for (int i = 0; i < atoi(a); i++) e = done(socket(AF_INET, SOCK_STREAM, 0)); return e; }
    if (IS("distinct")) {
        for (int i = 0; i < atoi(b); i++) {
            char path[4096];
            snprintf(path, sizeof path, "%s/%d", a, i);
            open(path, O_WRONLY | O_CREAT, 0600);
        }
        return 0;
    }
    if (IS("grandchild")) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            pid_t grandchild = fork();
            if (grandchild == 0) _exit(done(open(a, O_WRONLY | O_CREAT, 0600)));
            waitpid(grandchild, &status, 0);
            _exit(WEXITSTATUS(status));
        }
        if (child < 0) return errno;
        waitpid(child, &status, 0);
        return WEXITSTATUS(status);
    }
    if (IS("exec-long")) {
        static char *words[4002];
        for (int i = 0; i < 4000; i++) words[i] = "a-word-of-some-length";
        words[0] = (char *)a;
        execv(a, words);
        return errno;
    }
    if (IS("bad-pointer")) return done(syscall(SYS_openat, AT_FDCWD, (void *)(a[0] ? strtoul(a, 0, 0) : 1), O_WRONLY | O_CREAT, 0600));
    if (IS("race")) return race(a, atoi(b));
    if (IS("time-writes")) {
        struct timespec from, to;
        clock_gettime(CLOCK_MONOTONIC, &from);
        for (int i = 0; i < atoi(b); i++) close(open(a, O_WRONLY | O_CREAT, 0600));
        clock_gettime(CLOCK_MONOTONIC, &to);
        printf("%ld\n", ((to.tv_sec - from.tv_sec) * 1000000000L + to.tv_nsec - from.tv_nsec) / atoi(b));
        return 0;
    }
    if (IS("time-denied")) {
        struct timespec from, to;
        clock_gettime(CLOCK_MONOTONIC, &from);
        for (int i = 0; i < atoi(a); i++) socket(AF_INET, SOCK_STREAM, 0);
        clock_gettime(CLOCK_MONOTONIC, &to);
        printf("%ld\n", ((to.tv_sec - from.tv_sec) * 1000000000L + to.tv_nsec - from.tv_nsec) / atoi(a));
        return 0;
    }
    if (IS("time-reads")) {
        struct timespec from, to;
        clock_gettime(CLOCK_MONOTONIC, &from);
        for (int i = 0; i < atoi(b); i++) close(open(a, O_RDONLY));
        clock_gettime(CLOCK_MONOTONIC, &to);
        printf("%ld\n", ((to.tv_sec - from.tv_sec) * 1000000000L + to.tv_nsec - from.tv_nsec) / atoi(b));
        return 0;
    }
    fprintf(stderr, "violate: what is '%s'?\n", what);
    return 100;
}
