/* A program that defines functions of the C library itself. The preload must not use them. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

long syscall(long number, ...) { (void)number; return 0; }
int prctl(int option, ...) { (void)option; return 0; }
char *getenv(const char *name) { (void)name; return NULL; }
char *secure_getenv(const char *name) { (void)name; return NULL; }
int unsetenv(const char *name) { (void)name; return 0; }
int open(const char *path, int flags, ...) { (void)path; (void)flags; errno = ENOENT; return -1; }
void *malloc_is_left_alone;

int main(void) {
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    printf("socket=%s\n", fd >= 0 ? "ok" : strerrorname_np(errno));
    return 0;
}
