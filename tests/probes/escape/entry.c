/* Ways into the kernel that a filter might not check. */
#include "escape.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <linux/io_uring.h>

#ifdef __x86_64__
/* creat(2) through the 32-bit entry, which has other syscall numbers. */
static int int80(void) {
    char *low = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    if (low == MAP_FAILED) return UNABLE;
    strcpy(low, at(scene.outside, "by-int80"));
    long answer;
    __asm__ volatile("int $0x80" : "=a"(answer) : "a"(8), "b"((int)(long)low), "c"(0600) : "memory", "r8", "r9", "r10", "r11");
    return answer < 0 ? (int)-answer : access(low, F_OK) ? NOTHING : 0;
}

static int x32(void) { return failed(syscall(0x40000000 | SYS_creat, at(scene.outside, "by-x32"), 0600)); }

/* The kernel uses only the lower half of the number. */
static int junk_number(void) {
    long answer;
    register long arg4 __asm__("r10") = 0;
    __asm__ volatile("syscall" : "=a"(answer)
                     : "a"(0xdead00000000L | SYS_ptrace), "D"(PTRACE_TRACEME), "S"(0), "d"(0), "r"(arg4) : "rcx", "r11", "memory");
    return answer < 0 ? (int)-answer : 0;
}
#endif

static int ring(unsigned flags) {
    struct io_uring_params params = {.flags = flags};
    return failed(syscall(SYS_io_uring_setup, 4, &params));
}
static int ring_plain(void) { return ring(0); }
static int ring_polled(void) { return ring(IORING_SETUP_SQPOLL); }
static int ring_disabled(void) { return ring(IORING_SETUP_R_DISABLED); }
static int ring_enter(void) { return failed(syscall(SYS_io_uring_enter, -1, 1, 0, 0, NULL, 0)); }
static int ring_register(void) { return failed(syscall(SYS_io_uring_register, -1, 0, NULL, 0)); }

/* The complete attack: create a file outside through a ring. */
static int ring_creates(void) {
    struct io_uring_params p = {0};
    int fd = syscall(SYS_io_uring_setup, 4, &p);
    if (fd < 0) return errno;
    char *sq = mmap(NULL, p.sq_off.array + p.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED, fd, IORING_OFF_SQ_RING);
    struct io_uring_sqe *sqe = mmap(NULL, p.sq_entries * sizeof *sqe, PROT_READ | PROT_WRITE, MAP_SHARED, fd, IORING_OFF_SQES);
    if (sq == MAP_FAILED || sqe == MAP_FAILED) return UNABLE;
    const char *path = at(scene.outside, "by-ring");
    memset(sqe, 0, sizeof *sqe);
    sqe->opcode = IORING_OP_OPENAT;
    sqe->fd = AT_FDCWD;
    sqe->addr = (unsigned long)path;
    sqe->open_flags = O_CREAT | O_WRONLY;
    sqe->len = 0600;
    *(unsigned *)(sq + p.sq_off.array) = 0;
    ++*(unsigned *)(sq + p.sq_off.tail);
    if (syscall(SYS_io_uring_enter, fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0) return errno;
    return access(path, F_OK) ? NOTHING : 0;
}

static int clone3_space(void) {
    struct { uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls; } args = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
    long child = syscall(SYS_clone3, &args, sizeof args);
    if (child == 0) _exit(0);
    return failed(child);
}

static int openat2_write(void) {
    struct { uint64_t flags, mode, resolve; } how = {O_WRONLY | O_CREAT, 0600, 0};
    return failed(syscall(SYS_openat2, AT_FDCWD, at(scene.outside, "by-openat2"), &how, sizeof how));
}

/* A second filter can only restrict further. */
static int filter(unsigned flags, unsigned ret) {
    struct sock_filter code[] = {BPF_STMT(BPF_RET | BPF_K, ret)};
    struct sock_fprog program = {1, code};
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}
static int traceable(void) { return failed(ptrace(PTRACE_TRACEME, 0, 0, 0)); }
static int allow_all(void) {
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (filter(0, SECCOMP_RET_ALLOW) < 0) return errno;
    return traceable();
}
static int log_all(void) {
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (filter(SECCOMP_FILTER_FLAG_LOG, SECCOMP_RET_LOG) < 0) return errno;
    return traceable();
}
/* Two attempts to become the judge of its own calls: a tracer, and its own listener. */
static int own_listener(void) {
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return failed(filter(SECCOMP_FILTER_FLAG_NEW_LISTENER, SECCOMP_RET_ALLOW));
}
static int strict_off(void) {
    prctl(PR_SET_SECCOMP, 0, 0, 0, 0);
    syscall(SYS_seccomp, 0, 1, NULL);
    return traceable();
}
static int dispatch_off(void) {
    prctl(59 /* PR_SET_SYSCALL_USER_DISPATCH */, 0, 0, 0, 0);
    return traceable();
}
static int new_privs(void) {
    if (prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0) < 0 && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1) return errno;
    return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0 ? 0 : NOTHING;
}

