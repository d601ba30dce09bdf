//! The grammar of `SECCOMP_SYSCALL_ALLOW` and `SECCOMP_SYSCALL_DENY`: names and `@groups` between colons.
//!
//! Empty items (`a::b`, a trailing colon) mean nothing and are skipped, as in the ancestor; no blank is trimmed.

use crate::bpf::LIMIT;
use crate::groups;
use crate::syscalls::{self, Number};

/// The longest item that is looked up at all.
pub const MAX_ITEM: usize = 127;

/// One item of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item<'a> {
    Name(&'a [u8]),
    /// A group, without its `@`.
    Group(&'a [u8]),
}

/// Why an item cannot be used. The item is in it, so that the message can name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemError<'a> {
    Unknown(&'a [u8]),
    UnknownGroup(&'a [u8]),
    /// Known, but this architecture has no such call, or it is one that only libseccomp's own numbering has.
    NoNumber(&'a [u8]),
    TooLong(&'a [u8]),
}

/// Splits a list into its items.
pub fn items(list: &[u8]) -> impl Iterator<Item = Item<'_>> {
    list.split(|byte| *byte == b':').filter(|item| !item.is_empty()).map(|item| match item.strip_prefix(b"@") {
        // One that is too long is no group, and is shown whole.
        Some(group) if item.len() <= MAX_ITEM => Item::Group(group),
        _ => Item::Name(item),
    })
}

// SETS: the numbers of each group, made when this is built: programs wait for nothing to be looked up.
include!(concat!(env!("OUT_DIR"), "/sets.rs"));

/// A set of syscall numbers of this architecture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NumberSet([u64; LIMIT as usize / 64]);

impl NumberSet {
    pub const EMPTY: NumberSet = NumberSet([0; LIMIT as usize / 64]);

    /// The numbers of a group given without its `@`, without the calls that this architecture lacks.
    pub fn of_group(group: &[u8]) -> Option<&'static NumberSet> {
        let place = groups::GROUPS.iter().position(|known| known.name.as_bytes() == group)?;
        SETS.get(place)
    }

    pub fn extend(&mut self, other: &NumberSet) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, more)| *word |= more);
    }

    /// Adds a number; one that no architecture we know uses is ignored, and `contains` says so.
    pub fn insert(&mut self, number: u16) {
        if let Some(word) = self.0.get_mut(usize::from(number / 64)) {
            *word |= 1 << (number % 64);
        }
    }

    pub fn remove(&mut self, number: u16) {
        if let Some(word) = self.0.get_mut(usize::from(number / 64)) {
            *word &= !(1 << (number % 64));
        }
    }

    pub fn contains(&self, number: u16) -> bool {
        self.0.get(usize::from(number / 64)).is_some_and(|word| word & (1 << (number % 64)) != 0)
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        (0..)
            .zip(&self.0)
            .flat_map(|(place, word)| (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| place * 64 + bit))
    }
}

/// Adds what one item stands for. A group may hold names that this architecture lacks; a name given by itself may not.
pub fn add<'a>(item: Item<'a>, set: &mut NumberSet) -> Result<(), ItemError<'a>> {
    match item {
        Item::Name(name) if name.len() > MAX_ITEM => Err(ItemError::TooLong(name)),
        Item::Name(name) => match syscalls::number(name) {
            Number::Here(number) => {
                set.insert(number);
                Ok(())
            }
            Number::NotHere => Err(ItemError::NoNumber(name)),
            Number::Unknown => Err(ItemError::Unknown(name)),
        },
        Item::Group(group) if group.len() > MAX_ITEM => Err(ItemError::TooLong(group)),
        Item::Group(group) => {
            set.extend(NumberSet::of_group(group).ok_or(ItemError::UnknownGroup(group))?);
            Ok(())
        }
    }
}

/// The numbers of a whole list, or the first item that is wrong.
pub fn parse(list: &[u8]) -> Result<NumberSet, ItemError<'_>> {
    let mut set = NumberSet::EMPTY;
    for item in items(list) {
        add(item, &mut set)?;
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn a_group_is_what_its_names_are() {
        for group in groups::GROUPS {
            let mut set = NumberSet::EMPTY;
            for call in group.calls {
                if let Number::Here(number) = syscalls::number(call.as_bytes()) {
                    set.insert(number);
                }
            }
            assert_eq!(NumberSet::of_group(group.name.as_bytes()), Some(&set), "@{}", group.name);
            assert!(set.iter().all(|number| set.contains(number)) && !set.is_empty());
        }
    }

    #[test]
    fn empty_items_are_skipped() {
        let items: Vec<_> = items(b":read::@network:").collect();
        assert_eq!(items, [Item::Name(b"read"), Item::Group(b"network")]);
    }

    #[test]
    fn blanks_are_part_of_the_name() {
        assert_eq!(parse(b" read"), Err(ItemError::Unknown(b" read")));
    }

    #[test]
    fn pseudo_syscalls_are_refused() {
        // `send` has no number on x86_64 and aarch64; libseccomp answers a negative one that would filter nothing.
        assert_eq!(parse(b"read:send"), Err(ItemError::NoNumber(b"send")));
    }

    #[test]
    fn item_length_is_bounded() {
        let fits = [b'x'; MAX_ITEM];
        assert_eq!(parse(&fits), Err(ItemError::Unknown(&fits)));
        let long = [b'x'; MAX_ITEM + 1];
        assert_eq!(parse(&long), Err(ItemError::TooLong(&long)));
        let mut group = long;
        group[0] = b'@';
        assert_eq!(parse(&group), Err(ItemError::TooLong(&group)));
        assert_eq!(parse(&group[..MAX_ITEM]), Err(ItemError::UnknownGroup(&group[1..MAX_ITEM])));
    }

    #[test]
    fn every_group_is_usable() {
        for group in groups::GROUPS {
            let mut set = NumberSet::EMPTY;
            assert_eq!(add(Item::Group(group.name.as_bytes()), &mut set), Ok(()));
            assert!(!set.is_empty(), "@{} is empty on this architecture", group.name);
        }
    }
}
