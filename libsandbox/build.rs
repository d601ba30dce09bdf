//! Link settings of the .so: its name, its exports, no undefined symbol.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for arg in [
        // GNU ld, for --default-symver: exported names carry the version `libsandbox.so`.
        "-fuse-ld=bfd",
        "-Wl,--default-symver",
        "-Wl,-s",
        "-Wl,-soname,libsandbox.so",
        // Fewer, fuller pages: every page is mapped and touched once more in each program.
        "-Wl,-z,noseparate-code",
        // A broken archive, or a panic that crept in (see `panic` in lib.rs), must fail here and not in a program.
        "-Wl,-z,defs",
    ] {
        println!("cargo:rustc-cdylib-link-arg={arg}");
    }
}
