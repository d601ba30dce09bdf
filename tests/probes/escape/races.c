/* Races of two threads against a supervisor that checks first and acts later. "nothing" means that no round succeeded. */
#include "escape.h"
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

enum { ROUNDS = 600 };
static const char *own, *mark, *flip;
static volatile int stop;
static char text[4096];

/* Byte by byte and volatile, so that the compiler keeps every write. */
static void put(volatile char *to, const char *from) {
    while ((*to++ = *from++)) {}
}

/* Copies, because both threads use the static buffers of `at`. */
static const char *kept(const char *directory, const char *name) { return strdup(at(directory, name)); }

static int changed(void) {
    struct stat stat_of;
    return stat(mark, &stat_of) == 0 && (stat_of.st_mode & 0777) == 0751;
}
static int contents_changed(void) {
    struct stat stat_of;
    return stat(mark, &stat_of) == 0 && stat_of.st_size != 5;
}
static void prepare(void) {
    own = kept(scene.work, "race-own");
    mark = kept(scene.outside, "mark");
    flip = kept(scene.work, "race-flip");
    writes(own, O_CREAT);
    unlink(flip);
}
static int race(void *(*other)(void *), int (*round)(void), int (*effect)(void)) {
    pthread_t thread;
    int result = NOTHING;
    stop = 0;
    if (pthread_create(&thread, NULL, other, NULL)) return UNABLE;
    /* Unconfined it always succeeds in the end, but a busy machine needs more rounds. */
    int rounds = scene.still ? ROUNDS : 50 * 1000 * 1000;
    for (int tries = 0; tries < rounds && result == NOTHING; tries++) {
        round();
        if (effect()) result = 0;
    }
    stop = 1;
    pthread_join(thread, NULL);
    return result;
}

static void *flips_link(void *unused) {
    const char *a = kept(scene.work, "race-a"), *b = kept(scene.work, "race-b");
    while (!stop) {
        unlink(a);
        unlink(b);
        if (symlink(own, a) < 0 || symlink(mark, b) < 0) break;
        rename(a, flip);
        rename(b, flip);
    }
    return NULL;
}
static int chmods(void) { return failed(chmod(flip, 0751)); }
static int chmods_text(void) { return failed(chmod(text, 0751)); }
static int opens(void) { return writes(flip, O_APPEND); }
static int opens_text(void) { return writes(text, O_APPEND); }

static int link_chmod(void) {
    prepare();
    if (chmod(own, 0700) < 0) return errno;
    return race(flips_link, chmods, changed);
}
static int link_open(void) {
    prepare();
    if (access(own, F_OK) < 0) return EACCES;
    return race(flips_link, opens, contents_changed);
}

/* The parent directory is exchanged for a link to the outside. */
static void *flips_directory(void *unused) {
    const char *dir = kept(scene.work, "race-dir"), *link = kept(scene.work, "race-link");
    while (!stop) syscall(SYS_renameat2, AT_FDCWD, dir, AT_FDCWD, link, 2 /* RENAME_EXCHANGE */);
    return NULL;
}
static const char *below;
static int chmods_below(void) { return failed(chmod(below, 0751)); }
static int directory_chmod(void) {
    prepare();
    if (chmod(own, 0700) < 0) return errno;
    mkdir(at(scene.work, "race-dir"), 0700);
    below = kept(scene.work, "race-dir/mark");
    writes(below, O_CREAT);
    if (symlink(scene.outside, at(scene.work, "race-link")) < 0 && errno != EEXIST) return errno;
    return race(flips_directory, chmods_below, changed);
}

/* The path in memory changes while it is read. */
static void *flips_text(void *unused) {
    while (!stop) {
        put(text, own);
        put(text, mark);
    }
    return NULL;
}
static int text_chmod(void) {
    prepare();
    if (chmod(own, 0700) < 0) return errno;
    strcpy(text, own);
    return race(flips_text, chmods_text, changed);
}
static int text_open(void) {
    prepare();
    strcpy(text, own);
    return race(flips_text, opens_text, contents_changed);
}

/* The descriptor is replaced by another file before it is used. */
static int fd_own, fd_mark, fd_flip = 90;
static void *flips_descriptor(void *unused) {
    while (!stop) {
        dup2(fd_own, fd_flip);
        dup2(fd_mark, fd_flip);
    }
    return NULL;
}
static int chmods_descriptor(void) { return failed(fchmod(fd_flip, 0751)); }
static int descriptor_chmod(void) {
    prepare();
    fd_own = open(own, O_RDONLY);
    fd_mark = open(mark, O_RDONLY);
    if (fd_own < 0 || fd_mark < 0) return errno;
    if (fchmod(fd_own, 0700) < 0) return errno;
    dup2(fd_own, fd_flip);
    return race(flips_descriptor, chmods_descriptor, changed);
}

/* A socket of its own, and one outside that sends a credential. */
static struct sockaddr_un flipping;
static volatile int reached;
static void *flips_socket(void *unused) {
    const char *mine = kept(scene.work, "race-socket");
    while (!stop) {
        put(flipping.sun_path, mine);
        put(flipping.sun_path, scene.socket);
    }
    return NULL;
}
static int connects(void) {
    char byte;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (fd < 0) return errno;
    int error = failed(connect(fd, (void *)&flipping, sizeof flipping));
    fcntl(fd, F_SETFL, 0);
    struct timeval soon = {0, 2000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon);
    if (!error && recv(fd, &byte, 1, 0) == 1) reached = 1;
    close(fd);
    return error;
}
static int was_reached(void) { return reached; }
static int socket_connect(void) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof name.sun_path, "%s", at(scene.work, "race-socket"));
    unlink(name.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (void *)&name, sizeof name) < 0 || listen(fd, 1) < 0) return errno;
    flipping = name;
    reached = 0;
    return race(flips_socket, connects, was_reached);
}

const struct attack race_attacks[] = {
    {"race-link-chmod", link_chmod, 0, "done", "change a mode through a symbolic link that flips to the outside"},
    {"race-directory-chmod", directory_chmod, 0, "done", "change a mode through a directory that flips to the outside"},
    {"race-words-chmod", text_chmod, 0, "done", "change a mode by a path that flips in memory"},
    {"race-descriptor-chmod", descriptor_chmod, 0, "done", "change a mode through a descriptor that flips"},
    {"race-link-open", link_open, 0, "done", "write through a symbolic link that flips to the outside"},
    {"race-words-open", text_open, 0, "done", "write by a path that flips in memory while the report reads it"},
    {"race-socket", socket_connect, GATE, "done", "connect to a socket outside by a name that flips"},
    {0}};
