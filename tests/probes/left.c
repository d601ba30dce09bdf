/* Links leaver.c, and never gets here. */
int left(void);

int main(void) { return 99 + left(); }
