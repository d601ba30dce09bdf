/* Programs that the confined one starts in ways that a preload would not follow, and what they might inherit.
   Each started program is this one again. It tries ptrace, and its result is the result of the attack. */
#include "escape.h"
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum { DIRECTORY = 70, FILE_OF_SECRET = 71, SOCKET = 72 }; /* left open by the caller */

static int wait_for(pid_t child) {
    int status;
    if (child < 0) return errno;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    return WIFSIGNALED(status) ? 200 + WTERMSIG(status) : WEXITSTATUS(status);
}
static char *inner[] = {"escape", "inner", NULL};
static char *nothing[] = {NULL};
static int starts(const char *path, char **words, char **environment) {
    pid_t child = fork();
    if (child == 0) {
        execve(path, words, environment);
        _exit(errno);
    }
    return wait_for(child);
}
/* Without a fork, so that the result is exec's own even if no process may be created. */
static int by_exec(void) {
    execv(scene.self, inner);
    return errno;
}
static int by_fork(void) { return starts(scene.self, inner, environ); }
static int cleared(void) { return starts(scene.self, inner, nothing); }
static int by_static(void) { return starts(at(scene.tools, "escape-static"), inner, nothing); }
static int by_vfork(void) {
    pid_t child = vfork();
    if (child == 0) {
        execve(scene.self, inner, nothing);
        _exit(errno);
    }
    return wait_for(child);
}
static int by_spawn(void) {
    pid_t child;
    int error = posix_spawn(&child, scene.self, NULL, NULL, inner, nothing);
    return error ? error : wait_for(child);
}
static int copy_into(int to) {
    char bytes[65536];
    int from = open(scene.self, O_RDONLY);
    for (ssize_t got; from >= 0 && (got = read(from, bytes, sizeof bytes)) > 0;) {
        if (write(to, bytes, got) != got) return errno;
    }
    return from < 0 ? errno : 0;
}
static int from_memory(void) {
    int memory = memfd_create("program", 0);
    if (memory < 0 || copy_into(memory)) return errno;
    pid_t child = fork();
    if (child == 0) {
        syscall(SYS_execveat, memory, "", inner, nothing, AT_EMPTY_PATH);
        _exit(errno);
    }
    return wait_for(child);
}
static int from_memory_at_once(void) {
    int memory = memfd_create("program", 0);
    if (memory < 0 || copy_into(memory)) return errno;
    syscall(SYS_execveat, memory, "", inner, nothing, AT_EMPTY_PATH);
    return errno;
}
static int by_loader(void) {
    char *words[] = {"ld.so", (char *)scene.self, "inner", NULL};
    return starts("/lib64/ld-linux-x86-64.so.2", words, nothing);
}
static int writes_program(const char *name, const char *first, const char *second) {
    int fd = open(at(scene.work, name), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0755);
    if (fd < 0) return errno;
    int error = second ? failed(dprintf(fd, "#!%s %s\n", first, second)) : copy_into(fd);
    fchmod(fd, 0755);
    close(fd);
    return error;
}
static int own_copy(void) {
    int error = writes_program("copy", NULL, NULL);
    return error ? error : starts(at(scene.work, "copy"), inner, nothing);
}
static int own_by_loader(void) {
    int error = writes_program("loaded", NULL, NULL);
    const char *own = at(scene.work, "loaded");
    char *words[] = {"ld.so", (char *)own, "inner", NULL};
    return error ? error : starts("/lib64/ld-linux-x86-64.so.2", words, nothing);
}
static int by_script(void) {
    int error = writes_program("script", scene.self, "inner");
    return error ? error : starts(at(scene.work, "script"), inner, nothing);
}
static int by_script_of_script(void) {
    int error = writes_program("one", scene.self, "inner");
    if (!error) error = writes_program("two", at(scene.work, "one"), "x");
    if (!error) error = writes_program("three", at(scene.work, "two"), "x");
    return error ? error : starts(at(scene.work, "three"), inner, nothing);
}
static int takes_user(void) {
    char *words[] = {"escape", "user", NULL};
    return starts(at(scene.tools, "escape-setuid"), words, nothing);
}
static int own_setuid(void) {
    int error = writes_program("mine-setuid", NULL, NULL);
    if (error) return error;
    if (chown(at(scene.work, "mine-setuid"), 4242, -1) < 0 || chmod(at(scene.work, "mine-setuid"), 04755) < 0) return errno;
    char *words[] = {"escape", "user", NULL};
    return starts(at(scene.work, "mine-setuid"), words, nothing);
}

