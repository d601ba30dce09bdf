/* Links leaver.c, and never reaches main. */
int left(void);

int main(void) { return 99 + left(); }
