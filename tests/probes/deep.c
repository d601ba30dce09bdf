/* deep N: creates N nested directories below TMPDIR. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	if (argc != 2 || chdir(getenv("TMPDIR")))
		return 2;
	for (int left = atoi(argv[1]); left > 0; left--)
		if (mkdir("d", 0700) || chdir("d"))
			return 1;
	return 0;
}
