//! Our programs and libseccomp's give the same answer for the same list: to every number, to x32 and to foreign calls.

use libseccomp::{ScmpAction, ScmpArch, ScmpFilterContext, ScmpSyscall};
use sandbox_contract::bpf::{self, AUDIT_ARCH, Insn, List, ret};
use sandbox_contract::{grammar, groups};
use std::io::{Read, Seek};

const ARGS: [u64; 6] = [0; 6];
const I386: u32 = 0x4000_0003;
const X32: u32 = 0x4000_0000;

/// libseccomp's program: `listed` get `answer`, all other numbers `others`, and foreign calls are killed.
fn theirs(listed: &[u16], answer: ScmpAction, others: ScmpAction, optimize: u32) -> Vec<Insn> {
    let mut filter = ScmpFilterContext::new(others).expect("a filter");
    filter.set_act_badarch(ScmpAction::KillProcess).expect("an action");
    filter.set_ctl_optimize(optimize).expect("a level that 2.5 knows");
    assert!(filter.is_arch_present(ScmpArch::Native).expect("it can be asked"));
    for number in listed {
        filter.add_rule_exact(answer, ScmpSyscall::from(i32::from(*number))).expect("a number of this architecture");
    }
    let mut file = tempfile::tempfile().expect("a temporary file");
    filter.export_bpf(&mut file).expect("it is generated");
    file.rewind().expect("a regular file");
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).expect("a regular file");
    let insn = |at: &[u8; 8]| Insn {
        code: u16::from_ne_bytes([at[0], at[1]]),
        jt: at[2],
        jf: at[3],
        k: u32::from_ne_bytes([at[4], at[5], at[6], at[7]]),
    };
    bytes.as_chunks::<8>().0.iter().map(insn).collect()
}

fn ours(listed: &[u16], answer: u32, others: u32) -> Vec<Insn> {
    let mut set = grammar::NumberSet::EMPTY;
    listed.iter().for_each(|number| set.insert(*number));
    let mut program = vec![Insn::default(); bpf::MAX_LEN];
    let list = List { listed: &set, answer, others, first: &[] };
    let len = bpf::compile(&list, &mut program).expect("it fits");
    program.truncate(len);
    program
}

#[track_caller]
fn agree(listed: &[u16], (answer, their_answer): (u32, ScmpAction), (others, their_others): (u32, ScmpAction)) {
    let ours = ours(listed, answer, others);
    for optimize in [1, 2] {
        let theirs = theirs(listed, their_answer, their_others, optimize);
        let numbers = (0..1100).chain([4096, X32 - 1]).chain(X32..X32 + 1100).chain([0x7fff_ffff, 0x8000_0000]);
        for number in numbers.chain([u32::MAX - 1, u32::MAX]) {
            for arch in [AUDIT_ARCH, I386, 0, 0xc000_0016] {
                let our = bpf::simulate(&ours, arch, number, &ARGS).expect("a valid program");
                let their = bpf::simulate(&theirs, arch, number, &ARGS).expect("a valid program");
                assert_eq!(our, their, "number {number:#x}, arch {arch:#x}, {} listed, level {optimize}", listed.len());
            }
        }
    }
}

const ALLOW: (u32, ScmpAction) = (ret::ALLOW, ScmpAction::Allow);
const KILL: (u32, ScmpAction) = (ret::KILL_PROCESS, ScmpAction::KillProcess);
const LOG: (u32, ScmpAction) = (ret::LOG, ScmpAction::Log);
const TRAP: (u32, ScmpAction) = (ret::TRAP, ScmpAction::Trap);
const ERRNO: (u32, ScmpAction) = (ret::errno(71), ScmpAction::Errno(71));

#[test]
fn every_group_is_allowed_and_denied_alike() {
    for group in groups::GROUPS {
        let mut set = grammar::NumberSet::EMPTY;
        grammar::add(grammar::Item::Group(group.name.as_bytes()), &mut set).expect("a known group");
        // libseccomp 2.5.4 knows no number above 456.
        let listed: Vec<u16> = set.iter().filter(|number| *number <= 450).collect();
        if listed.is_empty() {
            continue;
        }
        agree(&listed, ALLOW, KILL);
        agree(&listed, ERRNO, ALLOW);
    }
}

#[test]
fn every_action_is_generated_alike() {
    let listed = [0, 1, 3, 59, 60, 231, 257, 435];
    for action in [KILL, LOG, TRAP, ERRNO] {
        agree(&listed, ALLOW, action);
        agree(&listed, action, ALLOW);
    }
}

#[test]
fn lists_of_every_density_are_generated_alike() {
    for step in [1, 2, 3, 7, 50, 333] {
        let listed: Vec<u16> = (0..335).step_by(step).collect();
        agree(&listed, ALLOW, ERRNO);
        agree(&listed, KILL, ALLOW);
    }
}
