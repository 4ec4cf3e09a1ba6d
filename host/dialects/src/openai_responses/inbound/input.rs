//! The `input` of a request: one string, or a list of items.

use std::fmt;

use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// The items; none for a string.
#[derive(Debug, Default)]
pub(super) struct Input<'a> {
    pub(super) items: Vec<&'a RawValue>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Input<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Input<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or a list of items")
    }

    fn visit_str<E>(self, _text: &str) -> Result<Input<'de>, E> {
        Ok(Input::default())
    }

    fn visit_unit<E>(self) -> Result<Input<'de>, E> {
        Ok(Input::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Input<'de>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Input { items })
    }
}
