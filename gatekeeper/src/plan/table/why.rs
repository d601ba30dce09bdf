//! Decisions and their reasons: one small value for each reason, no text until a denial is printed.

use super::Verb;
use sandbox_contract::bpf::Test;

/// Why a call is refused, as the clause knows it that refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    /// No profile in force names the call.
    Profile,
    /// The policy denies it by name.
    Named,
    /// A rule of the policy decides, by its number from 1.
    Rule(usize),
    /// An exact list does not hold it.
    List,
    /// A list of what is denied leaves the rest, but never what undoes a sandbox.
    Undoes,
    /// Puts words into a terminal.
    Terminal,
    /// Changes a file, or a file system, by a descriptor that was opened for reading.
    FileSystem,
    /// Makes those wait who write the file.
    Lease,
    /// Makes a file that runs with the rights of its owner or group.
    SetIds,
    /// Changes other processes of the same user.
    Others,
    /// Starts a process or, by its flags, makes a namespace.
    Process,
    /// Granted with other values of this argument.
    Arguments(u8),
    /// Takes another user's or group's id.
    Identity,
    /// A kind of socket that the network's mode does not grant.
    Socket,
    /// A pair of sockets of a kind that can send to others.
    Pair,
    /// The supervisor looks where it leads.
    Reach,
    /// Would lead around the address that was checked.
    Detour,
    /// The supervisor looks which file is changed.
    Metadata,
}

/// What happens to a call, and why.
#[derive(Debug, Clone, Copy)]
pub struct Decision {
    pub verb: Verb,
    pub why: Why,
}

impl Decision {
    pub(super) fn deny(why: Why) -> Decision {
        Decision { verb: Verb::Deny, why }
    }
}

/// A verb that refuses nothing that is recorded needs no reason.
impl From<Verb> for Decision {
    fn from(verb: Verb) -> Decision {
        Decision { verb, why: Why::Profile }
    }
}

/// Two decisions are the same that do the same, whatever their reasons.
impl PartialEq for Decision {
    fn eq(&self, other: &Decision) -> bool {
        self.verb == other.verb
    }
}

impl Eq for Decision {}

/// A decision for the calls whose arguments pass these tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clause {
    pub tests: Vec<Test>,
    pub(super) decision: Decision,
}

impl Clause {
    pub(super) fn new(tests: impl Into<Vec<Test>>, decision: impl Into<Decision>) -> Clause {
        Clause { tests: tests.into(), decision: decision.into() }
    }

    pub fn verb(&self) -> Verb {
        self.decision.verb
    }
}
