// A library of the caller's own: says once that it is there.
#include <unistd.h>

__attribute__((constructor)) static void loaded(void) {
    if (write(2, "preloaded\n", 10) < 0) _exit(1);
}
