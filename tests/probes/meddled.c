/* Links meddler.c, and prints the errno of getppid and every entry of environ that begins with S or is empty. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

int meddled(void);

int main(void)
{
    meddled();
    long answer = syscall(SYS_getppid);
    printf("getppid=%d\n", answer < 0 ? errno : 0);
    for (char **entry = environ; entry && *entry; entry++)
        if (**entry == 'S' || **entry == ' ' || !**entry) puts(*entry);
    fflush(stdout);
    return 0;
}
