//! Explains a report in a short paragraph, and reads a report back from a file. A report contains paths and names that
//! the confined program chose, so none of its text is trusted.

mod paragraph;
pub mod read;

pub use paragraph::paragraph;

/// Escapes newlines and terminal control characters. Every piece of text from a confined program goes through this
/// before it is printed: a path with a newline must not look like a line of gatekeeper's output.
pub fn harmless(text: &str) -> String {
    let escaped = |letter: char| match crate::policy::drives_terminal(letter) {
        true => letter.escape_default().collect::<String>(),
        false => letter.to_string(),
    };
    text.chars().map(escaped).collect()
}
