//! From a decision per syscall to a seccomp program: classic BPF, a balanced tree over the numbers.
//!
//! Our own generator because libseccomp takes 100 to 500 us for what takes 5 here, and because it drops a conditional
//! deny beside an allow without a word. A rule here is a list of clauses, the first that holds decides: what is
//! written is what is enforced. `tests` holds it against libseccomp's own output, number by number.
//!
//! Every program kills a foreign architecture, and x32 on x86_64, before it looks at the number.

/// Syscall numbers that get a decision of their own; no architecture we know uses more.
pub const LIMIT: u16 = 1024;

/// The kernel's longest program (BPF_MAXINSNS).
pub const MAX_LEN: usize = 4096;

/// One instruction, laid out as the kernel's `struct sock_filter`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Insn {
    pub code: u16,
    pub jt: u8,
    pub jf: u8,
    pub k: u32,
}

/// What a filter can answer (linux/seccomp.h).
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
/// A call that a tracer skipped; the kernel answers it by itself.
const SKIPPED: u32 = u32::MAX;

/// A comparison of one argument, after masking it. Unsigned 64 bits.
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
    /// Compares as the kernel does for an `int` argument: the upper half is junk that it never looks at.
    pub const fn low(arg: u8, op: Op, value: u32) -> Test {
        Test { arg, mask: 0xffff_ffff, op, value: value as u64 }
    }

    /// Compares some bits of the lower half.
    pub const fn bits(arg: u8, mask: u32, value: u32) -> Test {
        Test { arg, mask: mask as u64, op: Op::Eq, value: value as u64 }
    }

    /// Compares a whole word, such as a pointer.
    pub const fn word(arg: u8, value: u64) -> Test {
        Test { arg, mask: u64::MAX, op: Op::Eq, value }
    }

    /// What the test says of these arguments: the meaning that the program has to keep.
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

/// If all tests hold, `ret` is the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clause<'a> {
    pub tests: &'a [Test],
    pub ret: u32,
}

/// What happens to one syscall: the first clause that holds decides, `otherwise` if none does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule<'a> {
    pub clauses: &'a [Clause<'a>],
    pub otherwise: u32,
}

impl Rule<'_> {
    pub const fn plain(ret: u32) -> Rule<'static> {
        Rule { clauses: &[], otherwise: ret }
    }

    /// The decision for these arguments: the meaning that the program has to keep.
    pub fn decide(&self, args: &[u64; 6]) -> u32 {
        let holds = |clause: &&Clause<'_>| clause.tests.iter().all(|test| test.holds(args));
        self.clauses.iter().find(holds).map_or(self.otherwise, |clause| clause.ret)
    }
}

/// The decisions for every syscall number of this architecture.
pub trait Decisions {
    /// For a number below `LIMIT`.
    fn rule(&self, number: u16) -> Rule<'_>;
    /// For every number from `LIMIT` on.
    fn beyond(&self) -> u32;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompileError {
    /// More instructions than the buffer, or the kernel, takes.
    TooLong,
    /// A clause whose tests are too many to jump over (255 instructions).
    ClauseTooLong(u16),
}

/// Writes the program for these decisions into `out` and returns its length.
pub fn compile(decisions: &dyn Decisions, out: &mut [Insn]) -> Result<usize, CompileError> {
    let mut starts = [0u16; LIMIT as usize];
    let mut count = 0;
    let mut last = None;
    for number in 0..LIMIT {
        let rule = decisions.rule(number);
        // Neighbours with the same plain answer are one leaf of the tree.
        let plain = rule.clauses.is_empty().then_some(rule.otherwise);
        if count == 0 || plain.is_none() || plain != last {
            if let Some(start) = starts.get_mut(count) {
                *start = number;
            }
            count += 1;
        }
        last = plain;
    }
    let mut writer = Writer { out, len: 0, decisions };
    writer.preamble();
    let starts = starts.get(..count).unwrap_or_default();
    writer.tree(starts)?;
    match writer.len {
        len if len <= writer.out.len() && len <= MAX_LEN => Ok(len),
        _ => Err(CompileError::TooLong),
    }
}

const LD_ABS: u16 = 0x20;
const AND: u16 = 0x54;
const JA: u16 = 0x05;
const JEQ: u16 = 0x15;
const JGT: u16 = 0x25;
const JGE: u16 = 0x35;
const RET: u16 = 0x06;

/// Offsets in `struct seccomp_data`.
const NR: u32 = 0;
const ARCH: u32 = 4;
const fn low_half(arg: u8) -> u32 {
    16 + 8 * arg as u32
}

struct Writer<'a> {
    out: &'a mut [Insn],
    len: usize,
    decisions: &'a dyn Decisions,
}

