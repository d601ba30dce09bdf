//! What a UI-TARS model answers: `Thought: ...`, then `Action:` and one or more calls such as `click(start_box='(10,20)')`.
//! The word may stand before each call, a semicolon after it, and the mark of the end of a message after all of them.
//!
//! Parsed strictly. A model that is not understood is asked again; a guess could click the wrong button.

use serde_json::{Value, json};

/// The longest answer, and the most actions in one.
const LONGEST: usize = 32 * 1024;
const MOST_ACTIONS: usize = 8;
const WORD: &str = "Action:";
/// Some servers leave the mark in.
const END: &str = "<|im_end|>";

#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    pub thought: String,
    pub actions: Vec<Action>,
}

/// A place as the model writes it. The middle of a box is meant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spot {
    pub x: f64,
    pub y: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Up,
    Down,
    Left,
    Right,
}

impl Direction {
    const ALL: [(&'static str, Direction); 4] =
        [("up", Direction::Up), ("down", Direction::Down), ("left", Direction::Left), ("right", Direction::Right)];

    pub fn word(self) -> &'static str {
        Direction::ALL.iter().find(|(_, known)| *known == self).map_or("", |(word, _)| word)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    Click(Spot),
    LeftDouble(Spot),
    RightSingle(Spot),
    Drag(Spot, Spot),
    Hotkey(String),
    /// A line end at the end submits.
    Type(String),
    /// Without a place, at the middle of the page.
    Scroll(Option<Spot>, Direction),
    Wait,
    Finished(Option<String>),
    CallUser,
}

impl Action {
    pub fn name(&self) -> &'static str {
        match self {
            Action::Click(_) => "click",
            Action::LeftDouble(_) => "left_double",
            Action::RightSingle(_) => "right_single",
            Action::Drag(..) => "drag",
            Action::Hotkey(_) => "hotkey",
            Action::Type(_) => "type",
            Action::Scroll(..) => "scroll",
            Action::Wait => "wait",
            Action::Finished(_) => "finished",
            Action::CallUser => "call_user",
        }
    }

    /// What the audit trail may contain of it: no typed text, and no answer of the model.
    pub fn audited(&self) -> Value {
        match self {
            Action::Click(at) | Action::LeftDouble(at) | Action::RightSingle(at) => json!({"x": at.x, "y": at.y}),
            Action::Drag(from, to) => json!({"from": [from.x, from.y], "to": [to.x, to.y]}),
            Action::Hotkey(keys) => json!({"keys": keys}),
            Action::Type(text) => json!({"characters": text.chars().count()}),
            Action::Scroll(Some(at), direction) => json!({"x": at.x, "y": at.y, "direction": direction.word()}),
            Action::Scroll(None, direction) => json!({"direction": direction.word()}),
            Action::Wait | Action::Finished(_) | Action::CallUser => json!({}),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrammarError {
    #[error("the answer is longer than {LONGEST} bytes")]
    TooLong,
    #[error("the answer has no line `Action: ...`")]
    NoAction,
    #[error("the answer has more than {MOST_ACTIONS} actions")]
    TooMany,
    #[error("after `Action:`, at byte {at}: expected {expected}")]
    Expected { at: usize, expected: &'static str },
    #[error(
        "`{0}` is not an action; they are click, left_double, right_single, drag, hotkey, type, scroll, wait, finished, call_user"
    )]
    Unknown(String),
    #[error("{action}: {why}")]
    Argument { action: String, why: String },
}

type Parsed<T> = Result<T, GrammarError>;

pub fn parse(answer: &str) -> Parsed<Prediction> {
    if answer.len() > LONGEST {
        return Err(GrammarError::TooLong);
    }
    let answer = answer.trim_end();
    let answer = answer.strip_suffix(END).unwrap_or(answer);
    // The first one at the start of a line: typed text may contain the word as well.
    let at = line_start(answer, WORD).ok_or(GrammarError::NoAction)?;
    let before = answer.get(..at).unwrap_or_default().trim();
    let thought = before.strip_prefix("Thought:").unwrap_or(before).trim().to_owned();
    let mut text = Text { rest: answer.get(at + WORD.len()..).unwrap_or_default(), read: 0 };
    let mut actions = Vec::new();
    loop {
        let is_new_line = text.space();
        if text.rest.is_empty() && !actions.is_empty() {
            return Ok(Prediction { thought, actions });
        }
        if is_new_line && !actions.is_empty() && text.rest.starts_with(WORD) {
            text.skip(WORD.len());
            text.space();
        }
        if actions.len() >= MOST_ACTIONS {
            return Err(GrammarError::TooMany);
        }
        let call = text.call()?;
        actions.push(action(call)?);
        if text.rest.starts_with(';') {
            text.skip(1);
        }
    }
}

/// Where this word is at the beginning of a line.
fn line_start(text: &str, word: &str) -> Option<usize> {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let indent = line.len() - line.trim_start().len();
        if line.trim_start().starts_with(word) {
            return Some(at + indent);
        }
        at += line.len();
    }
    None
}

struct Text<'a> {
    rest: &'a str,
    read: usize,
}

/// A name and its arguments by name.
struct Call {
    name: String,
    arguments: Vec<(String, String)>,
}

impl Text<'_> {
    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
        self.read += bytes;
    }

    /// Skips blanks, and says whether a line ended in them.
    fn space(&mut self) -> bool {
        let bytes = self.rest.len() - self.rest.trim_start().len();
        let ends_line = self.rest.get(..bytes).is_some_and(|blanks| blanks.contains('\n'));
        self.skip(bytes);
        ends_line
    }

    fn wrong<T>(&self, expected: &'static str) -> Parsed<T> {
        Err(GrammarError::Expected { at: self.read, expected })
    }

    fn take(&mut self, mark: char, expected: &'static str) -> Parsed<()> {
        match self.rest.starts_with(mark) {
            true => {
                self.skip(mark.len_utf8());
                Ok(())
            }
            false => self.wrong(expected),
        }
    }

    fn word(&mut self, expected: &'static str) -> Parsed<String> {
        let inside = |c: char| c.is_ascii_lowercase() || c == '_';
        let end = self.rest.find(|c: char| !inside(c)).unwrap_or(self.rest.len());
        let word = self.rest.get(..end).unwrap_or_default().to_owned();
        if word.is_empty() {
            return self.wrong(expected);
        }
        self.skip(end);
        Ok(word)
    }

    fn call(&mut self) -> Parsed<Call> {
        let name = self.word("the name of an action")?;
        self.take('(', "an opening parenthesis")?;
        self.space();
        let mut arguments: Vec<(String, String)> = Vec::new();
        while !self.rest.starts_with(')') {
            if !arguments.is_empty() {
                self.take(',', "a comma or a closing parenthesis")?;
                self.space();
            }
            let key = self.word("the name of an argument")?;
            self.space();
            self.take('=', "an equals sign")?;
            self.space();
            let value = self.quoted()?;
            self.space();
            if arguments.iter().any(|(known, _)| *known == key) {
                return Err(GrammarError::Argument { action: name, why: format!("{key} is given twice") });
            }
            arguments.push((key, value));
        }
        self.take(')', "a closing parenthesis")?;
        Ok(Call { name, arguments })
    }

    fn quoted(&mut self) -> Parsed<String> {
        let quote = match self.rest.chars().next() {
            Some(quote @ ('\'' | '"')) => quote,
            _ => return self.wrong("a quoted value"),
        };
        self.skip(1);
        let mut value = String::new();
        let mut characters = self.rest.char_indices();
        while let Some((at, character)) = characters.next() {
            match character {
                '\\' => match characters.next() {
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, 't')) => value.push('\t'),
                    Some((_, 'r')) => {}
                    Some((_, escaped @ ('\\' | '\'' | '"'))) => value.push(escaped),
                    _ => {
                        self.skip(at);
                        return self.wrong("one of \\n \\t \\r \\\\ \\' \\\" after a backslash");
                    }
                },
                end if end == quote => {
                    self.skip(at + 1);
                    return Ok(value);
                }
                other => value.push(other),
            }
        }
        self.wrong("the end of a quoted value")
    }
}

