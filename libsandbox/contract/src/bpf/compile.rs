//! The code generator. It takes decisions and writes instructions from the last to the first.

use super::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompileError {
    /// The program is longer than the buffer, or than the kernel accepts.
    TooLong,
}

/// Writes the program for these decisions into `out` and returns its length.
pub fn compile<D: Decisions + ?Sized>(decisions: &D, out: &mut [Insn]) -> Result<usize, CompileError> {
    let mut starts = [0u16; LIMIT as usize];
    let mut count = 0;
    let mut last = None;
    // The first number after the last that is decided by itself stands for all up to the limit.
    for number in 0..LIMIT.min(decisions.count().saturating_add(1)) {
        // Adjacent numbers with the same unconditional answer share a leaf of the tree.
        let plain = plain(decisions, number);
        if count == 0 || plain.is_none() || plain != last {
            if let Some(start) = starts.get_mut(count) {
                *start = number;
            }
            count += 1;
        }
        last = plain;
    }
    let mut writer = Writer { start: out.len(), out, decisions, answers: [None; ANSWERS] };
    let starts = starts.get(..count).unwrap_or_default();
    let root = writer.tree(starts)?;
    // The preamble falls through, so the next instruction has to be the root of the tree or a jump to it.
    let root = writer.place(root)?;
    if root != writer.start {
        writer.jump(root)?;
    }
    writer.preamble()?;
    let (start, out) = (writer.start, writer.out);
    let len = out.len() - start;
    // Not with copy_within, which can panic.
    for to in 0..len {
        let insn = out.get(start + to).copied().unwrap_or_default();
        if let Some(slot) = out.get_mut(to) {
            *slot = insn;
        }
    }
    if len <= MAX_LEN { Ok(len) } else { Err(CompileError::TooLong) }
}

/// The answer to a number if it does not depend on arguments.
fn plain<D: Decisions + ?Sized>(decisions: &D, number: u16) -> Option<u32> {
    if number >= decisions.count() {
        return Some(decisions.beyond());
    }
    let rule = decisions.rule(number);
    rule.clauses.is_empty().then_some(rule.otherwise)
}

/// The number of distinct answers to remember: a list has two, a policy a few more.
const ANSWERS: usize = 8;

/// Writes from the last instruction to the first: BPF jumps only forward, so every target is already written. The
/// program grows down from the end of the buffer, and `compile` finally moves it to the front.
struct Writer<'a, D: ?Sized> {
    out: &'a mut [Insn],
    /// The index of the first instruction written so far.
    start: usize,
    decisions: &'a D,
    /// For each answer, the nearest instruction that returns it.
    answers: [Option<(u32, usize)>; ANSWERS],
}

/// Where to enter a part of the tree.
#[derive(Clone, Copy)]
enum Entry {
    At(usize),
    /// Any instruction that returns this answer.
    Answer(u32),
}

