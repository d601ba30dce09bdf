// Changes its working directory in every way there is, between calls that name files from there.
//
// moves WAY INSIDE OUTSIDE ROUNDS: in each round opens and changes `file` in INSIDE, which must succeed, and in OUTSIDE, which must
// be refused. WAY says who moves: self, descriptor, thread, clone (a process that shares the directory), waiting (a child, while its
// parent stays). Prints how often it was refused.
//
// moves race INSIDE OUTSIDE ROUNDS, moves swap INSIDE OUTSIDE ROUNDS: a thread moves back and forth, or exchanges what a descriptor
// is, while another one makes every file readable to all.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *way, *inside, *outside;
static int refused;
static atomic_int ended;

static void fail(const char *what) {
    fprintf(stderr, "%s: %s: %s\n", way, what, strerror(errno));
    _exit(1);
}

static void *move_to(void *place) {
    if (chdir(place)) fail("chdir");
    return NULL;
}

static void go(const char *place) {
    if (!strcmp(way, "descriptor")) {
        int fd = open(place, O_PATH | O_DIRECTORY);
        if (fd < 0 || fchdir(fd) || close(fd)) fail("fchdir");
    } else if (!strcmp(way, "thread")) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, move_to, (void *)place) || pthread_join(thread, NULL)) fail("thread");
    } else if (!strcmp(way, "clone")) {
        int status;
        pid_t child = syscall(SYS_clone, CLONE_FS | SIGCHLD, 0, 0, 0, 0);
        if (child < 0) fail("clone");
        if (child == 0) {
            move_to((void *)place);
            _exit(0);
        }
        if (waitpid(child, &status, 0) != child || status) fail("child");
    } else {
        move_to((void *)place);
    }
}

static void granted(void) {
    int fd = open("file", O_WRONLY | O_CREAT, 0600);
    if (fd < 0 || close(fd)) fail("open inside");
    if (chmod("file", 0640)) fail("chmod inside");
}

static void denied(void) {
    if (open("file", O_WRONLY) >= 0 || errno != EACCES) fail("open outside");
    if (chmod("file", 0666) == 0 || errno != EPERM) fail("chmod outside");
    refused++;
}

// The parent stays outside while its child goes back.
static void wait_outside(void) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        denied();
        move_to((void *)inside);
        granted();
        _exit(0);
    }
    if (waitpid(child, &status, 0) != child || status) fail("child");
    refused++;
}

static void *swap(void *fds) {
    int *both = fds;
    for (int i = 0; !ended; i++) {
        if (both[0] >= 0) dup2(both[i & 1], both[2]);
        else if (chdir(i & 1 ? outside : inside)) fail("chdir");
    }
    return NULL;
}

static void race(int rounds) {
    int fds[3] = {-1, -1, -1};
    move_to((void *)inside);
    if (!strcmp(way, "swap")) {
        char path[4096];
        snprintf(path, sizeof path, "%s/file", outside);
        fds[0] = open("file", O_WRONLY | O_CREAT, 0600);
        fds[1] = open(path, O_RDONLY);
        fds[2] = dup(fds[0]);
        if (fds[0] < 0 || fds[1] < 0 || fds[2] < 0) fail("open");
    }
    pthread_t thread;
    if (pthread_create(&thread, NULL, swap, fds)) fail("thread");
    int done = 0;
    for (int i = 0; i < rounds; i++) {
        if (fds[0] >= 0) {
            // What was opened last is remembered.
            int fd = open("file", O_WRONLY);
            if (fd >= 0) close(fd);
            done += fchmod(fds[2], i & 1 ? 0644 : 0604) == 0;
        } else {
            done += chmod("file", i & 1 ? 0644 : 0604) == 0;
        }
    }
    ended = 1;
    pthread_join(thread, NULL);
    printf("%s\n", done ? "done" : "never");
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    way = argv[1], inside = argv[2], outside = argv[3];
    int rounds = atoi(argv[4]);
    if (!strcmp(way, "race") || !strcmp(way, "swap")) {
        race(rounds);
        return 0;
    }
    for (int i = 0; i < rounds; i++) {
        go(inside);
        granted();
        go(outside);
        denied();
        if (!strcmp(way, "waiting")) wait_outside();
        go(inside);
        granted();
    }
    printf("%d\n", refused);
    return 0;
}
