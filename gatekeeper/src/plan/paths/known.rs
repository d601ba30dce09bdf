//! Well-known paths, and how a confined command may use them.

/// The kernel's list of block devices.
pub(super) const BLOCK_DEVICES: &str = "/sys/class/block";

/// Files that decide what other programs run or trust; read-only inside a writable tree.
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
    ".devcontainer",
    ".gemini",
    ".windsurf",
    ".zed",
    ".kiro",
    ".exrc",
    ".nvim.lua",
    ".envrc",
    ".ripgreprc",
];

/// Files that run when this user logs in, opens a shell or starts a program, relative to the home directory. Read-only
/// inside a writable home. A command can create those that do not exist, and the report names them.
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
    // Stages: what `gatekeeper stage apply` will write, and where.
    ".local/state/gatekeeper",
    ".ssh/config",
    ".ssh/authorized_keys",
    ".ssh/rc",
    "bin",
];

/// Readable in addition to a policy's `paths.read`: without them no program starts.
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

/// Devices that programs expect. None of them stores anything.
pub const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];
/// Pseudo-terminals, for programs that run others on a new terminal. This includes the user's other terminals, which
/// Landlock cannot tell apart.
pub const TERMINALS: &[&str] = &["/dev/ptmx", "/dev/pts"];
/// Granted device by device: it also holds disks, keyboards, screens, other users' terminals and kernel memory.
pub(super) const DEVICE_TREE: &str = "/dev";

/// Graphics devices, which a browser with hardware rendering has to control.
pub(super) const GRAPHICS: &str = "/dev/dri";
