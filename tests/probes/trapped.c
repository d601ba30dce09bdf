/* Concurrent denials: `threads` traps in many threads, `vfork` first in a child that shares memory. `survive` keeps the SIGSYS
 * handler from running, and handles the SIGSEGV that comes instead. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_barrier_t all;

static sigjmp_buf before;

static void leave(int number)
{
    siglongjmp(before, number);
}

static void *denied(void *unused)
{
    (void)unused;
    pthread_barrier_wait(&all);
    syscall(SYS_getppid);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "threads")) {
        pthread_t threads[8];
        pthread_barrier_init(&all, NULL, 8);
        for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, denied, NULL);
        for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    } else if (argc > 1 && !strcmp(argv[1], "vfork")) {
        int status;
        pid_t child = vfork();
        if (child == 0) { syscall(SYS_getppid); _exit(1); }
        waitpid(child, &status, 0);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGSYS) return 2;
        syscall(SYS_getuid);
    } else if (argc > 1 && !strcmp(argv[1], "small-stack")) {
        /* An alternate signal stack, as Go uses it, because the thread's stack has no room for a signal frame. */
        static char stack[65536];
        stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
        struct sigaction action;
        sigaltstack(&alternate, NULL);
        sigaction(SIGSYS, NULL, &action);
        return action.sa_flags & SA_ONSTACK ? 0 : 3;
    } else if (argc > 1 && !strcmp(argv[1], "survive")) {
        size_t size = 65536;
        void *memory = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        stack_t alternate = {.ss_sp = memory, .ss_size = size};
        struct sigaction action = {.sa_handler = leave};
        if (sigaltstack(&alternate, NULL) || sigaction(SIGSEGV, &action, NULL)) return 4;
        if (!sigsetjmp(before, 1)) syscall(SYS_mkdirat, AT_FDCWD, "made", 0755);
        return access("made", F_OK) ? 5 : 0;
    }
    return 0;
}
