//! Finds the known word nearest to a misspelt one, for error messages.

use crate::bpf::LIMIT;
use crate::grammar::MAX_ITEM;
use crate::{groups, syscalls};

/// A copy of a word, without allocation.
#[derive(Clone, Copy)]
pub struct Word {
    bytes: [u8; MAX_ITEM],
    len: usize,
}

impl Word {
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// The best of the words offered so far.
struct Search<'a> {
    asked: &'a [u8],
    /// The score (lower is nearer) and the word.
    best: Option<(usize, Word)>,
}

impl Search<'_> {
    fn offer(&mut self, word: &[u8]) {
        let bound = self.best.map_or(usize::MAX, |(score, _)| score);
        let slips = distance(self.asked, word);
        // A truncated word (`send` for `sendto`) is nearer than one with as many letters changed.
        let score = match word.strip_prefix(self.asked) {
            Some(rest) if self.asked.len() > 2 => 4 + rest.len(),
            // With more than half of its letters changed, it is no longer a typo.
            _ if slips > self.asked.len().max(word.len()) / 2 => return,
            _ => slips * 4,
        };
        if score < bound {
            let mut copy = Word { bytes: [0; MAX_ITEM], len: word.len().min(MAX_ITEM) };
            copy.bytes.iter_mut().zip(word).for_each(|(to, from)| *to = *from);
            self.best = Some((score, copy));
        }
    }

    fn word(self) -> Option<Word> {
        self.best.map(|(_, word)| word)
    }
}

/// The nearest syscall name.
pub fn syscall(asked: &[u8]) -> Option<Word> {
    let mut search = Search { asked, best: None };
    for number in 0..LIMIT {
        syscalls::with_name(number, |name| search.offer(name));
    }
    search.word()
}

/// The nearest group, both names without `@`.
pub fn group(asked: &[u8]) -> Option<Word> {
    nearest_of(asked, groups::GROUPS.iter().map(|group| group.name))
}

/// The nearest of some words.
pub fn nearest_of<'a>(asked: &[u8], words: impl IntoIterator<Item = &'a str>) -> Option<Word> {
    let mut search = Search { asked, best: None };
    words.into_iter().for_each(|word| search.offer(word.as_bytes()));
    search.word()
}

/// The number of letters to add, drop, change or swap (restricted Damerau-Levenshtein distance). Words over 127 bytes
/// are infinitely far from all others.
pub fn distance(a: &[u8], b: &[u8]) -> usize {
    const W: usize = MAX_ITEM + 1;
    if a.len() >= W || b.len() >= W {
        return usize::MAX;
    }
    let mut before;
    let mut above = [0usize; W];
    let mut row = [0usize; W];
    row.iter_mut().enumerate().for_each(|(j, cell)| *cell = j);
    let get = |row: &[usize; W], j: usize| row.get(j).copied().unwrap_or(usize::MAX / 2);
    for (i, x) in a.iter().enumerate() {
        (before, above) = (above, row);
        row = [i + 1; W];
        for (j, y) in b.iter().enumerate() {
            let changed = get(&above, j) + usize::from(x != y);
            let mut least = changed.min(get(&above, j + 1) + 1).min(get(&row, j) + 1);
            let swapped = i > 0 && j > 0 && a.get(i - 1) == Some(y) && b.get(j - 1) == Some(x);
            if swapped {
                least = least.min(get(&before, j - 1) + 1);
            }
            if let Some(cell) = row.get_mut(j + 1) {
                *cell = least;
            }
        }
    }
    get(&row, b.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        assert_eq!(distance(b"", b""), 0);
        assert_eq!(distance(b"opne", b"open"), 1);
        assert_eq!(distance(b"open", b"openat"), 2);
        assert_eq!(distance(b"kitten", b"sitting"), 3);
    }

    #[test]
    fn the_nearest_syscall_and_group() {
        let name = |asked: &[u8]| {
            syscall(asked).map(|word| std::string::String::from_utf8_lossy(word.as_bytes()).into_owned())
        };
        assert_eq!(name(b"opne").as_deref(), Some("open"));
        assert_eq!(name(b"exceve").as_deref(), Some("execve"));
        assert_eq!(name(b"send").as_deref(), Some("sendto"));
        assert_eq!(name(b"zzzzzzzzzzzzzz"), None);
        assert_eq!(group(b"netwrok").map(|word| word.as_bytes() == b"network"), Some(true));
    }
}
