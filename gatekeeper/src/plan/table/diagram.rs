//! What a call gets for all of its arguments at once. Takes clauses, of which the first that holds decides, and answers
//! exactly whether some call with certain bits set gets a verb, and what two tables do with the same call.
//!
//! This is a binary decision diagram. A node looks at one bit of one argument, and leads to nodes of later bits only, from
//! the highest bit of the first argument down. No bit is looked at twice, so every path belongs to some call, and "some call
//! gets this" means that a leaf can be reached.

use sandbox_contract::bpf::{Op, Test};
use std::collections::{BTreeMap, BTreeSet};

/// The most steps for one diagram, and for comparing two. What fits into a filter needs far fewer, unless its rules tie bits
/// of one argument to bits of another.
const MOST: usize = 1 << 19;

/// The number of a node.
type At = u32;

/// The leaves of a test. Those of answers follow.
const NO: At = 0;
const YES: At = 1;

/// The bit of a leaf: after all others.
const LEAF: u16 = u16::MAX;

/// Some bits of the lower half of an argument, and their values: which argument, which bits, the values.
pub type Bits = (u8, u32, u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Node {
    bit: u16,
    /// The node to go on with if the bit is zero. Of a leaf, its number.
    zero: At,
    one: At,
}

impl Node {
    fn leaf(number: At) -> Node {
        Node { bit: LEAF, zero: number, one: number }
    }

    /// Where the node `at`, which is this one, goes on for a value of a bit that is not after its own.
    fn below(&self, at: At, bit: u16, one: bool) -> At {
        match (self.bit == bit, one) {
            (false, _) => at,
            (true, false) => self.zero,
            (true, true) => self.one,
        }
    }
}

/// The answers to a call, whatever its arguments are.
#[derive(Debug)]
pub struct Diagram<A> {
    nodes: Vec<Node>,
    answers: Vec<A>,
    top: At,
}

impl<A: Copy + PartialEq> Diagram<A> {
    /// The answer is that of the first clause whose tests all hold, or `otherwise`. `None` if it would take too many steps.
    pub fn new(clauses: &[(&[Test], A)], otherwise: A) -> Option<Diagram<A>> {
        // A clause without tests always holds, so nothing after it counts.
        let reached = clauses.iter().position(|(tests, _)| tests.is_empty()).map_or(clauses.len(), |last| last + 1);
        let mut maker = Maker::new();
        let mut answers = vec![otherwise];
        let mut top = maker.node(Node::leaf(YES + 1))?;
        for (tests, answer) in clauses.iter().take(reached).rev() {
            let number = answers.iter().position(|known| known == answer).unwrap_or(answers.len());
            if number == answers.len() {
                answers.push(*answer);
            }
            let answer = maker.node(Node::leaf(YES + 1 + number as At))?;
            let mut all = YES;
            for test in *tests {
                let test = maker.test(test)?;
                all = maker.choose(test, all, NO)?;
            }
            top = maker.choose(all, answer, top)?;
            maker.chosen.clear();
        }
        Some(Diagram { nodes: maker.nodes, answers, top })
    }

    /// Whether some call in which these bits have these values gets such an answer.
    pub fn some(&self, fixed: &[Bits], wanted: impl Fn(A) -> bool) -> bool {
        let mut seen = vec![false; self.nodes.len()];
        let mut left = vec![self.top];
        while let Some(at) = left.pop() {
            if seen.get_mut(at as usize).is_none_or(|seen| std::mem::replace(seen, true)) {
                continue;
            }
            let node = self.node(at);
            match fixed.iter().find_map(|bits| value(bits, node.bit)) {
                _ if node.bit == LEAF => {
                    if self.answer(node).is_some_and(&wanted) {
                        return true;
                    }
                }
                Some(false) => left.push(node.zero),
                Some(true) => left.push(node.one),
                None => left.extend([node.zero, node.one]),
            }
        }
        false
    }

    /// Calls `found` with every two answers that this and the other give to the same call. `None` if it would take too many
    /// steps.
    pub fn compare(&self, other: &Diagram<A>, mut found: impl FnMut(A, A)) -> Option<()> {
        let mut seen = BTreeSet::new();
        let mut left = vec![(self.top, other.top)];
        while let Some((at, other_at)) = left.pop() {
            if !seen.insert((at, other_at)) {
                continue;
            }
            if seen.len() > MOST {
                return None;
            }
            let (node, other_node) = (self.node(at), other.node(other_at));
            match node.bit.min(other_node.bit) {
                LEAF => {
                    if let (Some(answer), Some(other)) = (self.answer(node), other.answer(other_node)) {
                        found(answer, other);
                    }
                }
                bit => left
                    .extend([false, true].map(|one| (node.below(at, bit, one), other_node.below(other_at, bit, one)))),
            }
        }
        Some(())
    }

    fn node(&self, at: At) -> Node {
        self.nodes.get(at as usize).copied().unwrap_or(Node::leaf(NO))
    }

    fn answer(&self, leaf: Node) -> Option<A> {
        self.answers.get((leaf.zero as usize).checked_sub(YES as usize + 1)?).copied()
    }
}

/// The value that `bits` says one bit has, if it says so.
fn value((arg, mask, value): &Bits, bit: u16) -> Option<bool> {
    let (of, shift) = (bit / 64, 63 - bit % 64);
    (of == u16::from(*arg) && u64::from(*mask) >> shift & 1 == 1).then_some(u64::from(*value) >> shift & 1 == 1)
}

/// Makes each node once.
struct Maker {
    nodes: Vec<Node>,
    known: BTreeMap<Node, At>,
    /// The results of `choose` for the clause at hand.
    chosen: BTreeMap<[At; 3], At>,
    steps: usize,
}

impl Maker {
    fn new() -> Maker {
        let nodes = vec![Node::leaf(NO), Node::leaf(YES)];
        let known = (NO..).zip(&nodes).map(|(at, node)| (*node, at)).collect();
        Maker { nodes, known, chosen: BTreeMap::new(), steps: 0 }
    }

    fn node(&mut self, node: Node) -> Option<At> {
        if node.zero == node.one && node.bit != LEAF {
            return Some(node.zero);
        }
        if let Some(at) = self.known.get(&node) {
            return Some(*at);
        }
        self.step()?;
        let at = At::try_from(self.nodes.len()).ok()?;
        self.nodes.push(node);
        self.known.insert(node, at);
        Some(at)
    }

    fn step(&mut self) -> Option<()> {
        self.steps += 1;
        (self.steps <= MOST).then_some(())
    }

    /// Where a test holds.
    fn test(&mut self, test: &Test) -> Option<At> {
        let leaf = |holds: bool| if holds { YES } else { NO };
        if test.arg > 5 {
            return Some(leaf(test.holds(&[0; 6])));
        }
        let (equal, less, more) = match test.op {
            Op::Eq => (YES, NO, NO),
            Op::Ne => (NO, YES, YES),
            Op::Gt => (NO, NO, YES),
            Op::Ge => (YES, NO, YES),
            Op::Lt => (NO, YES, NO),
            Op::Le => (YES, YES, NO),
        };
        // The highest bit decides first, so it is made last.
        let mut at = equal;
        for shift in 0..64u16 {
            let bit = u16::from(test.arg) * 64 + 63 - shift;
            at = match (test.mask >> shift & 1 == 1, test.value >> shift & 1 == 1) {
                (true, true) => self.node(Node { bit, zero: less, one: at })?,
                (true, false) => self.node(Node { bit, zero: at, one: more })?,
                // The masked argument has a zero here, so it is smaller whatever the lower bits are.
                (false, true) => less,
                (false, false) => at,
            };
        }
        Some(at)
    }

    /// `yes` where the test holds, and `no` elsewhere.
    fn choose(&mut self, test: At, yes: At, no: At) -> Option<At> {
        match test {
            YES => return Some(yes),
            NO => return Some(no),
            _ if yes == no => return Some(yes),
            _ => {}
        }
        let parts = [test, yes, no];
        if let Some(at) = self.chosen.get(&parts) {
            return Some(*at);
        }
        self.step()?;
        let nodes = parts.map(|at| (at, self.nodes.get(at as usize).copied().unwrap_or(Node::leaf(NO))));
        let bit = nodes.iter().map(|(_, node)| node.bit).min().unwrap_or(LEAF);
        let mut half = |one| {
            let [test, yes, no] = nodes.map(|(at, node)| node.below(at, bit, one));
            self.choose(test, yes, no)
        };
        let (zero, one) = (half(false)?, half(true)?);
        let at = self.node(Node { bit, zero, one })?;
        self.chosen.insert(parts, at);
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPS: [Op; 6] = [Op::Eq, Op::Ne, Op::Gt, Op::Ge, Op::Lt, Op::Le];
    const EDGES: [u64; 11] = [0, 1, 2, 7, 8, 15, 16, 0xffff_ffff, 0x1_0000_0000, u64::MAX - 1, u64::MAX];

    /// The answer to one call.
    fn answer(diagram: &Diagram<u32>, args: &[u64; 6]) -> u32 {
        let mut node = diagram.node(diagram.top);
        while node.bit != LEAF {
            let set = args[usize::from(node.bit / 64)] >> (63 - node.bit % 64) & 1 == 1;
            node = diagram.node(if set { node.one } else { node.zero });
        }
        diagram.answer(node).expect("a leaf of an answer")
    }

    #[test]
    fn a_test_holds_for_the_same_arguments() {
        for op in OPS {
            for mask in [u64::MAX, 0xffff_ffff, 0xf, 0x5, 0xffff_ffff_0000_0000, 0] {
                for value in EDGES {
                    for arg in [0, 2, 5, 6] {
                        let test = Test { arg, mask, op, value };
                        let diagram = Diagram::new(&[(&[test], 1)], 0).expect("one test");
                        for word in EDGES {
                            let args = [word; 6];
                            assert_eq!(answer(&diagram, &args), u32::from(test.holds(&args)), "{test:?} {word:x}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_first_clause_that_holds_decides() {
        let clauses: [(&[Test], u32); 4] = [
            (&[Test::low(0, Op::Gt, 3), Test::low(1, Op::Eq, 2)], 1),
            (&[Test { arg: 0, mask: 6, op: Op::Ne, value: 4 }], 2),
            (&[Test::low(1, Op::Lt, 2), Test::low(0, Op::Ge, 5)], 1),
            (&[Test::low(0, Op::Eq, 4), Test::low(0, Op::Eq, 5)], 3),
        ];
        let diagram = Diagram::new(&clauses, 0).expect("few");
        for first in 0..12 {
            for second in 0..4 {
                let args = [first, second, 0, 0, 0, 0];
                let holds = |(tests, _): &&(&[Test], u32)| tests.iter().all(|test| test.holds(&args));
                let expected = clauses.iter().find(holds).map_or(0, |(_, answer)| *answer);
                assert_eq!(answer(&diagram, &args), expected, "{first} {second}");
                let fixed = [(0, u32::MAX, first as u32), (1, u32::MAX, second as u32)];
                assert!((0..4).all(|one| diagram.some(&fixed, |answer| answer == one) == (one == expected)));
            }
        }
        assert!(!diagram.some(&[], |answer| answer == 3), "a clause that contradicts itself");
        assert!(diagram.some(&[(1, 1, 1)], |answer| answer == 0) && !diagram.some(&[(0, 6, 0)], |answer| answer == 0));
    }

    #[test]
    fn two_spellings_of_the_same_are_the_same() {
        let pairs = |a: &[(&[Test], u32)], b: &[(&[Test], u32)]| {
            let (a, b) = (Diagram::new(a, 0).expect("few"), Diagram::new(b, 0).expect("few"));
            let mut pairs = BTreeSet::new();
            a.compare(&b, |a, b| _ = pairs.insert((a, b))).expect("few");
            pairs.into_iter().collect::<Vec<_>>()
        };
        let below = |value| Test { arg: 3, mask: u64::MAX, op: Op::Lt, value };
        let most = Test { op: Op::Le, ..below(7) };
        assert_eq!(pairs(&[(&[below(8)], 1)], &[(&[most], 1)]), [(0, 0), (1, 1)]);
        assert_eq!(
            pairs(&[(&[below(8)], 1)], &[(&[Test { mask: !7, op: Op::Eq, value: 0, arg: 3 }], 1)]),
            [(0, 0), (1, 1)]
        );
        assert_eq!(pairs(&[(&[below(8)], 1)], &[(&[below(9)], 1)]), [(0, 0), (0, 1), (1, 1)]);
        assert_eq!(pairs(&[(&[below(8)], 1)], &[(&[most], 2)]), [(0, 0), (1, 2)]);
    }

    #[test]
    fn as_many_values_as_fit_into_a_filter_are_decided() {
        let all: Vec<Test> = (0..6).map(|arg| Test { arg, mask: u64::MAX, op: Op::Ne, value: 7 }).collect();
        assert!(Diagram::new(&[(&all, 1)], 0).expect("few").some(&[], |answer| answer == 1));
        let values: Vec<[Test; 2]> =
            (0..1000).map(|value| [Test::low(1, Op::Eq, value * 0x9e37), Test::low(2, Op::Ne, value)]).collect();
        let clauses: Vec<(&[Test], u32)> = values.iter().map(|tests| (tests.as_slice(), 1)).collect();
        assert!(Diagram::new(&clauses, 0).expect("a thousand").some(&[(1, u32::MAX, 0x9e37)], |answer| answer == 1));
    }

    #[test]
    fn what_ties_many_bits_of_two_arguments_is_not_decided() {
        let bit = |arg, bit: u32| Test::bits(arg, 1 << bit, 1 << bit);
        let both: Vec<[Test; 2]> = (0..24).map(|at| [bit(0, at), bit(1, at)]).collect();
        let clauses: Vec<(&[Test], u32)> = both.iter().map(|tests| (tests.as_slice(), 1)).collect();
        assert!(Diagram::new(&clauses[..8], 0).is_some());
        assert!(Diagram::new(&clauses, 0).is_none());
    }
}
