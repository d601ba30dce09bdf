//! Objects that give a key twice. Their meaning depends on the reader: serde_json takes the last value, others the first.

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::collections::HashSet;
use std::fmt;

/// The first key that an object in this JSON text gives twice. A text that is no JSON has none.
pub fn given_twice(text: &[u8]) -> Option<String> {
    let mut found = None;
    // The error is the key itself, or one of which the reader of the values speaks.
    let _ = Keys(&mut found).deserialize(&mut serde_json::Deserializer::from_slice(text));
    found
}

struct Keys<'a>(&'a mut Option<String>);

impl<'de> DeserializeSeed<'de> for Keys<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Keys<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if seen.contains(&key) {
                *self.0 = Some(key);
                return Err(A::Error::custom("a key is given twice"));
            }
            seen.insert(key);
            map.next_value_seed(Keys(&mut *self.0))?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(Keys(&mut *self.0))?.is_some() {}
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::given_twice;

    #[test]
    fn a_key_that_is_given_twice_is_found_at_any_depth_and_however_it_is_written() {
        for (text, key) in [
            (r#"{"record":"audit","record":"off"}"#, Some("record")),
            (r#"{"a":[1,-2,0.5,null,true,"x",{"b":{},"c":1,"b":2}]}"#, Some("b")),
            (r#"{"url":"x","\u0075rl":"y"}"#, Some("url")),
            // Also before a fault further on.
            (r#"{"a":1,"a":"#, Some("a")),
            (r#"{"a":{"a":[{"a":1},{"a":2}]},"b":1,"A":2}"#, None),
            (r#""a""#, None),
            ("", None),
            ("{", None),
        ] {
            assert_eq!(given_twice(text.as_bytes()).as_deref(), key, "{text}");
        }
        let deep = "[".repeat(100_000);
        assert_eq!(given_twice(deep.as_bytes()), None, "it does not use up the stack");
    }
}
