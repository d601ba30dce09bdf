/* Connects to this machine while another thread changes the address, and counts how often it reached another address.
   Usage: elsewhere PORT. Elsewhere is a group address: TCP sends no packet there, were it let through. */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct sockaddr_in address;
static volatile int stop;

static void *change(void *unused) {
    in_addr_t here = inet_addr("127.0.0.1"), there = inet_addr("224.0.0.1");
    while (!stop) {
        *(volatile in_addr_t *)&address.sin_addr.s_addr = there;
        *(volatile in_addr_t *)&address.sin_addr.s_addr = here;
    }
    return unused;
}

int main(int argc, char **argv) {
    pthread_t thread;
    int elsewhere = 0, here = 0;
    if (argc < 2) return 2;
    address.sin_family = AF_INET;
    address.sin_port = htons(atoi(argv[1]));
    address.sin_addr.s_addr = inet_addr("127.0.0.1");
    if (pthread_create(&thread, NULL, change, NULL)) return 3;
    for (int i = 0; i < 300; i++) {
        struct sockaddr_in peer;
        socklen_t size = sizeof peer;
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        if (fd < 0) return 4;
        int rc = connect(fd, (struct sockaddr *)&address, sizeof address);
        if (rc == 0 || errno == EINPROGRESS) {
            usleep(200);
            if (getpeername(fd, (struct sockaddr *)&peer, &size) == 0 &&
                peer.sin_addr.s_addr == inet_addr("127.0.0.1"))
                here++;
            else
                elsewhere++;
        } else if (errno != ENETUNREACH) {
            return 5;
        }
        close(fd);
    }
    stop = 1;
    pthread_join(thread, NULL);
    if (!here) return 6;
    printf("elsewhere %d\n", elsewhere);
    return 0;
}