impl<D: Decisions + ?Sized> Writer<'_, D> {
    /// Makes room for `count` instructions before those written so far, and returns the index of the first.
    fn reserve(&mut self, count: usize) -> Result<usize, CompileError> {
        self.start = self.start.checked_sub(count).ok_or(CompileError::TooLong)?;
        Ok(self.start)
    }

    fn set(&mut self, at: usize, code: u16, jt: u8, jf: u8, k: u32) {
        if let Some(slot) = self.out.get_mut(at) {
            *slot = Insn { code, jt, jf, k };
        }
    }

    fn preamble(&mut self) -> Result<(), CompileError> {
        let kill_from = if cfg!(target_arch = "x86_64") { X32_BIT } else { SKIPPED };
        let preamble = [
            (LD_ABS, 0, 0, ARCH),
            (JEQ, 1, 0, AUDIT_ARCH),
            (RET, 0, 0, ret::KILL_PROCESS),
            (LD_ABS, 0, 0, NR),
            (JGE, 0, 4, u32::from(LIMIT)),
            (JEQ, 2, 0, SKIPPED),
            (JGE, 0, 1, kill_from),
            (RET, 0, 0, ret::KILL_PROCESS),
            (RET, 0, 0, self.decisions.beyond()),
        ];
        let start = self.reserve(preamble.len())?;
        for (at, (code, jt, jf, k)) in (start..).zip(preamble) {
            self.set(at, code, jt, jf, k);
        }
        Ok(())
    }

    /// Writes a tree over ranges of numbers, given by the start of each. The accumulator holds the syscall number.
    fn tree(&mut self, starts: &[u16]) -> Result<Entry, CompileError> {
        if let [first, middle, last] = *starts {
            // A single number between two ranges with the same answer needs only one comparison.
            let (before, one, after) = (self.plain(first), self.plain(middle), self.plain(last));
            if let (Some(before), Some(one), true) = (before, one, before == after && last == middle + 1) {
                return self.branch(JEQ, u32::from(middle), Entry::Answer(before), Entry::Answer(one));
            }
        }
        let (left, right) = starts.split_at(starts.len() / 2);
        match right {
            [] => Ok(Entry::Answer(self.decisions.beyond())),
            [start] if left.is_empty() => match self.plain(*start) {
                Some(answer) => Ok(Entry::Answer(answer)),
                None => self.leaf(*start).map(Entry::At),
            },
            [middle, ..] => {
                let above = self.tree(right)?;
                let below = self.tree(left)?;
                self.branch(JGE, u32::from(*middle), below, above)
            }
        }
    }

    fn plain(&self, number: u16) -> Option<u32> {
        plain(self.decisions, number)
    }

    /// Writes a comparison of the accumulator with `with`, and its two targets.
    fn branch(&mut self, code: u16, with: u32, no: Entry, yes: Entry) -> Result<Entry, CompileError> {
        let yes = self.reach(yes)?;
        let before = self.start;
        let mut targets = (yes, self.reach(no)?);
        if self.start != before {
            // A jump inserted for the second target may have moved the first out of reach.
            targets = (self.reach(targets.0)?, self.reach(targets.1)?);
        }
        let (yes, no) = targets;
        let at = self.reserve(1)?;
        if let (Entry::At(yes), Entry::At(no)) = (yes, no) {
            let distance = |to: usize| u8::try_from(to - at - 1).map_err(|_| CompileError::TooLong);
            self.set(at, code, distance(yes)?, distance(no)?, with);
        }
        Ok(Entry::At(at))
    }

    /// The entry, or a jump to it, near enough for a branch that is written next.
    fn reach(&mut self, entry: Entry) -> Result<Entry, CompileError> {
        const NEAR: usize = u8::MAX as usize - 3;
        let at = self.place(entry)?;
        if at - self.start <= NEAR { Ok(Entry::At(at)) } else { self.jump(at).map(Entry::At) }
    }

    /// The index of an entry. Writes the answer again if no instruction nearby returns it.
    fn place(&mut self, entry: Entry) -> Result<usize, CompileError> {
        const NEAR: usize = u8::MAX as usize - 8;
        let answer = match entry {
            Entry::At(at) => return Ok(at),
            Entry::Answer(answer) => answer,
        };
        let near = self.answers.iter().flatten().find(|(known, at)| *known == answer && at - self.start <= NEAR);
        if let Some((_, at)) = near {
            return Ok(*at);
        }
        let at = self.reserve(1)?;
        self.set(at, RET, 0, 0, answer);
        let same = self.answers.iter().position(|slot| slot.is_none_or(|(known, _)| known == answer));
        if let Some(slot) = self.answers.get_mut(same.unwrap_or(ANSWERS - 1)) {
            *slot = Some((answer, at));
        }
        Ok(at)
    }

    fn jump(&mut self, to: usize) -> Result<usize, CompileError> {
        let at = self.reserve(1)?;
        self.set(at, JA, 0, 0, (to - at - 1) as u32);
        Ok(at)
    }

    /// Writes the clauses of one number in order, and the answer if none holds.
    fn leaf(&mut self, number: u16) -> Result<usize, CompileError> {
        // A copy of the reference, because `self` is borrowed mutably below.
        let decisions = self.decisions;
        let rule = decisions.rule(number);
        let mut next = Part::answer(rule.otherwise);
        for (at, clause) in rule.clauses.iter().enumerate().rev() {
            // A previous clause whose tests all look at one argument leaves it in the accumulator when it fails.
            let before = at.checked_sub(1).and_then(|at| rule.clauses.get(at));
            let left = before.and_then(|before| same_load(before.tests));
            let mut rest = Part::answer(clause.ret);
            for (at, test) in clause.tests.iter().enumerate().rev() {
                // A test is reached when the one before it holds, which leaves its argument there as well.
                let loaded = match at.checked_sub(1) {
                    None => left,
                    Some(before) => clause.tests.get(before).and_then(only_lower),
                };
                rest = self.test(test, rest, next, loaded)?;
            }
            next = rest;
        }
        self.place(next.entry)
    }

    /// Writes a test that continues at `holds` or `fails`. The accumulator already contains `loaded`.
    fn test(&mut self, test: &Test, holds: Part, fails: Part, loaded: Option<Load>) -> Result<Part, CompileError> {
        if let Some((bits, set)) = any_bit(test) {
            let (yes, no) = if set { (holds, fails) } else { (fails, holds) };
            let lower = Load { offset: low_half(test.arg), mask: u32::MAX };
            let compared = self.branch(JSET, bits, no.after(lower), yes.after(lower))?;
            return if loaded == Some(lower) {
                Ok(Part { entry: compared, loaded: Some((lower, compared)) })
            } else {
                self.load(lower, compared)
            };
        }
        let (code, not) = match test.op {
            Op::Eq => (JEQ, false),
            Op::Ne => (JEQ, true),
            Op::Gt => (JGT, false),
            Op::Le => (JGT, true),
            Op::Ge => (JGE, false),
            Op::Lt => (JGE, true),
        };
        let (yes, no) = if not { (fails, holds) } else { (holds, fails) };
        let (mask_low, mask_high) = halves(test.mask);
        let (low, high) = halves(test.value);
        let lower = Load { offset: low_half(test.arg), mask: mask_low };
        let compared = self.branch(code, low, no.after(lower), yes.after(lower))?;
        let whole = only_lower(test);
        if whole.is_some() && whole == loaded {
            return Ok(Part { entry: compared, loaded: Some((lower, compared)) });
        }
        let lower = self.load(lower, compared)?;
        if whole.is_some() {
            return Ok(lower);
        }
        let upper = Load { offset: low_half(test.arg) + 4, mask: mask_high };
        let mut compared = self.branch(JEQ, high, no.after(upper), lower.entry)?;
        if code != JEQ {
            compared = self.branch(JGT, high, compared, yes.after(upper))?;
        }
        self.load(upper, compared)
    }

    /// Writes the load for the comparison written last.
    fn load(&mut self, load: Load, compared: Entry) -> Result<Part, CompileError> {
        if load.mask != u32::MAX {
            let at = self.reserve(1)?;
            self.set(at, AND, 0, 0, load.mask);
        }
        let at = self.reserve(1)?;
        self.set(at, LD_ABS, 0, 0, load.offset);
        Ok(Part { entry: Entry::At(at), loaded: Some((load, compared)) })
    }
}

