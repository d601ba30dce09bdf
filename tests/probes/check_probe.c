/* Prints whether a filter that denies socket with EXDEV is in force in this process. */
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#ifdef OWN_SYSCALL
long syscall(long number, ...) { (void)number; return 0; }
#endif
#ifdef OWN_PRCTL
int prctl(int option, ...) { (void)option; return 0; }
#endif
#ifdef OWN_GETENV
char *getenv(const char *name) { (void)name; return 0; }
#endif
#ifdef PREINIT
static void early(void) {}
__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = early;
#endif
#ifdef IFUNC
static int seven(void) { return 7; }
static int (*choose(void))(void) { return seven; }
int chosen(void) __attribute__((ifunc("choose")));
#endif

int main(void)
{
#ifdef IFUNC
	if (chosen() != 7)
		return 3;
#endif
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	puts(fd < 0 && errno == EXDEV ? "confined" : "unconfined");
	return 0;
}
