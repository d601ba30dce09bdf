//! The places that every machine has, or may have, and what they are to a confined command.

/// The kernel's own names of its block devices.
pub(super) const BLOCK_DEVICES: &str = "/sys/class/block";

/// What decides what others will run or trust; read-only inside a writable tree.
pub const PROTECTED: &[&str] = &[
    ".git/hooks",
    ".git/config",
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".profile",
    ".zshrc",
    ".zprofile",
    ".zshenv",
    ".gitconfig",
    ".gitmodules",
    ".vscode",
    ".idea",
    ".mcp.json",
    ".claude",
    ".cursor",
    ".codex",
    ".envrc",
    ".ripgreprc",
];

/// Readable wherever a policy lists what may be read: without them no program starts.
pub const SYSTEM: &[&str] = &[
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/bin",
    "/sbin",
    "/nix/store",
    "/etc/ld.so.cache",
    "/etc/ld.so.preload",
    "/proc",
];

/// Devices that programs expect; written or not, they keep nothing.
pub const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];
/// New terminals, for programs that start programs on them. The user's other terminals are there as well, and Landlock
/// cannot tell them apart.
pub const TERMINALS: &[&str] = &["/dev/ptmx", "/dev/pts"];
/// Granted device by device: the rest are disks, keyboards, screens, other people's terminals and the kernel itself.
pub(super) const DEVICE_TREE: &str = "/dev";

/// A browser that draws with them controls them.
pub(super) const GRAPHICS: &str = "/dev/dri";
