// A program that makes a denied call first of all: without a loader, a C library or a constructor.
// Exits with the errno of socket(AF_INET, SOCK_STREAM, 0), or 0 on success.
__asm__(
    ".globl _start\n"
    "_start:\n"
    "  mov $41, %eax\n" // socket
    "  mov $2, %edi\n"
    "  mov $1, %esi\n"
    "  xor %edx, %edx\n"
    "  syscall\n"
    "  xor %edi, %edi\n"
    "  test %rax, %rax\n"
    "  jns 1f\n"
    "  neg %rax\n"
    "  mov %eax, %edi\n"
    "1: mov $60, %eax\n" // exit
    "  syscall\n");
