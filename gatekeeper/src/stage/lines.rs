//! Which lines of two texts differ, in bounded time.
//!
//! The time of a good comparison grows with the product of both lengths if the lines are of few kinds, and a command can
//! write such texts to make `stage diff` hang. So long texts are cut at the lines that occur once in both, and what is still
//! too long is printed as removed and added.

use imara_diff::{Algorithm, Diff, Hunk, InternedInput};
use std::collections::HashMap;
use std::ops::Range;

/// How much work is left for the comparisons of one stage: a unit is a line of one text compared with one of the other.
#[derive(Debug)]
pub struct Effort(u64);

/// Some seconds.
const MOST: u64 = 1 << 30;
/// Granted for each line: texts of ordinary length are always compared.
const FOR_EACH: u64 = 256;

impl Default for Effort {
    fn default() -> Effort {
        Effort(MOST)
    }
}

impl Effort {
    fn spend(&mut self, before: &[&[u8]], after: &[&[u8]]) -> bool {
        let needed = (before.len() as u64).saturating_mul(after.len() as u64);
        let left = self.0.checked_sub(needed);
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }
}

/// The hunks between two texts, sorted.
pub fn differing(before: &[&[u8]], after: &[&[u8]], effort: &mut Effort) -> Vec<Hunk> {
    effort.0 += FOR_EACH * (before.len() + after.len()) as u64;
    let equal = |(one, other): &(&&[u8], &&[u8])| one == other;
    let lead = before.iter().zip(after).take_while(equal).count();
    let (inner, outer) = (&before[lead..], &after[lead..]);
    let trail = inner.iter().rev().zip(outer.iter().rev()).take_while(equal).count();
    let (inner, outer) = (&inner[..inner.len() - trail], &outer[..outer.len() - trail]);
    if effort.spend(inner, outer) {
        return compared(before, after, (0, 0));
    }
    let mut hunks = Vec::new();
    let mut at = (0, 0);
    for (one, other) in common(inner, outer).into_iter().chain([(inner.len(), outer.len())]) {
        let gap = (&inner[at.0..one], &outer[at.1..other]);
        let offset = (lead + at.0, lead + at.1);
        if effort.spend(gap.0, gap.1) {
            hunks.extend(compared(gap.0, gap.1, offset));
        } else {
            hunks.push(Hunk { before: range(offset.0, gap.0), after: range(offset.1, gap.1) });
        }
        at = (one + 1, other + 1);
    }
    hunks
}

fn range(start: usize, lines: &[&[u8]]) -> Range<u32> {
    start as u32..(start + lines.len()) as u32
}

fn compared(before: &[&[u8]], after: &[&[u8]], (one, other): (usize, usize)) -> Vec<Hunk> {
    if before.is_empty() && after.is_empty() {
        return Vec::new();
    }
    let mut input = InternedInput::default();
    input.update_before(before.iter().copied());
    input.update_after(after.iter().copied());
    let mut diff = Diff::compute(Algorithm::Histogram, &input);
    diff.postprocess_no_heuristic(&input);
    let moved = |range: Range<u32>, by: usize| range.start + by as u32..range.end + by as u32;
    diff.hunks().map(|hunk| Hunk { before: moved(hunk.before, one), after: moved(hunk.after, other) }).collect()
}

/// The longest series of lines that occur once in each text and have the same order in both: their places.
fn common(before: &[&[u8]], after: &[&[u8]]) -> Vec<(usize, usize)> {
    let there = once(after);
    let mut pairs: Vec<(usize, usize)> =
        once(before).into_iter().filter_map(|(line, at)| Some((at?, (*there.get(line)?)?))).collect();
    pairs.sort_unstable();
    // Patience sorting: of each length, the series whose last line comes first.
    let (mut ends, mut previous) = (Vec::<usize>::new(), vec![None; pairs.len()]);
    for (index, (_, other)) in pairs.iter().enumerate() {
        let length = ends.partition_point(|end| pairs[*end].1 < *other);
        previous[index] = length.checked_sub(1).map(|shorter| ends[shorter]);
        match ends.get_mut(length) {
            Some(end) => *end = index,
            None => ends.push(index),
        }
    }
    let mut series = Vec::new();
    let mut at = ends.last().copied();
    while let Some(index) = at {
        series.push(pairs[index]);
        at = previous[index];
    }
    series.reverse();
    series
}

/// The lines, with the place of those that occur once.
fn once<'t>(lines: &[&'t [u8]]) -> HashMap<&'t [u8], Option<usize>> {
    let mut found = HashMap::with_capacity(lines.len());
    for (at, line) in lines.iter().enumerate() {
        found.entry(*line).and_modify(|place| *place = None).or_insert(Some(at));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<&[u8]> {
        text.split_inclusive('\n').map(str::as_bytes).collect()
    }

    /// Applies hunks to the old lines.
    fn applied<'t>(before: &[&'t [u8]], after: &[&'t [u8]], hunks: &[Hunk]) -> Vec<&'t [u8]> {
        let (mut result, mut at) = (Vec::new(), 0);
        for hunk in hunks {
            result.extend_from_slice(&before[at..hunk.before.start as usize]);
            assert_eq!(result.len(), hunk.after.start as usize);
            result.extend_from_slice(&after[hunk.after.start as usize..hunk.after.end as usize]);
            at = hunk.before.end as usize;
        }
        result.extend_from_slice(&before[at..]);
        result
    }

    /// `a` or `b`, and every so many lines one that occurs once.
    fn few_kinds(count: u64, mut seed: u64, every: u64) -> String {
        let mut text = String::new();
        for at in 0..count {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            text.push_str(if seed >> 40 & 1 == 0 { "a\n" } else { "b\n" });
            if at % every == 0 {
                text.push_str(&format!("only {at}\n"));
            }
        }
        text
    }

    #[test]
    fn long_texts_of_few_kinds_of_lines_are_removed_and_added() {
        let (old, new) = (few_kinds(200_000, 1, u64::MAX), few_kinds(200_000, 2, u64::MAX));
        let (old, new) = (lines(&old), lines(&new));
        let began = std::time::Instant::now();
        let hunks = differing(&old, &new, &mut Effort::default());
        assert!(hunks.len() < 5, "{} hunks", hunks.len());
        assert_eq!(applied(&old, &new, &hunks), new);
        assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
    }

    #[test]
    fn long_texts_are_cut_at_lines_that_occur_once() {
        let (old, new) = (few_kinds(60_000, 1, 100), few_kinds(60_000, 2, 100));
        let (old, new) = (lines(&old), lines(&new));
        let hunks = differing(&old, &new, &mut Effort::default());
        assert!(hunks.len() > 600, "{} hunks", hunks.len());
        assert_eq!(applied(&old, &new, &hunks), new);
    }

    #[test]
    fn cut_texts_are_still_the_same_change() {
        for (old, new) in
            [("a\nb\nc\n", "a\nc\n"), ("x\na\n", "a\nx\n"), ("", "a\n"), ("a\n", ""), ("1\n2\n3\n4\n", "4\n2\n5\n3\n")]
        {
            let (old, new) = (lines(old), lines(new));
            let whole = differing(&old, &new, &mut Effort::default());
            assert_eq!(applied(&old, &new, &whole), new);
        }
        let (old, new) = (lines("1\nx\nx\n2\nx\n3\n"), lines("0\n2\nx\nx\n3\n4\n"));
        let cut = common(&old, &new);
        assert_eq!(cut, [(3, 1), (5, 4)]);
    }
}
