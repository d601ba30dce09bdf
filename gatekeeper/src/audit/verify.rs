//! Checks an audit file: takes its bytes and those of its head, and says what was changed or removed.

use super::head::{Head, first_line};
use super::{NONE, hash};
use serde_json::Value;
use std::collections::BTreeMap;

/// What a check found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verified {
    pub lines: u64,
    pub runs: u64,
    /// The hash of the last line.
    pub head: String,
    /// What proves that the file was changed. Empty: nothing does.
    pub faults: Vec<Fault>,
    /// What cannot be proven either way.
    pub notes: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Fault {
    /// The line of the file, from 1.
    pub line: u64,
    pub why: String,
}

/// Checks one file. `before`: the hash of the last line of the file that this one continues, if that was checked too.
pub fn verify(bytes: &[u8], head: Option<&[u8]>, before: Option<&str>) -> Verified {
    let mut found = Verified { head: NONE.to_owned(), ..Verified::default() };
    let mut last: Option<(u64, String)> = None;
    let mut open: BTreeMap<String, u64> = BTreeMap::new();
    let text = match bytes.strip_suffix(b"\n") {
        Some(text) => text,
        None if bytes.is_empty() => bytes,
        None => {
            found.fault(0, "the last line is cut off");
            bytes
        }
    };
    let lines = text.split(|byte| *byte == b'\n').filter(|_| !text.is_empty());
    for (line, number) in lines.zip(1u64..) {
        found.lines = number;
        let digest = hash(line);
        let value: Value = match serde_json::from_slice(line) {
            Ok(value) => value,
            Err(_) => {
                found.fault(number, "this line is not JSON");
                Value::Null
            }
        };
        let (seq, prev) = (value["seq"].as_u64().unwrap_or(0), value["prev"].as_str().unwrap_or_default());
        let kind = value["kind"].as_str().unwrap_or_default();
        match &last {
            Some((count, hash)) => {
                if prev != hash {
                    found.fault(number, "this line, or one directly before it, was changed, removed or inserted");
                } else if seq != count + 1 {
                    found.fault(number, "the numbers of the lines have a gap here");
                }
            }
            None if kind == "continued" => match before {
                Some(before) if before != prev => found.fault(number, "it does not continue the file before it"),
                Some(_) => {}
                None => found.notes.push(format!(
                    "it continues an earlier file, whose last line has the hash {prev}; give that file in front of this one to \
                     check both"
                )),
            },
            None => {
                if prev != NONE || seq != 1 {
                    found.fault(number, "lines were removed at the beginning");
                }
            }
        }
        let run = value["run"].as_str().unwrap_or_default().to_owned();
        match kind {
            "start" => {
                found.runs += 1;
                open.insert(run, number);
            }
            "end" => drop(open.remove(&run)),
            _ => {}
        }
        last = Some((seq, digest));
    }
    if let Some((_, hash)) = &last {
        found.head = hash.clone();
    }
    let (count, end) = last.unwrap_or((0, NONE.to_owned()));
    found.check_end(head, count, &end, &open);
    found
}

impl Verified {
    pub fn intact(&self) -> bool {
        self.faults.is_empty()
    }

    fn fault(&mut self, line: u64, why: impl Into<String>) {
        let line = if line == 0 { self.lines } else { line };
        self.faults.push(Fault { line, why: why.into() });
    }

    /// Whether lines are missing at the end.
    fn check_end(&mut self, head: Option<&[u8]>, count: u64, end: &str, open: &BTreeMap<String, u64>) {
        let unended = |found: &mut Verified, why: &str| {
            for (run, line) in open {
                found.notes.push(format!("the run {run}, which starts in line {line}, has no end: {why}"));
            }
        };
        match head.map(|head| serde_json::from_slice::<Head>(first_line(head)).ok()) {
            Some(Some(head)) if head.count == count && head.hash == end => {
                unended(self, "it is still running, or gatekeeper was killed");
            }
            Some(Some(head)) if head.announces(count, end) => {
                self.notes
                    .push("the last line is newer than the head: gatekeeper was killed while it wrote".to_owned());
            }
            Some(Some(head)) if head.count < count => {
                self.fault(0, format!("gatekeeper wrote no line after number {}, which the head names", head.count));
            }
            Some(Some(head)) if head.count > count => {
                let missing = head.count - count;
                self.fault(0, format!("{missing} lines are missing at the end: the head names line {}", head.count));
            }
            Some(Some(_)) => self.fault(0, "the last line is not the one that the head names"),
            Some(None) => self.fault(0, "the file with the ending .head is not a head"),
            None if !open.is_empty() => {
                for (run, line) in open {
                    let line = *line;
                    self.faults.push(Fault {
                        line,
                        why: format!("the run {run} has no end, and there is no head: lines may be missing at the end"),
                    });
                }
            }
            None => self.notes.push(
                "there is no file with the ending .head beside it, so whole runs may have been removed at the end"
                    .to_owned(),
            ),
        }
    }
}
