//! The hunks between two texts.

use super::lines::{Effort, differing};
use imara_diff::Hunk;

/// Lines around each change.
const CONTEXT: u32 = 3;

/// Writes the hunks between two texts; returns the lines added and removed.
pub fn hunks(text: &mut Vec<u8>, old: &[u8], new: &[u8], effort: &mut Effort) -> (usize, usize) {
    let (before, after) = (lines(old), lines(new));
    let (mut added, mut removed) = (0, 0);
    let mut group: Vec<Hunk> = Vec::new();
    for hunk in differing(&before, &after, effort) {
        added += hunk.after.len();
        removed += hunk.before.len();
        if group.last().is_some_and(|last| hunk.before.start - last.before.end > 2 * CONTEXT) {
            print_group(text, &group, &before, &after);
            group.clear();
        }
        group.push(hunk);
    }
    print_group(text, &group, &before, &after);
    (added, removed)
}

fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

fn print_group(text: &mut Vec<u8>, group: &[Hunk], before: &[&[u8]], after: &[&[u8]]) {
    let (Some(first), Some(last)) = (group.first(), group.last()) else { return };
    let lead = first.before.start.min(CONTEXT);
    let trail = (before.len() as u32 - last.before.end).min(CONTEXT);
    let old = first.before.start - lead..last.before.end + trail;
    let new = first.after.start - lead..last.after.end + trail;
    // An empty range is numbered by the line before it.
    let range = |range: &std::ops::Range<u32>| match range.len() {
        0 => format!("{},0", range.start),
        1 => format!("{}", range.start + 1),
        length => format!("{},{length}", range.start + 1),
    };
    text.extend_from_slice(format!("@@ -{} +{} @@\n", range(&old), range(&new)).as_bytes());
    let mut write = |mark: u8, lines: &[&[u8]], range: std::ops::Range<u32>| {
        for line in lines.get(range.start as usize..range.end as usize).unwrap_or_default() {
            text.push(mark);
            text.extend_from_slice(line);
            if !line.ends_with(b"\n") {
                text.extend_from_slice(b"\n\\ No newline at end of file\n");
            }
        }
    };
    let mut at = old.start;
    for hunk in group {
        write(b' ', before, at..hunk.before.start);
        write(b'-', before, hunk.before.clone());
        write(b'+', after, hunk.after.clone());
        at = hunk.before.end;
    }
    write(b' ', before, at..old.end);
}
