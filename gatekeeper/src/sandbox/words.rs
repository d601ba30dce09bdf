//! A grant as a report writes it, taken apart as a shell would: plain words, and single quotes. Never a guess: anything
//! else that means something to a shell is an error.

/// The words of a line such as `--write '/a b' --allow mkdir`.
pub(crate) fn split(line: &str) -> Result<Vec<String>, String> {
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ' ' => words.extend(word.take()),
            '\'' => {
                let text = word.get_or_insert_default();
                loop {
                    match letters.next() {
                        Some('\'') => break,
                        Some(letter) => text.push(letter),
                        None => return Err(format!("a quote is not closed in {line:?}")),
                    }
                }
            }
            '\\' => match letters.next() {
                Some('\'') => word.get_or_insert_default().push('\''),
                _ => return Err(format!("a backslash that quotes no quote in {line:?}")),
            },
            letter if letter.is_alphanumeric() || "-_./=:,@%+".contains(letter) => {
                word.get_or_insert_default().push(letter);
            }
            letter => return Err(format!("{letter:?} is not quoted in {line:?}")),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::split;
    use crate::plan::steps::shown;
    use std::ffi::OsString;

    #[test]
    fn what_a_report_quotes_comes_back_as_it_was() {
        for words in [
            vec!["--write", "/a b"],
            vec!["--write", "/it's", "--write", "/x --profile unrestricted"],
            vec!["--write", "/line\nbreak", "--allow", "mkdir"],
            vec!["--read", "/$HOME/`x`/\\"],
        ] {
            let line = shown(&words.iter().map(OsString::from).collect::<Vec<_>>());
            assert_eq!(split(&line).expect("it was quoted"), words);
        }
    }

    #[test]
    fn what_no_report_writes_is_an_error() {
        for line in ["--write '/open", "--write $HOME", "--write \"/x\"", "a\\b", "a;b"] {
            assert!(split(line).is_err(), "{line}");
        }
    }
}
