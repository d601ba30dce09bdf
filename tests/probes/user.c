/* A user's preload: its constructor prints a line, and it replaces a function. */
#include <unistd.h>

__attribute__((constructor)) static void start(void)
{
    (void)!write(1, "user's preload\n", 15);
}

uid_t geteuid(void)
{
    return 4242;
}
