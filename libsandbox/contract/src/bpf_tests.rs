//! Compares compiled programs with the decisions they were compiled from, call by call.

use super::*;
use crate::grammar::NumberSet;
use std::vec;
use std::vec::Vec;

type OwnedRule = (u16, Vec<(Vec<Test>, u32)>, u32);
struct Table(Vec<OwnedRule>, u32);

/// The same table with borrowed clauses, as `Decisions` returns them.
struct Borrowed<'a>(Vec<(u16, Vec<Clause<'a>>, u32)>, u32);

impl Table {
    fn borrow(&self) -> Borrowed<'_> {
        fn clauses(list: &[(Vec<Test>, u32)]) -> Vec<Clause<'_>> {
            list.iter().map(|(tests, ret)| Clause { tests, ret: *ret }).collect()
        }
        Borrowed(self.0.iter().map(|(nr, list, otherwise)| (*nr, clauses(list), *otherwise)).collect(), self.1)
    }
}

impl Decisions for Borrowed<'_> {
    fn rule(&self, number: u16) -> Rule<'_> {
        match self.0.iter().find(|(nr, ..)| *nr == number) {
            Some((_, clauses, otherwise)) => Rule { clauses, otherwise: *otherwise },
            None => Rule::plain(self.1),
        }
    }

    fn beyond(&self) -> u32 {
        self.1
    }
}

fn program(decisions: &dyn Decisions) -> Vec<Insn> {
    let mut out = vec![Insn::default(); MAX_LEN];
    let len = compile(decisions, &mut out).expect("it compiles");
    out.truncate(len);
    out
}

const ARGS: [u64; 6] = [0; 6];

#[test]
fn a_list_decides_every_number() {
    let mut listed = NumberSet::EMPTY;
    [0, 1, 3, 60, 61, 62, 231, 435, 1023].into_iter().for_each(|nr| listed.insert(nr));
    let list = List { listed: &listed, answer: ret::ALLOW, others: ret::KILL_PROCESS, first: &[] };
    let program = program(&list);
    for nr in 0..2000u32 {
        let wanted = if nr < 1024 && listed.contains(nr as u16) { ret::ALLOW } else { ret::KILL_PROCESS };
        assert_eq!(simulate(&program, AUDIT_ARCH, nr, &ARGS), Some(wanted), "{nr}");
    }
}

#[test]
fn foreign_architectures_and_x32_are_killed_even_when_all_is_allowed() {
    let list = List { listed: &NumberSet::EMPTY, answer: ret::ALLOW, others: ret::ALLOW, first: &[] };
    let program = program(&list);
    assert_eq!(simulate(&program, AUDIT_ARCH, 0, &ARGS), Some(ret::ALLOW));
    assert_eq!(simulate(&program, 0x4000_0003, 0, &ARGS), Some(ret::KILL_PROCESS));
    if cfg!(target_arch = "x86_64") {
        assert_eq!(simulate(&program, AUDIT_ARCH, X32_BIT, &ARGS), Some(ret::KILL_PROCESS));
        assert_eq!(simulate(&program, AUDIT_ARCH, X32_BIT | 41, &ARGS), Some(ret::KILL_PROCESS));
    }
    assert_eq!(simulate(&program, AUDIT_ARCH, SKIPPED, &ARGS), Some(ret::ALLOW));
}

#[test]
fn all_and_nothing_are_short() {
    let list = List { listed: &NumberSet::EMPTY, answer: ret::ALLOW, others: ret::ALLOW, first: &[] };
    assert!(program(&list).len() <= 12);
}

#[test]
fn the_buffer_is_never_overrun() {
    let mut listed = NumberSet::EMPTY;
    (0..500).step_by(2).for_each(|nr| listed.insert(nr));
    let list = List { listed: &listed, answer: ret::ALLOW, others: ret::KILL_PROCESS, first: &[] };
    let mut small = [Insn::default(); 20];
    assert_eq!(compile(&list, &mut small), Err(CompileError::TooLong));
}

