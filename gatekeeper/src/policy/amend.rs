//! Adds a grant to the text of a policy file, and keeps everything else of it: comments, order, spelling.

use super::parse;
use std::path::Path;
use toml_edit::{Array, DocumentMut, Item, Value};

/// `line` is a grant as a report gives it, such as `paths.write = ["/x"]`. Lists are extended, other values replaced. The
/// result is a valid policy.
pub fn amend(text: &str, line: &str, name: &Path) -> Result<String, String> {
    if name.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("json")) || text.trim_start().starts_with('{')
    {
        return Err(format!("the policy is JSON; add what {line} says by hand"));
    }
    let grant: DocumentMut = line.parse().map_err(|error| format!("{line}: {error}"))?;
    let mut document: DocumentMut = text.parse().map_err(|error| format!("{}: {error}", name.display()))?;
    add(document.as_table_mut(), grant.as_table())
        .ok_or_else(|| format!("{line} does not fit into {}", name.display()))?;
    let text = document.to_string();
    parse(text.as_bytes(), name).map_err(|error| error.to_string())?;
    Ok(text)
}

fn add(into: &mut dyn toml_edit::TableLike, from: &dyn toml_edit::TableLike) -> Option<()> {
    for (key, item) in from.iter() {
        match item {
            Item::Table(_) | Item::Value(Value::InlineTable(_)) => {
                let table = into.entry(key).or_insert_with(toml_edit::table).as_table_like_mut()?;
                add(table, item.as_table_like()?)?;
            }
            Item::Value(Value::Array(added)) => {
                let array = into.entry(key).or_insert_with(|| toml_edit::value(Array::new())).as_array_mut()?;
                extend(array, added);
            }
            other => drop(into.insert(key, other.clone())),
        }
    }
    Some(())
}

fn extend(array: &mut Array, added: &Array) {
    for value in added.iter() {
        let known =
            array.iter().any(|known| known.as_str() == value.as_str() && known.as_integer() == value.as_integer());
        if !known {
            let mut value = value.clone();
            value.decor_mut().clear();
            array.push(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amended(text: &str, line: &str) -> String {
        amend(text, line, Path::new("p.toml")).expect("a grant")
    }

    #[test]
    fn a_grant_is_added_and_everything_else_stays() {
        let text = "# mine\nprofile = \"write\" # why\n\n[paths]\nwrite = [\"/a\"] # those\n";
        assert_eq!(
            amended(text, "paths.write = [\"/b\"]"),
            "# mine\nprofile = \"write\" # why\n\n[paths]\nwrite = [\"/a\", \"/b\"] # those\n"
        );
        assert_eq!(amended(text, "paths.write = [\"/a\"]"), text);
        assert!(amended(text, "network.unix = [\"/run/x\"]").starts_with(text));
        assert!(amended("", "paths.read = [\"/\", \"/x\"]").contains("read = [\"/\", \"/x\"]"));
    }

    #[test]
    fn json_and_what_does_not_fit_are_refused() {
        assert!(amend("{}", "paths.write = [\"/b\"]", Path::new("p.json")).is_err());
        assert!(amend("paths = 3", "paths.write = [\"/b\"]", Path::new("p.toml")).is_err());
    }
}
