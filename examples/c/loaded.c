/* A program that loads libsandbox at run time, by the name or path in its argument, and refuses to work without it.
 *
 *     cc loaded.c $(pkg-config --cflags libsandbox) -ldl -o loaded
 *     ./loaded libsandbox.so
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sandbox.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    void *library = dlopen(argc > 1 ? argv[1] : "libsandbox.so", RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 125;
    }
    /* By version: a library with another interface under the same name is not taken. */
    int (*install)(const char *, const char *, const char *);
    const char *(*describe)(int);
    *(void **)&install = dlvsym(library, "sandbox_install", "LIBSANDBOX_1");
    *(void **)&describe = dlvsym(library, "sandbox_strerror", "LIBSANDBOX_1");
    if (install == NULL || describe == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 125;
    }
    int result = install(NULL, "@file-write", "errno:EROFS");
    if (result != SANDBOX_OK) {
        fprintf(stderr, "sandbox_install: %s\n", describe(result));
        return 125;
    }
    if (rename("a", "b") == 0) {
        printf("rename: done\n");
        return 1;
    }
    printf("rename: %s\n", strerror(errno));
    return 0;
}
