/* Attacks on other processes: one of the same user outside, and the supervisor. */
#include "escape.h"
#include <linux/kcmp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/uio.h>

static const char *proc(int pid, const char *name) {
    char top[32];
    snprintf(top, sizeof top, "/proc/%d", pid);
    return at(top, name);
}
static int pidfd(int pid) { return syscall(SYS_pidfd_open, pid, 0); }

static int attach(int pid, int seize) {
    if (ptrace(seize ? PTRACE_SEIZE : PTRACE_ATTACH, pid, 0, 0) < 0) return errno;
    if (seize) ptrace(PTRACE_INTERRUPT, pid, 0, 0);
    waitpid(pid, NULL, __WALL);
    ptrace(PTRACE_DETACH, pid, 0, 0);
    return 0;
}
static int ptrace_attach(void) { return attach(scene.victim, 0); }
static int ptrace_seize(void) { return attach(scene.victim, 1); }
static int ptrace_supervisor(void) { return attach(supervisor(), 1); }
static int ptrace_guardian(void) { return attach(guardian(), 1); }
static int traceme(void) { return failed(ptrace(PTRACE_TRACEME, 0, 0, 0)); }
/* Trace a child before it makes a denied call: a tracer could change syscall numbers after the filter has run. */
static int trace_child(void) {
    pid_t child = fork();
    if (child < 0) return errno;
    if (child == 0) for (;;) pause();
    int error = failed(ptrace(PTRACE_SEIZE, child, 0, 0));
    kill(child, SIGKILL);
    waitpid(child, NULL, __WALL);
    return error;
}

