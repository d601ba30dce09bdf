//! `[[syscalls.rule]]`: decisions on a call's arguments. Parses the rules of a file, and merges them with those of its base
//! file so that neither allows what the other denies.

use super::error::{PolicyError, ValueError};
use super::field::Field;
use super::node::Value;
use super::schema::entries;
use super::{ArgTest, RuleAction, SyscallRule, values};
use sandbox_contract::bpf::Op;

/// More rules would not fit into a seccomp program of 4096 instructions.
pub const MAX_RULES: usize = 1024;

pub(super) const RULE: &[&str] = &["syscall", "action", "args"];
pub(super) const ARG: &[&str] = &["index", "op", "value", "mask"];

type Read<T> = Result<T, PolicyError>;

pub(super) fn read(table: Field<'_>) -> Read<SyscallRule> {
    let whole = table.again();
    let (mut syscall, mut action, mut args) = (None, None, Vec::new());
    for field in entries(table, RULE)? {
        match field.name.as_str() {
            "syscall" => syscall = Some(field.parsed("the name of a syscall", values::syscall)?),
            "action" => action = Some(field.parsed("allow, deny, errno, kill or log", values::rule_action)?),
            "args" => args = field.list("a list of tables")?.into_iter().map(argument).collect::<Read<_>>()?,
            _ => return Err(field.unknown(RULE, None)),
        }
    }
    Ok(SyscallRule {
        syscall: syscall.ok_or_else(|| whole.needs("syscall"))?,
        action: action.ok_or_else(|| whole.needs("action"))?,
        args,
    })
}

/// The comparison operators; `masked_eq` is `eq` with a mandatory mask.
pub(super) const OPS: [(&str, Op); 7] = [
    ("eq", Op::Eq),
    ("ne", Op::Ne),
    ("lt", Op::Lt),
    ("le", Op::Le),
    ("gt", Op::Gt),
    ("ge", Op::Ge),
    ("masked_eq", Op::Eq),
];

fn argument(table: Field<'_>) -> Read<ArgTest> {
    let whole = table.again();
    let (mut index, mut op, mut masked, mut value, mut mask) = (None, None, false, None, None);
    for field in entries(table, ARG)? {
        match field.name.as_str() {
            "index" => index = u8::try_from(field.whole(0, 5, "the number of an argument, 0 to 5")?).ok(),
            "op" => {
                let word = field.text("a comparison such as \"eq\"")?;
                masked = word == "masked_eq";
                op = OPS.iter().find(|(known, _)| *known == word).map(|(_, op)| *op);
                if op.is_none() {
                    let known = OPS.iter().map(|(known, _)| *known).collect();
                    return Err(field.wrong(ValueError::unknown("comparison", word, known)));
                }
            }
            "value" => value = Some(word64(&field)?),
            "mask" => mask = Some(word64(&field)?),
            _ => return Err(field.unknown(ARG, None)),
        }
    }
    if masked && mask.is_none() {
        return Err(whole.needs("mask"));
    }
    let test = ArgTest {
        index: index.ok_or_else(|| whole.needs("index"))?,
        op: op.ok_or_else(|| whole.needs("op"))?,
        mask: mask.unwrap_or(u64::MAX),
        value: value.ok_or_else(|| whole.needs("value"))?,
    };
    sound(&test).map_err(|error| whole.wrong(error))?;
    Ok(test)
}

/// 64 bits: a number, or a string if it is too large for a TOML integer.
fn word64(field: &Field<'_>) -> Read<u64> {
    const EXPECTED: &str = "a whole number, or a string such as \"0xffffffff00000000\"";
    match field.node.value {
        // An int argument of -1 may reach the kernel as 32 or 64 one-bits, so -1 is ambiguous.
        Value::Whole(number) if number < 0 => Err(field.wrong(ValueError::Unusable {
            what: "number",
            value: number.to_string(),
            why: "write the bits without a sign, and mask = 0xffffffff if the argument is an int",
        })),
        Value::Whole(_) => field.whole(0, u64::MAX, EXPECTED),
        _ => field.parsed(EXPECTED, |text| {
            let number = match text.strip_prefix("0x") {
                Some(hex) if hex.bytes().all(|byte| byte.is_ascii_hexdigit()) => u64::from_str_radix(hex, 16).ok(),
                None if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
                _ => None,
            };
            number.ok_or_else(|| ValueError::unusable("number", text, "not 64 bits, in decimal or after 0x"))
        }),
    }
}

/// Rejects a test that can never hold, because its value has bits outside the mask.
pub(super) fn sound(test: &ArgTest) -> Result<(), ValueError> {
    if test.index > 5 {
        return Err(ValueError::OutOfRange { value: test.index.into(), least: 0, most: 5 });
    }
    if matches!(test.op, Op::Eq | Op::Ne) && test.value & !test.mask != 0 {
        return Err(ValueError::Conflict("the value has bits outside the mask, so the two are never equal"));
    }
    Ok(())
}

/// Merges the rules of two files into one list, in which the first match decides. A call is denied if either file denies
/// it: a denial of the base stands, and a grant of the base is narrowed by the nearer file's rules for the same call.
pub(super) fn joined(base: Vec<SyscallRule>, nearer: Vec<SyscallRule>) -> Vec<SyscallRule> {
    let mut joined = Vec::with_capacity(base.len() + nearer.len());
    for rule in base {
        if lets_through(rule.action) {
            let same: Vec<_> = nearer.iter().filter(|near| near.syscall == rule.syscall).collect();
            let decisive = same.iter().rposition(|near| !lets_through(near.action)).map_or(0, |last| last + 1);
            for near in same.into_iter().take(decisive) {
                // One rule above the limit is enough for the error. Stop, because the product of two lists can be huge.
                if joined.len() > MAX_RULES {
                    return joined;
                }
                let args = rule.args.iter().chain(&near.args).copied().collect();
                joined.push(SyscallRule { syscall: near.syscall.clone(), action: near.action, args });
            }
        }
        joined.push(rule);
    }
    joined.extend(nearer);
    joined
}

fn lets_through(action: RuleAction) -> bool {
    matches!(action, RuleAction::Allow | RuleAction::Log)
}
