//! Syscall names, `@groups`, and what a rule does with a call.

use crate::policy::RuleAction;
use crate::policy::error::ValueError;
use sandbox_contract::action::Action;
use sandbox_contract::grammar::{self, Item, ItemError, NumberSet};
use sandbox_contract::nearest as near;

/// The items of a list of syscalls and `@groups`, which colons or commas separate. All must exist on this machine.
pub fn syscalls(list: &str) -> Result<Vec<String>, ValueError> {
    let mut numbers = NumberSet::EMPTY;
    let mut names = Vec::new();
    for item in list.split(',').flat_map(|list| grammar::items(list.as_bytes())) {
        grammar::add(item, &mut numbers).map_err(item_error)?;
        names.push(match item {
            Item::Name(name) => String::from_utf8_lossy(name).into_owned(),
            Item::Group(group) => format!("@{}", String::from_utf8_lossy(group)),
        });
    }
    Ok(names)
}

/// The syscall numbers of a list of items on this machine.
pub(in crate::policy) fn numbers(items: &[String]) -> Result<NumberSet, ValueError> {
    let mut numbers = NumberSet::EMPTY;
    for item in items.iter().flat_map(|list| grammar::items(list.as_bytes())) {
        grammar::add(item, &mut numbers).map_err(item_error)?;
    }
    Ok(numbers)
}

/// The name of a syscall.
pub(in crate::policy) fn name(number: u16) -> Option<String> {
    sandbox_contract::syscalls::with_name(number, |name| String::from_utf8_lossy(name).into_owned())
}

/// One syscall by its name.
pub fn syscall(name: &str) -> Result<String, ValueError> {
    if name.is_empty() || name.contains(':') || name.starts_with('@') {
        return Err(ValueError::unusable("syscall", name, "a rule is about one syscall, by its name"));
    }
    grammar::add(Item::Name(name.as_bytes()), &mut NumberSet::EMPTY.clone()).map_err(item_error)?;
    Ok(name.to_owned())
}

fn item_error(error: ItemError<'_>) -> ValueError {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match error {
        ItemError::Unknown(name) => ValueError::Unknown {
            what: "syscall",
            word: text(name),
            nearest: near::syscall(name).map(|word| text(word.as_bytes())),
            known: Vec::new(),
        },
        ItemError::UnknownGroup(group) => ValueError::Unknown {
            what: "group",
            word: format!("@{}", text(group)),
            nearest: near::group(group).map(|word| format!("@{}", text(word.as_bytes()))),
            known: Vec::new(),
        },
        ItemError::NoNumber(name) => {
            ValueError::NoNumber { name: text(name), nearest: near::syscall(name).map(|word| text(word.as_bytes())) }
        }
        ItemError::TooLong(name) => ValueError::unusable("syscall", &text(name), "longer than any name"),
    }
}

/// `allow`, `deny`, `errno`, `errno:EACCES`, `kill` or `log`.
pub fn rule_action(text: &str) -> Result<RuleAction, ValueError> {
    const WORDS: [&str; 5] = ["allow", "deny", "errno", "kill", "log"];
    match (text, Action::parse(text.as_bytes())) {
        ("allow", _) => Ok(RuleAction::Allow),
        ("deny", _) => Ok(RuleAction::Deny),
        (_, Some(Action::Kill)) => Ok(RuleAction::Kill),
        (_, Some(Action::Log)) => Ok(RuleAction::Log),
        (_, Some(Action::Errno(number))) => Ok(RuleAction::Errno(number)),
        (_, Some(Action::Trap)) => Err(ValueError::unusable(
            "action",
            text,
            "only libsandbox.so without gatekeeper can do that; 'kill' is the closest",
        )),
        (_, None) => Err(match text.strip_prefix("errno:") {
            Some(name) => ValueError::Unknown {
                what: "errno",
                word: name.to_owned(),
                nearest: near::errno(name.as_bytes()).map(|word| String::from_utf8_lossy(word.as_bytes()).into_owned()),
                known: Vec::new(),
            },
            None => ValueError::unknown("action", text, WORDS.to_vec()),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_errno_is_an_action() {
        for (name, number) in [("ETIMEDOUT", 110), ("ENOTEMPTY", 39), ("ENOTSUP", 95), ("13", 13)] {
            assert_eq!(rule_action(&format!("errno:{name}")), Ok(RuleAction::Errno(number)), "{name}");
        }
        for (word, wanted) in [("EHOSTUNREACHABLE", "EHOSTUNREACH"), ("eloop", "ELOOP")] {
            let error = rule_action(&format!("errno:{word}")).expect_err(word).to_string();
            assert_eq!(error, format!("unknown errno '{word}'; did you mean '{wanted}'?"));
        }
    }

    #[test]
    fn colons_and_commas_separate() {
        for list in ["mkdir:@file-read:rmdir", "mkdir,@file-read,rmdir", "mkdir,@file-read:rmdir"] {
            assert_eq!(
                syscalls(list),
                Ok(vec!["mkdir".to_owned(), "@file-read".to_owned(), "rmdir".to_owned()]),
                "{list}"
            );
        }
        assert!(matches!(syscalls("mkdir,rmdri"), Err(ValueError::Unknown { word, .. }) if word == "rmdri"));
    }
}