static int inherited_file(void) { return holds_secret(dup(FILE_OF_SECRET)); }
static int inherited_directory(void) { return holds_secret(openat(DIRECTORY, ".ssh/id", O_RDONLY)); }
static int inherited_up(void) { return holds_secret(openat(DIRECTORY, "../home/.ssh/id", O_RDONLY)); }
static int inherited_cwd(void) { return failed(fchdir(DIRECTORY)); }
static int inherited_socket(void) { return failed(send(SOCKET, "x", 1, MSG_DONTWAIT)); }
static int inherited_any(void) {
    for (int fd = 3; fd < 1024; fd++) {
        if (fcntl(fd, F_GETFD) >= 0) return 0;
    }
    return EBADF;
}
static int inherited_environment(void) { return getenv("ESCAPE_API_KEY") ? 0 : NOTHING; }
static int inherited_words(void) {
    static char text[65536];
    int fd = open("/proc/self/environ", O_RDONLY);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text);
    return got < 0 ? errno : memmem(text, got, "ESCAPE_API_KEY", 14) ? 0 : NOTHING;
}

const struct attack program_attacks[] = {
    {"exec", by_exec, 0, "done", "execute a program"},
    {"exec-after-fork", by_fork, 0, "done", "start a program after fork"},
    {"exec-cleared-environment", cleared, 0, "done", "start a program with an empty environment, without LD_PRELOAD"},
    {"exec-static", by_static, 0, "done", "start a static program, into which no library is loaded"},
    {"exec-vfork", by_vfork, 0, "done", "start a program with vfork"},
    {"exec-spawn", by_spawn, 0, "done", "start a program with posix_spawn"},
    {"exec-memfd", from_memory, 0, "done", "start a program from memory"},
    {"exec-memfd-at-once", from_memory_at_once, 0, "done", "execute a program from memory without a new process"},
    {"exec-loader", by_loader, KERNEL, "done", "start a program as an argument of ld.so"},
    {"exec-own-copy", own_copy, 0, "done", "start a program that it has written itself"},
    {"exec-own-by-loader", own_by_loader, KERNEL, "done", "start such a program as an argument of ld.so"},
    {"exec-script", by_script, 0, "done", "start a program through `#!`"},
    {"exec-script-of-scripts", by_script_of_script, 0, "done", "start a program through three scripts"},
    {"exec-setuid", takes_user, SETUID, "done", "become another user with a setuid program"},
    {"exec-own-setuid", own_setuid, ROOT, "done", "become another user with a setuid program that root creates"},
    {"inherit-file", inherited_file, GATE, "done", "read a file that the caller left open"},
    {"inherit-directory", inherited_directory, GATE, "done", "open a file below a directory that the caller left open"},
    {"inherit-directory-up", inherited_up, GATE, "done", "open a file above a directory that the caller left open"},
    {"inherit-directory-chdir", inherited_cwd, GATE, "done", "change to a directory that the caller left open"},
    {"inherit-socket", inherited_socket, GATE, "done", "send on a socket that the caller left open"},
    {"inherit-anything", inherited_any, GATE, "done", "find any descriptor above 2"},
    {"inherit-key", inherited_environment, GATE, "done", "read a key from the environment"},
    {"inherit-key-by-proc", inherited_words, GATE, "done", "read a key from /proc/self/environ"},
    {0}};
