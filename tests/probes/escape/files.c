/* Attacks on files: read a credential, change files outside, change protected files. */
#include "escape.h"
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/xattr.h>

static const char *credential(void) { return at(scene.home, ".ssh/id"); }
static const char *mark(void) { return at(scene.outside, "mark"); }
static const char *inside(const char *name) { return at(scene.work, name); }

static int plain(void) { return reads_secret(credential()); }
static int by_root(void) { return reads_secret(at("/proc/self/root", credential())); }
static int by_cwd(void) { return reads_secret("/proc/self/cwd/../home/.ssh/id"); }
static int by_thread_self(void) { return reads_secret(at("/proc/thread-self/root", credential())); }
static int by_dots(void) { return reads_secret("../home/.ssh/../.ssh/./id"); }
static int by_directory(void) {
    int top = open("/", O_PATH | O_DIRECTORY);
    return top < 0 ? errno : holds_secret(openat(top, credential() + 1, O_RDONLY));
}
static int by_path_only(void) {
    char name[64];
    int fd = open(credential(), O_PATH);
    if (fd < 0) return errno;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    return reads_secret(name);
}
static int by_link(void) { return reads_secret(inside("way-to-credential")); }
static int by_new_link(void) {
    if (symlink(credential(), inside("new-way")) < 0 && errno != EEXIST) return errno;
    return reads_secret(inside("new-way"));
}
static int by_hard_link(void) {
    unlink(inside("hard"));
    if (link(credential(), inside("hard")) < 0) return errno;
    return reads_secret(inside("hard"));
}
static int by_path_link(void) {
    char name[64];
    int fd = open(credential(), O_PATH);
    if (fd < 0) return errno;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    unlink(inside("hard2"));
    if (linkat(AT_FDCWD, name, AT_FDCWD, inside("hard2"), AT_SYMLINK_FOLLOW) < 0) return errno;
    return reads_secret(inside("hard2"));
}
static int by_rename(void) {
    if (rename(at(scene.home, ".ssh"), inside("stolen")) < 0) return errno;
    int error = reads_secret(inside("stolen/id"));
    rename(inside("stolen"), at(scene.home, ".ssh"));
    return error;
}
static int by_env_file(void) { return reads_secret(inside(".env")); }
static int handle(void) {
    struct { struct file_handle head; char bytes[128]; } handle = {.head.handle_bytes = 128};
    int mount;
    if (name_to_handle_at(AT_FDCWD, credential(), &handle.head, &mount, 0) < 0) return errno;
    return holds_secret(open_by_handle_at(AT_FDCWD, &handle.head, O_RDONLY));
}
static int forged_handle(void) {
    struct { struct file_handle head; unsigned bytes[2]; } handle = {.head = {.handle_bytes = 8, .handle_type = 1}, .bytes = {0x7fffff, 1}};
    return failed(open_by_handle_at(AT_FDCWD, &handle.head, O_RDONLY));
}
static int shadow(void) {
    char byte;
    int fd = open("/etc/shadow", O_RDONLY);
    return fd < 0 ? errno : failed(read(fd, &byte, 1));
}

