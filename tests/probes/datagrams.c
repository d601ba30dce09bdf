// UNIX datagrams to a socket file that the run may not reach, and races against the supervisor's look at them.
// datagrams reach PATH: every way to send there, one line each with its errno.
// datagrams race OWN PATH ROUNDS: while messages go to OWN, other threads put PATH in its place; prints how many were sent.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

static char byte = 'x';

static socklen_t name_of(struct sockaddr_un *name, const char *path) {
    memset(name, 0, sizeof *name);
    name->sun_family = AF_UNIX;
    strncpy(name->sun_path, path, sizeof name->sun_path - 1);
    return offsetof(struct sockaddr_un, sun_path) + strlen(name->sun_path) + 1;
}

static int datagram(void) {
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (fd < 0) { perror("socket"); exit(2); }
    return fd;
}

static int one_of_pair(void) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) != 0) { perror("socketpair"); exit(2); }
    return pair[0];
}

static struct msghdr message(struct sockaddr_un *name, socklen_t size, struct iovec *data) {
    *data = (struct iovec){&byte, 1};
    return (struct msghdr){.msg_name = name, .msg_namelen = size, .msg_iov = data, .msg_iovlen = 1};
}

static int by_sendto(int fd, struct sockaddr_un *name, socklen_t size) {
    return sendto(fd, &byte, 1, 0, (struct sockaddr *)name, size);
}

static int by_sendmsg(int fd, struct sockaddr_un *name, socklen_t size) {
    struct iovec data;
    struct msghdr header = message(name, size, &data);
    return sendmsg(fd, &header, 0);
}

static int by_sendmmsg(int fd, struct sockaddr_un *name, socklen_t size) {
    struct iovec data;
    struct mmsghdr headers[2] = {{message(name, size, &data), 0}, {message(name, size, &data), 0}};
    return sendmmsg(fd, headers, 2, 0);
}

/// The forbidden name in the second message only. The first one goes to OWN, given by its environment variable.
static int by_second(int fd, struct sockaddr_un *name, socklen_t size) {
    struct iovec data;
    struct sockaddr_un own;
    socklen_t own_size = name_of(&own, getenv("OWN"));
    struct mmsghdr headers[2] = {{message(&own, own_size, &data), 0}, {message(name, size, &data), 0}};
    if (sendmmsg(fd, headers, 2, 0) != 1) return 0;
    return by_sendmmsg(fd, name, size);
}

static int by_connect(int fd, struct sockaddr_un *name, socklen_t size) {
    return connect(fd, (struct sockaddr *)name, size) == 0 ? (int)send(fd, &byte, 1, 0) : -1;
}

static struct { const char *name; int (*send)(int, struct sockaddr_un *, socklen_t); } ways[] = {
    {"sendto", by_sendto}, {"sendmsg", by_sendmsg}, {"sendmmsg", by_sendmmsg}, {"second", by_second}, {"connect", by_connect},
};

static void reach(const char *path) {
    struct sockaddr_un name;
    socklen_t size = name_of(&name, path);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        for (int pair = 0; pair < 2; pair++) {
            int fd = pair ? one_of_pair() : datagram();
            int done = ways[i].send(fd, &name, size);
            printf("%s%s %d\n", ways[i].name, pair ? " of a pair" : "", done < 0 ? errno : 0);
            close(fd);
        }
}

static struct sockaddr_un own, other;
static socklen_t own_size, other_size;
static struct sockaddr_un shared;
static struct iovec shared_data;
static struct msghdr header;
static int swapped = 50, stream, datagrams;
static atomic_int over;

static void *change_name(void *unused) {
    for (; !atomic_load(&over);) {
        memcpy(&shared, &other, sizeof other);
        memcpy(&shared, &own, sizeof own);
        header.msg_name = &other;
        header.msg_name = &shared;
    }
    return unused;
}

static void *change_descriptor(void *unused) {
    for (; !atomic_load(&over);) {
        dup2(stream, swapped);
        dup2(datagrams, swapped);
    }
    return unused;
}

static void *change_link(void *unused) {
    for (; !atomic_load(&over);) {
        unlink("link");
        if (symlink(other.sun_path, "link") != 0) continue;
        unlink("link");
        if (symlink(own.sun_path, "link") != 0) continue;
    }
    return unused;
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "reach") == 0) { reach(argv[2]); return 0; }
    if (argc != 5) return 2;
    own_size = name_of(&own, argv[2]);
    other_size = name_of(&other, argv[3]);
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) return 2;
    stream = pair[0], datagrams = datagram();
    dup2(datagrams, swapped);
    memcpy(&shared, &own, sizeof own);
    header = message(&shared, sizeof shared, &shared_data);
    pthread_t threads[3];
    void *(*changes[])(void *) = {change_name, change_descriptor, change_link};
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, changes[i], NULL);
    struct sockaddr_un link;
    socklen_t link_size = name_of(&link, "link");
    int sent = 0;
    char drain[4096];
    for (int i = atoi(argv[4]); i > 0; i--) {
        struct mmsghdr many = {header, 0};
        sent += sendmsg(swapped, &header, MSG_DONTWAIT) == 1;
        sent += sendmmsg(swapped, &many, 1, MSG_DONTWAIT) == 1;
        sent += sendto(datagrams, &byte, 1, MSG_DONTWAIT, (struct sockaddr *)&shared, sizeof shared) == 1;
        sent += sendto(datagrams, &byte, 1, MSG_DONTWAIT, (struct sockaddr *)&link, link_size) == 1;
        (void)!recv(pair[1], drain, sizeof drain, MSG_DONTWAIT);
    }
    atomic_store(&over, 1);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    printf("sent %d\n", sent);
    return 0;
}
