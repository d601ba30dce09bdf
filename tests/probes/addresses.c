// Makes supervised calls with odd arguments: null, kernel and unmapped addresses, a path that ends at the end of mapped
// memory, one without an end, odd descriptors. The supervisor must survive them.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
    char *pages = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(pages + 4096, 4096);
    memset(pages, 'a', 4096);
    char *endless = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(endless, '/', 1 << 20);
    long odd[] = {0, 1, -1, -4096, 0x7fffffffffff, (long)0x8000000000000000, (long)(pages + 4095), (long)pages, (long)endless,
                  (long)"", (long)"missing/missing", (long)"/proc/self/fd/0", (long)"/dev/null/x"};
    int calls[] = {SYS_chmod, SYS_fchmod, SYS_fchmodat, SYS_chown, SYS_fchown, SYS_fchownat, SYS_utimensat, SYS_utime, SYS_utimes,
                   SYS_setxattr, SYS_lsetxattr, SYS_fsetxattr, SYS_removexattr, SYS_fremovexattr, SYS_connect, 452, 463, 466, 469};
    int unix_socket = socket(AF_UNIX, SOCK_STREAM, 0);
    for (unsigned c = 0; c < sizeof calls / sizeof *calls; c++)
        for (unsigned a = 0; a < sizeof odd / sizeof *odd; a++) {
            syscall(calls[c], odd[a], odd[a], odd[a], odd[a], odd[a]);
            syscall(calls[c], AT_FDCWD, odd[a], 0, 0, 0);
            syscall(calls[c], unix_socket, odd[a], odd[a], 0, 0);
            syscall(calls[c], unix_socket, odd[a], 110, 0, 0);
            syscall(calls[c], odd[a], "user.x", odd[a], 1 << 30, 0);
        }
    puts("survived");
    return 0;
}
