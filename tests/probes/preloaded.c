// A preload of the caller: prints once that it is loaded.
#include <unistd.h>

__attribute__((constructor)) static void loaded(void) {
    if (write(2, "preloaded\n", 10) < 0) _exit(1);
}
