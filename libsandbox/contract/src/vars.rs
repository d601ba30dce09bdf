//! The environment variables that libsandbox.so reads. It removes them once their rules are in force.

pub const ALLOW: &str = "SECCOMP_SYSCALL_ALLOW";
pub const DENY: &str = "SECCOMP_SYSCALL_DENY";
pub const ACTION: &str = "SECCOMP_DEFAULT_ACTION";
pub const FILTER: &str = "SANDBOX_FILTER";
pub const FS_READ: &str = "SANDBOX_FS_READ";
pub const FS_WRITE: &str = "SANDBOX_FS_WRITE";
pub const VERBOSE: &str = "SANDBOX_VERBOSE";
pub const REQUIRED: &str = "SANDBOX_REQUIRED";

/// All of them, in the order of the documentation.
pub const ALL: [&str; 8] = [ALLOW, DENY, ACTION, FILTER, FS_READ, FS_WRITE, VERBOSE, REQUIRED];
