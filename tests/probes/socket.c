// Calls socket(AF_INET, SOCK_STREAM, 0) in a constructor, before main, and exits with its errno, or 0 on success.
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

__attribute__((constructor)) static void early(void) {
    _exit(socket(AF_INET, SOCK_STREAM, 0) < 0 ? errno : 0);
}

int main(void) { return 99; }
