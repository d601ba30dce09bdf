// The lower bound for any launcher: makes no decisions, adds the same Landlock rules, loads a ready filter of the same
// size, and executes the command. floor [three] FILTER [RIGHTS PATH]... -- CMD ARGS. FILTER: a file of sock_filter
// instructions; RIGHTS: hexadecimal.
//
// three: uses as many processes as gatekeeper, so that the command ends whichever of them is killed, and a listener.
// This is the lower bound for any launcher that promises this and records denials.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct sock_filter code[4096];
static struct sock_fprog program = {0, code};

static int confine(int ruleset, unsigned flags) {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) _exit(93);
    if (syscall(SYS_landlock_restrict_self, ruleset, 0) != 0) _exit(94);
    close(ruleset);
    int listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
    if (listener < 0) _exit(95);
    return listener;
}

// Sends a descriptor, or receives one and returns it.
static int pass(int socket, int descriptor) {
    char byte = 0;
    union { struct cmsghdr header; char space[CMSG_SPACE(sizeof(int))]; } control = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    if (descriptor < 0) {
        if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1) return -1;
        memcpy(&descriptor, CMSG_DATA(&control.header), sizeof descriptor);
        return descriptor;
    }
    control.header = (struct cmsghdr){CMSG_LEN(sizeof descriptor), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.header), &descriptor, sizeof descriptor);
    return (int)sendmsg(socket, &message, 0);
}

static void guard(int front, int setup, int ruleset, char **words) {
    sigset_t all, before, children;
    sigfillset(&all);
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0 || setsid() < 0) _exit(97);
    sigprocmask(SIG_SETMASK, &all, &before);
    int signals = signalfd(-1, &children, SFD_CLOEXEC);
    pid_t command = fork();
    if (command == 0) {
        sigprocmask(SIG_SETMASK, &before, 0);
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        pass(setup, confine(ruleset, SECCOMP_FILTER_FLAG_NEW_LISTENER));
        execv(words[0], words);
        _exit(96);
    }
    close(setup);
    struct pollfd polled[] = {{front, POLLIN, 0}, {signals, POLLIN, 0}};
    poll(polled, 2, -1);
    int status = 0;
    waitpid(command, &status, 0);
    send(front, &status, sizeof status, MSG_NOSIGNAL);
    _exit(0);
}

int main(int argc, char **argv) {
    int three = argc > 1 && strcmp(argv[1], "three") == 0, at = 2;
    argv += three;
    argc -= three;
    int filter = open(argv[1], O_RDONLY | O_CLOEXEC);
    long size = read(filter, code, sizeof code);
    if (filter < 0 || size <= 0) return 90;
    close(filter);
    program.len = (unsigned short)(size / (long)sizeof *code);
    // Every right up to ABI 6, and both scopes.
    struct { unsigned long long fs, net, scoped; } attr = {0xffff, 0, 3};
    int ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof attr, 0);
    if (ruleset < 0) return 91;
    for (; at + 1 < argc && strcmp(argv[at], "--") != 0; at += 2) {
        struct landlock_path_beneath_attr rule = {strtoull(argv[at], 0, 16), open(argv[at + 1], O_PATH | O_CLOEXEC)};
        if (rule.parent_fd < 0 || syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0) return 92;
        close(rule.parent_fd);
    }
    if (!three) {
        confine(ruleset, 0);
        execv(argv[at + 1], argv + at + 1);
        return 96;
    }
    int tree[2], setup[2], status = 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, tree) || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, setup)) return 98;
    pid_t guardian = fork();
    if (guardian == 0) {
        close(tree[0]);
        close(setup[0]);
        guard(tree[1], setup[1], ruleset, argv + at + 1);
    }
    close(tree[1]);
    close(setup[1]);
    int listener = pass(setup[0], -1);
    struct pollfd polled[] = {{tree[0], POLLIN, 0}, {listener, POLLIN, 0}};
    while (!(polled[0].revents & POLLIN) && poll(polled, 2, -1) > 0)
        if (polled[1].revents) polled[1].fd = -1;
    if (recv(tree[0], &status, sizeof status, 0) != sizeof status) return 99;
    waitpid(guardian, 0, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