impl Writer<'_> {
    fn put(&mut self, code: u16, jt: u8, jf: u8, k: u32) {
        if let Some(slot) = self.out.get_mut(self.len) {
            *slot = Insn { code, jt, jf, k };
        }
        self.len += 1;
    }

    fn preamble(&mut self) {
        self.put(LD_ABS, 0, 0, ARCH);
        self.put(JEQ, 1, 0, AUDIT_ARCH);
        self.put(RET, 0, 0, ret::KILL_PROCESS);
        self.put(LD_ABS, 0, 0, NR);
        self.put(JGE, 0, 4, u32::from(LIMIT));
        self.put(JEQ, 2, 0, SKIPPED);
        let kill_from = if cfg!(target_arch = "x86_64") { X32_BIT } else { SKIPPED };
        self.put(JGE, 0, 1, kill_from);
        self.put(RET, 0, 0, ret::KILL_PROCESS);
        let beyond = self.decisions.beyond();
        self.put(RET, 0, 0, beyond);
    }

    /// A tree over segments of numbers, given by where each starts; the accumulator holds the number.
    fn tree(&mut self, starts: &[u16]) -> Result<(), CompileError> {
        let (left, right) = starts.split_at(starts.len() / 2);
        match right {
            [] => Ok(()),
            [start] if left.is_empty() => self.leaf(*start),
            [middle, ..] => {
                let skip = self.tree_size(left);
                match u8::try_from(skip) {
                    Ok(skip) => self.put(JGE, skip, 0, u32::from(*middle)),
                    Err(_) => {
                        self.put(JGE, 0, 1, u32::from(*middle));
                        self.put(JA, 0, 0, skip as u32);
                    }
                }
                self.tree(left)?;
                self.tree(right)
            }
        }
    }

    fn tree_size(&self, starts: &[u16]) -> usize {
        let (left, right) = starts.split_at(starts.len() / 2);
        match right {
            [] => 0,
            [start] if left.is_empty() => {
                let rule = self.decisions.rule(*start);
                rule.clauses.iter().map(|clause| tests_size(clause.tests) + 1).sum::<usize>() + 1
            }
            _ => {
                let skip = self.tree_size(left);
                let jump = if skip > usize::from(u8::MAX) { 2 } else { 1 };
                jump + skip + self.tree_size(right)
            }
        }
    }

    fn leaf(&mut self, number: u16) -> Result<(), CompileError> {
        // Copied out, because `self` is borrowed by what follows.
        let decisions = self.decisions;
        let rule = decisions.rule(number);
        for clause in rule.clauses {
            let mut left = tests_size(clause.tests);
            if left > usize::from(u8::MAX) {
                return Err(CompileError::ClauseTooLong(number));
            }
            for test in clause.tests {
                left -= test_size(test);
                // A failing test jumps over the clause's other tests and its answer.
                self.test(test, (left + 1) as u8);
            }
            self.put(RET, 0, 0, clause.ret);
        }
        self.put(RET, 0, 0, rule.otherwise);
        Ok(())
    }

    /// Falls through when the test holds; when not, jumps `fail` instructions beyond its own last one.
    fn test(&mut self, test: &Test, fail: u8) {
        let (mask_low, mask_high) = halves(test.mask);
        let (low, high) = halves(test.value);
        let lower = if mask_low == u32::MAX { 2 } else { 3 };
        self.load(low_half(test.arg) + 4, mask_high);
        let (not, strict) = match test.op {
            Op::Eq | Op::Ne => (test.op == Op::Ne, false),
            Op::Gt => (false, true),
            Op::Ge => (false, false),
            Op::Le => (true, true),
            Op::Lt => (true, false),
        };
        // Where "the comparison is true" and "is false" go, from the last instruction; `not` swaps them.
        let (yes, no) = if not { (fail, 0) } else { (0, fail) };
        match test.op {
            Op::Eq | Op::Ne => {
                self.put(JEQ, 0, lower + no, high);
                self.load(low_half(test.arg), mask_low);
                self.put(JEQ, yes, no, low);
            }
            _ => {
                self.put(JGT, lower + 1 + yes, 0, high);
                self.put(JEQ, 0, lower + no, high);
                self.load(low_half(test.arg), mask_low);
                self.put(if strict { JGT } else { JGE }, yes, no, low);
            }
        }
    }

    fn load(&mut self, offset: u32, mask: u32) {
        self.put(LD_ABS, 0, 0, offset);
        if mask != u32::MAX {
            self.put(AND, 0, 0, mask);
        }
    }
}

fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

fn tests_size(tests: &[Test]) -> usize {
    tests.iter().map(test_size).sum()
}

fn test_size(test: &Test) -> usize {
    let (low, high) = halves(test.mask);
    let masks = usize::from(low != u32::MAX) + usize::from(high != u32::MAX);
    let jumps = if matches!(test.op, Op::Eq | Op::Ne) { 2 } else { 3 };
    2 + masks + jumps
}

/// A list as the preload reads it: some numbers get one answer, all others another.
pub struct List<'a> {
    pub listed: &'a crate::grammar::NumberSet,
    pub answer: u32,
    pub others: u32,
    /// Rules that stand before the list, such as the write of the trap handler.
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

/// What the program answers for a call, computed as the kernel would. `None`: not a program the kernel would take.
pub fn simulate(program: &[Insn], arch: u32, number: u32, args: &[u64; 6]) -> Option<u32> {
    let load = |offset: u32| match offset {
        NR => Some(number),
        ARCH => Some(arch),
        16..64 if offset % 4 == 0 => {
            let (low, high) = halves(*args.get((offset as usize - 16) / 8)?);
            Some(if offset % 8 == 0 { low } else { high })
        }
        // The instruction pointer, which no filter of ours reads.
        8 | 12 => Some(0),
        _ => None,
    };
    let mut accumulator = 0;
    let mut at = 0usize;
    loop {
        let insn = program.get(at)?;
        at += 1;
        let jump = |taken: bool| usize::from(if taken { insn.jt } else { insn.jf });
        match insn.code {
            LD_ABS => accumulator = load(insn.k)?,
            AND => accumulator &= insn.k,
            JA => at = at.checked_add(insn.k as usize)?,
            JEQ => at += jump(accumulator == insn.k),
            JGT => at += jump(accumulator > insn.k),
            JGE => at += jump(accumulator >= insn.k),
            RET => return Some(insn.k),
            _ => return None,
        }
    }
}

#[cfg(test)]
#[path = "bpf_tests.rs"]
mod tests;
