/* Executes a file with execve, with the preload or with a filter installed before.
 *   check_exec preload LIBRARY FILE    check_exec filter - FILE
 * A failed execve prints "errno N". Both deny socket with EXDEV. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef __x86_64__
#define NATIVE AUDIT_ARCH_X86_64
#else
#define NATIVE AUDIT_ARCH_AARCH64
#endif

static int filter(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EXDEV),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof code / sizeof *code, code };
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -1;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

int main(int argc, char **argv)
{
	char preload[5000], path[5000];
	const char *found = getenv("PATH");
	snprintf(preload, sizeof preload, "LD_PRELOAD=%s", argc > 2 ? argv[2] : "");
	snprintf(path, sizeof path, "PATH=%s", found ? found : "");
	char *confined[] = { preload, "SECCOMP_SYSCALL_DENY=socket", "SECCOMP_DEFAULT_ACTION=errno:EXDEV", path, 0 };
	char *plain[] = { path, 0 };
	if (argc != 4)
		return 2;
	int before = strcmp(argv[1], "filter") == 0;
	if (before && filter())
		return 2;
	char *words[] = { argv[3], 0 };
	execve(argv[3], words, before ? plain : confined);
	printf("errno %d\n", errno);
	return 0;
}
