/* Attacks on the machine. Where success would do harm, the arguments are ones that the kernel examines and then refuses. */
#include "escape.h"
#include <dirent.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/timex.h>

static int mounts(void) { return failed(mount("none", scene.outside, "tmpfs", 0, NULL)); }
static int binds(void) { return failed(mount("/", scene.outside, NULL, MS_BIND, NULL)); }
static int remounts(void) { return failed(mount(NULL, scene.home, NULL, MS_REMOUNT | MS_BIND, NULL)) == EINVAL ? EINVAL : errno; }
static int mounts_proc(void) { return failed(mount("proc", scene.outside, "proc", 0, NULL)); }
static int unmounts(void) { return failed(umount2(scene.outside, MNT_DETACH)); }
static int pivots(void) { return failed(syscall(SYS_pivot_root, ".", ".")); }
static int changes_root(void) { return failed(chroot(scene.work)); }
static int opens_tree(void) { return failed(syscall(428, AT_FDCWD, "/", 1 /* OPEN_TREE_CLONE */)); }
static int opens_tree_attr(void) { return failed(syscall(467, AT_FDCWD, "/", 1, NULL, 0)); }
static int moves_mount(void) { return failed(syscall(429, -1, "", AT_FDCWD, scene.outside, 4)); }
static int opens_fs(void) { return failed(syscall(430, "tmpfs", 0)); }
static int configures_fs(void) { return failed(syscall(431, -1, 6, NULL, NULL, 0)); }
static int mounts_fs(void) { return failed(syscall(432, -1, 0, 0)); }
static int picks_fs(void) { return failed(syscall(433, AT_FDCWD, "/", 0)); }
static int sets_mount(void) {
    struct { uint64_t set, clear, propagation, userns; } attr = {.clear = 1 /* MOUNT_ATTR_RDONLY */};
    return failed(syscall(442, AT_FDCWD, scene.outside, 0, &attr, sizeof attr));
}
static int unshares_user(void) { return failed(unshare(CLONE_NEWUSER)); }
static int unshares_mounts(void) { return failed(unshare(CLONE_NEWNS)); }
static int unshares_time(void) { return failed(unshare(0x80 /* CLONE_NEWTIME */)); }
static int clones(unsigned long flags) {
    long child = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (child == 0) _exit(0);
    if (child > 0) waitpid(child, NULL, 0);
    return failed(child);
}
static int clones_user(void) { return clones(CLONE_NEWUSER); }
static int clones_net(void) { return clones(CLONE_NEWUSER | CLONE_NEWNET); }
static int clones_junk(void) { return clones(0xdead00000000UL | CLONE_NEWUSER); }
static int enters(void) {
    int fd = open("/proc/self/ns/uts", O_RDONLY);
    return fd < 0 ? errno : failed(setns(fd, CLONE_NEWUTS));
}
static int enters_process(void) {
    int process = syscall(SYS_pidfd_open, scene.victim, 0);
    return process < 0 ? errno : failed(setns(process, CLONE_NEWUTS));
}
static int maps_user(void) { return writes("/proc/self/uid_map", 0); }

static int set_user(void) { return failed(setuid(4242)); }
static int set_users(void) { return failed(setresuid(4242, 4242, 4242)); }
static int set_real(void) { return failed(setreuid(4242, 4242)); }
static int set_fs(void) {
    errno = 0;
    long before = syscall(SYS_setfsuid, 4242);
    if (before < 0) return errno;
    return syscall(SYS_setfsuid, -1) == 4242 ? 0 : NOTHING;
}
static int set_groups(void) {
    gid_t group = 0;
    return failed(syscall(SYS_setgroups, 1, &group));
}
static int set_capabilities(void) {
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &head, data) < 0) return errno;
    data[0].effective |= 1u << CAP_SYS_ADMIN;
    data[0].permitted |= 1u << CAP_SYS_ADMIN;
    return failed(syscall(SYS_capset, &head, data));
}
static int ambient(void) { return failed(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SYS_PTRACE, 0, 0)) ; }
static int ambient_root(void) {
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &head, data) < 0) return errno;
    data[0].inheritable |= 1u << CAP_SYS_PTRACE;
    if (syscall(SYS_capset, &head, data) < 0) return errno;
    return ambient();
}
static int raises_limit(void) {
    struct rlimit low = {0, 0}, high = {4096, 4096};
    if (setrlimit(RLIMIT_CORE, &low) < 0) return errno;
    int error = failed(setrlimit(RLIMIT_CORE, &high));
    /* Root in a container may not do this either. */
    return error == EPERM && !scene.still ? UNABLE : error;
}
static int personal(void) { return failed(syscall(SYS_personality, 0x0400000 /* READ_IMPLIES_EXEC */)); }
static int personal_junk(void) { return failed(syscall(SYS_personality, 0xdead00000000UL | 0x0040000)); }

