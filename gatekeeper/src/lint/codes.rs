//! The codes of lint as data: what each means, how grave it is, and what to do. `docs/guide/lint.md` is made from this.

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The policy cannot be used at all.
    Error,
    /// It does not confine what it says.
    High,
    /// It confines less than it easily could.
    Medium,
    /// It says something in vain, or something that will surprise.
    Low,
}

impl Severity {
    pub fn word(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::High => "high",
            Severity::Medium => "medium",
            Severity::Low => "low",
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub struct Code {
    pub code: &'static str,
    pub severity: Severity,
    pub about: &'static str,
    pub fix: &'static str,
}

macro_rules! codes {
    ($($name:ident $severity:ident $code:literal $about:literal $fix:literal;)+) => {
        $(pub(super) static $name: Code = Code { code: $code, severity: Severity::$severity, about: $about, fix: $fix };)+
        /// Every code, the gravest first.
        pub static CODES: &[&Code] = &[$(&$name),+];
    };
}

codes! {
    UNKNOWN_SYSCALL Error "unknown_syscall"
        "A name that is no syscall. Nothing runs with such a policy."
        "correct the name";
    PSEUDO_SYSCALL Error "pseudo_syscall"
        "A call that other architectures have and this one has not. A filter of it would filter nothing."
        "name the call that does it here";
    UNRESTRICTED High "unrestricted"
        "The policy denies no syscall at all."
        "choose minimal, read, network, write or a union of them";
    LOG_ONLY High "log_only"
        "on_violation = log lets every call through that the filter denies, and only records it."
        "use on_violation = \"errno\" or \"kill\" once the policy is known to fit";
    STATIC_UNCONFINED High "static_unconfined"
        "static_binaries = warn or allow runs static programs without the filter."
        "use static_binaries = \"enforce\", which confines them, or \"block\"";
    EQUIVALENT_OPEN High "equivalent_open"
        "A call is denied and another one that does the same is left open."
        "deny the whole family";
    IO_URING_OPEN High "io_uring_open"
        "io_uring opens files, connects and deletes in the kernel, where no filter looks."
        "deny @io-uring, or answer it with errno:ENOSYS; programs fall back";
    DEBUG_OPEN High "debug_open"
        "Calls that reach into other processes or watch the kernel: ptrace, process_vm_*, pidfd_getfd, bpf and their like."
        "deny @debug; for a debugger, allow only what it needs in a policy of its own";
    PRIVILEGED_OPEN High "privileged_open"
        "Calls that administer the machine, such as kexec_load or init_module. The kernel asks for capabilities, the policy does not."
        "deny @privileged";
    NAMESPACES_OPEN High "namespaces_open"
        "New namespaces or mounts can be made: a program becomes root in a world of its own, and reaches far more of the kernel."
        "deny @namespaces, and clone where its flags hold CLONE_NEW*: mask 0x7e020000 not 0";
    TIOCSTI_OPEN High "tiocsti_open"
        "ioctl may push input into the terminal (TIOCSTI, TIOCLINUX), which the caller's shell then executes."
        "deny ioctl where argument 1, with mask 0xffffffff, is 0x5412 or 0x541c";
    INT_COMPARED_AS_64 High "int_compared_as_64"
        "A rule compares 64 bits of an argument of which the kernel reads 32: one more bit set above, and the rule does not see what it looks for (CVE-2019-10063)."
        "give the test mask = 0xffffffff";
    ESCAPE_SOCKET High "escape_socket"
        "A socket can be reached behind which somebody does things outside the sandbox for whoever asks: Docker, D-Bus, systemd, an ssh or gpg agent, tmux, X11."
        "take it out of network.unix, keep it out of writable trees, and do not allow connect together with UNIX sockets";
    NETWORK_OPENED High "network_opened"
        "The network's mode is none, and a list of allowed calls opens sockets of the internet all the same: UDP and raw packets leave the machine."
        "take socket out of syscalls.allow, and allow the kind of socket that is needed by a rule on its arguments; or set network.mode";
    WRITABLE_POLICY High "writable_policy"
        "Somebody else, or the confined program itself, can change the policy."
        "keep it outside of every tree that it makes writable, and writable by its owner only";
    WRITABLE_ON_PATH High "writable_on_path"
        "A directory of PATH is writable inside: what is put there is run outside, the next time somebody types its name."
        "take it out of paths.write, or out of PATH";
    PATH_CREDENTIAL High "path_credential"
        "A path that is granted is a credential, or a writable tree holds one."
        "grant what is needed beside it; or deny it by name in paths.deny";
    WRITE_BROAD High "write_broad"
        "The whole file system, the home directory or a directory of the system is writable."
        "name the directories that the program has to write";
    WRITE_EXEC_PATH Medium "write_exec_path"
        "paths.execute says what may be executed, and one of these trees is writable: anything can be put there."
        "keep paths.execute and paths.write apart";
    WRITE_EXEC_MEMORY Medium "write_exec_memory"
        "An exact list lets memory be writable and executable at once, so that injected bytes can be run."
        "deny mmap, mprotect and pkey_mprotect where argument 2, with mask 0x6, is 0x6; JIT compilers need it";
    CLONE3_OPEN Medium "clone3_open"
        "The flags of clone3 are behind a pointer, where no filter sees them. Programs fall back to clone."
        "answer clone3 with errno:ENOSYS";
    OPENAT2_OPEN Medium "openat2_open"
        "The flags of openat2 are behind a pointer, where no filter sees them. Programs fall back to openat."
        "answer openat2 with errno:ENOSYS";
    KEYS_OPEN Medium "keys_open"
        "The kernel's keyrings are shared by all processes of a user, in and outside of the sandbox."
        "deny @keys";
    NOT_REQUIRED Medium "not_required"
        "require_sandbox = false: where a layer is missing, the command runs without it."
        "leave it out; gatekeeper doctor tells what a machine lacks";
    PATH_MISSING Medium "path_missing"
        "A path does not exist. A grant of it grants nothing, and a denial does not hold for what is made there later."
        "correct it, make it, or leave it out";
    PATH_SYMLINK_OUT Medium "path_symlink_out"
        "A path goes through a symbolic link to somewhere else. The place that the link leads to when a run starts is what is granted."
        "name the real path";
    ALLOW_DENIED Low "allow_denied"
        "A call is both allowed and denied. Deny wins."
        "take it out of one of the two lists";
    RULE_NEVER_MATCHES Low "rule_never_matches"
        "A rule can never match: its tests contradict each other, earlier rules take all that it could match, or the call is denied altogether."
        "correct it, move it up, or take it out";
    NETWORK_CONTRADICTION Low "network_contradiction"
        "What is said about the network takes itself back."
        "say only what is meant: the mode, or the profile, or the list";
    EMPTY_HOSTS Low "empty_hosts"
        "mode = hosts with no host: nothing can be reached."
        "list the hosts, or use mode = \"none\"";
}

/// The text of `docs/guide/lint.md`.
pub fn documentation() -> String {
    let mut text = String::from(
        "# What `gatekeeper lint` finds\n\n\
         `gatekeeper lint [--json] POLICY` reads a policy as `run` would in this directory, and changes nothing. Each finding has a\n\
         code, a severity, the reason and the fix. Exit status: 0 nothing found, 1 findings, 2 the policy cannot be used.\n\n\
         | code | severity | what it means | fix |\n|---|---|---|---|\n",
    );
    for Code { code, severity, about, fix } in CODES {
        text.push_str(&format!("| `{code}` | {} | {about} | {fix} |\n", severity.word()));
    }
    text.push_str(
        "\nThe built-in profiles `minimal`, `read`, `network`, `write` and their unions are clean by themselves. Of `unrestricted` only that is\n\
         said. `write_exec_memory` is asked of exact lists (`profile = \"custom\"`) only: the built-in profiles let JIT compilers run.\n\
         This page is made from `gatekeeper/src/lint/codes.rs`; a test keeps it so.\n",
    );
    text
}
