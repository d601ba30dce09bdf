// swap OUTSIDE ROUNDS, in a directory with `inside` and `dir/data`: races chmod and utimensat through names that
// another thread switches between inside and OUTSIDE. Prints how often the call succeeded and how often it was refused.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char target[4096];
static const char *outside;
static volatile int over;
static char shared[4096];

static void *swap(void *unused) {
    (void)unused;
    for (unsigned round = 0; !over; round++) {
        const char *file = round & 1 ? target : "inside", *dir = round & 1 ? outside : "dir";
        unlink("new");
        if (symlink(file, "new") == 0) rename("new", "way");
        unlink("newd");
        if (symlink(dir, "newd") == 0) rename("newd", "wayd");
        // Changes the path in memory while the supervisor reads it.
        strcpy(shared, file);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 3) return 99;
    outside = argv[1];
    snprintf(target, sizeof target, "%s/data", outside);
    strcpy(shared, "inside");
    if (symlink("inside", "way") != 0 || symlink("dir", "wayd") != 0) return 98;
    pthread_t thread;
    pthread_create(&thread, 0, swap, 0);
    unsigned worked = 0, refused = 0;
    struct timespec times[2] = {{1, 0}, {1, 0}};
    for (int round = atoi(argv[2]); round > 0; round--) {
        const char *name = round % 3 == 0 ? "way" : round % 3 == 1 ? "wayd/data" : shared;
        int answer = round & 1 ? chmod(name, 0777) : utimensat(AT_FDCWD, name, times, 0);
        if (answer == 0) worked++;
        else refused++;
    }
    over = 1;
    pthread_join(thread, 0);
    printf("%u %u\n", worked, refused);
    return 0;
}
