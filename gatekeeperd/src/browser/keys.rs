//! Keys as the debugging protocol wants them: name, code, number and text.

use serde_json::{Value, json};

/// Keys with a name: the name in `KeyboardEvent.key`, its code and its Windows key number.
const NAMED: [(&str, &str, u32); 31] = [
    ("Enter", "Enter", 13),
    ("Tab", "Tab", 9),
    ("Backspace", "Backspace", 8),
    ("Delete", "Delete", 46),
    ("Escape", "Escape", 27),
    ("ArrowLeft", "ArrowLeft", 37),
    ("ArrowUp", "ArrowUp", 38),
    ("ArrowRight", "ArrowRight", 39),
    ("ArrowDown", "ArrowDown", 40),
    ("Home", "Home", 36),
    ("End", "End", 35),
    ("PageUp", "PageUp", 33),
    ("PageDown", "PageDown", 34),
    ("Insert", "Insert", 45),
    ("Control", "ControlLeft", 17),
    ("Shift", "ShiftLeft", 16),
    ("Alt", "AltLeft", 18),
    ("Meta", "MetaLeft", 91),
    ("CapsLock", "CapsLock", 20),
    ("F1", "F1", 112),
    ("F2", "F2", 113),
    ("F3", "F3", 114),
    ("F4", "F4", 115),
    ("F5", "F5", 116),
    ("F6", "F6", 117),
    ("F7", "F7", 118),
    ("F8", "F8", 119),
    ("F9", "F9", 120),
    ("F10", "F10", 121),
    ("F11", "F11", 122),
    ("F12", "F12", 123),
];

/// Other names that models and people use.
const ALSO: [(&str, &str); 20] = [
    ("return", "Enter"),
    ("esc", "Escape"),
    ("del", "Delete"),
    ("ctrl", "Control"),
    ("cmd", "Meta"),
    ("command", "Meta"),
    ("win", "Meta"),
    ("super", "Meta"),
    ("option", "Alt"),
    ("left", "ArrowLeft"),
    ("right", "ArrowRight"),
    ("up", "ArrowUp"),
    ("down", "ArrowDown"),
    ("pageup", "PageUp"),
    ("page_up", "PageUp"),
    ("pagedown", "PageDown"),
    ("page_down", "PageDown"),
    ("ins", "Insert"),
    ("capslock", "CapsLock"),
    ("space", " "),
];

/// Bits of `modifiers`.
fn bit(key: &str) -> u8 {
    match key {
        "Alt" => 1,
        "Control" => 2,
        "Meta" => 4,
        "Shift" => 8,
        _ => 0,
    }
}

/// The canonical name of a key: a name of [`NAMED`], or one character.
fn canonical(name: &str) -> Option<String> {
    let one = |text: &str| text.chars().count() == 1 && !text.chars().any(char::is_control);
    if one(name) {
        return Some(name.to_owned());
    }
    let other = ALSO.iter().find(|(known, _)| name.eq_ignore_ascii_case(known)).map(|(_, key)| *key);
    let named = NAMED.iter().find(|(known, ..)| name.eq_ignore_ascii_case(known)).map(|(key, ..)| *key);
    other.or(named).map(str::to_owned)
}

/// Code and number of a key on a US keyboard, if it has them.
fn position(key: &str) -> (String, u32) {
    if let Some((_, code, number)) = NAMED.iter().find(|(known, ..)| *known == key) {
        return ((*code).to_owned(), *number);
    }
    match key.chars().next() {
        Some(letter) if letter.is_ascii_alphabetic() => {
            let upper = letter.to_ascii_uppercase();
            (format!("Key{upper}"), u32::from(upper))
        }
        Some(digit) if digit.is_ascii_digit() => (format!("Digit{digit}"), u32::from(digit)),
        Some(' ') => ("Space".to_owned(), 32),
        _ => (String::new(), 0),
    }
}

/// One key event, from the name in `KeyboardEvent.key`.
pub fn event(name: &str, down: bool, modifiers: u8) -> Result<Value, String> {
    let key = canonical(name).ok_or_else(|| {
        let name: String = name.chars().take(40).collect();
        format!("{name:?} is no key; for example: enter, esc, ctrl, pagedown, a")
    })?;
    let (code, number) = position(&key);
    let text = match key.as_str() {
        "Enter" => Some("\r"),
        one if one.chars().count() == 1 => Some(one),
        _ => None,
    };
    // With Ctrl, Alt or Meta a key is a command, and inserts nothing.
    let text = text.filter(|_| down && modifiers & 0b111 == 0);
    let kind = match (down, text) {
        (true, Some(_)) => "keyDown",
        (true, None) => "rawKeyDown",
        (false, _) => "keyUp",
    };
    let mut event = json!({"type": kind, "key": key, "code": code, "windowsVirtualKeyCode": number,
        "modifiers": modifiers & 15});
    if let Some(text) = text {
        event["text"] = json!(text);
    }
    Ok(event)
}

