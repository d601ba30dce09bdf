/* Attacks through sockets. They use only loopback and sockets of this machine, or send nothing. */
#include "escape.h"
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

static int makes(int family, int kind, int protocol) { return failed(socket(family, kind | SOCK_CLOEXEC, protocol)); }
static int stream(void) { return makes(AF_INET, SOCK_STREAM, 0); }
static int stream_junk(void) { return failed(syscall(SYS_socket, 0xdead00000002UL, 0xdead00000001UL, 0)); }
static int datagram(void) { return makes(AF_INET, SOCK_DGRAM, 0); }
static int stream6(void) { return makes(AF_INET6, SOCK_STREAM, 0); }
static int multipath(void) { return makes(AF_INET, SOCK_STREAM, 262); }
static int raw(void) { return makes(AF_INET, SOCK_RAW, IPPROTO_TCP); }
static int sctp(void) { return makes(AF_INET, SOCK_STREAM, 132); }
static int packets(void) { return makes(AF_PACKET, SOCK_RAW, 0x0300); }
static int virtual_machine(void) { return makes(AF_VSOCK, SOCK_STREAM, 0); }
static int crypto(void) { return makes(AF_ALG, SOCK_SEQPACKET, 0); }
static int xdp(void) { return makes(44, SOCK_RAW, 0); }
static int bluetooth(void) { return makes(31, SOCK_SEQPACKET, 0); }
static int can(void) { return makes(29, SOCK_RAW, 1); }
static int tipc(void) { return makes(30, SOCK_SEQPACKET, 0); }
static int rds(void) { return makes(21, SOCK_SEQPACKET, 0); }
static int netlink_audit(void) { return makes(AF_NETLINK, SOCK_RAW, 9); }
static int netlink_uevent(void) { return makes(AF_NETLINK, SOCK_DGRAM, 15); }
static int netlink_netfilter(void) { return makes(AF_NETLINK, SOCK_RAW, 12); }
static int netlink_diag(void) { return makes(AF_NETLINK, SOCK_RAW, 4); }
static int changes_links(void) {
    struct { uint32_t len; uint16_t type, flags; uint32_t seq, pid; uint8_t family, pad; uint16_t kind; int32_t index; uint32_t up, change; } ask = {
        .len = 32, .type = 16 /* RTM_NEWLINK */, .flags = 5, .index = 1, .up = 0, .change = 0};
    char answer[256];
    int fd = socket(AF_NETLINK, SOCK_RAW, 0);
    if (fd < 0 || send(fd, &ask, sizeof ask, 0) < 0) return errno;
    if (recv(fd, answer, sizeof answer, 0) < 20) return UNABLE;
    return -*(int *)(answer + 16);
}

static socklen_t unix_name(struct sockaddr_un *name, const char *path) {
    memset(name, 0, sizeof *name);
    name->sun_family = AF_UNIX;
    snprintf(name->sun_path, sizeof name->sun_path, "%s", path);
    if (path[0] != '@') return sizeof *name;
    name->sun_path[0] = 0;
    return offsetof(struct sockaddr_un, sun_path) + strlen(path);
}
/* The server behind the socket sends a descriptor of the credential. */
static int receives(const char *path, int kind) {
    struct sockaddr_un name;
    socklen_t size = unix_name(&name, path);
    int fd = socket(AF_UNIX, kind, 0);
    if (fd < 0 || connect(fd, (void *)&name, size) < 0) return errno;
    char byte, room[CMSG_SPACE(sizeof(int))];
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    if (recvmsg(fd, &message, 0) < 0) return errno;
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    return head ? holds_secret(*(int *)CMSG_DATA(head)) : NOTHING;
}
static int unix_path(void) { return receives(scene.socket, SOCK_STREAM); }
static int unix_abstract(void) { return receives(scene.abstract, SOCK_STREAM); }
static int unix_by_link(void) { return receives(at(scene.work, "way-to-socket"), SOCK_STREAM); }
static int unix_by_root(void) {
    char path[4096];
    snprintf(path, sizeof path, "/proc/self/root%s", scene.socket);
    return receives(path, SOCK_STREAM);
}
static int unix_send(int fd) {
    struct sockaddr_un name;
    socklen_t size = unix_name(&name, scene.datagram);
    return fd < 0 ? errno : failed(sendto(fd, "x", 1, 0, (void *)&name, size));
}
static int unix_datagram(void) { return unix_send(socket(AF_UNIX, SOCK_DGRAM, 0)); }
static int unix_pair(void) {
    int pair[2];
    return socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) < 0 ? errno : unix_send(pair[0]);
}
static int unix_raw_pair(void) {
    int pair[2];
    return socketpair(AF_UNIX, SOCK_RAW, 0, pair) < 0 ? errno : unix_send(pair[0]);
}
static int bind_abstract(void) {
    struct sockaddr_un name;
    char path[64];
    snprintf(path, sizeof path, "@escape-%d-%ld", getpid(), (long)time(NULL));
    socklen_t size = unix_name(&name, path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (void *)&name, size) < 0 || listen(fd, 1) < 0) return errno;
    int to = socket(AF_UNIX, SOCK_STREAM, 0);
    return failed(connect(to, (void *)&name, size));
}

