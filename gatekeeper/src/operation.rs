//! The operations that start a command, in one list: the plan makes it, `gatekeeper plan` prints it, `enforce` prepares each
//! operation, the child carries them out in this order and reports its progress by the same values, and a failure names one.

/// One operation. The names are part of messages and of `plan --json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Operation {
    /// Forking the processes of the run. Also what a failure before the first operation is called.
    Start,
    /// Building the command's environment.
    Environment,
    /// The private TMPDIR.
    TemporaryDirectory,
    /// The run's own files, made by the guardian.
    RunDirectory,
    /// The proxy that lets listed hosts through.
    Proxy,
    Signals,
    Cgroup,
    /// A user namespace, unless we are root, and a mount namespace.
    Namespaces,
    /// The staged working directory, mounted over the real one.
    Stage,
    Mounts,
    ProcessGroup,
    StandardStreams,
    WorkingDirectory,
    Limits,
    Descriptors,
    NoNewPrivs,
    /// The capabilities that reach beyond the run, and the one that lifts limits.
    Capabilities,
    /// Only the capability that lifts limits.
    LimitsCapability,
    Landlock,
    Seccomp,
    Exec,
    /// The exact list of syscalls, which libsandbox.so loads right before main.
    Preload,
}

impl Operation {
    const ALL: [Operation; 22] = [
        Operation::Start,
        Operation::Environment,
        Operation::TemporaryDirectory,
        Operation::RunDirectory,
        Operation::Proxy,
        Operation::Signals,
        Operation::Cgroup,
        Operation::Namespaces,
        Operation::Stage,
        Operation::Mounts,
        Operation::ProcessGroup,
        Operation::StandardStreams,
        Operation::WorkingDirectory,
        Operation::Limits,
        Operation::Descriptors,
        Operation::NoNewPrivs,
        Operation::Capabilities,
        Operation::LimitsCapability,
        Operation::Landlock,
        Operation::Seccomp,
        Operation::Exec,
        Operation::Preload,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Operation::Start => "start",
            Operation::Environment => "environment",
            Operation::TemporaryDirectory => "temporary directory",
            Operation::RunDirectory => "run directory",
            Operation::Proxy => "proxy",
            Operation::Signals => "signals",
            Operation::Cgroup => "cgroup",
            Operation::Namespaces => "namespaces",
            Operation::Stage => "stage",
            Operation::Mounts => "mounts",
            Operation::ProcessGroup => "process group",
            Operation::StandardStreams => "standard streams",
            Operation::WorkingDirectory => "working directory",
            Operation::Limits => "limits",
            Operation::Descriptors => "descriptors",
            Operation::NoNewPrivs => "no_new_privs",
            Operation::Capabilities | Operation::LimitsCapability => "capabilities",
            Operation::Landlock => "landlock",
            Operation::Seccomp => "seccomp",
            Operation::Exec => "exec",
            Operation::Preload => "preload",
        }
    }

    /// The operation of a number in the shared page through which the child reports. That page was ours alone until exec, so an
    /// unknown number cannot occur; it would read as `Start`.
    pub fn from_number(number: i32) -> Operation {
        let known = usize::try_from(number).ok().and_then(|at| Operation::ALL.get(at));
        known.copied().unwrap_or(Operation::Start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_its_operation() {
        for (at, operation) in Operation::ALL.into_iter().enumerate() {
            assert_eq!(operation as usize, at, "{}", operation.name());
            assert_eq!(Operation::from_number(at as i32), operation);
        }
        assert_eq!(Operation::from_number(-1), Operation::Start);
        assert_eq!(Operation::from_number(22), Operation::Start);
    }
}
