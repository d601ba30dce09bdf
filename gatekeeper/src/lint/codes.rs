//! The codes of lint as data: meaning, severity and fix. `docs/guide/lint.md` is generated from this.

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The policy cannot be used at all.
    Error,
    /// The policy leaves a way out of the sandbox.
    High,
    /// The policy is weaker than it could easily be.
    Medium,
    /// A part of the policy has no effect, or a surprising one.
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
        /// Every code, the most severe first.
        pub static CODES: &[&Code] = &[$(&$name),+];
    };
}

codes! {
    UNKNOWN_SYSCALL Error "unknown_syscall"
        "There is no syscall of this name. gatekeeper refuses to run with such a policy."
        "correct the name";
    PSEUDO_SYSCALL Error "pseudo_syscall"
        "The syscall exists on other architectures only. A rule on it would have no effect."
        "use the syscall that does the same on this architecture";
    UNRESTRICTED High "unrestricted"
        "The policy denies no syscall at all."
        "choose minimal, read, network, write or a union of them";
    LOG_ONLY High "log_only"
        "on_violation = log allows every call that the filter would deny, and only records it."
        "use on_violation = \"errno\" or \"kill\" once the policy is complete";
    STATIC_UNCONFINED High "static_unconfined"
        "static_binaries = warn or allow runs static programs without the filter."
        "use static_binaries = \"enforce\", which confines them, or \"block\"";
    EQUIVALENT_OPEN High "equivalent_open"
        "A call is denied, but another call with the same effect is allowed."
        "deny the whole family";
    IO_URING_OPEN High "io_uring_open"
        "io_uring opens and deletes files and makes connections inside the kernel, where no filter sees it."
        "deny @io-uring, or answer it with errno:ENOSYS; programs fall back";
    DEBUG_OPEN High "debug_open"
        "Calls that access other processes or trace the kernel are allowed: ptrace, process_vm_*, pidfd_getfd, bpf and similar ones."
        "deny @debug; for a debugger, write a separate policy that allows only what it needs";
    PRIVILEGED_OPEN High "privileged_open"
        "Calls that administer the machine are allowed, such as kexec_load or init_module. Only missing capabilities stop the program."
        "deny @privileged";
    NAMESPACES_OPEN High "namespaces_open"
        "The program can create namespaces or mounts. In a new user namespace it has every capability, and reaches far more kernel code."
        "deny @namespaces, and clone if its flags contain CLONE_NEW*: mask 0x7e020000 not 0";
    TIOCSTI_OPEN High "tiocsti_open"
        "ioctl can push input into the terminal (TIOCSTI, TIOCLINUX), which the caller's shell then executes."
        "deny ioctl if argument 1, with mask 0xffffffff, is 0x5412 or 0x541c";
    INT_COMPARED_AS_64 High "int_compared_as_64"
        "A rule compares 64 bits of an argument of which the kernel reads 32. Setting a higher bit bypasses the rule (CVE-2019-10063)."
        "add mask = 0xffffffff to the test";
    ESCAPE_SOCKET High "escape_socket"
        "The program can connect to a service that acts outside the sandbox for any client: Docker, D-Bus, systemd, an ssh or gpg agent, tmux, X11."
        "remove it from network.unix, keep it out of writable trees, and do not allow connect together with UNIX sockets";
    NETWORK_OPENED High "network_opened"
        "The network mode is none, but syscalls.allow or a rule permits internet sockets: UDP and raw packets can leave the machine."
        "remove socket from syscalls.allow, and let rules on its arguments allow only the needed kind of socket; or set network.mode";
    WRITABLE_POLICY High "writable_policy"
        "Another user, or the confined program itself, can change the policy."
        "keep it outside every tree that it makes writable, and writable by its owner only";
    WRITABLE_ON_PATH High "writable_on_path"
        "The confined program can write to a directory in PATH. A program that it puts there runs unconfined the next time its name is typed."
        "remove it from paths.write, or from PATH";
    PATH_CREDENTIAL High "path_credential"
        "A granted path is a credential, or a writable tree contains one."
        "grant only the other files that are needed; or list the credential in paths.deny";
    WRITE_BROAD High "write_broad"
        "The whole file system, the home directory or a system directory is writable."
        "list the directories that the program has to write";
    CREDENTIAL_READABLE High "credential_readable"
        "The policy makes the file of a network.credential readable. gatekeeper closes it all the same."
        "remove the file from paths.read";
    CREDENTIAL_PLAIN Medium "credential_plain"
        "The host of a network.credential has no TLS, so the secret is never sent."
        "name the port of its TLS server, or none";
    CREDENTIAL_WIDE Medium "credential_wide"
        "A secret can be used for every path of its host: for whatever it may do there."
        "add [[network.http]] for the host, with the methods and paths that are needed";
    WRITE_EXEC_PATH Medium "write_exec_path"
        "paths.execute restricts what may be executed, but one of these trees is writable, so the program can add anything to it."
        "let no tree be in both paths.execute and paths.write";
    WRITE_EXEC_MEMORY Medium "write_exec_memory"
        "An exact list allows memory that is writable and executable at once, so injected code can run."
        "deny mmap, mprotect and pkey_mprotect if argument 2, with mask 0x6, is 0x6; JIT compilers need it";
    CLONE3_OPEN Medium "clone3_open"
        "The flags of clone3 are behind a pointer, which no filter can read. Programs fall back to clone."
        "answer clone3 with errno:ENOSYS";
    OPENAT2_OPEN Medium "openat2_open"
        "The flags of openat2 are behind a pointer, which no filter can read. Programs fall back to openat."
        "answer openat2 with errno:ENOSYS";
    TOO_COMPLEX Medium "too_complex"
        "The rules on a call depend on so many bits of different arguments that lint cannot tell what they let through. The other findings about the call assume that it is everything."
        "test fewer arguments of the call, or fewer bits of them";
    KEYS_OPEN Medium "keys_open"
        "All processes of a user share the kernel's keyrings, inside and outside the sandbox."
        "deny @keys";
    NOT_REQUIRED Medium "not_required"
        "With require_sandbox = false the command runs without the layers that the machine lacks."
        "remove it; gatekeeper doctor shows what a machine lacks";
    PATH_MISSING Medium "path_missing"
        "A path does not exist. Granting it has no effect, and denying it does not cover a file created there later."
        "correct it, create it, or remove it";
    PATH_SYMLINK_OUT Medium "path_symlink_out"
        "A path goes through a symbolic link to another directory. gatekeeper refuses to run if the link is in the working directory or another tree that commands may write. Elsewhere the rule applies to the target of the link at the start of the run."
        "use the real path";
    ALLOW_DENIED Low "allow_denied"
        "A call is both allowed and denied. Deny wins."
        "remove it from one of the two lists";
    RULE_NEVER_MATCHES Low "rule_never_matches"
        "A rule can never match: its tests contradict each other, earlier rules match everything it could, or syscalls.deny denies the call."
        "correct it, move it up, or remove it";
    HTTP_SHADOWED Low "http_shadowed"
        "A rule for requests has no effect: another one allows all of it already, or its own list is empty."
        "remove it, or narrow the other one";
    NETWORK_CONTRADICTION Low "network_contradiction"
        "Two settings of the network contradict each other."
        "keep only one of them: the mode, the profile or the list";
    EMPTY_HOSTS Low "empty_hosts"
        "network.mode is hosts, but no host is listed: nothing can be reached."
        "list the hosts, or use mode = \"none\"";
}

/// The text of `docs/guide/lint.md`.
pub fn documentation() -> String {
    let mut text = String::from(
        "# What `gatekeeper lint` finds\n\n\
         `gatekeeper lint [--json] POLICY` reads a policy as `run` would in the current directory, and changes nothing. Each finding has a\n\
         code, a severity, the reason and the fix. Exit status: 0 no findings, 1 findings, 2 the policy cannot be used.\n\n\
         | code | severity | what it means | fix |\n|---|---|---|---|\n",
    );
    for Code { code, severity, about, fix } in CODES {
        text.push_str(&format!("| `{code}` | {} | {about} | {fix} |\n", severity.word()));
    }
    text.push_str(
        "\nThe built-in profiles `minimal`, `read`, `network`, `write` and their unions have no findings. For `unrestricted` lint reports\n\
         `unrestricted` and none of the other codes about syscalls. `write_exec_memory` is reported for exact lists (`profile = \"custom\"`) only,\n\
         because the built-in profiles allow JIT compilers. This page is generated from `gatekeeper/src/lint/codes.rs`, and a test compares the two.\n",
    );
    text
}
