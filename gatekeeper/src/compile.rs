//! The syscall part of a policy in other forms: the filter file that libsandbox.so loads, its colon list, and a container
//! engine's profile. Takes a policy, gives bytes and notes on what the form cannot hold.
//!
//! No form may be wider than the policy: what would be is an error, unless the caller takes the loss by name.

use crate::oci::{self, ExportError};
use crate::plan::table::{Answers, Clause, Table, Verb};
use crate::policy::{NetworkMode, Policy, Profile};
use sandbox_contract::bpf::{self, LIMIT};
use sandbox_contract::{file, syscalls};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// For `SANDBOX_FILTER`.
    Filter,
    /// For `SECCOMP_SYSCALL_ALLOW`.
    List,
    /// OCI runtime specification, `linux.seccomp`.
    Oci,
}

pub struct Compiled {
    pub bytes: Vec<u8>,
    /// What whoever uses the result should know, one line each.
    pub notes: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    #[error("the policy needs a filter of more than the {} instructions that the kernel takes", bpf::MAX_LEN)]
    TooLong(bpf::CompileError),
    #[error(
        "a list cannot look at arguments, and would allow these calls whole: {}; with --lossy it does",
        .0.join(", ")
    )]
    Arguments(Vec<String>),
    #[error("a filter cannot tell {0} apart and would open the whole network; with --lossy it does")]
    Network(&'static str),
    #[error("the policy denies nothing, so there is no list that says it")]
    Open,
    #[error(transparent)]
    Oci(#[from] ExportError),
}

/// Whether a filter can hold the policy's syscalls at all.
pub fn fits(policy: &Policy) -> Result<(), CompileError> {
    filter(policy, &Table::alone(policy)).map(drop)
}

/// Compiles a policy. `lossy`: what the form cannot say may be allowed.
pub fn compile(policy: &Policy, form: Form, lossy: bool) -> Result<Compiled, CompileError> {
    let table = Table::alone(policy);
    let mut notes = Vec::new();
    network(policy, lossy, &mut notes)?;
    let bytes = match form {
        Form::Filter => filter(policy, &table)?,
        Form::List => list(policy, &table, lossy, &mut notes)?,
        Form::Oci => {
            if oci::missing_for_start(&table) {
                notes.push("container engines load the profile before they execute the program, and this one does not allow execve: nothing would start; --allow execve adds it".to_owned());
            }
            let mut json = serde_json::to_vec_pretty(&oci::export(&table, policy.on_violation)?).unwrap_or_default();
            json.push(b'\n');
            json
        }
    };
    notes.extend(left_out(policy));
    Ok(Compiled { bytes, notes })
}

/// The file that libsandbox.so loads as it is.
pub fn filter(policy: &Policy, table: &Table) -> Result<Vec<u8>, CompileError> {
    let program = table.program(&Answers::new(policy.on_violation, false), None).map_err(CompileError::TooLong)?;
    let mut out = Box::new([0u8; file::MAX_FILE]);
    let len = file::encode(&program, &mut out).ok_or(CompileError::TooLong(bpf::CompileError::TooLong))?;
    Ok(out.get(..len).unwrap_or_default().to_vec())
}

fn list(policy: &Policy, table: &Table, lossy: bool, notes: &mut Vec<String>) -> Result<Vec<u8>, CompileError> {
    if table.is_open() {
        return Err(CompileError::Open);
    }
    let (mut allowed, mut wider, mut otherwise) = (Vec::new(), Vec::new(), Vec::new());
    for nr in 0..LIMIT {
        let Some(name) = syscalls::with_name(nr, |name| String::from_utf8_lossy(name).into_owned()) else { continue };
        let (clauses, verb) = table.entry(nr);
        let verbs = || clauses.iter().map(Clause::verb).chain([verb]);
        if verbs().all(|verb| matches!(verb, Verb::Allow | Verb::Watch)) {
            allowed.push(name);
        } else if verbs().any(Verb::passes) {
            wider.push(name);
        } else if verbs()
            .any(|verb| !matches!(verb, Verb::Deny | Verb::DenyWith(_) | Verb::Supervise | Verb::Refuse(_)))
        {
            otherwise.push(name);
        }
    }
    if !wider.is_empty() && !lossy {
        return Err(CompileError::Arguments(wider));
    }
    if !wider.is_empty() {
        notes.push(format!("allowed whole, which the policy allows with some arguments only: {}", wider.join(", ")));
    }
    if !otherwise.is_empty() {
        let names = otherwise.join(", ");
        notes.push(format!("these get SECCOMP_DEFAULT_ACTION instead of an answer of their own: {names}"));
    }
    if table.beyond() == Verb::Allow {
        notes.push("the policy allows what it does not name; the list denies calls that have no name here".to_owned());
    }
    let action = policy.on_violation;
    notes.push(format!("use it as SECCOMP_SYSCALL_ALLOW, with SECCOMP_DEFAULT_ACTION={action}"));
    allowed.extend(wider);
    allowed.sort();
    Ok(format!("{}\n", allowed.join(":")).into_bytes())
}

fn network(policy: &Policy, lossy: bool, notes: &mut Vec<String>) -> Result<(), CompileError> {
    let what = match policy.network_mode() {
        _ if policy.profiles.contains(&Profile::Custom) => return Ok(()),
        NetworkMode::Hosts(_) => "hosts",
        NetworkMode::Loopback => "loopback and other addresses",
        NetworkMode::Full if !policy.network.ports.is_empty() => "ports",
        _ => return Ok(()),
    };
    if !lossy {
        return Err(CompileError::Network(what));
    }
    notes.push(format!("the whole network is open: a filter cannot tell {what} apart"));
    Ok(())
}

/// What the policy says beside syscalls, which no filter holds.
fn left_out(policy: &Policy) -> Option<String> {
    let paths = &policy.paths;
    let limits = policy.limits != Default::default() || policy.timeout.is_some();
    let said = [
        ("paths", paths.read.is_some() || paths.execute.is_some() || !paths.write.is_empty() || !paths.deny.is_empty()),
        ("unix sockets", !policy.network.unix.is_empty()),
        ("limits", limits),
        ("the environment", policy.env != Default::default()),
        ("commands", policy.commands != Default::default()),
    ];
    let said: Vec<&str> = said.into_iter().filter(|(_, said)| *said).map(|(what, _)| what).collect();
    (!said.is_empty()).then(|| format!("only syscalls are compiled; left to gatekeeper run: {}", said.join(", ")))
}
