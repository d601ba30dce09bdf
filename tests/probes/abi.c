/* Uses the C interface: linked, or with -DDLOPEN through dlopen (argv[1] is the library then).
 * The other arguments: allow, deny, action (`-` is NULL), and how: once, small-stack, at-once. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "sandbox.h"

#ifdef DLOPEN
static int (*install)(const char *, const char *, const char *);
static const char *(*text)(int);
#else
#define install sandbox_install
#define text sandbox_strerror
#endif

static const char *lists[3];
static int results[8];
static int errors[8];

static void *run(void *slot)
{
    int *result = slot;
    errno = 0;
    *result = install(lists[0], lists[1], lists[2]);
    errors[result - results] = errno;
    return NULL;
}

int main(int argc, char **argv)
{
    int installs = 1;
#ifdef DLOPEN
    void *library = dlopen(argv[1], RTLD_NOW);
    if (!library) { puts(dlerror()); return 2; }
    install = dlsym(library, "sandbox_install");
    text = dlsym(library, "sandbox_strerror");
    if (!install || !text) { puts(dlerror()); return 2; }
    argv++, argc--;
#endif
    if (argc < 5) return 2;
    for (int i = 0; i < 3; i++) lists[i] = strcmp(argv[i + 1], "-") ? argv[i + 1] : NULL;
    if (!strcmp(argv[4], "once")) {
        run(&results[0]);
    } else {
        pthread_t threads[8];
        pthread_attr_t attributes;
        installs = strcmp(argv[4], "at-once") ? 1 : 8;
        pthread_attr_init(&attributes);
        pthread_attr_setstacksize(&attributes, 16384 > PTHREAD_STACK_MIN ? 16384 : PTHREAD_STACK_MIN);
        for (int i = 0; i < installs; i++) pthread_create(&threads[i], &attributes, run, &results[i]);
        for (int i = 0; i < installs; i++) pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < installs; i++)
        printf("%d (%s) errno %d\n", results[i], text(results[i]), errors[i]);
    fflush(stdout);
    printf("getppid=%d\n", syscall(SYS_getppid) < 0 ? errno : 0);
    return 0;
}
