//! Decisions and their reasons. A reason is a small value; its text is written when a denial is printed.

use super::Verb;
use sandbox_contract::bpf::Test;

/// Why a clause denies a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    /// No profile in force names the call.
    Profile,
    /// The policy denies it by name.
    Named,
    /// A rule of the policy decides; its number, from 1.
    Rule(u32),
    /// An exact list does not contain it.
    List,
    /// A deny list allows everything else, except what can undo the sandbox.
    Undoes,
    /// Injects input into a terminal.
    Terminal,
    /// Changes a file or a file system through a descriptor opened for reading.
    FileSystem,
    /// A lease makes writers of the file wait.
    Lease,
    /// Creates a setuid or setgid file.
    SetIds,
    /// Truncates without write access, which this kernel's Landlock does not restrict.
    Truncation,
    /// Affects other processes of the same user.
    Others,
    /// Makes a memory file that could be executed, although only some programs may be.
    Memory,
    /// Starts a process, or creates a namespace, depending on its flags.
    Process,
    /// Granted only with other values of this argument.
    Arguments(u8),
    /// Sets another user's or group's id.
    Identity,
    /// A kind of socket that the network mode does not grant.
    Socket,
    /// A pair of sockets that could send to other sockets.
    Pair,
    /// The supervisor checks the address.
    Reach,
    /// Would bypass the check of the address.
    Detour,
    /// The supervisor checks which file it changes.
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

/// For verbs that grant, or whose denials are not recorded: their reason is never read.
impl From<Verb> for Decision {
    fn from(verb: Verb) -> Decision {
        Decision { verb, why: Why::Profile }
    }
}

/// Decisions are equal if they do the same, whatever their reasons.
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
