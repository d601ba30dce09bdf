/* A program whose symbols take precedence over the C library's, so that a preload binds to them (-D selects which):
 * ENVIRON: an empty `environ`; ENVIRONS: also `__environ` and `_environ`.
 * FUNCTIONS: non-working versions of every C library function that a preload could use to install a filter.
 * Calls getppid by instruction, and prints its errno, the remaining variables, and how often its functions were called
 * before main. */
#include <errno.h>
#include <stddef.h>
#include <sys/syscall.h>

static int calls;

#if defined(ENVIRON) || defined(ENVIRONS)
char **environ;
#endif
#ifdef ENVIRONS
char **__environ;
char **_environ;
#endif

#ifdef FUNCTIONS
#define ANSWERS(name) long name() { calls++; return 0; }
#pragma GCC diagnostic ignored "-Wbuiltin-declaration-mismatch"
#pragma GCC diagnostic ignored "-Wpragmas"
ANSWERS(syscall) ANSWERS(prctl) ANSWERS(seccomp) ANSWERS(getenv) ANSWERS(secure_getenv) ANSWERS(unsetenv)
ANSWERS(getauxval) ANSWERS(open) ANSWERS(openat) ANSWERS(read) ANSWERS(write) ANSWERS(close) ANSWERS(fstat)
ANSWERS(_exit) ANSWERS(exit_group) ANSWERS(signal) ANSWERS(sigaction) ANSWERS(sigaddset) ANSWERS(sigemptyset)
ANSWERS(sigprocmask) ANSWERS(pthread_sigmask) ANSWERS(memcpy) ANSWERS(memmove) ANSWERS(memset) ANSWERS(memcmp)
ANSWERS(bcmp) ANSWERS(strlen) ANSWERS(strncmp) ANSWERS(malloc_usable_size) ANSWERS(seccomp_load) ANSWERS(seccomp_init)
ANSWERS(gnu_get_libc_version) ANSWERS(__errno_location_of_nobody)
#endif

static long call(long number, long a, long b, long c)
{
    long answer;
#if defined(__x86_64__)
    __asm__ volatile("syscall" : "=a"(answer) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    answer = x0;
#endif
    return answer;
}

static void say(const char *text, long value)
{
    char line[64];
    volatile char *to = line;
    char digits[20];
    int used = 0;
    while (*text) *to++ = *text++;
    do digits[used++] = '0' + value % 10; while ((value /= 10) > 0);
    while (used > 0) *to++ = digits[--used];
    *to++ = '\n';
    call(SYS_write, 1, (long)line, (char *)to - line);
}

/* The number of entries that begin with SECCOMP_ or SANDBOX_. */
static long ours(char **entries)
{
    long found = 0;
    for (; *entries; entries++)
        for (int which = 0; which < 2; which++) {
            const volatile char *name = which ? "SANDBOX_" : "SECCOMP_", *text = *entries;
            while (*name && *name == *text) name++, text++;
            found += !*name;
        }
    return found;
}

int main(int argc, char **argv, char **envp)
{
    (void)argc, (void)argv;
    int before = calls;
    long answer = call(SYS_getppid, 0, 0, 0);
    say("getppid=", answer < 0 ? -answer : 0);
    say("ours=", ours(envp));
    say("called=", before);
    call(SYS_exit_group, 0, 0, 0);
    return 0;
}
