//! Finds the known word nearest to a misspelt one, for error messages.

use crate::bpf::LIMIT;
use crate::grammar::MAX_ITEM;
use crate::{action, groups, syscalls};

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
    /// Whether a word is offered even if most of its letters differ.
    any: bool,
    /// How many first letters all words have in common: they make no word likelier.
    common: usize,
    /// The score (lower is nearer) and the word.
    best: Option<(usize, Word)>,
}

impl<'a> Search<'a> {
    fn of(asked: &'a [u8]) -> Search<'a> {
        Search { asked, any: false, common: 0, best: None }
    }

    fn offer(&mut self, word: &[u8]) {
        let bound = self.best.map_or(usize::MAX, |(score, _)| score);
        let slips = distance(self.asked, word);
        // A letter that is missing at the end (`send` for `sendto`) counts less than any other slip, and a number
        // (`umount` for `umount2`) least.
        let score = match beginning(word, self.asked) {
            Some(rest) if self.asked.len() > 2 && rest.iter().all(u8::is_ascii_digit) => rest.len().min(1),
            Some(rest) if self.asked.len() > 2 => 1 + rest.len(),
            // With more than half of its letters changed, it is no longer a typo.
            _ if slips > self.asked.len().max(word.len()).saturating_sub(self.common) / 2 && !self.any => return,
            _ => slips.saturating_mul(4),
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

/// The rest of a word that begins with `start`.
fn beginning<'a>(word: &'a [u8], start: &[u8]) -> Option<&'a [u8]> {
    let (head, rest) = word.split_at_checked(start.len())?;
    head.eq_ignore_ascii_case(start).then_some(rest)
}

/// The nearest syscall name.
pub fn syscall(asked: &[u8]) -> Option<Word> {
    let mut search = Search::of(asked);
    for number in 0..LIMIT {
        syscalls::with_name(number, |name| search.offer(name));
    }
    search.word()
}

/// The nearest group, both names without `@`. There are few, so one is offered for every name that has letters.
pub fn group(asked: &[u8]) -> Option<Word> {
    let mut search = Search { any: !asked.is_empty(), ..Search::of(asked) };
    groups::GROUPS.iter().for_each(|group| search.offer(group.name.as_bytes()));
    search.word()
}

/// The nearest name of an errno. All begin with E.
pub fn errno(asked: &[u8]) -> Option<Word> {
    let mut search = Search { common: 1, ..Search::of(asked) };
    action::errnos().for_each(|(name, _)| search.offer(name));
    search.word()
}

/// The nearest of some words.
pub fn nearest_of<'a>(asked: &[u8], words: impl IntoIterator<Item = &'a str>) -> Option<Word> {
    let mut search = Search::of(asked);
    words.into_iter().for_each(|word| search.offer(word.as_bytes()));
    search.word()
}

/// The number of letters to add, drop, change or swap (restricted Damerau-Levenshtein distance); a capital is the same
/// letter. Words over 127 bytes are infinitely far from all others.
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
            let changed = get(&above, j) + usize::from(!x.eq_ignore_ascii_case(y));
            let mut least = changed.min(get(&above, j + 1) + 1).min(get(&row, j) + 1);
            let same = |a: Option<&u8>, b: &u8| a.is_some_and(|a| a.eq_ignore_ascii_case(b));
            let swapped = i > 0 && j > 0 && same(a.get(i - 1), y) && same(b.get(j - 1), x);
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

    fn told(word: Option<Word>) -> Option<std::string::String> {
        word.map(|word| std::string::String::from_utf8_lossy(word.as_bytes()).into_owned())
    }

    #[test]
    fn the_nearest_syscall_and_group() {
        let name = |asked: &[u8]| told(syscall(asked));
        assert_eq!(name(b"opne").as_deref(), Some("open"));
        assert_eq!(name(b"exceve").as_deref(), Some("execve"));
        assert_eq!(name(b"send").as_deref(), Some("sendto"));
        assert_eq!(name(b"zzzzzzzzzzzzzz"), None);
        assert_eq!(group(b"netwrok").map(|word| word.as_bytes() == b"network"), Some(true));
    }

    #[test]
    fn a_name_without_its_end_is_nearer_than_another_name() {
        for (asked, wanted) in
            [("umount", "umount2"), ("fadvise", "fadvise64"), ("pread", "pread64"), ("prlimit", "prlimit64")]
        {
            assert_eq!(told(syscall(asked.as_bytes())).as_deref(), Some(wanted), "{asked}");
        }
    }

    #[test]
    fn capitals_are_the_same_letters() {
        for (asked, wanted) in [("READ", "read"), ("Opne", "open"), ("UMOUNT", "umount2"), ("EXCEVE", "execve")] {
            assert_eq!(told(syscall(asked.as_bytes())).as_deref(), Some(wanted), "{asked}");
        }
        assert_eq!(told(group(b"NETWORK")).as_deref(), Some("network"));
    }

    #[test]
    fn a_group_is_offered_for_every_name() {
        assert_eq!(told(group(b"fil")).as_deref(), Some("file-read"));
        for odd in ["x", "zzzzzzzzzzzzzz", "mkdir", "-"] {
            assert!(group(odd.as_bytes()).is_some(), "{odd}");
        }
        assert!(group(&[b'x'; MAX_ITEM]).is_some());
        assert!(group(b"").is_none());
    }

    #[test]
    fn the_nearest_errno() {
        for (asked, wanted) in
            [("EACCESS", "EACCES"), ("eperm", "EPERM"), ("ENOTSUPP", "ENOTSUP"), ("ETIMEOUT", "ETIMEDOUT")]
        {
            assert_eq!(told(errno(asked.as_bytes())).as_deref(), Some(wanted), "{asked}");
        }
        for odd in ["", "0", "4096", "EWHAT"] {
            assert_eq!(told(errno(odd.as_bytes())), None, "{odd}");
        }
    }
}
