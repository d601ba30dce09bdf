// waited COUNT, unwaited COUNT: that many children, one after the other, each of which uses 50 ms of CPU time. The kernel reaps those
// that are not waited for, because SIGCHLD is ignored. orphans COUNT: the same with grandchildren whose parent has exited.
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double used(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    int orphans = strcmp(argv[1], "orphans") == 0;
    if (strcmp(argv[1], "unwaited") == 0) signal(SIGCHLD, SIG_IGN);
    for (long at = 0; at < atol(argv[2]); at++) {
        int end[2];
        if (pipe(end)) return 3;
        pid_t child = fork();
        if (child < 0) return 4;
        if (child == 0) {
            if (orphans && fork()) _exit(0);
            while (used() < 0.05) {}
            _exit(0);
        }
        close(end[1]);
        char byte;
        // Until the last process that has the other end exits.
        if (read(end[0], &byte, 1) != 0) return 5;
        close(end[0]);
        if (strcmp(argv[1], "unwaited")) waitpid(child, NULL, 0);
    }
    return 0;
}
