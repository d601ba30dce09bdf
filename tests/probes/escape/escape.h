/* Each attack tries one way out. It returns 0 if it succeeded and has verified that, or the errno that stopped it. */
#ifndef ESCAPE_H
#define ESCAPE_H
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* What an attack needs, and who claims to stop it. */
enum {
    ROOT = 1,     /* works for root only */
    KERNEL = 2,   /* not every kernel is built with it */
    FATAL = 4,    /* kills the process, so it runs in a process of its own */
    SPACE = 8,    /* the unconfined control runs in new namespaces */
    GATE = 16,    /* libsandbox.so alone does not claim to stop it */
    INET = 32,    /* granted by profiles with internet sockets */
    WRITES = 64,  /* granted by profiles that may write */
    SETUID = 128, /* needs a setuid program, which only root can create */
    CAPS = 256    /* stopped by dropping root's capabilities, which libsandbox.so alone does not do */
};

struct attack {
    const char *name;
    int (*run)(void);
    int flags;
    const char *open; /* its results unconfined: "done", or errnos that show that the kernel examined the arguments */
    const char *text;
};

/* The surroundings of the attack, as passed by the caller. */
struct scene {
    const char *work, *outside, *home, *tools, *self, *still;
    int victim, victim_fd, port, forbidden;
    unsigned long secret; /* an address in the victim */
    const char *abstract, *socket, *datagram;
    int pty;
};
extern struct scene scene;

extern const struct attack entry_attacks[], other_attacks[], file_attacks[], kernel_attacks[], network_attacks[],
    program_attacks[], race_attacks[], address_attacks[];

#define SECRET "SECRET of somebody else"
enum { TARGET = 40 }; /* attacks write to this offset from the secret */

static inline int failed(long answer) { return answer < 0 ? errno : 0; }
/* No call was refused, but the attack had no effect (NOTHING) or could not be made (UNABLE). */
enum { NOTHING = 250, UNABLE = 251 };

const char *at(const char *directory, const char *name); /* a path, in one of a few static buffers */
int holds_secret(int fd);                                /* 0 if the secret can be read from it; closes it */
int reads_secret(const char *path);
int writes(const char *path, int flags); /* 0 if text could be written to it */
int in_child(int (*run)(void));          /* runs it in a child process and returns its result */
int supervisor(void);                    /* the guardian's parent, or the victim if there is no supervisor */
int guardian(void);
int guess(long tries), flood(int threads, int calls), signals(int calls), exhaust(int rounds);
#endif
