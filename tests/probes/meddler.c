/* A library whose constructor runs before the preload's and changes the environment: -DHOW=1 unsetenv, 2 clearenv, 3 putenv
 * of a weaker list, 4 setenv of the same, 5 setenv of something else (which moves the array), 6 a null in the array,
 * 7 adds the action `log`. */
#include <stdlib.h>

extern char **environ;

__attribute__((constructor)) static void meddle(void)
{
    switch (HOW) {
    case 1: unsetenv("SECCOMP_SYSCALL_DENY"); unsetenv("SANDBOX_REQUIRED"); break;
    case 2: clearenv(); break;
    case 3: putenv("SECCOMP_SYSCALL_DENY=mseal"); break;
    case 4: setenv("SECCOMP_SYSCALL_DENY", "mseal", 1); break;
    case 5: setenv("SOMETHING", "else", 1); break;
    case 6: environ[0] = NULL; break;
    case 7: environ[0] = "SECCOMP_DEFAULT_ACTION=log"; break;
    }
}

int meddled(void) { return HOW; }
