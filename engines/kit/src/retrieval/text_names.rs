//! The names in the engine's own texts, each text read once.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use ctxhost_text::hash::BuildIdentityHasher;
use foldhash::quality::FixedState;

use crate::name_ledger::NameLedger;

/// Numbers of the names in texts, by the hash of the text. A text has names of entries that were read before, so they
/// stay the same.
// A layout repeats tens of thousands of characters from request to request, and each note asks for their names.
#[derive(Clone, Debug, Default)]
pub struct TextNames {
    by_text: HashMap<u64, Arc<[u32]>, BuildIdentityHasher>,
}

impl TextNames {
    /// The names of a text.
    pub fn read(&mut self, text: &str, ledger: &NameLedger) -> &[u32] {
        self.by_text.entry(hash_of(text)).or_insert_with(|| ledger.name_numbers(text).into())
    }

    /// Appends lines to a text, with the names in them.
    pub(super) fn append(
        &mut self,
        text: &mut String,
        lines: &str,
        names: impl IntoIterator<Item = u32>,
    ) {
        let mut known = self.by_text.remove(&hash_of(text)).unwrap_or_default().to_vec();
        known.extend(names);
        if !text.is_empty() && !lines.is_empty() {
            text.push('\n');
        }
        text.push_str(lines);
        self.by_text.insert(hash_of(text), known.into());
    }

    /// Keeps the names of these texts alone.
    pub fn retain<'t>(&mut self, texts: impl Iterator<Item = &'t str>) {
        let kept = texts.map(hash_of).filter_map(|hash| self.by_text.remove_entry(&hash));
        self.by_text = kept.collect();
    }
}

impl PartialEq for TextNames {
    /// They follow from the texts.
    fn eq(&self, _other: &TextNames) -> bool {
        true
    }
}

fn hash_of(text: &str) -> u64 {
    FixedState::default().hash_one(text)
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::TranscriptBuilder;

    use super::*;

    #[test]
    fn a_text_is_read_once_as_long_as_it_is_in_use() {
        let mut talk = TranscriptBuilder::new();
        talk.user("Compare src/first.rs with src/second.rs.");
        let mut ledger = NameLedger::default();
        talk.transcript().iter().for_each(|entry| ledger.read_entry(&entry));
        let number = |name| ledger.find_number(name).unwrap();
        let mut names = TextNames::default();
        let both = [number("src/first.rs"), number("src/second.rs")];
        assert_eq!(names.read("src/first.rs, src/second.rs", &ledger), both);
        let mut text = String::new();
        names.append(&mut text, "known by", [7]);
        names.append(&mut text, "its writer", [8]);
        assert_eq!(
            (text.as_str(), names.read(&text, &ledger)),
            ("known by\nits writer", &[7, 8][..])
        );
        assert_eq!(names.read("src/first.rs", &NameLedger::default()), [0_u32; 0]);
        assert_eq!(names.read("src/first.rs", &ledger), [0_u32; 0], "not read again");
        names.retain([text.as_str()].into_iter());
        assert_eq!(names.read("src/first.rs", &ledger), [number("src/first.rs")]);
        assert_eq!(names.read(&text, &ledger), [7, 8]);
    }
}
