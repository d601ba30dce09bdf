// Its first thread exits, and another goes on: then /proc/PID/stat has a zombie without memory.
// memory MB: uses that much, 8M at a time. ticks FILE: a child that left the session appends to the file, and this process, with its
// first thread, stops itself.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char **words;

static void *memory(void *unused) {
    (void)unused;
    for (long at = 0; at < atol(words[2]); at += 8) {
        char *part = malloc(8 << 20);
        if (!part) _exit(3);
        memset(part, 1, 8 << 20);
        usleep(2000);
    }
    _exit(0);
}

static void *ticks(void *unused) {
    (void)unused;
    for (int at = 0; at < 3000; at++) {
        FILE *file = fopen(words[2], "a");
        if (!file) _exit(3);
        fputc('x', file);
        fclose(file);
        usleep(20000);
    }
    _exit(0);
}

static void leave(void *(*rest)(void *)) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, rest, NULL)) _exit(4);
    pthread_exit(NULL);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    words = argv;
    if (strcmp(argv[1], "memory") == 0) leave(memory);
    if (fork() == 0) {
        setsid();
        leave(ticks);
    }
    while (access(argv[2], F_OK)) usleep(10000);
    kill(getpid(), SIGSTOP);
    return 0;
}
