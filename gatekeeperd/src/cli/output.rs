//! What the commands print: JSON, or lines for people.

use super::Failure;
use serde_json::Value;
use std::io::Write;

/// Prints JSON, or else the lines.
pub fn print(json: bool, value: &Value, lines: &[String]) -> Result<(), Failure> {
    let text = match json {
        true => format!("{value}\n"),
        false => lines.iter().map(|line| format!("{line}\n")).collect(),
    };
    let mut out = std::io::stdout().lock();
    Ok(out.write_all(text.as_bytes()).and_then(|()| out.flush())?)
}

/// Rows of a list as a table with a heading.
pub fn table(heading: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let widths: Vec<usize> = (0..heading.len())
        .map(|at| rows.iter().map(|row| row[at].chars().count()).chain([heading[at].len()]).max().unwrap_or(0))
        .collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<String> = cells.zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        padded.join("  ").trim_end().to_owned()
    };
    let mut lines = vec![line(&mut heading.iter().copied())];
    lines.extend(rows.iter().map(|row| line(&mut row.iter().map(String::as_str))));
    lines
}