/* From here on, one loopback port is granted and the other is not. */
static struct sockaddr_in local(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    return address;
}
static int speaks(int fd) {
    char byte;
    return fd < 0 ? errno : read(fd, &byte, 1) == 1 ? 0 : NOTHING;
}
static int connect_to(struct sockaddr *address, socklen_t size, int protocol) {
    int fd = socket(address->sa_family, SOCK_STREAM, protocol);
    if (fd < 0 || connect(fd, address, size) < 0) return errno;
    return speaks(fd);
}
static int tcp(void) {
    struct sockaddr_in to = local(scene.forbidden);
    return connect_to((void *)&to, sizeof to, 0);
}
static int tcp_mapped(void) {
    struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = htons(scene.forbidden)};
    to.sin6_addr.s6_addr[10] = to.sin6_addr.s6_addr[11] = 0xff;
    to.sin6_addr.s6_addr[12] = 127;
    to.sin6_addr.s6_addr[15] = 1;
    return connect_to((void *)&to, sizeof to, 0);
}
static int tcp_any(void) {
    struct sockaddr_in to = local(scene.forbidden);
    to.sin_addr.s_addr = 0;
    return connect_to((void *)&to, sizeof to, 0);
}
static int mptcp(void) {
    struct sockaddr_in to = local(scene.forbidden);
    return connect_to((void *)&to, sizeof to, 262);
}
static int fast_open(int how) {
    struct sockaddr_in to = local(scene.forbidden);
    struct iovec part = {"x", 1};
    struct msghdr message = {.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &part, .msg_iovlen = 1};
    struct mmsghdr many = {.msg_hdr = message};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0) return errno;
    int error = failed(how == 0   ? sendto(fd, "x", 1, MSG_FASTOPEN, (void *)&to, sizeof to)
                       : how == 1 ? sendmsg(fd, &message, MSG_FASTOPEN)
                                  : sendmmsg(fd, &many, 1, MSG_FASTOPEN));
    return error ? error : speaks(fd);
}
static int fast_sendto(void) { return fast_open(0); }
static int fast_sendmsg(void) { return fast_open(1); }
static int fast_sendmmsg(void) { return fast_open(2); }
static int fast_connect(void) {
    struct sockaddr_in to = local(scene.forbidden);
    int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0) return errno;
    setsockopt(fd, IPPROTO_TCP, 30 /* TCP_FASTOPEN_CONNECT */, &on, sizeof on);
    if (connect(fd, (void *)&to, sizeof to) < 0 || write(fd, "x", 1) != 1) return errno;
    return speaks(fd);
}
static int again(void) {
    struct sockaddr_in to = local(scene.port), other = local(scene.forbidden);
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (void *)&to, sizeof to) < 0 || connect(fd, &none, sizeof none) < 0) return errno;
    if (connect(fd, (void *)&other, sizeof other) < 0) return errno;
    return speaks(fd);
}
static int udp(void) {
    struct sockaddr_in to = local(scene.forbidden);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    return fd < 0 ? errno : failed(sendto(fd, "x", 1, 0, (void *)&to, sizeof to));
}
static int udp_lite(void) { return makes(AF_INET, SOCK_DGRAM, 136); }
static int source_route(void) {
    unsigned char option[8] = {131, 7, 4, 127, 0, 0, 1, 0};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    return fd < 0 ? errno : failed(setsockopt(fd, IPPROTO_IP, IP_OPTIONS, option, sizeof option));
}
static int repair(void) {
    int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    return fd < 0 ? errno : failed(setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &on, sizeof on));
}
static int transparent(void) {
    int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    return fd < 0 ? errno : failed(setsockopt(fd, IPPROTO_IP, IP_TRANSPARENT, &on, sizeof on));
}
static int marked(void) {
    int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    return fd < 0 ? errno : failed(setsockopt(fd, SOL_SOCKET, SO_MARK, &on, sizeof on));
}
static int listens_everywhere(void) {
    struct sockaddr_in to = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (void *)&to, sizeof to) < 0) return errno;
    return failed(listen(fd, 1));
}
static struct sockaddr_in flipping;
static volatile int stop;
static void *flip(void *unused) {
    while (!stop) {
        *(volatile in_port_t *)&flipping.sin_port = htons(scene.forbidden);
        *(volatile in_port_t *)&flipping.sin_port = htons(scene.port);
    }
    return NULL;
}
/* Another thread changes the address while the supervisor checks it. The byte received tells which server was reached. */
static int race_connect(void) {
    pthread_t thread;
    int reached = NOTHING, error = 0;
    flipping = local(scene.port);
    stop = 0;
    if (pthread_create(&thread, NULL, flip, NULL)) return UNABLE;
    for (int tries = 0; tries < (scene.still ? 400 : 1000 * 1000) && reached; tries++) {
        char byte = 0;
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd < 0) error = errno;
        else if (connect(fd, (void *)&flipping, sizeof flipping) == 0 && read(fd, &byte, 1) == 1 && byte == 'F') reached = 0;
        close(fd);
        if (error) break;
    }
    stop = 1;
    pthread_join(thread, NULL);
    return error ? error : reached;
}

