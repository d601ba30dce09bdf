/* escape guess N | flood THREADS CALLS | signals CALLS | exhaust ROUNDS: see storms.c
 * escape list                          prints every attack: name|flags|open|text
 * escape hold                          is the victim: prints pid, address and descriptor, and at the end its memory
 * escape run KEY=VALUE... -- NAME...   makes each attack, in a child process if possible, and prints "NAME RESULT"
 * escape free KEY=VALUE... -- NAME...  the same, unconfined, in new namespaces if the attack needs them */
#include "escape.h"
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>

struct scene scene;

static const struct attack *const themes[] = {entry_attacks,  other_attacks,   file_attacks, kernel_attacks,
                                              network_attacks, program_attacks, race_attacks,  address_attacks};
static const char *const theme_names[] = {"entry", "others", "files", "kernel", "network", "programs", "races", "addresses"};

const char *at(const char *directory, const char *name) {
    static char paths[8][4096];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", directory, name);
    return path;
}

int holds_secret(int fd) {
    char text[sizeof SECRET] = "";
    if (fd < 0) return errno;
    ssize_t got = pread(fd, text, sizeof SECRET - 1, 0);
    if (got < 0 && errno == ESPIPE) got = read(fd, text, sizeof SECRET - 1);
    int error = failed(got);
    close(fd);
    if (error) return error;
    return strcmp(text, SECRET) == 0 ? 0 : NOTHING;
}

int reads_secret(const char *path) { return holds_secret(open(path, O_RDONLY | O_CLOEXEC)); }

int writes(const char *path, int flags) {
    int fd = open(path, flags | O_WRONLY | O_CLOEXEC, 0644);
    if (fd < 0) return errno;
    int error = failed(write(fd, "changed\n", 8));
    close(fd);
    return error;
}

static int parent_of(int pid) {
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    if (got <= 0) return 0;
    text[got] = 0;
    char *end = strrchr(text, ')');
    return end ? atoi(strchr(end + 2, ' ')) : 0;
}

static int top; /* the first process of this program */

int guardian(void) { return parent_of(top); }

int supervisor(void) {
    int above = parent_of(guardian());
    return above > 0 ? above : guardian();
}

int in_child(int (*run)(void)) {
    pid_t child = fork();
    if (child < 0) return errno;
    if (child == 0) _exit(run());
    int status;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Unconfined there is no supervisor, so two ancestors of the same user act as supervisor and guardian. */
static int descend(void) {
    for (int level = 0; level < 2; level++) {
        pid_t child = fork();
        int status = 0;
        if (child == 0) continue;
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
    return getpid();
}

static const char *word(int code) {
    static char text[32];
    if (code == 0) return "done";
    if (code == NOTHING) return "nothing";
    if (code == UNABLE) return "unable";
    if (code > 200) snprintf(text, sizeof text, "signal %d", code - 200);
    else snprintf(text, sizeof text, "%s", strerrorname_np(code) ? strerrorname_np(code) : "?");
    return text;
}

static int run_one(const struct attack *attack, int space) {
    if (space && (attack->flags & SPACE)) {
        if (unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC) == 0) {
            mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
        }
    }
    return attack->run();
}

/* Runs an attack in a child process if one can be created. A fatal attack runs in this process: that its result is missing
   shows that it was killed. */
static int isolate(const struct attack *attack, int space) {
    pid_t child = attack->flags & FATAL && !space ? -1 : fork();
    if (child < 0) return run_one(attack, space);
    if (child == 0) _exit(run_one(attack, space));
    int status;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    return WIFSIGNALED(status) ? 200 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void tell(const char *name) {
    for (size_t theme = 0; theme < sizeof themes / sizeof *themes; theme++) {
        for (const struct attack *attack = themes[theme]; attack->name; attack++) {
            if (!name) {
                printf("%s|%s|%d|%s|%s\n", attack->name, theme_names[theme], attack->flags, attack->open, attack->text);
            } else if (strcmp(name, attack->name) == 0) {
                printf("%s %s\n", name, word(isolate(attack, scene.still == NULL)));
            }
        }
    }
}

static int hold(void) {
    static volatile char secret[64] = SECRET;
    char byte;
    int fds[2], file = open(getenv("ESCAPE_SECRET"), O_RDONLY);
    if (pipe(fds)) return 1;
    printf("%d %lu %d\n", getpid(), (unsigned long)secret, file);
    fflush(stdout);
    while (read(0, &byte, 1) < 0 && errno == EINTR) {}
    printf("%s%s\n", (const char *)secret, (const char *)secret + TARGET);
    return 0;
}

static void take(char *text) {
    char *value = strchr(text, '=');
    if (!value) return;
    *value++ = 0;
#define TEXT(key) else if (strcmp(text, #key) == 0) scene.key = value
#define NUMBER(key) else if (strcmp(text, #key) == 0) scene.key = strtoul(value, NULL, 10)
    if (0) {}
    TEXT(work); TEXT(tools); TEXT(outside); TEXT(home); TEXT(abstract); TEXT(socket); TEXT(datagram);
    NUMBER(victim); NUMBER(victim_fd); NUMBER(secret); NUMBER(port); NUMBER(forbidden); NUMBER(pty);
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char *what = argc > 1 ? argv[1] : "";
    top = getpid();
    scene.self = argv[0];
    if (strcmp(what, "list") == 0) tell(NULL);
    else if (strcmp(what, "hold") == 0) return hold();
    else if (strcmp(what, "guess") == 0) return guess(atol(argv[2]));
    else if (strcmp(what, "flood") == 0) return flood(atoi(argv[2]), atoi(argv[3]));
    else if (strcmp(what, "signals") == 0) return signals(atoi(argv[2]));
    else if (strcmp(what, "exhaust") == 0) return exhaust(atoi(argv[2]));
    else if (strcmp(what, "inner") == 0) return failed(ptrace(PTRACE_TRACEME, 0, 0, 0));
    else if (strcmp(what, "user") == 0) return geteuid() == 4242 ? 0 : NOTHING;
    else if (strcmp(what, "run") == 0 || strcmp(what, "free") == 0) {
        if (strcmp(what, "run") == 0) scene.still = "confined";
        else top = descend();
        int word = 2;
        for (; word < argc && strcmp(argv[word], "--") != 0; word++) take(argv[word]);
        while (++word < argc) tell(argv[word]);
    } else return 2;
    return 0;
}
