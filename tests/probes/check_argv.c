/* Prints its words, one in each pair of brackets. */
#include <stdio.h>

int main(int argc, char **argv)
{
	for (int i = 0; i < argc; i++)
		printf("[%s]", argv[i]);
	puts("");
	return 0;
}
