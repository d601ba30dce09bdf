/* A library whose constructor starts a thread. The thread waits, then makes getppid and says what it answered. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_int go;
static int answer = -1;
static pthread_t thread;

static void *body(void *unused)
{
    (void)unused;
    while (!atomic_load(&go)) ;
    answer = syscall(SYS_getppid) < 0 ? errno : 0;
    return NULL;
}

__attribute__((constructor)) static void start(void)
{
    pthread_create(&thread, NULL, body, NULL);
}

int early_thread_errno(void)
{
    atomic_store(&go, 1);
    pthread_join(thread, NULL);
    return answer;
}
