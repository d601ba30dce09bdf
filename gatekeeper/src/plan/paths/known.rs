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

/// What runs when this user logs in, opens a shell or starts a program, relative to the home directory. Read-only where a
/// home is writable as a whole; those that are not there can be made, and the report names them.
pub const STARTUP: &[&str] = &[
    ".bash_logout",
    ".bash_aliases",
    ".zlogin",
    ".zlogout",
    ".kshrc",
    ".mkshrc",
    ".cshrc",
    ".tcshrc",
    ".login",
    ".inputrc",
    ".xinitrc",
    ".xprofile",
    ".xsession",
    ".xsessionrc",
    ".pam_environment",
    ".config/fish",
    ".config/autostart",
    ".config/environment.d",
    ".config/systemd",
    ".config/git",
    ".config/nvim",
    ".vim",
    ".vimrc",
    ".emacs",
    ".emacs.d",
    ".tmux.conf",
    ".screenrc",
    ".gdbinit",
    ".lldbinit",
    ".pythonrc",
    ".pdbrc",
    ".irbrc",
    ".psqlrc",
    ".sqliterc",
    ".npmrc",
    ".yarnrc",
    ".condarc",
    ".cargo/config.toml",
    ".cargo/bin",
    ".local/bin",
    ".local/share/applications",
    ".ssh/config",
    ".ssh/authorized_keys",
    ".ssh/rc",
    "bin",
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
