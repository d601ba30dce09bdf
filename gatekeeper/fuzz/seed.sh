#!/bin/sh
# Builds the seeds of the target `elf`: small programs of every linkage, and damaged ones. The other targets' seeds are in
# seeds/.
set -eu
cd "$(dirname "$0")"
mkdir -p corpus/elf
probes=../../tests/probes
build() { # name compiler flags...
	name=$1 compiler=$2
	shift 2
	"$compiler" -Os -s -o "corpus/elf/$name" "$@" 2>/dev/null || rm -f "corpus/elf/$name"
}
build dynamic cc "$probes/check_probe.c"
build no-pie cc "$probes/check_probe.c" -no-pie
build sysv-hash cc "$probes/check_probe.c" -Wl,--hash-style=sysv -rdynamic
build own-syscall cc "$probes/check_probe.c" -DOWN_SYSCALL
build preinit cc "$probes/check_probe.c" -DPREINIT -DIFUNC
build static cc "$probes/check_loader.c" -static -nostdlib -fno-stack-protector
build static-pie cc "$probes/check_loader.c" -static-pie -nostdlib -fno-stack-protector
build musl musl-gcc "$probes/check_probe.c"
build i386 cc "$probes/check_loader.c" -m32 -static -nostdlib -fno-stack-protector -Dcall=x86_only
build aarch64 aarch64-linux-gnu-gcc "$probes/check_probe.c"
for length in 4 63 64 120 700 3000; do
	head -c "$length" corpus/elf/dynamic >"corpus/elf/cut-$length"
done
head -c 20000 /lib64/ld-linux-x86-64.so.2 >corpus/elf/loader-head 2>/dev/null || true
