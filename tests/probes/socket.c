// Exits with the errno of socket(AF_INET, SOCK_STREAM, 0), or 0 if that worked; made in a constructor, before main.
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

__attribute__((constructor)) static void early(void) {
    _exit(socket(AF_INET, SOCK_STREAM, 0) < 0 ? errno : 0);
}

int main(void) { return 99; }
