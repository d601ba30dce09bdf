//! Fuzzes the preload's input: lists, actions and compiled filters.

use sandbox_contract::action::{Action, WORDS};
use sandbox_contract::bpf::{self, AUDIT_ARCH, Insn, List, MAX_LEN, ret};
use sandbox_contract::grammar::{self, Item, ItemError, NumberSet};
use sandbox_contract::{file, nearest};

/// The input is a list, a NUL and an action. An error names an item of the list; a valid list gives the right filter.
pub fn list(bytes: &[u8]) {
    let (list, action) = match bytes.iter().position(|byte| *byte == 0) {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (bytes, &b"kill"[..]),
    };
    let action = Action::parse(action).unwrap_or_else(|| {
        let _ = (nearest::nearest_of(action, WORDS), nearest::errno(action));
        Action::Kill
    });
    match grammar::parse(list) {
        Ok(set) => {
            let mut items: Vec<&[u8]> = list.split(|byte| *byte == b':').collect();
            items.reverse();
            assert_eq!(grammar::parse(&items.join(&b"::"[..])), Ok(set), "an order or an empty item meant something");
            means(&set, ret::ALLOW, action.ret());
            means(&set, action.ret(), ret::ALLOW);
        }
        Err(error) => {
            let (ItemError::Unknown(item)
            | ItemError::UnknownGroup(item)
            | ItemError::NoNumber(item)
            | ItemError::TooLong(item)) = error;
            let shown = |own: Item<'_>| matches!(own, Item::Name(own) | Item::Group(own) if own == item);
            assert!(grammar::items(list).any(shown), "an item that is not in the list was named");
            let _ = (nearest::syscall(item), nearest::group(item));
        }
    }
}

fn means(listed: &NumberSet, answer: u32, others: u32) {
    let mut program = vec![Insn::default(); MAX_LEN];
    let list = List { listed, answer, others, first: &[] };
    let len = bpf::compile(&list, &mut program).expect("a list always fits");
    for number in (0..600).chain([1023, 1024, 5000, u32::MAX]) {
        let is_listed = u16::try_from(number).is_ok_and(|number| listed.contains(number));
        let wanted = if is_listed { answer } else { others };
        assert_eq!(bpf::simulate(&program[..len], AUDIT_ARCH, number, &[0; 6]), Some(wanted), "{number}");
    }
    assert_eq!(bpf::simulate(&program[..len], AUDIT_ARCH ^ 1, 0, &[0; 6]), Some(ret::KILL_PROCESS));
}

/// The bytes as a file for SANDBOX_FILTER, and as instructions behind a valid header.
pub fn filter(bytes: &[u8]) {
    let mut program = Box::new([Insn::default(); MAX_LEN]);
    if let Ok(count) = file::decode(bytes, &mut program) {
        let mut again = Box::new([0; file::MAX_FILE]);
        let len = file::encode(&program[..count], &mut again).expect("it was one");
        assert_eq!(&again[..len], bytes, "two files are one program");
    }
    let insn = |[c0, c1, jt, jf, k0, k1, k2, k3]: &[u8; 8]| Insn {
        code: u16::from_ne_bytes([*c0, *c1]),
        jt: *jt,
        jf: *jf,
        k: u32::from_ne_bytes([*k0, *k1, *k2, *k3]),
    };
    let wanted: Vec<Insn> = bytes.as_chunks::<8>().0.iter().take(MAX_LEN).map(insn).collect();
    for number in [0, 59, 1024, u32::MAX] {
        // Any answer is fine, but it must terminate.
        let _ = bpf::simulate(&wanted, AUDIT_ARCH, number, &[u64::MAX; 6]);
    }
    let mut made = Box::new([0; file::MAX_FILE]);
    if let Some(len) = file::encode(&wanted, &mut made) {
        assert_eq!(file::decode(&made[..len], &mut program), Ok(wanted.len()));
        assert_eq!(&program[..wanted.len()], wanted);
        // A single flipped bit, at a position derived from the input, is noticed.
        let at = bytes.iter().fold(0usize, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into())) % (len * 8);
        made[at / 8] ^= 1 << (at % 8);
        assert!(file::decode(&made[..len], &mut program).is_err(), "bit {at}");
    }
}
