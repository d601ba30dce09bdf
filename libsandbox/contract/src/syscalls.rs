//! Names and numbers of this architecture's syscalls, from a table that build.rs generates.

use crate::slots;

/// The result of looking up a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Number {
    Here(u16),
    /// Another architecture has it, this one does not. libseccomp returns a negative number, which would filter
    /// nothing.
    NotHere,
    Unknown,
}

// TEXT: all names, sorted and concatenated. ENDS: the end of each name in TEXT. NUMBERS: the number of each name, or
// u16::MAX. PLACES: the index of the name of each number, or u16::MAX. SLOTS: a hash table of the names. No pointers, so loading needs no relocations.
include!(concat!(env!("OUT_DIR"), "/names.rs"));

/// The number of a name on this architecture.
#[inline]
pub fn number(name: &[u8]) -> Number {
    let hash = slots::hash(name);
    let mut at = hash % slots::COUNT;
    // Some slots are free, so this ends.
    while let Some(slot) = SLOTS.get(usize::from(at)).filter(|slot| **slot != slots::FREE) {
        let place = usize::from(slot % slots::COUNT);
        if slot / slots::COUNT == hash / slots::COUNT && text(place) == name {
            let number = NUMBERS.get(place).filter(|number| **number != u16::MAX);
            return number.map_or(Number::NotHere, |number| Number::Here(*number));
        }
        at = (at + 1) % slots::COUNT;
    }
    Number::Unknown
}

/// The name of a number on this architecture. Safe to call in a signal handler.
pub fn name(number: u16) -> Option<&'static [u8]> {
    let place = PLACES.get(usize::from(number)).filter(|place| **place != u16::MAX)?;
    Some(text(usize::from(*place)))
}

/// Calls `with` with the name of a number, if it has one on this architecture.
pub fn with_name<T>(number: u16, with: impl FnOnce(&[u8]) -> T) -> Option<T> {
    name(number).map(with)
}

#[inline]
fn text(place: usize) -> &'static [u8] {
    let start = place.checked_sub(1).and_then(|before| ENDS.get(before)).copied().unwrap_or(0);
    let end = ENDS.get(place).copied().unwrap_or(start);
    TEXT.get(usize::from(start)..usize::from(end)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::LIMIT;

    #[test]
    fn names_and_numbers_agree() {
        let mut known = 0;
        for nr in 0..LIMIT {
            if let Some(back) = with_name(nr, number) {
                assert_eq!(back, Number::Here(nr));
                known += 1;
            }
        }
        assert!(known > 300, "{known}");
    }

    #[test]
    fn a_name_with_a_nul_is_not_a_shorter_name() {
        assert_eq!(number(b"read\0"), Number::Unknown);
    }

    #[test]
    fn names_newer_than_the_library_are_known() {
        assert_eq!(number(b"mseal"), Number::Here(462));
        assert_eq!(with_name(462, |name| name == b"mseal"), Some(true));
    }
}
