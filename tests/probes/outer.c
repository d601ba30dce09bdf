// An outer sandbox: installs a seccomp filter and executes a command under it.
// outer [listen] NR[,ARG,VALUE[,MASK]]=ERRNO|kill ... -- CMD ARGS: each rule makes one call fail or kill; with ARG, only if
// the low 32 bits of that argument match.
// listen: adds a filter with a listener that answers every uname with "continue".
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct sock_filter code[1024];
static unsigned short len;

static void put(unsigned short op, unsigned char jt, unsigned char jf, unsigned k) {
    code[len++] = (struct sock_filter){op, jt, jf, k};
}

static long install(unsigned flags) {
    struct sock_fprog program = {len, code};
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}

static void start(void) {
    len = 0;
    put(BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr));
}

static void rule(const char *text) {
    unsigned nr, arg, value, mask = 0xffffffffu, error = EPERM;
    int fields = sscanf(text, "%u,%u,%u,%u", &nr, &arg, &value, &mask);
    const char *equals = strchr(text, '=');
    if (equals) error = (unsigned)atoi(equals + 1);
    unsigned answer = equals && strcmp(equals, "=kill") == 0 ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | error;
    if (fields < 3) {
        put(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, nr);
        put(BPF_RET | BPF_K, 0, 0, answer);
        return;
    }
    put(BPF_JMP | BPF_JEQ | BPF_K, 0, 5, nr);
    put(BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, args) + 8 * arg);
    put(BPF_ALU | BPF_AND | BPF_K, 0, 0, mask);
    put(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, value);
    put(BPF_RET | BPF_K, 0, 0, answer);
    put(BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr));
}

static int serve(int listener, pid_t child) {
    for (;;) {
        struct pollfd polled = {listener, POLLIN, 0};
        int status;
        if (waitpid(child, &status, WNOHANG) == child)
            return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        if (poll(&polled, 1, 20) <= 0 || !(polled.revents & POLLIN)) continue;
        struct seccomp_notif call;
        memset(&call, 0, sizeof call);
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0) continue;
        struct seccomp_notif_resp answer = {call.id, 0, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE};
        ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    }
}

int main(int argc, char **argv) {
    int at = 1, listen = 0;
    if (at < argc && strcmp(argv[at], "listen") == 0) {
        listen = 1;
        at++;
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 98;
    int first = at;
    while (at < argc && strcmp(argv[at], "--") != 0) at++;
    if (at + 1 >= argc) return 97;
    char **command = argv + at + 1;
    int listener = -1;
    if (listen) {
        start();
        put(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_uname);
        put(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_USER_NOTIF);
        put(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW);
        // The child inherits the filter by fork. The listener stays in this process, which does not call uname.
        listener = (int)install(SECCOMP_FILTER_FLAG_NEW_LISTENER);
        if (listener < 0) return 96;
        pid_t child = fork();
        if (child != 0) return serve(listener, child);
        close(listener);
    }
    if (first < at) {
        start();
        for (int word = first; word < at; word++) rule(argv[word]);
        put(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW);
        if (install(0) != 0) return 95;
    }
    execvp(command[0], command);
    perror(command[0]);
    return 94;
}