#[test]
fn long_jumps_reach() {
    // Listing every second number makes the left half longer than a conditional jump can skip.
    let mut listed = NumberSet::EMPTY;
    (0..1024).step_by(2).for_each(|nr| listed.insert(nr));
    let list = List { listed: &listed, answer: ret::ALLOW, others: ret::errno(1), first: &[] };
    let program = program(&list);
    for nr in 0..1024 {
        let wanted = if nr % 2 == 0 { ret::ALLOW } else { ret::errno(1) };
        assert_eq!(simulate(&program, AUDIT_ARCH, nr, &ARGS), Some(wanted), "{nr}");
    }
}

/// Words around every boundary where comparing by halves could go wrong.
fn words() -> Vec<u64> {
    let mut words = Vec::new();
    for high in [0u64, 1, 0x7fff_ffff, 0xffff_fffe, 0xffff_ffff] {
        for low in [0u64, 1, 2, 0x5412, 0x7fff_ffff, 0x8000_0000, 0xffff_fffe, 0xffff_ffff] {
            words.push(high << 32 | low);
        }
    }
    words
}

#[test]
fn every_comparison_agrees_with_its_meaning() {
    for op in [Op::Eq, Op::Ne, Op::Gt, Op::Ge, Op::Lt, Op::Le] {
        for mask in [u64::MAX, 0xffff_ffff, 0xff, 0xffff_ffff_0000_0000, 0x7e02_0080, 0] {
            for value in words() {
                let first = Test { arg: 1, mask, op, value };
                let second = Test::low(2, Op::Eq, 7);
                let table = Table(
                    vec![(5, vec![(vec![first, second], ret::ALLOW), (vec![first], ret::LOG)], ret::TRAP)],
                    ret::KILL_PROCESS,
                );
                let decisions = table.borrow();
                let program = program(&decisions);
                for word in words() {
                    for third in [7, 8] {
                        let args = [9, word, third, 0, 0, 0];
                        let wanted = decisions.rule(5).decide(&args);
                        assert_eq!(
                            simulate(&program, AUDIT_ARCH, 5, &args),
                            Some(wanted),
                            "{op:?} {mask:x} {value:x} {word:x}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn junk_in_the_upper_half_does_not_hide_an_int() {
    let tests = [Test::low(1, Op::Eq, 0x5412)];
    let clauses = [Clause { tests: &tests, ret: ret::errno(1) }];
    let rules = [(16u16, &clauses[..])];
    let list = List { listed: &NumberSet::EMPTY, answer: 0, others: ret::ALLOW, first: &rules };
    let program = program(&list);
    assert_eq!(simulate(&program, AUDIT_ARCH, 16, &[0, 0xdead_0000_5412, 0, 0, 0, 0]), Some(ret::errno(1)));
    assert_eq!(simulate(&program, AUDIT_ARCH, 16, &[0, 0x5413, 0, 0, 0, 0]), Some(ret::ALLOW));
}

#[test]
fn a_clause_longer_than_a_jump_is_kept() {
    let tests = vec![Test { arg: 0, mask: u64::MAX, op: Op::Gt, value: 1 }; 200];
    let table = Table(vec![(5, vec![(tests, ret::ALLOW)], ret::TRAP)], ret::ALLOW);
    let program = program(&table.borrow());
    for (first, wanted) in [(2, ret::ALLOW), (1 << 32, ret::ALLOW), (1, ret::TRAP)] {
        assert_eq!(simulate(&program, AUDIT_ARCH, 5, &[first, 0, 0, 0, 0, 0]), Some(wanted), "{first}");
    }
}

/// Each further value of an argument costs one instruction: the argument is loaded once and answers are shared.
#[test]
fn clauses_of_one_argument_are_short() {
    let clauses =
        |count: u32| (0..count).map(|k| (vec![Test::low(1, Op::Eq, 100 + k)], ret::ALLOW)).collect::<Vec<_>>();
    let length = |count| program(&Table(vec![(16, clauses(count), ret::TRAP)], ret::TRAP).borrow()).len();
    assert_eq!(length(30) - length(10), 20);
}

#[test]
fn tests_of_one_argument_load_it_once() {
    let loads = |clauses: Vec<(Vec<Test>, u32)>| {
        let program = program(&Table(vec![(16, clauses, ret::TRAP)], ret::TRAP).borrow());
        program.iter().filter(|insn| insn.code == LD_ABS && insn.k == low_half(1)).count()
    };
    let neither = |values: [u32; 2]| values.map(|value| Test::low(1, Op::Ne, value)).to_vec();
    assert_eq!(loads(vec![(neither([0, u32::MAX]), ret::ALLOW)]), 1);
    assert_eq!(loads(vec![(neither([0, 1]), ret::ALLOW), (neither([2, 3]), ret::LOG)]), 1);
    let bit = |bit: u32| vec![Test::bits(1, bit, bit)];
    assert_eq!(loads(vec![(bit(0x40), ret::ALLOW), (bit(0x80), ret::LOG), (vec![Test::bits(1, 3, 0)], ret::LOG)]), 1);
}

/// A generator of numbers below a bound, the same for the same seed.
fn random(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

/// Clauses that could share a load, with random masks, comparisons and order.
#[test]
fn random_clauses_are_kept() {
    let mut random = random(11);
    let ops = [Op::Eq, Op::Ne, Op::Gt, Op::Ge, Op::Lt, Op::Le];
    let masks = [u64::MAX, 0xffff_ffff, 0xff00, 0x40, 0x40, 0x243, 0xffff_ffff_0000_0000, 0x1_0000_0001, 1 << 40, 0];
    let values = [0, 1, 2, 0x40, 0x40, 0x243, 0x6600, 0xffff_ffff, 1 << 32, 1 << 40, u64::MAX];
    let mut pick = |from: &[u64]| from[random(from.len() as u64) as usize];
    for round in 0..400 {
        let clauses = (0..pick(&[1, 3, 10, 60]))
            .map(|_| {
                let test = |op: u64, mask, value, arg| Test { arg: arg as u8, mask, op: ops[op as usize], value };
                let tests = (0..pick(&[0, 1, 1, 1, 1, 2, 3]))
                    .map(|_| test(pick(&[0, 0, 0, 1, 2, 3, 4, 5]), pick(&masks), pick(&values), pick(&[0, 1])));
                (tests.collect(), ret::errno(100 + pick(&[0, 0, 1, 2, 3]) as u16))
            })
            .collect();
        let table = Table(vec![(5, clauses, ret::TRAP), (6, vec![], ret::LOG)], ret::ALLOW);
        let decisions = table.borrow();
        let program = program(&decisions);
        for _ in 0..60 {
            let args = [pick(&values), pick(&values).wrapping_add(pick(&[0, 0, 0x77])), 0, 0, 0, 0];
            let wanted = decisions.rule(5).decide(&args);
            assert_eq!(simulate(&program, AUDIT_ARCH, 5, &args), Some(wanted), "{round} {args:x?}");
        }
    }
}

/// Many answers, long leaves and every density: each number still gets its own answer.
#[test]
fn random_tables_are_kept() {
    let mut random = random(7);
    for round in 0..300 {
        let answers = 1 + random(12);
        let density = 1 + random(40);
        let mut rules = Vec::new();
        for nr in 0..LIMIT {
            if random(density) != 0 || rules.len() > 400 {
                continue;
            }
            let clauses = if random(30) == 0 {
                let tests = (0..random(20)).map(|arg| Test::low((arg % 6) as u8, Op::Ne, arg as u32)).collect();
                vec![(tests, ret::errno(900))]
            } else {
                vec![]
            };
            rules.push((nr, clauses, ret::errno(random(answers) as u16)));
        }
        let table = Table(rules, ret::ALLOW);
        let decisions = table.borrow();
        let mut out = vec![Insn::default(); MAX_LEN];
        let len = compile(&decisions, &mut out).expect("it fits");
        for nr in 0..LIMIT {
            let wanted = decisions.rule(nr).decide(&ARGS);
            assert_eq!(simulate(&out[..len], AUDIT_ARCH, u32::from(nr), &ARGS), Some(wanted), "{round} {nr}");
        }
    }
}

#[test]
fn scattered_names_cost_about_an_instruction_each() {
    let mut listed = NumberSet::EMPTY;
    (0..240).step_by(2).for_each(|nr| listed.insert(nr));
    let list = List { listed: &listed, answer: ret::ALLOW, others: ret::KILL_PROCESS, first: &[] };
    let len = program(&list).len();
    assert!(len < 270, "{len}");
}