/// Keys that are pressed together.
#[derive(Debug, PartialEq, Eq)]
pub struct Chord {
    keys: Vec<String>,
}

/// Reads `ctrl c`, `ctrl+shift+t` or `enter`.
pub fn chord(text: &str) -> Result<Chord, String> {
    let words: Vec<&str> = match text.trim() {
        "+" => vec!["+"],
        text => text.split([' ', '+']).filter(|word| !word.is_empty()).collect(),
    };
    if words.is_empty() || words.len() > 5 {
        return Err("a hotkey has one to five keys, such as ctrl c".to_owned());
    }
    for word in &words {
        event(word, true, 0)?;
    }
    Ok(Chord { keys: words.into_iter().filter_map(canonical).collect() })
}

impl Chord {
    /// Presses in order, and releases in reverse.
    pub fn events(&self) -> Vec<Value> {
        let mut modifiers = 0;
        let mut events = Vec::new();
        for key in &self.keys {
            modifiers |= bit(key);
            events.extend(event(key, true, modifiers));
        }
        for key in self.keys.iter().rev() {
            modifiers &= !bit(key);
            events.extend(event(key, false, modifiers));
        }
        events
    }
}

/// How a piece of text is typed.
#[derive(Debug, PartialEq)]
pub enum Stroke {
    Key(Vec<Value>),
    /// Inserted at once, as an input method does: characters that no key of a US keyboard has.
    Text(String),
}

/// Texts longer than this are inserted at once, as by pasting.
const TYPED: usize = 200;

pub fn strokes(text: &str) -> Vec<Stroke> {
    let pasted = text.chars().count() > TYPED;
    let mut strokes: Vec<Stroke> = Vec::new();
    for character in text.chars().filter(|character| *character != '\r') {
        let name = match character {
            '\n' => "Enter".to_owned(),
            '\t' => "Tab".to_owned(),
            other => other.to_string(),
        };
        let plain = matches!(character, '\n' | '\t') || (!pasted && (' '..='~').contains(&character));
        if plain {
            let modifiers = if character.is_ascii_uppercase() { bit("Shift") } else { 0 };
            let events = [event(&name, true, modifiers), event(&name, false, modifiers)];
            strokes.push(Stroke::Key(events.into_iter().flatten().collect()));
        } else if let Some(Stroke::Text(text)) = strokes.last_mut() {
            text.push(character);
        } else {
            strokes.push(Stroke::Text(name));
        }
    }
    strokes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(events: &[Value]) -> Vec<String> {
        let one = |event: &Value| format!("{} {} {}", event["type"], event["key"], event["modifiers"]).replace('"', "");
        events.iter().map(one).collect()
    }

    #[test]
    fn a_chord_presses_in_order_and_releases_in_reverse() {
        for text in ["ctrl c", "Control+c", " ctrl  c "] {
            let events = chord(text).expect("known").events();
            assert_eq!(shown(&events), ["rawKeyDown Control 2", "rawKeyDown c 2", "keyUp c 2", "keyUp Control 0"]);
        }
        let enter = chord("enter").expect("known").events();
        assert_eq!(
            (shown(&enter), &enter[0]["text"]),
            (vec!["keyDown Enter 0".into(), "keyUp Enter 0".into()], &json!("\r"))
        );
        for wrong in ["", "ctrl hyper", "a b c d e f"] {
            assert!(chord(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_character_is_typed_once_and_in_order() {
        let typed = |text: &str| -> String {
            let one = |stroke: Stroke| match stroke {
                Stroke::Key(events) => events[0]["text"].as_str().map_or("\t".to_owned(), str::to_owned),
                Stroke::Text(text) => text,
            };
            strokes(text).into_iter().map(one).collect()
        };
        assert_eq!(typed("aB1 ü€\n{}~\tz"), "aB1 ü€\r{}~\tz");
        let long = "x".repeat(TYPED + 1);
        assert_eq!(strokes(&long), [Stroke::Text(long.clone())]);
    }
}
