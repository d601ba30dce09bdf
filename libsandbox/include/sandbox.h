/* libsandbox: a seccomp filter for the calling process.
 *
 * Link with -lsandbox, or dlopen libsandbox.so. Loading the library does nothing by itself unless
 * one of its variables is set in the environment; see libsandbox(7).
 */
#ifndef SANDBOX_H
#define SANDBOX_H

#ifdef __cplusplus
extern "C" {
#endif

enum sandbox_result {
    SANDBOX_OK = 0,
    SANDBOX_UNKNOWN_SYSCALL = -1,
    SANDBOX_UNKNOWN_GROUP = -2,
    SANDBOX_NO_NUMBER = -3,      /* known, but not a syscall of this architecture */
    SANDBOX_ITEM_TOO_LONG = -4,  /* an item of more than 127 bytes */
    SANDBOX_UNKNOWN_ACTION = -5,
    SANDBOX_NO_LIST = -6,        /* allow and deny are both NULL */
    SANDBOX_FILTER_TOO_LONG = -7,
    SANDBOX_REFUSED = -8         /* the kernel refused; errno says why */
};

/* Installs a filter on every thread of the process. It cannot be removed again.
 *
 * allow   colon-separated syscalls and @groups to allow, denying all others, or NULL; wins over deny
 * deny    colon-separated syscalls and @groups to deny, allowing all others, or NULL
 * action  what happens on a denied call: "kill" (the default for NULL), "log", "errno", "errno:EACCES", "trap"
 *
 * Sets no_new_privs. Returns SANDBOX_OK; any other sandbox_result means that no filter was installed.
 * May be called from any thread, and more than once: each call adds a filter, and the strictest answer wins.
 */
int sandbox_install(const char *allow, const char *deny, const char *action);

/* Describes a sandbox_result: a constant string, never NULL. */
const char *sandbox_strerror(int result);

#ifdef __cplusplus
}
#endif

#endif