static int write_plain(void) { return writes(mark(), 0); }
static int append(void) { return writes(mark(), O_APPEND); }
static int truncating_read(void) { return failed(open(mark(), O_RDONLY | O_TRUNC)); }
static int truncated(void) { return failed(truncate(mark(), 1)); }
static int creates(void) { return writes(at(scene.outside, "made"), O_CREAT); }
static int temporary(void) { return failed(open(scene.outside, O_TMPFILE | O_WRONLY, 0600)); }
static int write_by_fd(void) {
    char name[64];
    int fd = open(mark(), O_RDONLY);
    if (fd < 0) return errno;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    return writes(name, 0);
}
static int write_by_link(void) { return writes(inside("way-out"), 0); }
static int write_by_cwd(void) {
    if (chdir(scene.outside) < 0) return errno;
    int error = writes("mark", 0);
    if (chdir(scene.work) < 0) return UNABLE;
    return error;
}
static int deletes(void) { return failed(unlink(mark())); }
static int renames_away(void) { return failed(rename(mark(), at(scene.outside, "moved"))); }
static int renames_onto(void) {
    int error = writes(inside("mine"), O_CREAT);
    return error ? error : failed(rename(inside("mine"), mark()));
}
static int exchanges(void) {
    writes(inside("mine"), O_CREAT);
    return failed(syscall(SYS_renameat2, AT_FDCWD, inside("mine"), AT_FDCWD, mark(), RENAME_EXCHANGE));
}
static int links_out(void) {
    writes(inside("mine"), O_CREAT);
    return failed(link(inside("mine"), at(scene.outside, "linked")));
}
static int links_symbolic(void) { return failed(symlink("/", at(scene.outside, "link"))); }
static int makes_directory(void) { return failed(mkdir(at(scene.outside, "directory"), 0700)); }
static int removes_directory(void) { return failed(rmdir(at(scene.outside, "empty"))); }
static int makes_fifo(void) { return failed(mkfifo(at(scene.outside, "fifo"), 0600)); }
static int makes_device(void) {
    unlink(inside("disk"));
    return failed(mknod(inside("disk"), S_IFBLK | 0600, (7 << 8)));
}
static int makes_character_device(void) {
    unlink(inside("memory"));
    return failed(mknod(inside("memory"), S_IFCHR | 0600, (1 << 8) | 11));
}
static int makes_socket(void) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof name.sun_path, "%s", at(scene.outside, "s"));
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    return fd < 0 ? errno : failed(bind(fd, (void *)&name, sizeof name));
}
static int modes(void) { return failed(chmod(mark(), 0777)); }
static int mode_by_fd(void) {
    int fd = open(mark(), O_RDONLY);
    return fd < 0 ? errno : failed(fchmod(fd, 0777));
}
static int mode_by_path_fd(void) {
    char name[64];
    int fd = open(mark(), O_PATH);
    if (fd < 0) return errno;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    return failed(chmod(name, 0777));
}
static int mode_by_link(void) { return failed(chmod(inside("way-out"), 0777)); }
static int mode_new(void) { return failed(syscall(452 /* fchmodat2 */, AT_FDCWD, mark(), 0777, 0)); }
static int owner(void) { return failed(chown(mark(), getuid(), getgid())); }
static int times_of(void) {
    struct timespec times[2] = {{1, 0}, {1, 0}};
    return failed(utimensat(AT_FDCWD, mark(), times, 0));
}
static int attribute(void) { return failed(setxattr(mark(), "user.escape", "x", 1, 0)); }
static int attribute_trusted(void) {
    writes(inside("mine"), O_CREAT);
    return failed(setxattr(inside("mine"), "trusted.escape", "x", 1, 0));
}
static int attribute_new(void) {
    struct { uint64_t value; uint32_t size, flags; } args = {(unsigned long)"x", 1, 0};
    return failed(syscall(463 /* setxattrat */, AT_FDCWD, mark(), 0, "user.escape", &args, sizeof args));
}
static int file_flags(unsigned long request) {
    int flags = 0, fd = open(mark(), O_RDONLY);
    if (fd < 0) return errno;
    ioctl(fd, FS_IOC_GETFLAGS, &flags);
    flags |= FS_NODUMP_FL;
    return failed(ioctl(fd, request, &flags));
}
static int flags_of(void) { return file_flags(FS_IOC_SETFLAGS); }
static int flags_junk(void) {
    int flags = FS_NODUMP_FL, fd = open(mark(), O_RDONLY);
    return fd < 0 ? errno : failed(syscall(SYS_ioctl, fd, 0xdead00000000UL | FS_IOC_SETFLAGS, &flags));
}
static int control(const char *path, unsigned long request) {
    static char words[4096];
    int fd = open(path, O_RDONLY);
    return fd < 0 ? errno : failed(syscall(SYS_ioctl, fd, request, words));
}
static int subvolume(void) { return control(scene.outside, 0x5000940eUL); /* BTRFS_IOC_SUBVOL_CREATE */ }
static int snapshot_gone(void) { return control(scene.outside, 0x5000940fUL); /* BTRFS_IOC_SNAP_DESTROY */ }
static int fat_attributes(void) { return control(mark(), 0x40047211UL); /* FAT_IOCTL_SET_ATTRIBUTES */ }
static int migrated(void) { return control(mark(), 0x6609UL); /* EXT4_IOC_MIGRATE */ }
static int freezes(void) {
    int fd = open(at(scene.work, "no-such-file"), O_RDONLY | O_CREAT, 0600);
    if (fd < 0) fd = open(mark(), O_RDONLY);
    return fd < 0 ? errno : failed(syscall(SYS_ioctl, fd, 0x5879 /* FITRIM */, NULL));
}
static int set_by_new_call(void) {
    struct { uint64_t flags; uint32_t extent, count, project, cow; } attr = {0};
    return failed(syscall(469 /* file_setattr */, AT_FDCWD, mark(), &attr, sizeof attr, 0));
}
/* Other processes of the same user, including the supervisor, may not inspect a process that is not dumpable. */
static int mode_undumpable(void) {
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    int error = modes();
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    return error;
}
/* Through a link that names the supervisor's own descriptors if the supervisor follows it. */
static int mode_by_self_link(void) {
    if (symlink("/proc/self/root", inside("way-to-self")) < 0 && errno != EEXIST) return errno;
    return failed(chmod(at(inside("way-to-self"), mark() + 1), 0777));
}
/* The kernel writes the core file into the working directory on behalf of the process. */
static int dumps_core(void) {
    char pattern[64] = "";
    int fd = open("/proc/sys/kernel/core_pattern", O_RDONLY);
    if (!scene.still && fd >= 0 && read(fd, pattern, 5) == 5 && strncmp(pattern, "core\n", 5)) return UNABLE;
    pid_t child = fork();
    if (child < 0) return errno;
    if (child == 0) {
        struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
        struct rlimit soft;
        getrlimit(RLIMIT_CORE, &soft);
        soft.rlim_cur = soft.rlim_max;
        if (setrlimit(RLIMIT_CORE, &all) < 0) setrlimit(RLIMIT_CORE, &soft);
        if (chdir(scene.outside) < 0) _exit(1);
        raise(SIGSEGV);
        _exit(1);
    }
    waitpid(child, NULL, 0);
    return access(at(scene.outside, "core"), F_OK) == 0 ? 0 : NOTHING;
}
static int shared_memory(void) {
    char name[64];
    snprintf(name, sizeof name, "/dev/shm/escape-%d", getpid());
    int error = writes(name, O_CREAT);
    unlink(name);
    return error;
}

