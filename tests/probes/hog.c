// Uses memory. alone MB: one process, 8M at a time. many MB: eight processes with that much each, at once.
// shared MB: eight processes that share that much, and wait a moment so that it can be measured.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void hold(size_t megabytes) {
    for (size_t at = 0; at < megabytes; at += 8) {
        char *part = malloc(8 << 20);
        if (!part) _exit(3);
        memset(part, 1, 8 << 20);
    }
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    size_t megabytes = (size_t)atol(argv[2]);
    int many = strcmp(argv[1], "many") == 0;
    if (!many) hold(megabytes);
    if (strcmp(argv[1], "alone") == 0) return 0;
    for (int child = 0; child < 8; child++) {
        if (fork() == 0) {
            if (many) hold(megabytes);
            usleep(many ? 30000000 : 500000);
            _exit(0);
        }
    }
    while (wait(NULL) > 0) {}
    return 0;
}
