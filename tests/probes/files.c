/* Uses the files named by its arguments (`read:PATH`, `write:PATH` ...) and prints `ok` or errno for each. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int touch(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC, 0644);
    if (fd < 0) return -1;
    close(fd);
    return 0;
}

static int execute(char *path)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        char *args[] = {path, NULL};
        execv(path, args);
        _exit(errno);
    }
    waitpid(child, &status, 0);
    errno = WEXITSTATUS(status);
    return status == 0 ? 0 : -1;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        char what[4096], *path, *to;
        int answer = -1;
        snprintf(what, sizeof what, "%s", argv[i]);
        path = strchr(what, ':');
        if (!path) return 2;
        *path++ = 0;
        if ((to = strchr(path, '>'))) *to++ = 0;
        errno = 9999;
        if (!strcmp(what, "read")) answer = touch(path, O_RDONLY);
        else if (!strcmp(what, "write")) answer = touch(path, O_WRONLY);
        else if (!strcmp(what, "create")) answer = touch(path, O_WRONLY | O_CREAT | O_EXCL);
        else if (!strcmp(what, "open-truncate")) answer = touch(path, O_RDONLY | O_TRUNC);
        else if (!strcmp(what, "truncate")) answer = truncate(path, 0);
        else if (!strcmp(what, "list")) answer = touch(path, O_RDONLY | O_DIRECTORY);
        else if (!strcmp(what, "mkdir")) answer = mkdir(path, 0755);
        else if (!strcmp(what, "unlink")) answer = unlink(path);
        else if (!strcmp(what, "stat")) { struct stat st; answer = stat(path, &st); }
        else if (!strcmp(what, "rename") && to) answer = rename(path, to);
        else if (!strcmp(what, "exec")) answer = execute(path);
        if (answer == 0) printf("%s=ok\n", what);
        else printf("%s=%d\n", what, errno);
    }
    return 0;
}
