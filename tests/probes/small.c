// A full disk. small BYTES INODES UID DIR COPY -- CMD ARGS: mounts a private file system on DIR, fills it up to BYTES,
// runs the command as UID, and copies DIR/report to COPY if it exists. Exits with the command's status, with 98 if the
// command has left something in DIR/tmp a minute later, or with 77 if nothing can be mounted.
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int entries(const char *path) {
    DIR *directory = opendir(path);
    int count = -2;
    while (directory && readdir(directory)) count++;
    if (directory) closedir(directory);
    return count;
}

int main(int argc, char **argv) {
    if (argc < 8 || strcmp(argv[6], "--") != 0) return 97;
    long bytes = atol(argv[1]);
    uid_t user = (uid_t)atol(argv[3]);
    const char *dir = argv[4];
    char options[100], path[4096];
    snprintf(options, sizeof options, "size=%ld,nr_inodes=%ld,mode=1777", bytes + 65536, atol(argv[2]) + 4);
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) return 77;
    if (mount("none", dir, "tmpfs", 0, options) != 0 || chdir(dir) != 0) return 77;
    if (mkdir("tmp", 0777) != 0 || chown("tmp", user, user) != 0) return 77;
    int filler = open("filler", O_CREAT | O_WRONLY, 0600);
    if (filler < 0 || ftruncate(filler, 65536) != 0 || fallocate(filler, 0, 0, 65536) != 0) return 77;
    close(filler);
    pid_t child = fork();
    if (child == 0) {
        if (setgroups(0, NULL) != 0 || setresgid(user, user, user) != 0 || setresuid(user, user, user) != 0) _exit(96);
        execv(argv[7], argv + 7);
        _exit(95);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child) return 94;
    snprintf(path, sizeof path, "%s/report", dir);
    int from = open(path, O_RDONLY), to = open(argv[5], O_CREAT | O_TRUNC | O_WRONLY, 0644);
    char block[4096];
    for (ssize_t got; from >= 0 && to >= 0 && (got = read(from, block, sizeof block)) > 0;)
        if (write(to, block, (size_t)got) != got) return 93;
    for (int wait = 0; entries("tmp") != 0; wait++) {
        if (wait == 6000) return 98;
        usleep(10000);
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
