//! Compiles one decision per syscall into a seccomp program: classic BPF, as a balanced tree over the numbers.
//!
//! We generate the program ourselves because libseccomp takes 100 to 500 us where this takes 5, and because it silently
//! drops a conditional deny if the same syscall has an allow. Here a rule is a list of clauses and the first match
//! decides. `tests/libseccomp.rs` compares the result with libseccomp's for every number.
//!
//! Before it looks at the number, every program kills calls of a foreign architecture, and x32 calls on x86_64.

mod compile;
mod simulate;

pub use compile::{CompileError, compile};
pub use simulate::simulate;

/// Numbers below this are decided one by one; no architecture uses higher ones.
pub const LIMIT: u16 = 1024;

/// The kernel's longest program (BPF_MAXINSNS).
pub const MAX_LEN: usize = 4096;

/// One instruction, in the layout of the kernel's `struct sock_filter`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Insn {
    pub code: u16,
    pub jt: u8,
    pub jf: u8,
    pub k: u32,
}

/// Return values of a filter (linux/seccomp.h).
pub mod ret {
    pub const KILL_PROCESS: u32 = 0x8000_0000;
    pub const TRAP: u32 = 0x0003_0000;
    pub const USER_NOTIF: u32 = 0x7fc0_0000;
    pub const LOG: u32 = 0x7ffc_0000;
    pub const ALLOW: u32 = 0x7fff_0000;

    pub const fn errno(number: u16) -> u32 {
        0x0005_0000 | number as u32
    }
}

#[cfg(target_arch = "x86_64")]
pub const AUDIT_ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
pub const AUDIT_ARCH: u32 = 0xc000_00b7;
#[cfg(target_arch = "riscv64")]
pub const AUDIT_ARCH: u32 = 0xc000_00f3;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
compile_error!("seccomp filters are written for x86_64, aarch64 and riscv64 only");

/// Set in the numbers of x32 calls, which share x86_64's audit architecture.
const X32_BIT: u32 = 0x4000_0000;
/// The number of a call that a tracer made the kernel skip.
const SKIPPED: u32 = u32::MAX;

/// Masks one argument and compares it, as an unsigned 64-bit number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Test {
    /// Which argument, 0 to 5.
    pub arg: u8,
    pub mask: u64,
    pub op: Op,
    pub value: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Eq,
    Ne,
    Gt,
    Ge,
    Lt,
    Le,
}

impl Test {
    /// Compares an `int` argument: like the kernel, ignores the upper half, which may hold anything.
    pub const fn low(arg: u8, op: Op, value: u32) -> Test {
        Test { arg, mask: 0xffff_ffff, op, value: value as u64 }
    }

    /// Compares some bits of the lower half.
    pub const fn bits(arg: u8, mask: u32, value: u32) -> Test {
        Test { arg, mask: mask as u64, op: Op::Eq, value: value as u64 }
    }

    /// Compares all 64 bits, for example of a pointer.
    pub const fn word(arg: u8, value: u64) -> Test {
        Test { arg, mask: u64::MAX, op: Op::Eq, value }
    }

    /// Evaluates the test. This defines what the compiled program has to do.
    pub fn holds(&self, args: &[u64; 6]) -> bool {
        let arg = args.get(usize::from(self.arg)).copied().unwrap_or(0) & self.mask;
        match self.op {
            Op::Eq => arg == self.value,
            Op::Ne => arg != self.value,
            Op::Gt => arg > self.value,
            Op::Ge => arg >= self.value,
            Op::Lt => arg < self.value,
            Op::Le => arg <= self.value,
        }
    }
}

/// The answer is `ret` if all tests hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clause<'a> {
    pub tests: &'a [Test],
    pub ret: u32,
}

/// The decision for one syscall: the answer of the first clause that holds, or `otherwise`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule<'a> {
    pub clauses: &'a [Clause<'a>],
    pub otherwise: u32,
}

impl Rule<'_> {
    pub const fn plain(ret: u32) -> Rule<'static> {
        Rule { clauses: &[], otherwise: ret }
    }

    /// Evaluates the rule. This defines what the compiled program has to do.
    pub fn decide(&self, args: &[u64; 6]) -> u32 {
        let holds = |clause: &&Clause<'_>| clause.tests.iter().all(|test| test.holds(args));
        self.clauses.iter().find(holds).map_or(self.otherwise, |clause| clause.ret)
    }
}

/// Decides every syscall number of this architecture.
pub trait Decisions {
    /// For a number below `LIMIT`.
    fn rule(&self, number: u16) -> Rule<'_>;
    /// For all numbers from `LIMIT` up.
    fn beyond(&self) -> u32;
    /// All numbers from this one up have the same decision as `beyond`, whatever their arguments. They are not asked for.
    fn count(&self) -> u16 {
        LIMIT
    }
}

/// An allow or deny list: the listed numbers get one answer, all others another.
pub struct List<'a> {
    pub listed: &'a crate::grammar::NumberSet,
    pub answer: u32,
    pub others: u32,
    /// Clauses that are tested before the list, such as the trap handler's.
    pub first: &'a [(u16, &'a [Clause<'a>])],
}

impl Decisions for List<'_> {
    fn rule(&self, number: u16) -> Rule<'_> {
        let otherwise = if self.listed.contains(number) { self.answer } else { self.others };
        let clauses = self.first.iter().find(|(first, _)| *first == number).map_or(&[][..], |(_, clauses)| clauses);
        Rule { clauses, otherwise }
    }

    fn beyond(&self) -> u32 {
        self.others
    }
}

const LD_ABS: u16 = 0x20;
const AND: u16 = 0x54;
const JA: u16 = 0x05;
const JEQ: u16 = 0x15;
const JGT: u16 = 0x25;
const JGE: u16 = 0x35;
const JSET: u16 = 0x45;
const RET: u16 = 0x06;

/// Offsets in `struct seccomp_data`.
const NR: u32 = 0;
const ARCH: u32 = 4;
#[inline]
const fn low_half(arg: u8) -> u32 {
    16 + 8 * arg as u32
}

#[inline]
fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

#[cfg(test)]
#[path = "bpf_tests.rs"]
mod tests;
