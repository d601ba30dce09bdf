// first-use PROGRAM ADDRESSES USES [ARGUMENT...]: runs PROGRAM as nobody, and writes to the file USES which of the listed addresses
// it executes, in the order of their first use: "a ADDRESS" for the process itself, "b ADDRESS" for what it forks or clones.
// Each address has a breakpoint, which its first use removes; every new process gets all of them again.
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

struct place { unsigned long address; unsigned char byte, seen[2]; };
static struct place *places;
static FILE *uses;
static size_t count;

static int by_address(const void *a, const void *b) {
    unsigned long x = ((struct place *)a)->address, y = ((struct place *)b)->address;
    return x < y ? -1 : x > y;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static FILE *proc(pid_t pid, const char *name, const char *mode) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    FILE *file = fopen(path, mode);
    if (!file) fail(path);
    setbuf(file, 0);
    return file;
}

// Where the kernel has loaded the program.
static unsigned long base_of(pid_t pid, unsigned long entry) {
    Elf64_auxv_t word;
    FILE *file = proc(pid, "auxv", "re");
    while (fread(&word, sizeof word, 1, file) == 1 && word.a_type != AT_ENTRY);
    fclose(file);
    return word.a_un.a_val - entry;
}

static int same_program(pid_t pid, FILE *program) {
    struct stat one, other;
    FILE *running = proc(pid, "exe", "re");
    if (fstat(fileno(running), &one) || fstat(fileno(program), &other)) fail("stat");
    fclose(running);
    return one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

static void breakpoints(pid_t pid, unsigned long base, int first) {
    FILE *memory = proc(pid, "mem", "r+e");
    for (struct place *p = places; p < places + count; p++) {
        if (first && pread(fileno(memory), &p->byte, 1, base + p->address) != 1) fail("read");
        if (pwrite(fileno(memory), "\xcc", 1, base + p->address) != 1) fail("write");
    }
    fclose(memory);
}

// Whether the process has stopped at a breakpoint, which is then removed.
static int used(pid_t pid, unsigned long base, int forked) {
    struct user_regs_struct registers;
    if (ptrace(PTRACE_GETREGS, pid, 0, &registers)) fail("registers");
    struct place wanted = {registers.rip - 1 - base};
    struct place *p = bsearch(&wanted, places, count, sizeof *places, by_address);
    if (!p) return 0;
    FILE *memory = proc(pid, "mem", "r+e");
    if (pwrite(fileno(memory), &p->byte, 1, base + p->address) != 1) fail("write");
    fclose(memory);
    registers.rip--;
    if (ptrace(PTRACE_SETREGS, pid, 0, &registers)) fail("registers");
    if (!p->seen[forked]++) fprintf(uses, "%c %lx\n", "ab"[forked], p->address);
    return 1;
}

int main(int argc, char **argv) {
    Elf64_Ehdr header;
    if (argc < 4) return 2;
    FILE *program = fopen(argv[1], "re"), *list = fopen(argv[2], "re");
    uses = fopen(argv[3], "we");
    if (!program || !list || !uses || fread(&header, sizeof header, 1, program) != 1) fail("first-use");
    for (unsigned long address; fscanf(list, "%lx", &address) == 1;) {
        places = realloc(places, (count + 1) * sizeof *places);
        places[count++] = (struct place){address};
    }
    qsort(places, count, sizeof *places, by_address);

    pid_t front = fork(), pid;
    if (!front) {
        // gatekeeper closes its memory to its own user, so the tracer has to stay root.
        if (setgroups(0, 0) || setgid(65534) || setuid(65534) || ptrace(PTRACE_TRACEME, 0, 0, 0)) fail("nobody");
        argv[3] = argv[1];
        execv(argv[1], argv + 3);
        fail(argv[1]);
    }
    unsigned long base = 0;
    for (int status; (pid = waitpid(-1, &status, __WALL)) > 0;) {
        if (!WIFSTOPPED(status)) continue;
        int signal = WSTOPSIG(status), event = status >> 16;
        if (!base) {
            ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL);
            base = base_of(pid, header.e_entry);
            breakpoints(pid, base, 1);
            signal = 0;
        } else if (signal == SIGSTOP && pid != front) {
            // A new process or thread stops like this. Those of the command have another program.
            if (same_program(pid, program)) breakpoints(pid, base, 0);
            signal = 0;
        } else if (event || (signal == SIGTRAP && used(pid, base, pid != front))) {
            signal = 0;
        }
        ptrace(PTRACE_CONT, pid, 0, signal);
    }
    return fclose(uses) != 0;
}
