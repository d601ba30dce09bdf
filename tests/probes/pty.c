// A terminal and its user. pty STEP ... -- CMD ARGS: starts the command as a session leader on a new terminal and performs
// the steps in order. Exits with the command's status, or prints the screen and exits with 99 if a step failed.
// >TEXT types it (with \r \n \xNN), <TEXT waits until it appears, #ROWSxCOLS resizes the window.
// ?NAME waits until a program of that name sleeps in the foreground, !NAME until it is stopped. No step depends on time, so
// that slow machines only take longer.
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

static const time_t PATIENCE = 300;
static char screen[1 << 20];
static size_t shown, seen;
static int master;
static pid_t child;

static int look(int wait) {
    struct pollfd polled = {master, POLLIN, 0};
    if (poll(&polled, 1, wait) <= 0) return 1;
    ssize_t got = read(master, screen + shown, sizeof screen - 1 - shown);
    if (got <= 0) return 0;
    shown += (size_t)got;
    return 1;
}

static void fail(const char *step) {
    fprintf(stderr, "step failed: %s\nscreen:\n%s\n", step, screen);
    exit(99);
}

static void type(const char *text) {
    for (; *text; text++) {
        char c = *text;
        if (c == '\\' && text[1]) {
            text++;
            c = *text == 'r' ? '\r' : *text == 'n' ? '\n' : *text;
            if (*text == 'x') {
                char hex[3] = {text[1], text[2], 0};
                c = (char)strtol(hex, NULL, 16);
                text += 2;
            }
        }
        if (write(master, &c, 1) != 1) fail(text);
    }
}

static void expect(const char *text) {
    time_t end = time(NULL) + PATIENCE;
    for (;;) {
        char *found = strstr(screen + seen, text);
        if (found) {
            seen = (size_t)(found - screen) + strlen(text);
            return;
        }
        if (time(NULL) > end || !look(100)) fail(text);
    }
}

// Whether a process of that name sleeps in the foreground of this terminal, or is stopped on it.
static int is(const char *pid, char wanted, const char *name) {
    char path[300], line[1024] = "", word[4096] = "", state = 0;
    int parent, group, session, terminal, foreground;
    snprintf(path, sizeof path, "/proc/%s/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    size_t got = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    const char *rest = got ? strrchr(line, ')') : NULL;
    if (!rest || sscanf(rest + 1, " %c %d %d %d %d %d", &state, &parent, &group, &session, &terminal, &foreground) != 6) return 0;
    if (state != wanted || session != child || (wanted == 'S' && group != foreground)) return 0;
    snprintf(path, sizeof path, "/proc/%s/cmdline", pid);
    file = fopen(path, "r");
    if (!file) return 0;
    got = fread(word, 1, sizeof word - 1, file);
    fclose(file);
    const char *last = got ? strrchr(word, '/') : NULL;
    return got && strcmp(last ? last + 1 : word, name) == 0;
}

// Whether a process stays stopped, and is not continued and stopped repeatedly.
static void await(char state, const char *name) {
    int looks = state == 'T' ? 20 : 1;
    for (time_t end = time(NULL) + PATIENCE; time(NULL) <= end;) {
        DIR *all = opendir("/proc");
        int found = 0;
        for (struct dirent *entry; all && !found && (entry = readdir(all));)
            found = isdigit((unsigned char)entry->d_name[0]) && is(entry->d_name, state, name);
        if (all) closedir(all);
        looks = found ? looks - 1 : state == 'T' ? 20 : 1;
        if (looks == 0) return;
        if (!look(found ? 3 : 20)) break;
    }
    fail(name);
}

int main(int argc, char **argv) {
    int at = 1;
    while (at < argc && strcmp(argv[at], "--") != 0) at++;
    if (at + 1 >= argc) return 97;
    master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) return 98;
    const char *name = ptsname(master);
    struct winsize size = {24, 80, 0, 0};
    ioctl(master, TIOCSWINSZ, &size);
    child = fork();
    if (child == 0) {
        setsid();
        int terminal = open(name, O_RDWR);
        ioctl(terminal, TIOCSCTTY, 0);
        for (int fd = 0; fd < 3; fd++) dup2(terminal, fd);
        if (terminal > 2) close(terminal);
        execvp(argv[at + 1], argv + at + 1);
        _exit(96);
    }
    for (int step = 1; step < at; step++) {
        switch (argv[step][0]) {
        case '>': type(argv[step] + 1); break;
        case '<': expect(argv[step] + 1); break;
        case '?': await('S', argv[step] + 1); break;
        case '!': await('T', argv[step] + 1); break;
        case '#': {
            unsigned rows, columns;
            sscanf(argv[step] + 1, "%ux%u", &rows, &columns);
            struct winsize changed = {(unsigned short)rows, (unsigned short)columns, 0, 0};
            if (ioctl(master, TIOCSWINSZ, &changed) != 0) fail(argv[step]);
            break;
        }
        default: fail(argv[step]);
        }
    }
    time_t end = time(NULL) + PATIENCE;
    int status;
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (time(NULL) > end) fail("the end");
        look(50);
    }
    while (look(0) && shown < sizeof screen - 1) {
        struct pollfd polled = {master, POLLIN, 0};
        if (poll(&polled, 1, 0) <= 0) break;
    }
    fputs(screen, stdout);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
