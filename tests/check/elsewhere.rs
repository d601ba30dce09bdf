//! Other systems, simulated in memory: loaders in other places, other owners, other handlers, an older glibc.

use super::bytes::Image;
use crate::support::{probe, skip};
use gatekeeper::check::memory::{Bytes, Memory};
use gatekeeper::check::{Caller, Context, Decision, Handler, Libc, NATIVE, Preload, ReasonCode, Verdict, check};
use std::ffi::OsStr;

const CALLER: u32 = 1000;
const SYSTEM_LOADER: &str =
    if cfg!(target_arch = "aarch64") { "/lib/ld-linux-aarch64.so.1" } else { "/lib64/ld-linux-x86-64.so.2" };
const NIX: &str = "/nix/store/eeeeeeee-glibc-2.36/lib/ld-linux.so";

fn loader() -> Vec<u8> {
    std::fs::read(SYSTEM_LOADER).expect("glibc is here")
}

fn context() -> Context {
    Context {
        path: Some("/run/bin".into()),
        cwd: "/".into(),
        caller: Caller { uid: CALLER, gids: vec![] },
        preload: Preload::embedded(),
        handlers: Vec::new(),
        machine: NATIVE,
        detail: true,
    }
}

/// The probe with its loader at this path.
fn program_of(path: &str) -> Bytes {
    let image = Image(std::fs::read(probe("check_probe", &[])).expect("just built"));
    Bytes::program(image.interpreter(format!("{path}\0").as_bytes()).0)
}

fn verdict_of(file: Bytes, path: &str, there: Option<Bytes>, context: &Context) -> Verdict {
    let mut files = Memory::new(Caller { uid: CALLER, gids: vec![] });
    files.put("/run/bin/program", file);
    if let Some(there) = there {
        files.put(path, there);
    }
    check(OsStr::new("program"), context, &files).verdict
}

#[test]
fn a_loader_is_known_by_what_is_in_it() {
    let found = verdict_of(program_of(NIX), NIX, Some(Bytes::program(loader())), &context());
    assert_eq!(found.verdict, Decision::Preload, "{found:?}");
    assert_eq!(found.chain[0].libc, Some(Libc::Glibc));
    match std::fs::read("/lib/ld-musl-x86_64.so.1") {
        Ok(bytes) => {
            let found = verdict_of(program_of(NIX), NIX, Some(Bytes::program(bytes)), &context());
            assert!(found.has(ReasonCode::Musl), "{found:?}");
        }
        Err(_) => skip("musl's loader is not installed"),
    }
    // NixOS has a static stub at the loader's standard path.
    let stub =
        std::fs::read(probe("check_loader", &["-static", "-nostdlib", "-fno-stack-protector"])).expect("just built");
    let found = verdict_of(program_of(SYSTEM_LOADER), SYSTEM_LOADER, Some(Bytes::program(stub)), &context());
    assert!(found.has(ReasonCode::UnknownLoader), "{found:?}");
}

#[test]
fn a_look_alike_that_its_owner_could_have_forged_is_not_believed() {
    for (file, believed) in [
        (Bytes::program(loader()).owner(0), true),
        (Bytes::program(loader()).owner(CALLER), false),
        (Bytes::program(loader()).owner(4242), false),
        (Bytes::program(loader()).mode(0o777), false),
    ] {
        let found = verdict_of(program_of(NIX), NIX, Some(file), &context());
        assert_eq!(found.has(ReasonCode::UnknownLoader), !believed, "{found:?}");
    }
    // It is trusted if its bytes equal the system's loader.
    let mut files = Memory::new(Caller { uid: CALLER, gids: vec![] });
    files.put(SYSTEM_LOADER, Bytes::program(loader()));
    files.put("/home/me/ld.so", Bytes::program(loader()).owner(CALLER));
    files.put("/run/bin/program", program_of("/home/me/ld.so"));
    assert_eq!(check(OsStr::new("program"), &context(), &files).verdict.verdict, Decision::Preload);
}

#[test]
fn a_preload_too_new_for_the_loader_is_unusable() {
    let mut context = context();
    context.preload.floor = Some((2, 99));
    let found = verdict_of(program_of(NIX), NIX, Some(Bytes::program(loader())), &context);
    assert!(found.has(ReasonCode::PreloadUnusable) && found.verdict == Decision::Enforce, "{found:?}");
}

#[test]
fn privileges_count_unless_the_mount_takes_them_away() {
    let with = |file: Bytes| verdict_of(file, NIX, Some(Bytes::program(loader())), &context());
    assert!(with(program_of(NIX).mode(0o4755)).has(ReasonCode::Setuid));
    assert!(with(program_of(NIX).with(|facts| facts.file_caps = true)).has(ReasonCode::FileCaps));
    let nosuid = with(program_of(NIX).mode(0o6755).with(|facts| (facts.nosuid, facts.file_caps) = (true, true)));
    assert_eq!(nosuid.verdict, Decision::Preload, "{nosuid:?}");
    assert!(with(program_of(NIX).with(|facts| facts.noexec = true)).has(ReasonCode::NotExecutable));
    assert!(with(program_of(NIX).mode(0o711)).has(ReasonCode::Unreadable));
}

#[test]
fn a_handler_for_another_machine_does_not_make_it_ours() {
    let mut context = context();
    let magic = "7f454c4602010100000000000000000002003f00";
    let text = format!(
        "enabled\ninterpreter /usr/bin/qemu\nflags: F\noffset 0\nmagic {magic}\nmask ffffffffffffff00fffffffffffffffffe00ff00\n"
    );
    context.handlers = Handler::parse("qemu-other", &text).into_iter().collect();
    let image = Image(std::fs::read(probe("check_probe", &[])).expect("just built")).u16(super::bytes::E_MACHINE, 243);
    let found = verdict_of(Bytes::program(image.0), NIX, None, &context);
    assert!(found.has(ReasonCode::WrongMachine), "{found:?}");
}
