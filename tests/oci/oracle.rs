//! libseccomp's filters for the same rules, and a comparison of any two filters.

use gatekeeper::oci::Profile;
use gatekeeper::plan::table::{Answers, Table};
use gatekeeper::policy::Policy;
use libseccomp::{ScmpAction, ScmpArgCompare, ScmpCompareOp, ScmpFilterContext, ScmpSyscall};
use sandbox_contract::bpf::{self, AUDIT_ARCH, Insn, Test};
use sandbox_contract::syscalls::{Number, number};
use std::collections::BTreeSet;

/// Our program for a policy.
pub fn ours(policy: &Policy) -> Vec<Insn> {
    let answers = Answers::new(policy.on_violation, false);
    Table::alone(policy).program(&answers, None).expect("it fits")
}

/// A rule for libseccomp: a number, its tests and the answer.
pub type Said = (u16, Vec<Test>, u32);

/// libseccomp's program for some rules.
pub fn theirs(default: u32, rules: &[Said]) -> Vec<Insn> {
    let mut context = ScmpFilterContext::new(action(default)).expect("a context");
    context.set_act_badarch(ScmpAction::KillProcess).expect("an attribute");
    for (nr, tests, answer) in rules {
        let tests: Vec<ScmpArgCompare> = tests.iter().map(compare).collect();
        let call = ScmpSyscall::from(i32::from(*nr));
        let added = match tests.as_slice() {
            [] => context.add_rule(action(*answer), call),
            tests => context.add_rule_conditional(action(*answer), call, tests),
        };
        added.unwrap_or_else(|error| panic!("libseccomp refuses {nr} {tests:?} {answer:x}: {error}"));
    }
    exported(&context)
}

/// libseccomp's program for a profile. Like runc, leaves out entries whose action is the default.
pub fn of_profile(profile: &Profile) -> Vec<Insn> {
    let answer = |action: &str, errno: Option<u16>| match action {
        "SCMP_ACT_ALLOW" => bpf::ret::ALLOW,
        "SCMP_ACT_LOG" => bpf::ret::LOG,
        "SCMP_ACT_KILL_PROCESS" => bpf::ret::KILL_PROCESS,
        "SCMP_ACT_ERRNO" => bpf::ret::errno(errno.unwrap_or(1)),
        other => panic!("{other}"),
    };
    let default = answer(&profile.default_action, profile.default_errno_ret);
    let mut context = ScmpFilterContext::new(action(default)).expect("a context");
    context.set_act_badarch(ScmpAction::KillProcess).expect("an attribute");
    for entry in &profile.syscalls {
        let answer = answer(&entry.action, entry.errno_ret);
        if answer == default {
            continue;
        }
        let tests: Vec<ScmpArgCompare> = entry
            .args
            .iter()
            .map(|arg| {
                let op = match arg.op.as_str() {
                    "SCMP_CMP_EQ" => ScmpCompareOp::Equal,
                    "SCMP_CMP_NE" => ScmpCompareOp::NotEqual,
                    "SCMP_CMP_LT" => ScmpCompareOp::Less,
                    "SCMP_CMP_LE" => ScmpCompareOp::LessOrEqual,
                    "SCMP_CMP_GE" => ScmpCompareOp::GreaterEqual,
                    "SCMP_CMP_GT" => ScmpCompareOp::Greater,
                    _ => {
                        return ScmpArgCompare::new(
                            arg.index.into(),
                            ScmpCompareOp::MaskedEqual(arg.value),
                            arg.value_two,
                        );
                    }
                };
                ScmpArgCompare::new(arg.index.into(), op, arg.value)
            })
            .collect();
        for name in &entry.names {
            // By number, because an old libseccomp does not know all names.
            let Number::Here(nr) = number(name.as_bytes()) else { continue };
            let call = ScmpSyscall::from(i32::from(nr));
            let added = match tests.as_slice() {
                [] => context.add_rule(action(answer), call),
                tests => context.add_rule_conditional(action(answer), call, tests),
            };
            added.unwrap_or_else(|error| panic!("libseccomp refuses {name} {entry:?}: {error}"));
        }
    }
    exported(&context)
}

fn exported(context: &ScmpFilterContext) -> Vec<Insn> {
    use std::io::{Read, Seek};
    let mut file = tempfile::tempfile().expect("a temporary file");
    context.export_bpf(&file).expect("libseccomp exports");
    file.rewind().expect("a file");
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).expect("a file");
    bytes
        .as_chunks::<8>()
        .0
        .iter()
        .map(|[c0, c1, jt, jf, k0, k1, k2, k3]| Insn {
            code: u16::from_ne_bytes([*c0, *c1]),
            jt: *jt,
            jf: *jf,
            k: u32::from_ne_bytes([*k0, *k1, *k2, *k3]),
        })
        .collect()
}

