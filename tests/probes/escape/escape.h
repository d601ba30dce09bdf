/* One way out each: an attack returns 0 if it got there, and has looked that it did, or the errno that stopped it. */
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

/* What a control may need. */
enum {
    ROOT = 1,   /* open to root only */
    KERNEL = 2, /* not every kernel is built with it */
    FATAL = 4,  /* the process dies of it: run on its own */
    SPACE = 8,  /* the control runs in namespaces of its own */
    GATE = 16,  /* no claim of libsandbox.so alone */
    INET = 32,  /* granted where internet sockets are */
    WRITES = 64, /* granted where something may be written */
    SETUID = 128, /* takes a setuid program, which only root can make */
    CAPS = 256    /* stopped by the capabilities that root has not: libsandbox.so alone leaves root all of them */
};

struct attack {
    const char *name;
    int (*run)(void);
    int flags;
    const char *open; /* what it gives unconfined: "done", or the errno of a kernel that took it and looked at its words */
    const char *text;
};

/* Where the attack takes place, told by the caller. */
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
enum { TARGET = 40 }; /* so far behind the secret lies what attacks would write to */

static inline int failed(long answer) { return answer < 0 ? errno : 0; }
/* The two ways in which an attack got past the refusals and yet has nothing. */
enum { NOTHING = 250, UNABLE = 251 };

const char *at(const char *directory, const char *name); /* a path, in one of a few static buffers */
int holds_secret(int fd);                                /* 0 if the descriptor reads the secret; closes it */
int reads_secret(const char *path);
int writes(const char *path, int flags); /* 0 if text could be put into it */
int in_child(int (*run)(void));          /* what it returned, in a process of its own */
int supervisor(void);                    /* the process above the guardian, or the victim where there is none */
int guardian(void);
int guess(long tries), flood(int threads, int calls), signals(int calls), exhaust(int rounds);
#endif
