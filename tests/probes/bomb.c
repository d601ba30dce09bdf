// A fork bomb: every process forks as fast as it can. Bounded in number and time, so that the machine survives if
// gatekeeper does not end it.
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 4000 };

int main(void) {
    time_t end = time(NULL) + 90;
    atomic_int *made = mmap(NULL, sizeof *made, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) return 98;
    while (time(NULL) < end) {
        if (atomic_fetch_add(made, 1) < MOST)
            fork();
        else
            sleep(1);
    }
    return 0;
}
