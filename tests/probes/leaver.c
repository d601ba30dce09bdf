/* A library whose constructor executes argv[1] with the argument `openat` and an empty environment, before main. */
#include <unistd.h>

__attribute__((constructor)) static void leave(int argc, char **argv)
{
    char *words[] = {argc > 1 ? argv[1] : "", "openat", NULL};
    char *nothing[] = {NULL};
    if (argc > 1) execve(words[0], words, nothing);
}

int left(void) { return 0; }