static int key(void) { return failed(syscall(SYS_add_key, "user", "escape", "x", 1, -2 /* process keyring */)); }
static int asks_key(void) { return failed(syscall(SYS_request_key, "user", "escape-none", NULL, 0)); }
static int keyring(void) { return failed(syscall(SYS_keyctl, 0, -3 /* session keyring */, 1)); }
static int program(void) {
    struct bpf_insn code[] = {{.code = 0xb7}, {.code = 0x95}};
    union bpf_attr attr = {.prog_type = BPF_PROG_TYPE_SOCKET_FILTER, .insn_cnt = 2, .insns = (unsigned long)code, .license = (unsigned long)"GPL"};
    return failed(syscall(SYS_bpf, BPF_PROG_LOAD, &attr, sizeof attr));
}
static int measures(void) {
    struct perf_event_attr attr = {.type = PERF_TYPE_SOFTWARE, .size = sizeof attr, .config = PERF_COUNT_SW_TASK_CLOCK};
    return failed(syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0));
}
static int faults(void) { return failed(syscall(SYS_userfaultfd, 1 /* UFFD_USER_MODE_ONLY */)); }
static int faults_by_device(void) {
    int fd = open("/dev/userfaultfd", O_RDWR);
    if (fd < 0) fd = open("/dev/userfaultfd", O_RDONLY);
    return fd < 0 ? errno : failed(ioctl(fd, 0xaa00 /* USERFAULTFD_IOC_NEW */, 0));
}
static int listens_to_files(void) { return failed(syscall(SYS_fanotify_init, 0, 0)); }
static int loads_module(void) { return failed(syscall(SYS_init_module, NULL, 0UL, "")); }
static int loads_module_file(void) { return failed(syscall(SYS_finit_module, -1, "", 0)); }
static int unloads_module(void) { return failed(syscall(SYS_delete_module, "no_such_module", 0)); }
static int kexecs(void) { return failed(syscall(SYS_kexec_load, 0UL, 0UL, NULL, ~0UL)); }
static int kexecs_file(void) { return failed(syscall(SYS_kexec_file_load, -1, -1, 0UL, NULL, ~0UL)); }
static int reboots(void) { return failed(syscall(SYS_reboot, 1, 2, 3, NULL)); }
static int swaps(void) { return failed(syscall(SYS_swapon, "/no-such-file", 0)); }
static int unswaps(void) { return failed(syscall(SYS_swapoff, "/no-such-file")); }
static int quotas(void) { return failed(syscall(SYS_quotactl, 0x80000100 /* Q_SYNC */, NULL, 0, NULL)); }
static int accounts(void) { return failed(syscall(SYS_acct, "/no-such-directory/file")); }
static int sets_clock(void) { return failed(syscall(SYS_clock_settime, 11, &(struct timespec){0, 0})); }
static int sets_time(void) { return failed(syscall(SYS_settimeofday, &(struct timeval){0, 9999999}, NULL)); }
static int adjusts(void) { return failed(syscall(SYS_adjtimex, &(struct timex){.modes = ADJ_TICK, .tick = 1})); }
static int names_host(void) { return failed(sethostname("escaped", 7)); }
static int names_domain(void) { return failed(setdomainname("escaped", 7)); }
static int reads_log(void) { return failed(syscall(SYS_syslog, 10 /* SYSLOG_ACTION_SIZE_BUFFER */, NULL, 0)); }
static int port_level(void) {
#ifdef SYS_iopl
    return failed(syscall(SYS_iopl, 3));
#else
    return ENOSYS;
#endif
}
static int port_range(void) {
#ifdef SYS_ioperm
    return failed(syscall(SYS_ioperm, 0x80UL, 1UL, 1));
#else
    return ENOSYS;
#endif
}
static int segments(void) {
#ifdef SYS_modify_ldt
    char table[16];
    return failed(syscall(SYS_modify_ldt, 0, table, sizeof table));
#else
    return ENOSYS;
#endif
}
static int secret_memory(void) { return failed(syscall(447 /* memfd_secret */, 0)); }

