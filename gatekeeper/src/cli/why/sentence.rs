//! One denial as a sentence: which program tried what, and what denied it.

use crate::report::{Denial, KILLED, Layer};

pub fn sentence(denial: &Denial) -> String {
    format!("{} tried to {}; {}", denial.comm, attempt(denial), answer(denial))
}

/// What the program tried: `read /etc/shadow`, `open a socket: socket(AF_INET, SOCK_STREAM, 0)`.
fn attempt(denial: &Denial) -> String {
    let call = || format!("{}({})", denial.syscall, denial.args.join(", "));
    if let ("http", [method, url]) = (denial.syscall.as_str(), denial.args.as_slice()) {
        return format!("request {method} {url}");
    }
    match (verb(denial), denial.path.as_ref().or(denial.host.as_ref())) {
        (Some(verb), Some(object)) => format!("{verb} {object}"),
        (Some(verb), None) => format!("{verb}: {}", call()),
        (None, Some(object)) => format!("call {} on {object}", denial.syscall),
        (None, None) => format!("call {}", call()),
    }
}

/// The meaning of the call, or `None` for calls that only their name describes.
fn verb(denial: &Denial) -> Option<&'static str> {
    Some(match denial.syscall.as_str() {
        "open" | "openat" | "openat2" | "creat" => access(denial),
        "unlink" | "unlinkat" | "rmdir" => "delete",
        "mkdir" | "mkdirat" => "create the directory",
        "rename" | "renameat" | "renameat2" => "rename",
        "link" | "linkat" | "symlink" | "symlinkat" => "link",
        "truncate" => "truncate",
        "execve" | "execveat" => "execute",
        "connect" => "connect to",
        "bind" => "bind to",
        "sendto" | "sendmsg" | "sendmmsg" => "send to",
        "fork" | "vfork" | "clone" => "start a process",
        "socket" => "open a socket",
        "ptrace" | "process_vm_readv" | "process_vm_writev" => "inspect another process",
        "kill" | "tkill" | "tgkill" => "send a signal",
        name if name.contains("chmod") => "change the mode of",
        name if name.contains("chown") => "change the owner of",
        name if name.contains("utime") => "change the times of",
        name if name.contains("xattr") => "change the attributes of",
        _ => return None,
    })
}

/// What a call that opens a file tried to do with it.
fn access(denial: &Denial) -> &'static str {
    let flags = denial.args.iter().find(|arg| arg.starts_with("O_")).map_or("", String::as_str);
    let has = |flag| flags.contains(flag);
    match () {
        () if denial.errno == "EROFS" => "write to",
        () if denial.syscall == "creat" || has("O_CREAT") => "create or write",
        () if has("O_WRONLY") || has("O_RDWR") || has("O_TRUNC") => "write",
        () => "read",
    }
}

/// What denied the call, and what the program got instead.
fn answer(denial: &Denial) -> String {
    let by = layer(denial);
    match denial.errno.as_str() {
        _ if denial.was_let_through() => format!("{by} deny it, but on_violation = log let it through"),
        // In reports of earlier versions: root opened the empty file that is mounted over the closed one.
        "0" => format!("{by} showed it an empty file or directory instead"),
        KILLED => format!("{by} killed it with {KILLED}"),
        "" => format!("{by} denied it"),
        errno => format!("{by} denied it with {errno}"),
    }
}

fn layer(denial: &Denial) -> &'static str {
    match (denial.layer, denial.errno.as_str()) {
        (Layer::Landlock, _) => "the path rules",
        (Layer::Seccomp, _) => "the syscall rules",
        (Layer::Namespaces, "EROFS") => "a read-only mount",
        (Layer::Namespaces, "EBUSY") => "a protected mount point",
        (Layer::Namespaces, _) => "a mount that hides it",
        (Layer::Limits, _) => "a limit",
        (Layer::Proxy, _) => "the proxy",
        (Layer::Stage, _) => "the stage",
        (Layer::Container, _) => "the container",
    }
}

/// A warning about a remedy that grants much more than the file that was denied.
pub fn hint(denial: &Denial) -> Option<&'static str> {
    let home = std::env::var("HOME").ok()?;
    let wide = denial.allow_with.as_deref()?.strip_prefix("--write ")?;
    (wide == home || wide == "/").then_some(
        "this grant is wide; if the name of the file is fixed, create the file first and grant only that file",
    )
}