static volatile int on_thread_result;
static int thread_body(void *unused) {
    on_thread_result = failed(syscall(SYS_personality, 0x0400000 /* READ_IMPLIES_EXEC */));
    return 0;
}
/* A thread created with raw clone. */
static int by_thread(void) {
    char *stack = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED) return UNABLE;
    volatile int tid = 1;
    on_thread_result = NOTHING;
    int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
    if (clone(thread_body, stack + 65536, flags, NULL, &tid, NULL, &tid) < 0) return errno;
    for (int now; (now = tid) != 0;) syscall(SYS_futex, &tid, 0, now, NULL, NULL, 0);
    return on_thread_result;
}

/* In a signal handler, on an alternate stack. */
static volatile int in_handler_result;
static void handler(int number) { in_handler_result = traceable(); }
static int in_handler(void) {
    in_handler_result = NOTHING;
    signal(SIGUSR2, handler);
    raise(SIGUSR2);
    return in_handler_result;
}

const struct attack entry_attacks[] = {
#ifdef __x86_64__
    {"int80", int80, FATAL | KERNEL, "done", "create a file with `int 0x80`, whose syscall numbers differ"},
    {"x32", x32, FATAL | KERNEL, "done", "create a file with an x32 syscall number"},
    {"number-with-junk", junk_number, 0, "done", "call ptrace with junk in the upper half of the number"},
#endif
    {"io-uring-setup", ring_plain, KERNEL, "done", "create an io_uring"},
    {"io-uring-sqpoll", ring_polled, KERNEL, "done", "create an io_uring that the kernel polls"},
    {"io-uring-disabled", ring_disabled, KERNEL, "done", "create an io_uring that is enabled later"},
    {"io-uring-enter", ring_enter, KERNEL, "EBADF", "call io_uring_enter on another process's ring"},
    {"io-uring-register", ring_register, KERNEL, "EBADF EINVAL", "call io_uring_register on another process's ring"},
    {"io-uring-openat", ring_creates, KERNEL, "done", "create a file outside through an io_uring"},
    {"clone3-new-user", clone3_space, KERNEL, "done", "create a user namespace with clone3, whose flags no filter can see"},
    {"openat2", openat2_write, 0, "done", "create a file outside with openat2"},
    {"filter-allow-all", allow_all, 0, "done", "install a filter that allows all, then ptrace"},
    {"filter-log-all", log_all, 0, "done", "install a filter that only logs, then ptrace"},
    {"filter-own-listener", own_listener, GATE, "done", "decide its own calls with a second listener"},
    {"seccomp-off", strict_off, 0, "done", "call prctl(PR_SET_SECCOMP, 0), then ptrace"},
    {"dispatch-off", dispatch_off, 0, "done", "turn syscall user dispatch off, then ptrace"},
    {"no-new-privs-off", new_privs, 0, "done", "clear no_new_privs"},
    {"by-a-thread", by_thread, 0, "done", "make a denied call on a thread created with raw clone"},
    {"in-a-signal-handler", in_handler, 0, "done", "call ptrace in a signal handler"},
    {0}};