static int vm_read(int pid, unsigned long address) {
    char text[sizeof SECRET] = "";
    struct iovec here = {text, sizeof SECRET - 1}, there = {(void *)address, sizeof SECRET - 1};
    if (process_vm_readv(pid, &here, 1, &there, 1, 0) < 0) return errno;
    return strcmp(text, SECRET) == 0 ? 0 : NOTHING;
}
static int vm_readv(void) { return vm_read(scene.victim, scene.secret); }
static int vm_writev(void) {
    struct iovec here = {"CHANGED", 7}, there = {(void *)(scene.secret + TARGET), 7};
    return failed(process_vm_writev(scene.victim, &here, 1, &there, 1, 0));
}
static int vm_supervisor(void) {
    char byte;
    struct iovec here = {&byte, 1}, there = {(void *)0x10000, 1};
    return failed(process_vm_readv(supervisor(), &here, 1, &there, 1, 0));
}
static int mem_read(void) {
    char text[sizeof SECRET] = "";
    int fd = open(proc(scene.victim, "mem"), O_RDONLY);
    if (fd < 0 || pread(fd, text, sizeof SECRET - 1, scene.secret) < 0) return errno;
    return strcmp(text, SECRET) == 0 ? 0 : NOTHING;
}
static int mem_write(void) {
    int fd = open(proc(scene.victim, "mem"), O_RDWR);
    return fd < 0 ? errno : failed(pwrite(fd, "CHANGED", 7, scene.secret + TARGET));
}
static int mem_supervisor(void) { return failed(open(proc(supervisor(), "mem"), O_RDONLY)); }
static int mem_guardian(void) { return failed(open(proc(guardian(), "mem"), O_RDWR)); }
static int reads(const char *path) {
    char byte;
    int fd = open(path, O_RDONLY);
    return fd < 0 ? errno : failed(read(fd, &byte, 1));
}
static int environment(void) { return reads(proc(scene.victim, "environ")); }
static int maps(void) { return reads(proc(scene.victim, "maps")); }
static int syscall_of(void) { return reads(proc(scene.victim, "syscall")); }
static int environment_supervisor(void) { return reads(proc(supervisor(), "environ")); }
static int their_descriptor(void) {
    char name[32];
    snprintf(name, sizeof name, "fd/%d", scene.victim_fd);
    return reads_secret(proc(scene.victim, name));
}
static int their_root(void) {
    char name[4096];
    snprintf(name, sizeof name, "root%s/.ssh/id", scene.home);
    return reads_secret(proc(scene.victim, name));
}
static int their_cwd(void) { return reads_secret(proc(scene.victim, "cwd/.ssh/id")); }
static int their_task(void) {
    char name[64];
    snprintf(name, sizeof name, "task/%d/mem", scene.victim);
    return failed(open(proc(scene.victim, name), O_RDONLY));
}
/* All of its descriptors, which include the filter's listener. */
static int supervisor_descriptors(void) {
    int error = EBADF;
    for (int number = 0; number < 32; number++) {
        char name[32], target[64];
        snprintf(name, sizeof name, "fd/%d", number);
        if (readlink(proc(supervisor(), name), target, sizeof target) >= 0) return 0;
        if (errno != ENOENT) error = errno;
    }
    return error;
}
static int getfd(int pid, int number) {
    int process = pidfd(pid);
    return process < 0 ? -1 : syscall(SYS_pidfd_getfd, process, number, 0);
}
static int pidfd_getfd(void) { return holds_secret(getfd(scene.victim, scene.victim_fd)); }
static int getfd_supervisor(void) { return failed(getfd(supervisor(), 0)); }
static int compare(void) { return failed(syscall(SYS_kcmp, getpid(), scene.victim, KCMP_FILE, 0, 0)); }
static int compare_supervisor(void) { return failed(syscall(SYS_kcmp, getpid(), supervisor(), KCMP_VM, 0, 0)); }
static int advise(void) {
    struct iovec there = {(void *)(scene.secret & ~4095UL), 4096};
    int process = pidfd(scene.victim);
    return process < 0 ? errno : failed(syscall(SYS_process_madvise, process, &there, 1, MADV_COLD, 0));
}
static int release(void) {
    int process = pidfd(scene.victim);
    return process < 0 ? errno : failed(syscall(SYS_process_mrelease, process, 0));
}
static int move(void) {
    void *page = (void *)(scene.secret & ~4095UL);
    int node = 0, status = 0;
    return failed(syscall(SYS_move_pages, scene.victim, 1UL, &page, &node, &status, 2));
}
static int migrate(void) {
    unsigned long nodes = 1;
    return failed(syscall(SYS_migrate_pages, scene.victim, 8UL, &nodes, &nodes));
}
static int robust(void) {
    void *head;
    size_t size;
    return failed(syscall(SYS_get_robust_list, scene.victim, &head, &size));
}

static int signal_kill(void) { return failed(kill(scene.victim, SIGCONT)); }
static int signal_thread(void) { return failed(syscall(SYS_tgkill, scene.victim, scene.victim, SIGCONT)); }
static int signal_task(void) { return failed(syscall(SYS_tkill, scene.victim, SIGCONT)); }
static int signal_queue(void) {
    union sigval value = {0};
    return failed(sigqueue(scene.victim, SIGCONT, value));
}
static int signal_pidfd(void) {
    int process = pidfd(scene.victim);
    return process < 0 ? errno : failed(syscall(SYS_pidfd_send_signal, process, SIGCONT, NULL, 0));
}
/* The kernel sends the signal, because it notifies the owner of a pipe when data arrives (F_SETOWN). */
static int signal_owner(void) {
    int pair[2];
    char state[512] = "";
    if (pipe(pair)) return errno;
    if (fcntl(pair[0], F_SETOWN, scene.victim) < 0 || fcntl(pair[0], F_SETSIG, SIGSTOP) < 0) return errno;
    if (fcntl(pair[0], F_SETFL, O_ASYNC | O_NONBLOCK) < 0 || write(pair[1], "x", 1) != 1) return errno;
    /* Unconfined it always stops in the end, but on a busy machine not within milliseconds. */
    int rounds = scene.still ? 50 : 50 * 1000;
    for (int tries = 0; tries < rounds; tries++) {
        int fd = open(proc(scene.victim, "stat"), O_RDONLY);
        ssize_t got = fd < 0 ? 0 : read(fd, state, sizeof state - 1);
        close(fd);
        char *end = got > 0 ? strrchr(state, ')') : NULL;
        if (!end) return fd < 0 ? ENOENT : NOTHING;
        if (end[2] == 'T') {
            kill(scene.victim, SIGCONT);
            return 0;
        }
        usleep(200);
    }
    return NOTHING;
}
static int kill_supervisor(void) { return failed(kill(supervisor(), scene.still ? SIGKILL : 0)); }
static int stop_supervisor(void) { return failed(kill(supervisor(), scene.still ? SIGSTOP : 0)); }
static int kill_guardian(void) { return failed(kill(guardian(), scene.still ? SIGKILL : 0)); }