static int hook_write(void) { return writes(inside(".git/hooks/pre-commit"), 0); }
static int hook_new(void) { return writes(inside(".git/hooks/post-commit"), O_CREAT); }
static int hook_rename(void) {
    if (rename(inside(".git"), inside("git")) < 0) return errno;
    rename(inside("git"), inside(".git"));
    return 0;
}
static int hook_replace(void) {
    mkdir(inside("hooks"), 0700);
    return failed(syscall(SYS_renameat2, AT_FDCWD, inside("hooks"), AT_FDCWD, inside(".git/hooks"), RENAME_EXCHANGE));
}
static int hook_link(void) {
    unlink(inside("config"));
    if (link(inside(".git/config"), inside("config")) < 0) return errno;
    return writes(inside("config"), 0);
}
static int hook_cwd(void) { return writes("/proc/self/cwd/.git/config", 0); }
static int hook_mode(void) { return failed(chmod(inside(".git/config"), 0666)); }
static int hook_over(void) {
    writes(inside("mine"), O_CREAT);
    return failed(rename(inside("mine"), inside(".git/config")));
}

static int settings_new(void) {
    if (mkdir(inside(".vscode"), 0700) < 0 && errno != EEXIST) return errno;
    return writes(inside(".vscode/tasks.json"), O_CREAT);
}

