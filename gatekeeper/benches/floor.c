// The floor for any launcher: reads nothing, decides nothing, adds the same Landlock rules and loads a ready filter of the
// same size, without a listener, then executes.
// floor FILTER [RIGHTS PATH]... -- CMD ARGS. FILTER: sock_filter instructions as they are in memory; RIGHTS in hexadecimal.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv) {
    static struct sock_filter code[4096];
    int at = 2;
    int filter = open(argv[1], O_RDONLY | O_CLOEXEC);
    long size = read(filter, code, sizeof code);
    if (filter < 0 || size <= 0) return 90;
    close(filter);
    // Every right up to ABI 6, and both scopes.
    struct { unsigned long long fs, net, scoped; } attr = {0xffff, 0, 3};
    int ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof attr, 0);
    if (ruleset < 0) return 91;
    for (; at + 1 < argc && strcmp(argv[at], "--") != 0; at += 2) {
        struct landlock_path_beneath_attr rule = {strtoull(argv[at], 0, 16), open(argv[at + 1], O_PATH | O_CLOEXEC)};
        if (rule.parent_fd < 0 || syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0) return 92;
        close(rule.parent_fd);
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 93;
    if (syscall(SYS_landlock_restrict_self, ruleset, 0) != 0) return 94;
    close(ruleset);
    struct sock_fprog program = {(unsigned short)(size / (long)sizeof *code), code};
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0) return 95;
    execv(argv[at + 1], argv + at + 1);
    return 96;
}
