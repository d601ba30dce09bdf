/* Loads the library that is its argument, closes it again, and calls getppid. With `replace`, first maps memory of its own over
 * the library's first page, if that is free. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct link_map *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (!library) { puts("not loaded"); return 2; }
    void *place = (void *)library->l_addr;
    if (dlclose(library)) { puts("not closed"); return 2; }
    if (argc > 2 && !strcmp(argv[2], "replace")) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
        puts(mmap(place, 4096, PROT_READ | PROT_WRITE, flags, -1, 0) == place ? "replaced" : "not replaced");
        fflush(stdout);
    }
    puts(syscall(SYS_getppid) < 0 ? "getppid=denied" : "getppid=ok");
    return 0;
}