fn action(answer: u32) -> ScmpAction {
    match answer {
        bpf::ret::ALLOW => ScmpAction::Allow,
        bpf::ret::LOG => ScmpAction::Log,
        bpf::ret::KILL_PROCESS => ScmpAction::KillProcess,
        other => ScmpAction::Errno(i32::from(other as u16)),
    }
}

fn compare(test: &Test) -> ScmpArgCompare {
    let Test { arg, mask, op, value } = *test;
    let op = match op {
        bpf::Op::Eq if mask != u64::MAX => ScmpCompareOp::MaskedEqual(mask),
        bpf::Op::Eq => ScmpCompareOp::Equal,
        bpf::Op::Ne => ScmpCompareOp::NotEqual,
        bpf::Op::Gt => ScmpCompareOp::Greater,
        bpf::Op::Ge => ScmpCompareOp::GreaterEqual,
        bpf::Op::Lt => ScmpCompareOp::Less,
        bpf::Op::Le => ScmpCompareOp::LessOrEqual,
    };
    ScmpArgCompare::new(arg.into(), op, value)
}

/// Arguments at and next to every boundary of these tests, also with junk in the upper halves: all combinations, or
/// `most` of them spread evenly.
fn boundaries<'a>(tests: impl IntoIterator<Item = &'a Test>, most: u64) -> Vec<[u64; 6]> {
    let mut words: [BTreeSet<u64>; 6] = Default::default();
    words.iter_mut().for_each(|words| words.extend([0]));
    for test in tests {
        let words = &mut words[usize::from(test.arg)];
        let value = test.value;
        words.extend([value, value.wrapping_add(1), value.wrapping_sub(1), value ^ 1 << 32, value | !test.mask]);
        words.extend([
            u64::MAX,
            value ^ test.mask,
            value & 0xffff_ffff,
            value ^ (test.mask & test.mask.wrapping_neg()),
        ]);
    }
    let words = words.map(|words| words.into_iter().collect::<Vec<u64>>());
    let all: u64 = words.iter().map(|words| words.len() as u64).product();
    // An odd step, so that it shares few divisors with the number of combinations.
    let step = if all <= most { 1 } else { all / most * 2 + 1 };
    let pick = |at: u64| {
        let mut at = at.wrapping_mul(step) % all;
        words.each_ref().map(|words| {
            let len = words.len() as u64;
            let word = words[(at % len) as usize];
            at /= len;
            word
        })
    };
    (0..all.min(most)).map(pick).collect()
}

/// Numbers outside of this architecture's range that a filter must tell apart: unused, foreign, x32.
pub const ODD_NUMBERS: [u32; 8] = [1023, 1024, 1025, 0x3fff_ffff, 0x4000_0000, 0x4000_0001, 0x4000_0209, 0xffff_fffe];
/// Above the highest number of every architecture we build for.
pub const NUMBERS: u32 = 600;
const X32_BIT: u32 = 0x4000_0000;
pub const FOREIGN: [u32; 3] = [0x4000_0003, 0x4000_0028, 0];

/// The first difference between two programs, over every number and over these arguments of some numbers.
pub fn difference(a: &[Insn], b: &[Insn], asked: &[(u16, Vec<[u64; 6]>)]) -> Option<String> {
    let ask = |arch: u32, nr: u32, args: &[u64; 6]| {
        let (a, b) = (bpf::simulate(a, arch, nr, args), bpf::simulate(b, arch, nr, args));
        let told = || format!("arch {arch:x} number {nr} {args:x?}: {a:x?} and {b:x?}");
        (a.is_none() || a != b).then(told)
    };
    let numbers = || (0..NUMBERS).chain(ODD_NUMBERS);
    let plain = numbers().find_map(|nr| ask(AUDIT_ARCH, nr, &[0; 6]));
    // The same numbers with x32, which shares the architecture, and with foreign architectures such as i386.
    let x32 = || numbers().find_map(|nr| ask(AUDIT_ARCH, nr | X32_BIT, &[0; 6]));
    let foreign = || FOREIGN.iter().find_map(|arch| numbers().find_map(|nr| ask(*arch, nr, &[0; 6])));
    let with_arguments =
        || asked.iter().find_map(|(nr, list)| list.iter().find_map(|args| ask(AUDIT_ARCH, (*nr).into(), args)));
    plain.or_else(x32).or_else(foreign).or_else(with_arguments)
}

/// The boundaries of every call whose arguments these tables test.
pub fn asked(tables: &[&Table], most: u64) -> Vec<(u16, Vec<[u64; 6]>)> {
    let of = |nr: u16| tables.iter().flat_map(move |table| table.entry(nr).0.iter().flat_map(|clause| &clause.tests));
    (0..bpf::LIMIT).filter(|nr| of(*nr).next().is_some()).map(|nr| (nr, boundaries(of(nr), most))).collect()
}