/// For a test whether any of some bits of the lower half is set, or none: the bits, and whether it holds if one is set. BPF has
/// an instruction for it that leaves the whole argument in the accumulator.
#[inline]
fn any_bit(test: &Test) -> Option<(u32, bool)> {
    let ((bits, above), (value, value_above)) = (halves(test.mask), halves(test.value));
    let equal = match test.op {
        Op::Eq => true,
        Op::Ne => false,
        _ => return None,
    };
    match (above, value_above, value) {
        (0, 0, 0) => Some((bits, !equal)),
        (0, 0, value) if value == bits && bits.is_power_of_two() => Some((bits, equal)),
        _ => None,
    }
}

/// The load of all these tests, if it is the same one.
#[inline]
fn same_load(tests: &[Test]) -> Option<Load> {
    let load = only_lower(tests.first()?)?;
    tests.iter().all(|test| only_lower(test) == Some(load)).then_some(load)
}

/// The load of a test that depends only on the lower half of its argument.
#[inline]
fn only_lower(test: &Test) -> Option<Load> {
    if any_bit(test).is_some() {
        return Some(Load { offset: low_half(test.arg), mask: u32::MAX });
    }
    let (mask, above) = halves(test.mask);
    (above == 0 && halves(test.value).1 == 0).then_some(Load { offset: low_half(test.arg), mask })
}

/// A masked half of an argument, as loaded into the accumulator.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Load {
    offset: u32,
    mask: u32,
}

/// A part of a leaf. `loaded` is its second entry, for code that has already loaded what it loads first.
#[derive(Clone, Copy)]
struct Part {
    entry: Entry,
    loaded: Option<(Load, Entry)>,
}

impl Part {
    fn answer(answer: u32) -> Part {
        Part { entry: Entry::Answer(answer), loaded: None }
    }

    fn after(self, load: Load) -> Entry {
        self.loaded.filter(|(loaded, _)| *loaded == load).map_or(self.entry, |(_, entry)| entry)
    }
}
