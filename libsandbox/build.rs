//! Linker flags for libsandbox.so: its soname, versioned exports, and no undefined symbols.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for arg in [
        // Only GNU ld has --default-symver, which gives every exported symbol the version `libsandbox.so`.
        "-fuse-ld=bfd",
        "-Wl,--default-symver",
        "-Wl,-s",
        "-Wl,-soname,libsandbox.so",
        // Pack code and data into fewer pages: every process that preloads the library maps and touches each of them.
        "-Wl,-z,noseparate-code",
        // Fail the build on undefined symbols, such as the one that any reachable panic refers to (`panic` in lib.rs).
        "-Wl,-z,defs",
    ] {
        println!("cargo:rustc-cdylib-link-arg={arg}");
    }
}