fn action(mut call: Call) -> Parsed<Action> {
    let name = call.name.clone();
    let action = match name.as_str() {
        "click" => Action::Click(call.spot("start_box")?),
        "left_double" => Action::LeftDouble(call.spot("start_box")?),
        "right_single" => Action::RightSingle(call.spot("start_box")?),
        "drag" => Action::Drag(call.spot("start_box")?, call.spot("end_box")?),
        "hotkey" => Action::Hotkey(call.text("key")?),
        "type" => Action::Type(call.text("content")?),
        "scroll" => {
            let is_placed = call.arguments.iter().any(|(name, _)| name == "start_box");
            let at = is_placed.then(|| call.spot("start_box")).transpose()?;
            let word = call.text("direction")?;
            let known = Direction::ALL.iter().find(|(known, _)| *known == word);
            let (_, direction) = known.ok_or_else(|| call.wrong("direction is up, down, left or right"))?;
            Action::Scroll(at, *direction)
        }
        "wait" => Action::Wait,
        "finished" => Action::Finished(call.taken("content")),
        "call_user" => Action::CallUser,
        _ => return Err(GrammarError::Unknown(name)),
    };
    match call.arguments.first() {
        Some((extra, _)) => Err(call.wrong(&format!("it has no argument {extra}"))),
        None => Ok(action),
    }
}

impl Call {
    fn wrong(&self, why: &str) -> GrammarError {
        GrammarError::Argument { action: self.name.clone(), why: why.to_owned() }
    }

    fn taken(&mut self, name: &str) -> Option<String> {
        let at = self.arguments.iter().position(|(known, _)| known == name)?;
        Some(self.arguments.remove(at).1)
    }

    fn text(&mut self, name: &str) -> Parsed<String> {
        self.taken(name).ok_or_else(|| self.wrong(&format!("{name} is missing")))
    }

    fn spot(&mut self, name: &str) -> Parsed<Spot> {
        let text = self.text(name)?;
        spot(&text).ok_or_else(|| self.wrong(&format!("{name} is not a box such as (x,y) or [x1, y1, x2, y2]")))
    }
}

/// `(x,y)` or `[x1, y1, x2, y2]`, with or without the marks of a box.
fn spot(text: &str) -> Option<Spot> {
    let mut text = text.trim();
    if let Some(inner) = text.strip_prefix("<|box_start|>") {
        text = inner.strip_suffix("<|box_end|>")?.trim();
    }
    let inner = match (text.strip_prefix('('), text.strip_prefix('[')) {
        (Some(inner), _) => inner.strip_suffix(')')?,
        (_, Some(inner)) => inner.strip_suffix(']')?,
        _ => return None,
    };
    let number = |part: &str| -> Option<f64> {
        let part = part.trim();
        let digits = part.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        part.parse::<f64>().ok().filter(|number| digits && part.len() <= 12 && number.is_finite())
    };
    let numbers = inner.split(',').map(number).collect::<Option<Vec<f64>>>()?;
    match numbers.as_slice() {
        [x, y] => Some(Spot { x: *x, y: *y }),
        [x1, y1, x2, y2] if x1 <= x2 && y1 <= y2 => Some(Spot { x: (x1 + x2) / 2.0, y: (y1 + y2) / 2.0 }),
        _ => None,
    }
}

#[cfg(test)]
#[path = "grammar_tests.rs"]
mod tests;
