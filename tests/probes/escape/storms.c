/* Many calls at once: guesses of secret addresses, a flood of notifications, signals while a call is handled. */
#include "escape.h"
#include <pthread.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

static uint64_t state;
/* A page where the launcher could have placed its arguments. */
static void *page(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (void *)((((uint64_t)1 << 32) + state % (((uint64_t)1 << 46) - ((uint64_t)1 << 32))) & ~4095UL);
}
/* The filter allows exec and the transfer of the listener only with arguments at secret addresses. */
int guess(long tries) {
    long exec_refused = 0, send_refused = 0;
    int self = open("/proc/self/exe", O_RDONLY);
    if (getrandom(&state, sizeof state, 0) != sizeof state || self < 0) return 1;
    state |= 1;
    for (long at = 0; at < tries; at++) {
        exec_refused += syscall(SYS_execveat, self, page(), page(), page(), AT_EMPTY_PATH) < 0 && errno == EPERM;
        send_refused += syscall(SYS_sendmsg, 0, page(), (uint64_t)page() << 20 << 12 | MSG_NOSIGNAL) < 0 && errno == EPERM;
    }
    printf("%ld %ld\n", exec_refused, send_refused);
    return 0;
}

static int calls_each;
static void *denied(void *unused) {
    long refused = 0;
    for (int at = 0; at < calls_each; at++) refused += ptrace(PTRACE_TRACEME, 0, 0, 0) < 0 && errno == EPERM;
    return (void *)refused;
}
int flood(int threads, int calls) {
    pthread_t list[256];
    long refused = 0;
    calls_each = calls;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    for (int at = 0; at < threads; at++) {
        if (pthread_create(&list[at], &small, denied, NULL)) return 1;
    }
    for (int at = 0; at < threads; at++) {
        void *one;
        pthread_join(list[at], &one);
        refused += (long)one;
    }
    printf("%ld\n", refused);
    return 0;
}

static volatile int arrived;
static void arrives(int number) { arrived++; }
int signals(int calls) {
    struct sigaction action = {.sa_handler = arrives, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 100}, {0, 100}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    long refused = 0;
    for (int at = 0; at < calls; at++) refused += ptrace(PTRACE_TRACEME, 0, 0, 0) < 0 && errno == EPERM;
    memset(&often, 0, sizeof often);
    setitimer(ITIMER_REAL, &often, NULL);
    printf("%ld %s\n", refused, arrived > 10 ? "interrupted" : "undisturbed");
    return 0;
}

/* Connections that wait for ever, of many processes at once: each costs the supervisor descriptors. */
int exhaust(int rounds) {
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "full"};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0), refused = 0;
    pid_t children[200];
    unlink(name.sun_path);
    if (rounds > 200 || fd < 0 || bind(fd, (void *)&name, sizeof name) < 0 || listen(fd, 0) < 0) return 1;
    for (int at = 0; at < rounds; at++) {
        int ready[2];
        char byte;
        if (pipe(ready)) return 1;
        if ((children[at] = fork()) < 0) return 1;
        if (children[at] == 0) {
            alarm(30);
            close(ready[0]);
            if (write(ready[1], "x", 1) != 1) _exit(1);
            _exit(connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&name, sizeof name) < 0 && errno == EMFILE ? 24 : 0);
        }
        close(ready[1]);
        if (read(ready[0], &byte, 1) != 1) return 1;
        close(ready[0]);
        usleep(2000);
    }
    int through = ptrace(PTRACE_TRACEME, 0, 0, 0) == 0 || errno != EPERM;
    for (int at = 0; at < rounds; at++) {
        int status;
        kill(children[at], SIGKILL);
        waitpid(children[at], &status, 0);
        refused += WIFEXITED(status) && WEXITSTATUS(status) == 24;
    }
    printf("%s %s\n", refused ? "exhausted" : "not exhausted", through ? "open" : "closed");
    return 0;
}