static int priority(void) {
    /* Unconfined, lower than it is: whoever started the tests may have lowered it, and raising it needs a privilege. */
    int now = scene.still ? 0 : getpriority(PRIO_PROCESS, scene.victim);
    return failed(setpriority(PRIO_PROCESS, scene.victim, now < 19 ? now + 1 : 19));
}
static int priority_user(void) { return failed(setpriority(PRIO_USER, scene.still ? 0 : 4242424, 1)); }
static int io_priority(void) { return failed(syscall(SYS_ioprio_set, 1, scene.victim, 3 << 13)); }
static int scheduler(void) {
    struct sched_param none = {0};
    return failed(sched_setscheduler(scene.victim, SCHED_BATCH, &none));
}
static int affinity(void) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(0, &set);
    return failed(sched_setaffinity(scene.victim, sizeof set, &set));
}
static int limit(void) {
    struct rlimit none = {0, 0};
    return failed(prlimit(scene.victim, RLIMIT_CORE, &none, NULL));
}
static int score(void) { return writes(proc(scene.victim, "oom_score_adj"), 0); }
static int name_them(void) { return writes(proc(scene.victim, "comm"), 0); }
static int clear_them(void) {
    int fd = open(proc(scene.victim, "clear_refs"), O_WRONLY);
    return fd < 0 ? errno : failed(write(fd, "1", 1));
}
static int space_of(void) {
    int process = pidfd(scene.victim);
    return process < 0 ? errno : failed(ioctl(process, 0xff03 /* PIDFD_GET_MNT_NAMESPACE */, 0));
}
static int read_terminal(void) {
    char name[32];
    snprintf(name, sizeof name, "%d", scene.pty);
    int fd = open(at("/dev/pts", name), O_RDONLY | O_NOCTTY | O_NONBLOCK);
    return holds_secret(fd);
}
static int write_terminal(void) {
    char name[32];
    snprintf(name, sizeof name, "%d", scene.pty);
    int fd = open(at("/dev/pts", name), O_WRONLY | O_NOCTTY | O_NONBLOCK);
    return fd < 0 ? errno : failed(write(fd, "\r", 1));
}