static int opens(const char *path, int flags) { return failed(open(path, flags)); }
static int core_pattern(void) {
    char text[256];
    int fd = open("/proc/sys/kernel/core_pattern", O_RDONLY);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text);
    if (got < 0) return errno;
    int to = open("/proc/sys/kernel/core_pattern", O_WRONLY);
    return to < 0 ? errno : failed(write(to, text, got));
}
static int sysctl_any(void) { return opens("/proc/sys/vm/swappiness", O_WRONLY); }
static int sysctl_modprobe(void) { return opens("/proc/sys/kernel/modprobe", O_WRONLY); }
static int sysrq(void) { return opens("/proc/sysrq-trigger", O_WRONLY); }
static int uevent_helper(void) { return opens("/sys/kernel/uevent_helper", O_WRONLY); }
static int power(void) { return opens("/sys/power/state", O_WRONLY); }
static int kernel_core(void) {
    char byte;
    int fd = open("/proc/kcore", O_RDONLY);
    return fd < 0 ? errno : failed(read(fd, &byte, 1));
}
/* Hidden addresses read as zero. The first one may really be zero: before Linux 6.15 those of per-CPU variables are, on x86_64. */
static int symbols(void) {
    char line[512];
    FILE *file = fopen("/proc/kallsyms", "r");
    if (!file) return errno;
    int shown = 0;
    while (!shown && fgets(line, sizeof line, file)) shown = strtoull(line, NULL, 16) != 0;
    fclose(file);
    return shown ? 0 : EPERM;
}
static int memory_device(void) { return opens("/dev/mem", O_RDONLY); }
static int log_device(void) { return opens("/dev/kmsg", O_RDONLY | O_NONBLOCK); }
static int log_device_write(void) { return opens("/dev/kmsg", O_WRONLY); }
static int screen(void) { return opens("/dev/vcs", O_RDONLY); }
static int console(void) { return opens("/dev/tty1", O_RDWR | O_NOCTTY); }
static int disk(void) {
    int error = ENOENT;
    DIR *names = opendir("/sys/class/block");
    for (struct dirent *entry; names && (entry = readdir(names));) {
        char byte;
        int fd = entry->d_name[0] == '.' ? -1 : open(at("/dev", entry->d_name), O_RDONLY);
        if (fd >= 0 && read(fd, &byte, 1) == 1) return 0;
        if (entry->d_name[0] != '.' && fd < 0) error = errno;
        if (fd >= 0) close(fd);
    }
    /* Some machines also keep root out, by other means. */
    return error == EPERM && !scene.still ? UNABLE : error;
}
static int device_control(const char *path, unsigned long request) {
    int fd = open(path, O_RDWR);
    if (fd < 0) fd = open(path, O_RDONLY);
    return fd < 0 ? errno : failed(ioctl(fd, request, 0));
}
static int loop(void) { return device_control("/dev/loop-control", 0x4c82 /* LOOP_CTL_GET_FREE */); }
static int machine(void) { return device_control("/dev/kvm", 0xae01 /* KVM_CREATE_VM */); }
static int tunnel(void) { return opens("/dev/net/tun", O_RDWR); }
static int fuse(void) { return opens("/dev/fuse", O_RDWR); }
static int release_agent(void) {
    if (mount("cgroup", scene.outside, "cgroup", 0, "none,name=escape") < 0) return errno;
    int error = failed(open(at(scene.outside, "release_agent"), O_WRONLY));
    umount2(scene.outside, MNT_DETACH);
    return error;
}
static int cgroup(void) {
    char name[64];
    snprintf(name, sizeof name, "/sys/fs/cgroup/escape-%d", getpid());
    int error = failed(mkdir(name, 0700));
    rmdir(name);
    return error;
}
static int cgroup_leave(void) { return opens("/sys/fs/cgroup/cgroup.procs", O_WRONLY); }
static int register_format(void) {
    const char *path = "/proc/sys/fs/binfmt_misc/register";
    if (access(path, F_OK) < 0 && mount("none", "/proc/sys/fs/binfmt_misc", "binfmt_misc", 0, NULL) < 0) return errno;
    int fd = open(path, O_WRONLY);
    return fd < 0 ? errno : failed(write(fd, "x", 1));
}
static int terminal(unsigned long request) {
    int master = open("/dev/ptmx", O_RDWR | O_NOCTTY), slave = -1;
    char byte = 'x';
    if (master >= 0 && unlockpt(master) == 0) slave = ioctl(master, 0x5441 /* TIOCGPTPEER */, O_RDWR | O_NOCTTY);
    /* Without a terminal any descriptor will do, because the filter sees only the request. */
    if (slave < 0) slave = dup(0);
    int error = failed(syscall(SYS_ioctl, slave, request, &byte));
    close(master);
    close(slave);
    return error;
}
static int injects(void) { return terminal(0x5412); }
static int injects_junk(void) { return terminal(0xdeadbeef00005412UL); }
static int console_control(void) { return terminal(0x541c); }
static int console_control_junk(void) { return terminal(0xdeadbeef0000541cUL); }

