//! Tries whether a program of this machine loads libsandbox.so and obeys it.

use super::distribution::Distribution;
use super::layers::bounded;
use super::{Finding, Status, Why};
use crate::check::{Context, Disk, Linkage, Preload, check};
use std::ffi::OsStr;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::process::Command;

pub fn preload(distribution: &Distribution) -> Finding {
    const LOST: &str = "syscall lists that apply from main on (profile custom); everything else is confined before exec and needs no preload";
    let lacking = |detail: String, why: Why| Finding::lacking("preload", Status::Unavailable, detail, why, LOST);
    let Some(bytes) = libsandbox_embed::LIBSANDBOX else {
        let cause = "gatekeeper was built without libsandbox.so".to_owned();
        let fix = "build gatekeeper from the full source tree, or with LIBSANDBOX_SO set".to_owned();
        return lacking("none".to_owned(), Why { cause, fix });
    };
    let Some(program) = dynamic_program() else {
        let cause =
            format!("{} are static programs or absent, and only a dynamic loader loads it", PROGRAMS.join(", "));
        let fix = format!("if other programs here use glibc, nothing; else {}", with_glibc(distribution));
        return lacking("not tried".to_owned(), Why { cause, fix });
    };
    match loads(program, bytes) {
        Ok(None) => {
            let floor = Preload::embedded()
                .floor
                .map(|(major, minor)| format!(", glibc {major}.{minor} or newer"))
                .unwrap_or_default();
            Finding::available("preload", format!("confines {program}{floor}"))
        }
        Ok(Some(message)) => {
            let cause = format!("the loader of {program} does not load libsandbox.so: {message}");
            lacking("not loaded".to_owned(), Why { cause, fix: with_glibc(distribution) })
        }
        Err(error) => {
            let cause = format!("the try could not be started: {error}");
            lacking("not tried".to_owned(), Why { cause, fix: "see the cause".to_owned() })
        }
    }
}

fn with_glibc(distribution: &Distribution) -> String {
    let install = distribution.install("coreutils");
    format!("use a system with glibc; to install coreutils that are linked against it: {install}")
}

/// Programs that do nothing with these arguments and an empty input.
const PROGRAMS: [&str; 3] = ["/bin/true", "/usr/bin/env", "/bin/sh"];

/// The first of them that has a loader.
fn dynamic_program() -> Option<&'static str> {
    let context = Context::of_this_process(Preload::embedded());
    let is_dynamic = |program: &&str| {
        let checked = check(OsStr::new(program), &context, &Disk::new());
        checked.verdict.chain.last().is_some_and(|link| link.linkage == Some(Linkage::Dynamic))
    };
    PROGRAMS.into_iter().find(is_dynamic)
}

/// `None` if the program loads the library and obeys it, else the loader's message.
fn loads(program: &str, bytes: &[u8]) -> std::io::Result<Option<String>> {
    // Without CLOEXEC: the program inherits the descriptor, and its /proc/self/fd leads to the same file.
    let memory = rustix::fs::memfd_create("libsandbox.so", rustix::fs::MemfdFlags::empty())?;
    let mut file = std::fs::File::from(memory);
    file.write_all(bytes)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let run = |variable: (&str, &str)| {
        let mut command = Command::new(program);
        bounded(command.env_clear().env("LD_PRELOAD", &path).env(variable.0, variable.1))
    };
    // An error that only the library prints proves that it was loaded; success with an empty list, that it works.
    let (quiet, refused) = run(("SANDBOX_REQUIRED", "1"))?;
    let (works, message) = run(("SECCOMP_SYSCALL_DENY", ""))?;
    let loaded = !quiet && refused.starts_with("libsandbox: ");
    Ok((!(loaded && works)).then(|| {
        [refused, message].into_iter().find(|text| !text.is_empty()).unwrap_or_else(|| "no message".to_owned())
    }))
}