const struct attack other_attacks[] = {
    {"ptrace-attach", ptrace_attach, 0, "done", "attach to a process outside"},
    {"ptrace-seize", ptrace_seize, 0, "done", "seize a process outside"},
    {"ptrace-supervisor", ptrace_supervisor, 0, "done", "seize the supervisor"},
    {"ptrace-guardian", ptrace_guardian, 0, "done", "seize the guardian"},
    {"ptrace-traceme", traceme, 0, "done", "be traced by its parent"},
    {"ptrace-child", trace_child, 0, "done", "trace its own child, whose calls it could change after the filter has run"},
    {"vm-readv", vm_readv, 0, "done", "read the memory of a process outside"},
    {"vm-writev", vm_writev, 0, "done", "write the memory of a process outside"},
    {"vm-readv-supervisor", vm_supervisor, 0, "EFAULT", "read the memory of the supervisor"},
    {"proc-mem-read", mem_read, 0, "done", "read /proc/PID/mem of a process outside"},
    {"proc-mem-write", mem_write, 0, "done", "write /proc/PID/mem of a process outside"},
    {"proc-mem-thread", their_task, 0, "done", "read it through the entry of its thread"},
    {"proc-mem-supervisor", mem_supervisor, 0, "done", "open /proc/PID/mem of the supervisor"},
    {"proc-mem-guardian", mem_guardian, 0, "done", "open /proc/PID/mem of the guardian"},
    {"proc-environ", environment, CAPS, "done", "read the environment of a process outside"},
    {"proc-environ-supervisor", environment_supervisor, CAPS, "done", "read the environment of the supervisor"},
    {"proc-maps", maps, CAPS, "done", "read the memory map of a process outside"},
    {"proc-syscall", syscall_of, KERNEL, "done", "read the current syscall and stack pointer of a process outside"},
    {"proc-fd", their_descriptor, 0, "done", "open a descriptor of a process outside through /proc/PID/fd"},
    {"proc-fd-supervisor", supervisor_descriptors, 0, "done", "list the descriptors of the supervisor, which include the filter's listener"},
    {"proc-root", their_root, 0, "done", "read a credential through /proc/PID/root of a process outside"},
    {"proc-cwd", their_cwd, 0, "done", "read a credential through /proc/PID/cwd of a process outside"},
    {"pidfd-getfd", pidfd_getfd, 0, "done", "take a descriptor from a process outside"},
    {"pidfd-getfd-supervisor", getfd_supervisor, 0, "done", "take a descriptor from the supervisor"},
    {"pidfd-namespace", space_of, KERNEL, "done", "get the mount namespace of a process outside through its pidfd"},
    {"kcmp", compare, KERNEL, "done", "compare its kernel objects with those of a process outside"},
    {"kcmp-supervisor", compare_supervisor, KERNEL, "done", "compare its kernel objects with those of the supervisor"},
    {"process-madvise", advise, ROOT, "done", "call process_madvise on a process outside"},
    {"process-mrelease", release, 0, "EINVAL", "release the memory of a process outside"},
    {"move-pages", move, KERNEL, "done", "move the memory of a process outside between memory nodes"},
    {"migrate-pages", migrate, KERNEL, "done", "migrate the memory of a process outside"},
    {"robust-list", robust, 0, "done", "read the address of the robust futex list of a process outside"},
    {"signal-kill", signal_kill, GATE, "done", "signal a process outside"},
    {"signal-tgkill", signal_thread, GATE, "done", "signal a thread outside with tgkill"},
    {"signal-tkill", signal_task, GATE, "done", "signal a thread outside with tkill"},
    {"signal-queue", signal_queue, GATE, "done", "signal a process outside with a value"},
    {"signal-pidfd", signal_pidfd, GATE, "done", "signal a process outside through its pidfd"},
    {"signal-by-owner", signal_owner, GATE, "done", "make the kernel stop a process outside, as the owner of a pipe"},
    {"kill-supervisor", kill_supervisor, GATE, "done", "kill the supervisor"},
    {"stop-supervisor", stop_supervisor, GATE, "done", "stop the supervisor"},
    {"kill-guardian", kill_guardian, GATE, "done", "kill the guardian"},
    {"priority", priority, 0, "done", "lower the priority of a process outside"},
    {"priority-user", priority_user, 0, "ESRCH", "lower the priority of all processes of the user"},
    {"io-priority", io_priority, 0, "done", "lower the I/O priority of a process outside"},
    {"scheduler", scheduler, 0, "done", "change the scheduling policy of a process outside"},
    {"affinity", affinity, 0, "done", "bind a process outside to one processor"},
    {"limits", limit, 0, "done", "lower the limits of a process outside"},
    {"oom-score", score, 0, "EINVAL", "make a process outside the first to be killed when memory is short"},
    {"rename-process", name_them, 0, "EINVAL", "rename a process outside"},
    {"clear-refs", clear_them, KERNEL, "done", "clear the reference bits of the memory of a process outside"},
    {"terminal-read", read_terminal, GATE, "done", "read what is typed in another terminal of the user"},
    {"terminal-write", write_terminal, GATE, "done", "write to another terminal of the user"},
    {0}};
