// A fork bomb. Ends by itself after a while, should nobody else end it.
#include <time.h>
#include <unistd.h>

int main(void) {
    time_t end = time(NULL) + 90;
    while (time(NULL) < end) fork();
    return 0;
}
