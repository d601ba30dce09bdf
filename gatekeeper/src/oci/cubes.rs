//! Exact sets of syscall arguments, as masked comparisons can express them. Turns the tests of a rule into cubes, each of
//! which fixes some bits of some arguments. Every result is exact, or `None` if it would take too many cubes.

use sandbox_contract::bpf::{Op, Test};

/// Far more than a policy written by hand needs.
const MOST: usize = 4096;

/// All arguments that have the given values in the fixed bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cube {
    /// For each argument the mask of fixed bits, and their values.
    pub fixed: [(u64, u64); 6],
}

impl Cube {
    /// All arguments: no bit is fixed.
    pub const ALL: Cube = Cube { fixed: [(0, 0); 6] };

    fn one(arg: u8, mask: u64, value: u64) -> Cube {
        let mut cube = Cube::ALL;
        if let Some(fixed) = cube.fixed.get_mut(usize::from(arg)) {
            *fixed = (mask, value);
        }
        cube
    }

    fn meet(&self, other: &Cube) -> Option<Cube> {
        let mut both = *self;
        for ((mask, value), (other_mask, other_value)) in both.fixed.iter_mut().zip(other.fixed) {
            if (*value ^ other_value) & *mask & other_mask != 0 {
                return None;
            }
            *mask |= other_mask;
            *value |= other_value;
        }
        Some(both)
    }

    /// Whether the two have arguments in common.
    fn meets(&self, other: &Cube) -> bool {
        self.meet(other).is_some()
    }
}

/// The test that holds exactly if this one does not.
pub fn opposite(test: &Test) -> Test {
    let op = match test.op {
        Op::Eq => Op::Ne,
        Op::Ne => Op::Eq,
        Op::Gt => Op::Le,
        Op::Le => Op::Gt,
        Op::Ge => Op::Lt,
        Op::Lt => Op::Ge,
    };
    Test { op, ..*test }
}

/// The arguments for which a test holds, as cubes that do not overlap.
fn of_test(test: &Test) -> Vec<Cube> {
    let (equal, more, less) = match test.op {
        Op::Eq => (true, false, false),
        Op::Ne => (false, true, true),
        Op::Gt => (false, true, false),
        Op::Ge => (true, true, false),
        Op::Lt => (false, false, true),
        Op::Le => (true, false, true),
    };
    let mut cubes = Vec::new();
    // From the highest bit down: all higher bits are equal, and this one decides.
    let (mut mask, mut value) = (0, 0);
    for bit in (0..64).rev().map(|shift| 1u64 << shift) {
        let (looked_at, wanted) = (test.mask & bit != 0, test.value & bit != 0);
        match (looked_at, wanted) {
            (true, true) if less => cubes.push(Cube::one(test.arg, mask | bit, value)),
            (true, false) if more => cubes.push(Cube::one(test.arg, mask | bit, value | bit)),
            // The masked argument has a zero here, so it is smaller whatever the lower bits are.
            (false, true) => {
                if less {
                    cubes.push(Cube::one(test.arg, mask, value));
                }
                return cubes;
            }
            _ => {}
        }
        mask |= test.mask & bit;
        value |= test.mask & test.value & bit;
    }
    if equal {
        cubes.push(Cube::one(test.arg, mask, value));
    }
    cubes
}

/// The part of the cubes for which a test holds.
fn where_it_holds(cubes: &[Cube], test: &Test) -> Option<Vec<Cube>> {
    let (inside, outside) = (of_test(test), of_test(&opposite(test)));
    let mut held = Vec::new();
    for cube in cubes {
        // Keep a cube whole if the test always holds in it. Otherwise the pieces would multiply with every test.
        if outside.iter().any(|other| cube.meets(other)) {
            held.extend(inside.iter().filter_map(|other| cube.meet(other)));
        } else {
            held.push(*cube);
        }
        if held.len() > MOST {
            return None;
        }
    }
    Some(held)
}

/// The part of `within` for which all tests hold.
pub fn where_all_hold(within: &[Cube], tests: &[Test]) -> Option<Vec<Cube>> {
    tests.iter().try_fold(within.to_vec(), |cubes, test| where_it_holds(&cubes, test))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPS: [Op; 6] = [Op::Eq, Op::Ne, Op::Gt, Op::Ge, Op::Lt, Op::Le];

    fn inside(cubes: &[Cube], args: &[u64; 6]) -> usize {
        let holds = |cube: &&Cube| cube.fixed.iter().zip(args).all(|((mask, value), arg)| arg & mask == *value);
        cubes.iter().filter(holds).count()
    }

    #[test]
    fn cubes_hold_exactly_where_the_test_does_and_once() {
        let edges = [0u64, 1, 2, 7, 8, 15, 16, 0xffff_ffff, 0x1_0000_0000, u64::MAX - 1, u64::MAX];
        for op in OPS {
            for mask in [u64::MAX, 0xffff_ffff, 0xf, 0x5, 0xffff_ffff_0000_0000, 0] {
                for value in edges {
                    let test = Test { arg: 2, mask, op, value };
                    let cubes = of_test(&test);
                    for word in edges {
                        let args = [9, 9, word, 9, 9, 9];
                        assert_eq!(inside(&cubes, &args), usize::from(test.holds(&args)), "{test:?} {word:x}");
                    }
                    assert!(cubes.iter().all(|cube| test.holds(&cube.fixed.map(|(_, value)| value))), "{test:?}");
                }
            }
        }
    }

    #[test]
    fn all_tests_hold_in_what_is_left_and_nowhere_else() {
        let tests = [Test::low(0, Op::Gt, 3), Test::low(1, Op::Eq, 2), Test { arg: 0, mask: 6, op: Op::Ne, value: 4 }];
        let held = where_all_hold(&[Cube::ALL], &tests).expect("few");
        for first in 0..12 {
            for second in 0..4 {
                let args = [first, second, 0, 0, 0, 0];
                let all = tests.iter().all(|test| test.holds(&args));
                assert_eq!(inside(&held, &args), usize::from(all), "{args:?}");
            }
        }
    }

    #[test]
    fn all_but_some_values_takes_few_cubes() {
        let tests: Vec<Test> =
            [0x5412, 0x541c, 0x5401, 0x5402, 0x5420, 0x5423].map(|value| Test::low(1, Op::Ne, value)).to_vec();
        let cubes = where_all_hold(&[Cube::ALL], &tests).expect("few");
        assert!(cubes.len() < 50, "{}", cubes.len());
    }

    #[test]
    fn too_many_cubes_are_no_answer() {
        let tests: Vec<Test> = (0..6).map(|arg| Test { arg, mask: u64::MAX, op: Op::Ne, value: 0 }).collect();
        assert_eq!(where_all_hold(&[Cube::ALL], &tests), None);
    }
}
