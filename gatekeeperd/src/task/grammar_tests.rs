use super::*;

fn one(action: &str) -> Parsed<Action> {
    parse(&format!("Thought: I look.\nAction: {action}")).map(|found| found.actions[0].clone())
}

fn at(x: f64, y: f64) -> Spot {
    Spot { x, y }
}

#[test]
fn every_action_of_the_grammar_is_understood() {
    let cases = [
        ("click(start_box='(10,20)')", Action::Click(at(10.0, 20.0))),
        ("click(start_box='<|box_start|>(10, 20)<|box_end|>')", Action::Click(at(10.0, 20.0))),
        ("left_double(start_box='[10, 20, 30, 40]')", Action::LeftDouble(at(20.0, 30.0))),
        ("right_single(start_box=\"(1.5,2)\")", Action::RightSingle(at(1.5, 2.0))),
        ("drag(start_box='(1,2)', end_box='(3,4)')", Action::Drag(at(1.0, 2.0), at(3.0, 4.0))),
        ("hotkey(key='ctrl c')", Action::Hotkey("ctrl c".into())),
        (r#"type(content='it\'s \"x\"\n')"#, Action::Type("it's \"x\"\n".into())),
        (
            "type(content='Action: click(start_box=\"(1,2)\")')",
            Action::Type("Action: click(start_box=\"(1,2)\")".into()),
        ),
        ("scroll(start_box='(1,2)', direction='down')", Action::Scroll(Some(at(1.0, 2.0)), Direction::Down)),
        ("scroll(direction='up')", Action::Scroll(None, Direction::Up)),
        ("wait()", Action::Wait),
        ("finished()", Action::Finished(None)),
        ("finished(content='done')", Action::Finished(Some("done".into()))),
        ("call_user()", Action::CallUser),
    ];
    for (text, action) in cases {
        assert_eq!(one(text), Ok(action), "{text}");
    }
}

#[test]
fn a_thought_is_kept_and_several_actions_follow_it() {
    let found =
        parse("Thought: two\nlines\nAction: click(start_box='(1,2)')\n\ntype(content='x')  wait()\n").expect("sound");
    assert_eq!(found.thought, "two\nlines");
    assert_eq!(found.actions, [Action::Click(at(1.0, 2.0)), Action::Type("x".into()), Action::Wait]);
    for same in [
        "Action: click(start_box='(1,2)')\nAction: type(content='x')\n\n Action:wait()",
        "Action: click(start_box='(1,2)');\ntype(content='x'); wait();",
        "Action: click(start_box='(1,2)')\nAction: type(content='x');\nwait()<|im_end|>\n",
    ] {
        assert_eq!(parse(same).map(|found| found.actions), Ok(found.actions.clone()), "{same}");
    }
    // The mark inside of typed text is text.
    assert_eq!(one("type(content='<|im_end|>')<|im_end|>"), Ok(Action::Type("<|im_end|>".into())));
    assert_eq!(parse("Action: wait()").expect("a thought is optional").thought, "");
}

#[test]
fn anything_else_is_an_error() {
    let wrong = [
        "click(start_box='(10)')",
        "click(start_box='(10,20,30)')",
        "click(start_box='(30,40,10,20)')",
        "click(start_box='10,20')",
        "click(start_box='(-1,2)')",
        "click(start_box='(1e3,2)')",
        "click(start_box='(NaN,2)')",
        "click(start_box='(1,2')",
        "click(start_box='<|box_start|>(1,2)')",
        "click(start_box=(1,2))",
        "click()",
        "click(start_box='(1,2)', start_box='(3,4)')",
        "click(start_box='(1,2)', force='yes')",
        "click(start_box='(1,2)'",
        "click(start_box='(1,2)') and then",
        "Click(start_box='(1,2)')",
        "tap(start_box='(1,2)')",
        "scroll(start_box='(1,2)', direction='sideways')",
        "scroll(start_box='(1,2)')",
        "scroll(start_box='', direction='down')",
        "scroll()",
        "wait();;",
        "wait() ;",
        ";wait()",
        "wait() Action: wait()",
        "wait()\nAction:",
        "wait()\nAction: Action: wait()",
        "\nAction: wait()",
        "wait()\nThought: more\nAction: wait()",
        "wait()<|im_end|>wait()",
        "wait()<|im_end|><|im_end|>",
        "type(content='open<|im_end|>",
        "<|im_end|>",
        "drag(start_box='(1,2)')",
        "hotkey(keys='a')",
        "type(content='it's')",
        r"type(content='\x41')",
        "type(content='open",
        "wait(5)",
        "wait",
        "call_user(reason='x')",
        "",
    ];
    for text in wrong {
        assert!(one(text).is_err(), "{text}: {:?}", one(text));
    }
    assert_eq!(parse("Thought: nothing"), Err(GrammarError::NoAction));
    assert_eq!(parse(&format!("Action: {}", "wait() ".repeat(9))), Err(GrammarError::TooMany));
    assert_eq!(parse(&" ".repeat(LONGEST + 1)), Err(GrammarError::TooLong));
}

/// A small generator, so that each run tries the same texts.
struct Random(u64);

impl Random {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % count
    }
}

#[test]
fn no_text_makes_the_parser_panic_or_invent_an_action() {
    let parts = [
        "Action:",
        "Thought:",
        "click",
        "type",
        "(",
        ")",
        "'",
        "\"",
        "\\",
        "start_box",
        "content",
        "=",
        ",",
        "[",
        "]",
        "1",
        "9.9",
        "\n",
        " ",
        "ü",
        "😀",
        "\u{0}",
        "<|box_start|>",
        "<|box_end|>",
        "<|im_end|>",
        ";",
        "finished",
        "wait()",
        "hotkey(key='a')",
    ];
    let mut random = Random(7);
    let mut understood = 0;
    for _ in 0..60_000 {
        let count = random.below(14);
        let start = ["", "Action: "][random.below(2)].to_owned();
        let text = (0..count).fold(start, |text, _| text + parts[random.below(parts.len())]);
        if let Ok(found) = parse(&text) {
            understood += 1;
            // Whatever is understood was written out.
            assert!(
                !found.actions.is_empty() && found.actions.iter().all(|action| text.contains(action.name())),
                "{text}"
            );
        }
    }
    assert!(understood > 100, "{understood}: the texts come near to the grammar");
    // Every cut of a sound answer is either sound or an error.
    let sound = "Thought: ü\nAction: drag(start_box='<|box_start|>(1,2)<|box_end|>', end_box='[1, 2, 3, 4]')\n\ntype(content='a\\nb')";
    let cuts: Vec<usize> = (0..=sound.len()).filter(|at| sound.is_char_boundary(*at)).collect();
    let good = cuts.iter().filter(|at| parse(&sound[..**at]).is_ok()).count();
    // After the first action, with each line end that follows it, and the whole.
    assert_eq!(good, 4);
}
