//! Limits as the kernel takes them.

use crate::policy::Limits;

/// The rlimits of a policy.
pub fn rlimits(limits: &Limits) -> Vec<(u32, libc::rlimit)> {
    let both = |value: u64| libc::rlimit { rlim_cur: value, rlim_max: value };
    let cpu = limits.cpu.map(|cpu| cpu.as_secs().max(1));
    // One second between the warning signal and the end.
    let cpu = cpu.map(|seconds| libc::rlimit { rlim_cur: seconds, rlim_max: seconds + 1 });
    [
        (libc::RLIMIT_AS, limits.memory.map(both)),
        (libc::RLIMIT_NPROC, limits.processes.map(both)),
        (libc::RLIMIT_NOFILE, limits.files.map(both)),
        (libc::RLIMIT_CPU, cpu),
        (libc::RLIMIT_FSIZE, limits.disk.map(both)),
    ]
    .into_iter()
    .filter_map(|(resource, limit)| Some((resource as u32, limit?)))
    .collect()
}

/// The same for people.
pub fn described(limits: &Limits) -> Vec<String> {
    let number = |name: &str, value: Option<u64>| value.map(|value| format!("{name} {value}"));
    [
        number("memory", limits.memory),
        number("processes", limits.processes),
        number("files", limits.files),
        limits.cpu.map(|cpu| format!("cpu {}s", cpu.as_secs().max(1))),
        number("output", limits.output),
        number("disk", limits.disk),
    ]
    .into_iter()
    .flatten()
    .collect()
}