const struct attack network_attacks[] = {
    {"tcp-socket", stream, INET, "done", "create an internet socket"},
    {"tcp-socket-junk", stream_junk, INET, "done", "create an internet socket, with junk in the upper halves"},
    {"udp-socket", datagram, INET, "done", "create a datagram socket"},
    {"tcp6-socket", stream6, INET | KERNEL, "done", "create an IPv6 socket"},
    {"mptcp-socket", multipath, INET | KERNEL, "done", "create a multipath TCP socket"},
    {"sctp-socket", sctp, INET | KERNEL, "done", "create an SCTP socket"},
    {"raw-socket", raw, ROOT | CAPS, "done", "capture all TCP traffic of the machine"},
    {"packet-socket", packets, ROOT | KERNEL, "done", "capture all packets of the machine"},
    {"vsock", virtual_machine, KERNEL, "done", "reach the host of a virtual machine"},
    {"af-alg", crypto, KERNEL, "done", "use the kernel's ciphers"},
    {"xdp-socket", xdp, ROOT | KERNEL, "done", "bypass the network stack"},
    {"bluetooth", bluetooth, KERNEL, "done", "create a Bluetooth socket"},
    {"can", can, KERNEL, "done", "create a CAN socket"},
    {"tipc", tipc, KERNEL, "done", "create a TIPC socket"},
    {"rds", rds, KERNEL, "done", "create an RDS socket"},
    {"netlink-change", changes_links, ROOT | CAPS, "done", "change a network link"},
    {"netlink-audit", netlink_audit, KERNEL, "done", "reach the audit system"},
    {"netlink-uevent", netlink_uevent, 0, "done", "receive device events"},
    {"netlink-netfilter", netlink_netfilter, KERNEL, "done", "reach the firewall"},
    {"netlink-diag", netlink_diag, 0, "done", "list the sockets of all processes"},
    {"unix-path", unix_path, GATE, "done", "receive a descriptor from a socket outside (SCM_RIGHTS)"},
    {"unix-abstract", unix_abstract, GATE, "done", "receive a descriptor from an abstract socket"},
    {"unix-by-link", unix_by_link, GATE, "done", "connect through a symbolic link to the socket"},
    {"unix-by-proc-root", unix_by_root, GATE, "done", "connect through /proc/self/root"},
    {"unix-datagram", unix_datagram, GATE, "done", "send to a datagram socket outside"},
    {"unix-datagram-pair", unix_pair, GATE, "done", "send to it from a socket of a pair"},
    {"unix-raw-pair", unix_raw_pair, GATE, "done", "send to it from a socket of a raw pair"},
    {"unix-abstract-own", bind_abstract, GATE, "done", "serve an abstract socket that other processes could connect to"},
    {0}};

/* Under --net loopback with one port granted. */
const struct attack address_attacks[] = {
    {"port-tcp", tcp, 0, "done", "connect to a port that is not granted"},
    {"port-mapped", tcp_mapped, KERNEL, "done", "connect to it by an IPv4-mapped IPv6 address"},
    {"port-any-address", tcp_any, 0, "done", "connect to it by 0.0.0.0"},
    {"port-mptcp", mptcp, KERNEL, "done", "connect to it with multipath TCP"},
    {"port-fastopen-sendto", fast_sendto, KERNEL, "done", "connect to it with TCP fast open, by sendto"},
    {"port-fastopen-sendmsg", fast_sendmsg, KERNEL, "done", "connect to it with TCP fast open, by sendmsg"},
    {"port-fastopen-sendmmsg", fast_sendmmsg, KERNEL, "done", "connect to it with TCP fast open, by sendmmsg"},
    {"port-fastopen-connect", fast_connect, KERNEL, "done", "connect to it with TCP fast open, by connect"},
    {"port-reconnect", again, 0, "done", "connect to it with a socket that was connected to a granted port"},
    {"port-udp", udp, 0, "done", "send to it with UDP"},
    {"port-udp-lite", udp_lite, KERNEL, "done", "send to it with UDP-Lite"},
    {"port-source-route", source_route, ROOT, "done", "connect to it with a source route"},
    {"port-repair", repair, ROOT, "done", "connect to it with TCP repair, which forges a connection"},
    {"port-transparent", transparent, ROOT, "done", "connect to it with a transparent socket, which may use any address"},
    {"port-mark", marked, ROOT, "done", "connect to it with a mark that selects other routes"},
    {"port-listen-everywhere", listens_everywhere, 0, "done", "listen on every address"},
    {"port-race", race_connect, 0, "done", "change the address while the supervisor checks it"},
    {0}};
