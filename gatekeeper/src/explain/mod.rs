//! A report in words, and a report read back from a file. Both treat what a report holds as written by the confined program.

mod paragraph;
pub mod read;

pub use paragraph::paragraph;

/// Text that may hold words of a confined program, on one line and unable to drive the terminal. Everything that is
/// printed for people goes through this, piece by piece: a path with a newline in it must not make a line of its own.
pub fn harmless(text: &str) -> String {
    let escaped = |letter: char| match crate::policy::drives_terminal(letter) {
        true => letter.escape_default().collect::<String>(),
        false => letter.to_string(),
    };
    text.chars().map(escaped).collect()
}