const struct attack file_attacks[] = {
    {"read-credential", plain, 0, "done", "read a credential"},
    {"read-by-proc-root", by_root, 0, "done", "read it through /proc/self/root"},
    {"read-by-proc-cwd", by_cwd, 0, "done", "read it through /proc/self/cwd and `..`"},
    {"read-by-thread-self", by_thread_self, 0, "done", "read it through /proc/thread-self"},
    {"read-by-dots", by_dots, 0, "done", "read it by a path with `..`"},
    {"read-by-directory", by_directory, 0, "done", "read it relative to a descriptor of /"},
    {"read-by-reopening", by_path_only, 0, "done", "read it by reopening /proc/self/fd of an O_PATH descriptor"},
    {"read-by-old-link", by_link, 0, "done", "read it through an existing symbolic link"},
    {"read-by-new-link", by_new_link, 0, "done", "read it through a new symbolic link"},
    {"read-by-hard-link", by_hard_link, 0, "done", "read it through a hard link"},
    {"read-by-path-link", by_path_link, 0, "done", "read it through a hard link made from an O_PATH descriptor"},
    {"read-by-rename", by_rename, 0, "done", "read it after moving its directory here"},
    {"read-env-file", by_env_file, GATE, "done", "read .env in the working directory"},
    {"read-by-handle", handle, ROOT, "done", "read it by its file handle"},
    {"read-by-forged-handle", forged_handle, ROOT, "ESTALE", "read it by a forged file handle"},
    {"read-shadow", shadow, ROOT | GATE, "done", "read /etc/shadow"},
    {"write", write_plain, 0, "done", "write a file outside"},
    {"append", append, 0, "done", "append to it"},
    {"truncate-by-reading", truncating_read, 0, "done", "truncate it with O_RDONLY and O_TRUNC"},
    {"truncate", truncated, 0, "done", "truncate it by path"},
    {"create", creates, 0, "done", "create a file outside"},
    {"create-unnamed", temporary, 0, "done", "create a file without a name outside"},
    {"write-by-reopening", write_by_fd, 0, "done", "write it by reopening /proc/self/fd of a read-only descriptor"},
    {"write-by-link", write_by_link, 0, "done", "write it through an existing symbolic link"},
    {"write-by-chdir", write_by_cwd, 0, "done", "write it by a relative path after chdir"},
    {"delete", deletes, 0, "done", "delete a file outside"},
    {"rename-away", renames_away, 0, "done", "rename it"},
    {"rename-onto", renames_onto, 0, "done", "replace it with a file of its own"},
    {"rename-exchange", exchanges, 0, "done", "exchange it with a file of its own"},
    {"link-outside", links_out, 0, "done", "hard-link a file of its own to the outside"},
    {"symlink-outside", links_symbolic, 0, "done", "create a symbolic link outside"},
    {"mkdir-outside", makes_directory, 0, "done", "create a directory outside"},
    {"rmdir-outside", removes_directory, 0, "done", "remove a directory outside"},
    {"fifo-outside", makes_fifo, 0, "done", "create a FIFO outside"},
    {"socket-outside", makes_socket, 0, "done", "create a socket outside with bind"},
    {"block-device", makes_device, ROOT, "done", "create a block device in its own directory"},
    {"character-device", makes_character_device, ROOT, "done", "create the device of the kernel log in its own directory"},
    {"chmod", modes, 0, "done", "change the mode of a file outside"},
    {"chmod-by-descriptor", mode_by_fd, 0, "done", "change it through a read-only descriptor"},
    {"chmod-by-path-descriptor", mode_by_path_fd, 0, "done", "change it through /proc/self/fd of an O_PATH descriptor"},
    {"chmod-by-link", mode_by_link, 0, "done", "change it through an existing symbolic link"},
    {"chmod-undumpable", mode_undumpable, 0, "done", "change it from a process that is not dumpable"},
    {"chmod-by-self-link", mode_by_self_link, 0, "done", "change it through a link into /proc/self, which for the supervisor is the supervisor"},
    {"chmod-by-new-call", mode_new, KERNEL, "done", "change it with fchmodat2"},
    {"chown", owner, 0, "done", "change the owner of a file outside"},
    {"times", times_of, 0, "done", "change the times of a file outside"},
    {"attribute", attribute, KERNEL, "done", "set an extended attribute on a file outside"},
    {"attribute-by-new-call", attribute_new, KERNEL, "done", "set an extended attribute with setxattrat"},
    {"attribute-trusted", attribute_trusted, ROOT | KERNEL, "done", "set an attribute that needs CAP_SYS_ADMIN on a file of its own"},
    {"inode-flags", flags_of, KERNEL, "done", "set inode flags through a read-only descriptor"},
    {"inode-flags-junk", flags_junk, KERNEL, "done", "set inode flags with junk in the upper half of the request"},
    {"inode-flags-by-new-call", set_by_new_call, KERNEL, "done EINVAL", "set inode flags with file_setattr"},
    {"btrfs-subvolume", subvolume, 0, "ENOTTY", "create a btrfs subvolume in a directory opened read-only"},
    {"btrfs-subvolume-delete", snapshot_gone, 0, "ENOTTY", "delete a btrfs subvolume in a directory opened read-only"},
    {"fat-attributes", fat_attributes, 0, "ENOTTY", "change FAT attributes through a read-only descriptor"},
    {"ext4-migrate", migrated, KERNEL, "ENOTTY done EINVAL EOPNOTSUPP", "convert an ext4 inode through a read-only descriptor"},
    {"trim", freezes, ROOT, "EFAULT EOPNOTSUPP ENOTTY", "trim the file system through a read-only descriptor"},
    {"core-dump", dumps_core, KERNEL, "done", "make the kernel write a core file outside"},
    {"shared-memory", shared_memory, WRITES, "done", "leave a file in /dev/shm"},
    {"hook-write", hook_write, GATE, "done", "change a git hook"},
    {"hook-new", hook_new, GATE, "done", "add a git hook"},
    {"hook-rename-above", hook_rename, GATE, "done", "rename .git away"},
    {"hook-exchange", hook_replace, GATE, "done", "exchange the hooks with a directory of its own"},
    {"config-hard-link", hook_link, GATE, "done", "change .git/config through a hard link"},
    {"config-by-proc-cwd", hook_cwd, GATE, "done", "change .git/config through /proc/self/cwd"},
    {"config-chmod", hook_mode, GATE, "done", "change the mode of .git/config"},
    {"config-replace", hook_over, GATE, "done", "replace .git/config with a file of its own"},
    {"settings-new", settings_new, GATE, "done", "create editor settings where there were none"},
    {0}};
