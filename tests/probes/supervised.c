// Calls that the supervisor makes for a program, in ways that once deceived it. Each prints "0" or the errno.
//   chmod MODE PATH     create MODE PATH    connect PATH    listen PATH|@NAME    lease PATH    capability PATH
//   serve PATH          listens there, prints "ready" and sends "S" to every client
//   flip DIR            connects to a server that never accepts while other threads flip O_NONBLOCK on the sockets
//   crowd N DIR         N threads connect to such a server and block; prints how many were refused, and their errno
//   flood               threads that make denied calls for ever
//   stop PATH           starts a child that grows PATH for ever, and stops itself
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

static socklen_t named(struct sockaddr_un *address, const char *name) {
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    strncpy(address->sun_path, name, sizeof address->sun_path - 1);
    socklen_t size = (socklen_t)(sizeof(sa_family_t) + strlen(name) + 1);
    if (name[0] == '@') {
        address->sun_path[0] = 0;
        size--;
    }
    return size;
}

static struct sockaddr_un full;
static socklen_t full_size;

// A server in DIR whose queue is full, so that clients wait for ever.
static void fill(const char *directory) {
    char path[200];
    snprintf(path, sizeof path, "%s/full", directory);
    full_size = named(&full, path);
    int server = socket(AF_UNIX, SOCK_STREAM, 0);
    if (bind(server, (struct sockaddr *)&full, full_size) || listen(server, 0)) exit(98);
    for (;;) {
        int client = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
        if (connect(client, (struct sockaddr *)&full, full_size) == 0) continue;
        if (errno == EAGAIN) return;
        exit(97);
    }
}

enum { PAIRS = 48 };
static volatile int sockets[PAIRS];

static void *flips(void *at) {
    volatile int *socket = at;
    for (int flags = O_RDWR;; flags ^= O_NONBLOCK) fcntl(*socket, F_SETFL, flags);
    return NULL;
}

static void *connects(void *at) {
    volatile int *socket = at;
    while (connect(*socket, (struct sockaddr *)&full, full_size) < 0 && errno == EAGAIN) continue;
    return NULL;
}

static pthread_t start(void *(*work)(void *), void *with) {
    pthread_attr_t small;
    pthread_t thread;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 * 1024);
    if (pthread_create(&thread, &small, work, with)) exit(96);
    return thread;
}

static int waiting, turned_away, last_errno;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *blocks(void *unused) {
    (void)unused;
    int client = socket(AF_UNIX, SOCK_STREAM, 0);
    __atomic_add_fetch(&waiting, 1, __ATOMIC_SEQ_CST);
    int failed = client < 0 || connect(client, (struct sockaddr *)&full, full_size) < 0 ? errno : 0;
    pthread_mutex_lock(&lock);
    turned_away += failed != 0;
    if (failed) last_errno = failed;
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void *denied(void *unused) {
    (void)unused;
    for (;;) syscall(SYS_mount, 0, 0, 0, 0, 0);
    return NULL;
}

static int result(int failed) {
    printf("%d\n", failed < 0 ? errno : 0);
    return 0;
}

int main(int argc, char **argv) {
    const char *verb = argc > 1 ? argv[1] : "", *last = argv[argc - 1];
    struct sockaddr_un address;
    socklen_t size = named(&address, last);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!strcmp(verb, "chmod")) return result((int)syscall(SYS_chmod, last, strtol(argv[2], NULL, 8)));
    if (!strcmp(verb, "create")) {
        umask(0);
        return result(open(last, O_CREAT | O_EXCL | O_WRONLY, (mode_t)strtol(argv[2], NULL, 8)));
    }
    if (!strcmp(verb, "connect")) return result(connect(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&address, size));
    if (!strcmp(verb, "listen") || !strcmp(verb, "serve")) {
        int server = socket(AF_UNIX, SOCK_STREAM, 0);
        if (bind(server, (struct sockaddr *)&address, size)) exit(95);
        int listens = listen(server, 5);
        if (!strcmp(verb, "listen")) return result(listens);
        puts(listens ? "failed" : "ready");
        for (;;) {
            int client = accept(server, NULL, NULL);
            if (client < 0) return 1;
            // A client that has gone must not end the server by SIGPIPE or EPIPE.
            send(client, "S", 1, MSG_NOSIGNAL);
            close(client);
        }
    }
    if (!strcmp(verb, "lease")) return result(fcntl(open(last, O_RDONLY), F_SETLEASE, F_RDLCK));
    if (!strcmp(verb, "capability")) {
        // VFS_CAP_REVISION_2 with the effective bit, CAP_SYS_ADMIN permitted.
        unsigned words[5] = {0x02000001, 1u << 21, 0, 0, 0};
        return result(setxattr(last, "security.capability", words, sizeof words, 0));
    }
    if (!strcmp(verb, "flip")) {
        fill(last);
        for (int at = 0; at < PAIRS; at++) {
            sockets[at] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
            start(flips, (void *)&sockets[at]);
            start(connects, (void *)&sockets[at]);
        }
        puts("flipping");
        for (;;) pause();
    }
    if (!strcmp(verb, "crowd")) {
        int count = atoi(argv[2]);
        fill(last);
        for (int at = 0; at < count; at++) start(blocks, NULL);
        // All threads are about to connect. Wait for the first refusal, which may take long on a busy machine, then until no
        // further one has come for a second.
        while (__atomic_load_n(&waiting, __ATOMIC_SEQ_CST) < count) usleep(1000);
        for (int tries = 0; tries < 200 && !__atomic_load_n(&turned_away, __ATOMIC_SEQ_CST); tries++) usleep(100000);
        for (int before = -1; before != turned_away;) {
            before = turned_away;
            usleep(1000000);
        }
        printf("%d %d\n", turned_away, last_errno);
        _exit(0);
    }
    if (!strcmp(verb, "flood")) {
        for (int at = 0; at < 16; at++) start(denied, NULL);
        puts("flooding");
        for (;;) pause();
    }
    if (!strcmp(verb, "stop")) {
        if (fork() == 0) {
            setsid();
            int file = open(last, O_CREAT | O_WRONLY | O_APPEND, 0600);
            for (;;) {
                if (write(file, "x", 1) != 1) _exit(1);
                usleep(10000);
            }
        }
        puts("stopping");
        kill(getpid(), SIGSTOP);
        puts("continued");
        for (;;) pause();
    }
    return 99;
}
