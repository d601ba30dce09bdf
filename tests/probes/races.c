// Calls that race with other events, for some seconds.
//   everywhere SECONDS     listens on a socket while its connection is undone; prints the address it listens on, or "none"
//   local                  listens on 127.0.0.1; prints "0" or the errno, and the device that it is bound to
//   any ADDRESS PORT       connects to PORT of "any" from a socket bound to ADDRESS; prints the peer, or the errno
//   read SECONDS PATH      prints in how many attempts something was read from PATH, and how many were refused
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int shared;

static struct sockaddr_in internet(const char *ip, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
    inet_pton(AF_INET, ip, &address.sin_addr);
    return address;
}

static volatile int turn, listening;

// Calls listen repeatedly.
static void *listens(void *unused) {
    (void)unused;
    for (int last = 0;;) {
        while (turn == last) sched_yield();
        last = turn;
        if (listen(shared, 5) == 0) listening = 1;
        turn = 0;
        last = 0;
    }
    return NULL;
}

// The address of a server whose queue is full: a client gets a local address, but its connection stays pending.
static struct sockaddr_in busy(void) {
    struct sockaddr_in address = internet("127.0.0.1", 0);
    socklen_t size = sizeof address;
    int server = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(server, (struct sockaddr *)&address, size) || listen(server, 0)) exit(95);
    getsockname(server, (struct sockaddr *)&address, &size);
    for (int at = 0; at < 4; at++) {
        connect(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), (struct sockaddr *)&address, size);
        usleep(20000);
    }
    return address;
}

int main(int argc, char **argv) {
    const char *verb = argc > 1 ? argv[1] : "";
    time_t end = time(NULL) + (argc > 2 ? atoi(argv[2]) : 0);
    struct sockaddr_in address = internet("127.0.0.1", 0);
    socklen_t size = sizeof address;
    shared = socket(AF_INET, SOCK_STREAM, 0);
    if (!strcmp(verb, "everywhere")) {
        pthread_t thread;
        struct sockaddr_in server = busy();
        shared = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        if (shared < 0 || pthread_create(&thread, NULL, listens, NULL)) return 98;
        for (unsigned round = 0; !listening && time(NULL) < end; round++) {
            connect(shared, (struct sockaddr *)&server, sizeof server);
            turn = 1;
            for (volatile unsigned wait = 0; wait < (round * 97) % 60000; wait++) continue;
            // Undoes the connection, and with it the local address.
            shutdown(shared, SHUT_RDWR);
            while (turn) sched_yield();
        }
        getsockname(shared, (struct sockaddr *)&address, &size);
        puts(listening ? inet_ntoa(address.sin_addr) : "none");
        fflush(stdout);
        _exit(0);
    }
    if (!strcmp(verb, "local")) {
        if (bind(shared, (struct sockaddr *)&address, size)) return 97;
        char device[16] = "";
        socklen_t length = sizeof device;
        int failed = listen(shared, 5) < 0 ? errno : 0;
        getsockopt(shared, SOL_SOCKET, SO_BINDTODEVICE, device, &length);
        printf("%d %s\n", failed, device);
        getsockname(shared, (struct sockaddr *)&address, &size);
        // Its client is another socket of this process, over loopback.
        if (connect(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&address, size)) return 96;
        return accept(shared, NULL, NULL) < 0;
    }
    if (!strcmp(verb, "any") && argc > 3) {
        struct sockaddr_in from = internet(argv[2], 0), to = internet("0.0.0.0", atoi(argv[3]));
        if (bind(shared, (struct sockaddr *)&from, sizeof from)) return 97;
        if (connect(shared, (struct sockaddr *)&to, sizeof to)) return printf("%d\n", errno) < 0;
        getpeername(shared, (struct sockaddr *)&address, &size);
        puts(inet_ntoa(address.sin_addr));
        return 0;
    }
    if (!strcmp(verb, "read") && argc > 3) {
        int found = 0, refused = 0;
        puts("reading");
        fflush(stdout);
        while (time(NULL) < end) {
            char byte;
            int file = open(argv[3], O_RDONLY);
            if (file < 0) {
                refused += errno == EACCES;
                continue;
            }
            found += read(file, &byte, 1) == 1;
            close(file);
        }
        printf("%d %d\n", found, refused);
        return 0;
    }
    return 99;
}
