/* Links early.c as a library, and prints the errno of the thread that started before the preload's constructor. */
#include <stdio.h>

int early_thread_errno(void);

int main(void)
{
    printf("thread=%d\n", early_thread_errno());
    return 0;
}
