/* A program that links libsandbox and confines itself: after its set-up, it may neither open sockets nor start programs.
 *
 *     cc linked.c $(pkg-config --cflags --libs libsandbox) -o linked
 */
#include <errno.h>
#include <sandbox.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(void)
{
    /* Set-up goes here: what needs the network, or other programs, happens before the filter. */
    int result = sandbox_install(NULL, "@network:execve:execveat", "errno:EACCES");
    if (result != SANDBOX_OK) {
        /* Nothing was installed. Do not go on without it. */
        fprintf(stderr, "sandbox_install: %s\n", sandbox_strerror(result));
        return 125;
    }
    int denied = socket(AF_INET, SOCK_STREAM, 0);
    printf("socket: %s\n", denied < 0 ? strerror(errno) : "open");
    execl("/bin/sh", "sh", "-c", "echo started", (char *)NULL);
    printf("execve: %s\n", strerror(errno));
    return 0;
}
