/* A library whose constructor starts a thread. The thread waits, then calls getppid and prints the result.
 * With -DOWN_FILTER, the thread first installs its own filter, which allows everything. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_int go;
static atomic_int ready;
static int answer = -1;
static pthread_t thread;

static void *body(void *unused)
{
    (void)unused;
#ifdef OWN_FILTER
    struct sock_filter allow = {.code = BPF_RET | BPF_K, .k = SECCOMP_RET_ALLOW};
    struct sock_fprog program = {.len = 1, .filter = &allow};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
#endif
    atomic_store(&ready, 1);
    while (!atomic_load(&go)) ;
    answer = syscall(SYS_getppid) < 0 ? errno : 0;
    return NULL;
}

__attribute__((constructor)) static void start(void)
{
    pthread_create(&thread, NULL, body, NULL);
    while (!atomic_load(&ready)) ;
}

int early_thread_errno(void)
{
    atomic_store(&go, 1);
    pthread_join(thread, NULL);
    return answer;
}
