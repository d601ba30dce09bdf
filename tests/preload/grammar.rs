//! Properties of the list grammar: a printed set parses back, and no input makes the parser fail.

use proptest::prelude::*;
use sandbox_contract::grammar::{self, Item, NumberSet};
use sandbox_contract::{action::Action, groups, syscalls};

/// The canonical text of a set: its names, separated by colons.
fn print(set: &NumberSet) -> String {
    let name = |number| syscalls::with_name(number, |name| String::from_utf8_lossy(name).into_owned());
    set.iter().map(|number| name(number).expect("only named numbers are parsed")).collect::<Vec<_>>().join(":")
}

fn known() -> Vec<String> {
    (0..1024u16)
        .filter_map(|number| syscalls::with_name(number, |name| String::from_utf8_lossy(name).into_owned()))
        .chain(groups::GROUPS.iter().map(|group| format!("@{}", group.name)))
        .chain([String::new()])
        .collect()
}

proptest! {
    #[test]
    fn what_is_printed_is_parsed_back(items in prop::collection::vec(prop::sample::select(known()), 0..60)) {
        let list = items.join(":");
        let set = grammar::parse(list.as_bytes()).expect("known items");
        let printed = print(&set);
        prop_assert_eq!(grammar::parse(printed.as_bytes()), Ok(set));
        // Order and repetition do not matter.
        let mut shuffled: Vec<&str> = items.iter().map(String::as_str).rev().collect();
        shuffled.extend(items.first().map(String::as_str));
        let shuffled = shuffled.join(":");
        prop_assert_eq!(grammar::parse(shuffled.as_bytes()), Ok(set));
    }

    #[test]
    fn items_are_the_text_between_colons(list in "[a-z@:_0-9]{0,200}") {
        let shown: Vec<String> = grammar::items(list.as_bytes())
            .map(|item| match item {
                Item::Name(name) => String::from_utf8_lossy(name).into_owned(),
                Item::Group(name) => format!("@{}", String::from_utf8_lossy(name)),
            })
            .collect();
        let wanted: Vec<&str> = list.split(':').filter(|item| !item.is_empty()).collect();
        prop_assert_eq!(shown, wanted);
    }

    #[test]
    fn any_bytes_are_answered(list in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = grammar::parse(&list);
        let _ = Action::parse(&list);
    }
}