const struct attack kernel_attacks[] = {
    {"mount", mounts, ROOT | SPACE, "done", "mount a file system"},
    {"mount-bind", binds, ROOT | SPACE, "done", "bind / over another directory"},
    {"mount-remount", remounts, ROOT | SPACE, "EINVAL", "remount a file system"},
    {"mount-proc", mounts_proc, ROOT | SPACE, "done", "mount a new /proc"},
    {"umount", unmounts, ROOT | SPACE, "EINVAL", "unmount, to see what was covered"},
    {"pivot-root", pivots, ROOT | SPACE, "EBUSY EINVAL", "call pivot_root"},
    {"chroot", changes_root, ROOT, "done", "call chroot"},
    {"open-tree", opens_tree, ROOT | SPACE, "done", "clone a mount tree"},
    {"open-tree-attr", opens_tree_attr, ROOT | SPACE | KERNEL, "done", "clone a mount tree with open_tree_attr"},
    {"move-mount", moves_mount, ROOT | SPACE, "EBADF", "move a mount"},
    {"fsopen", opens_fs, ROOT | SPACE, "done", "open a file system to mount it"},
    {"fsconfig", configures_fs, ROOT | SPACE, "EINVAL EBADF", "configure a file system to mount it"},
    {"fsmount", mounts_fs, ROOT | SPACE, "EBADF", "mount a configured file system"},
    {"fspick", picks_fs, ROOT | SPACE, "done", "reconfigure a mounted file system"},
    {"mount-setattr", sets_mount, ROOT | SPACE, "EINVAL", "make a mount writable again"},
    {"unshare-user", unshares_user, 0, "done", "create a user namespace"},
    {"unshare-mount", unshares_mounts, ROOT, "done", "create a mount namespace"},
    {"unshare-time", unshares_time, ROOT | KERNEL, "done", "create a time namespace"},
    {"clone-user", clones_user, 0, "done", "create a user namespace with clone"},
    {"clone-network", clones_net, 0, "done", "create a network namespace with clone"},
    {"clone-user-junk", clones_junk, 0, "done", "create a user namespace with junk in the upper half of the flags"},
    {"setns", enters, ROOT, "done", "enter a namespace"},
    {"setns-pidfd", enters_process, ROOT, "done", "enter the namespaces of a process outside"},
    {"uid-map", maps_user, 0, "EPERM EINVAL", "write its own user map"},
    {"setuid", set_user, ROOT, "done", "become another user"},
    {"setresuid", set_users, ROOT, "done", "become another user with setresuid"},
    {"setreuid", set_real, ROOT, "done", "become another user with setreuid"},
    {"setfsuid", set_fs, ROOT, "done", "become another user for file access"},
    {"setgroups", set_groups, ROOT, "done", "change its groups"},
    {"capset", set_capabilities, ROOT, "done", "gain a capability"},
    {"ambient-capability", ambient_root, ROOT, "done", "pass a capability on to programs it executes"},
    {"raise-limit", raises_limit, ROOT | KERNEL | CAPS, "done", "raise a hard limit"},
    {"personality", personal, 0, "done", "make all memory executable"},
    {"personality-junk", personal_junk, 0, "done", "turn address randomisation off, with junk in the upper half"},
    {"add-key", key, KERNEL, "done", "add a key to a keyring"},
    {"request-key", asks_key, KERNEL, "ENOKEY", "request a key, which starts a program outside"},
    {"keyctl", keyring, KERNEL, "done", "use the session's keyring"},
    {"bpf", program, ROOT | KERNEL, "done", "load a BPF program"},
    {"perf", measures, ROOT | KERNEL, "done", "open a performance event"},
    {"userfaultfd", faults, KERNEL, "done", "create a userfaultfd"},
    {"userfaultfd-device", faults_by_device, ROOT | KERNEL | CAPS, "done", "create a userfaultfd through its device"},
    {"fanotify", listens_to_files, ROOT | KERNEL, "done", "watch every file that is opened"},
    {"init-module", loads_module, ROOT | KERNEL, "EFAULT ENOEXEC", "load a kernel module"},
    {"finit-module", loads_module_file, ROOT | KERNEL, "EBADF", "load a kernel module from a file"},
    {"delete-module", unloads_module, ROOT | KERNEL, "ENOENT", "unload a kernel module"},
    {"kexec", kexecs, ROOT | KERNEL, "EINVAL", "load another kernel"},
    {"kexec-file", kexecs_file, ROOT | KERNEL, "EINVAL", "load another kernel from a file"},
    {"reboot", reboots, ROOT, "EINVAL", "reboot"},
    {"swapon", swaps, ROOT | KERNEL, "ENOENT", "swap to a file"},
    {"swapoff", unswaps, ROOT | KERNEL, "ENOENT", "disable swap"},
    {"quotactl", quotas, KERNEL, "done", "control quotas"},
    {"acct", accounts, ROOT | KERNEL, "ENOENT", "make the kernel write process accounting to a file"},
    {"clock-settime", sets_clock, ROOT, "EINVAL", "set a clock"},
    {"settimeofday", sets_time, ROOT, "EINVAL", "set the time"},
    {"adjtimex", adjusts, ROOT, "EINVAL", "adjust the clock"},
    {"sethostname", names_host, ROOT | SPACE, "done", "rename the host"},
    {"setdomainname", names_domain, ROOT | SPACE, "done", "rename its NIS domain"},
    {"syslog", reads_log, ROOT, "done", "read the kernel log"},
    {"iopl", port_level, ROOT | KERNEL, "done", "get access to all I/O ports"},
    {"ioperm", port_range, ROOT | KERNEL, "done", "get access to one I/O port"},
    {"modify-ldt", segments, KERNEL, "done", "change the local descriptor table"},
    {"memfd-secret", secret_memory, KERNEL, "done", "create memory that the kernel itself cannot see"},
    {"core-pattern", core_pattern, ROOT, "done", "make every crash on the machine start a program"},
    {"sysctl", sysctl_any, ROOT, "done", "change a setting under /proc/sys"},
    {"sysctl-modprobe", sysctl_modprobe, ROOT | KERNEL, "done", "change the program that loads modules"},
    {"sysrq", sysrq, ROOT | KERNEL, "done", "write /proc/sysrq-trigger"},
    {"uevent-helper", uevent_helper, ROOT | KERNEL, "done", "change the program that is started for device events"},
    {"power-state", power, ROOT | KERNEL, "done", "suspend the machine"},
    {"kcore", kernel_core, ROOT | KERNEL, "done", "read the kernel's memory through /proc/kcore"},
    {"kallsyms", symbols, ROOT | KERNEL | CAPS, "done", "read the kernel's addresses"},
    {"dev-mem", memory_device, ROOT | KERNEL, "done", "read physical memory through /dev/mem"},
    {"dev-kmsg", log_device, ROOT | KERNEL | GATE, "done", "read the kernel log through /dev/kmsg"},
    {"dev-kmsg-write", log_device_write, ROOT | KERNEL, "done", "write the kernel log through /dev/kmsg"},
    {"dev-vcs", screen, ROOT | KERNEL | GATE, "done", "read the screen of the console"},
    {"dev-tty1", console, ROOT | KERNEL, "done", "open the console"},
    {"disk", disk, ROOT | KERNEL | GATE, "done", "read a disk, past its file system"},
    {"loop-device", loop, ROOT | KERNEL | CAPS, "done", "create a loop device"},
    {"kvm", machine, ROOT | KERNEL | CAPS, "done", "create a virtual machine"},
    {"tun", tunnel, ROOT | KERNEL, "done", "create a network device"},
    {"fuse", fuse, ROOT | KERNEL, "done", "serve a file system of its own"},
    {"release-agent", release_agent, ROOT | SPACE | KERNEL, "done", "make the kernel start a program when a cgroup becomes empty"},
    {"cgroup-make", cgroup, ROOT | KERNEL, "done", "create a cgroup"},
    {"cgroup-leave", cgroup_leave, ROOT | KERNEL, "done", "leave its own cgroup and its limits"},
    {"binfmt-misc", register_format, ROOT | SPACE | KERNEL, "EINVAL", "register an interpreter for every user's programs"},
    {"tiocsti", injects, ROOT, "done", "type into a terminal"},
    {"tiocsti-junk", injects_junk, ROOT, "done", "type into a terminal, with junk in the upper half of the request"},
    {"tioclinux", console_control, 0, "ENOTTY", "paste into the console"},
    {"tioclinux-junk", console_control_junk, 0, "ENOTTY", "paste into the console, with junk in the upper half of the request"},
    {0}};
