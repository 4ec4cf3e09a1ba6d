//! The names of an entry that a part of it shows, without a search of the part for identifiers.

use std::collections::HashMap;
use std::ops::Range;

use foldhash::fast::FixedState;

use super::NameLedger;

/// Bytes at the beginning of a name by which those of an entry are looked up.
const START_BYTES: usize = 3;

impl NameLedger {
    /// The numbers of the names of an entry that occur in `part`, each as a word or path of its own. What the ledger
    /// did not read of a long entry has no names here, and may be listed beside the part.
    // A cut result may have tens of thousands of characters, which take milliseconds to read.
    pub fn names_in_part(&self, seq: u64, part: &str) -> Vec<u32> {
        let mut names: HashMap<&str, u32, FixedState> = HashMap::default();
        // Listings have thousands of names with the same beginning, but few lengths.
        let mut lengths: HashMap<&[u8], Vec<usize>, FixedState> = HashMap::default();
        for number in self.entry_names(seq) {
            let Some(name) = self.rows.get(*number as usize).map(|row| &*row.name) else {
                continue;
            };
            let Some(start) = name.as_bytes().get(..START_BYTES) else { continue };
            names.insert(name, *number);
            let known = lengths.entry(start).or_default();
            if !known.contains(&name.len()) {
                known.push(name.len());
            }
        }
        let mut found = Vec::new();
        for (at, start) in part.as_bytes().windows(START_BYTES).enumerate() {
            for length in lengths.get(start).into_iter().flatten() {
                let place = at..at + length;
                let number = part.get(place.clone()).and_then(|name| names.get(name));
                found.extend(number.filter(|_| is_whole(part, place)));
            }
        }
        found
    }
}

/// Whether no word, path or version continues before or behind a place of a text. A path shows the folders that it
/// begins with.
fn is_whole(text: &str, place: Range<usize>) -> bool {
    let is_inner = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let mut before = text.get(..place.start).unwrap_or_default().chars().rev();
    let mut behind = text.get(place.end..).unwrap_or_default().chars();
    let (last, first) = (before.next(), behind.next());
    let begins = is_inner(last) || matches!(last, Some('.' | '-' | '/')) && is_inner(before.next());
    let continues = is_inner(first) || matches!(first, Some('.' | '-')) && is_inner(behind.next());
    !begins && !continues
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ctxhost_engine_api::testing::TranscriptBuilder;
    use proptest::prelude::*;

    use super::*;

    fn ledger_of(text: &str) -> NameLedger {
        let mut talk = TranscriptBuilder::new();
        talk.user("List it.").calls(&[("c", "bash", "{}")]).result("c", "bash", text);
        let mut ledger = NameLedger::default();
        talk.transcript().iter().for_each(|entry| ledger.read_entry(&entry));
        ledger
    }

    #[test]
    fn a_part_shows_the_names_in_it_and_not_those_that_begin_like_one() {
        let text =
            "src/first.rs 4f2a9c1\nlet load_tariff_9 = 1;\nsrc/second.rs\nport 5433 and 54331";
        let ledger = ledger_of(text);
        let names = |part: &str| -> Vec<&str> {
            let numbers = ledger.names_in_part(2, part);
            numbers.iter().map(|number| &*ledger.rows[*number as usize].name).collect()
        };
        assert_eq!(names("(src/first.rs), src/first.rs:12"), ["src/first.rs"; 2]);
        for other in
            ["src/second.rsx", "other_src/second.rs", "old/src/second.rs", "load_tariff_99"]
        {
            assert_eq!(names(other), [""; 0]);
        }
        for other in ["src/second.rs-old", "src/second.rs.bak", "5433.2", "10-5433"] {
            assert_eq!(names(other), [""; 0]);
        }
        assert_eq!(names("…load_tariff_9\nport 5433"), ["load_tariff_9", "5433"]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_part_shows_the_names_of_its_entry_that_a_scan_finds(
            lines in prop::collection::vec("(let|use|see) (src/[a-z]{2,6}/[a-z]{2,5}\\.rs|[a-z]{3}_[a-z]{3}_[0-9]{2}|[A-Z]{3}-[0-9]{3,4}|https://[a-z]{3}\\.example/[a-z]{2,4})[;,]?", 1..30),
            from in 0_usize..30,
            count in 1_usize..20,
        ) {
            let ledger = ledger_of(&lines.join("\n"));
            let part: Vec<&str> = lines.iter().skip(from).take(count).map(String::as_str).collect();
            let part = part.join("\n");
            let scanned: BTreeSet<u32> = ledger.name_numbers(&part).into_iter().collect();
            let known: BTreeSet<u32> = ledger.names_in_part(2, &part).into_iter().collect();
            prop_assert!(scanned.is_subset(&known), "{part}: {scanned:?} {known:?}");
        }
    }
}
