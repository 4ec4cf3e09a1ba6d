//! The `input` of a request: a string or a list of items.

use std::fmt;

use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// The items. A string has none here; see [`InboundDialect::list_prompt`](crate::inbound::InboundDialect::list_prompt).
#[derive(Debug, Default)]
pub(super) struct InputField<'a> {
    pub(super) items: Vec<&'a RawValue>,
}

impl<'de: 'a, 'a> Deserialize<'de> for InputField<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(InputVisitor)
    }
}

// An untagged enum would buffer the list and lose the items' bytes in the body.
struct InputVisitor;

impl<'de> Visitor<'de> for InputVisitor {
    type Value = InputField<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or a list of items")
    }

    fn visit_str<E>(self, _text: &str) -> Result<InputField<'de>, E> {
        Ok(InputField::default())
    }

    fn visit_unit<E>(self) -> Result<InputField<'de>, E> {
        Ok(InputField::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<InputField<'de>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(InputField { items })
    }
}
