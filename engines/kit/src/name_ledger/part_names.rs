//! The names of an entry that a part of it shows, without reading the part: the names of the whole are known.

use std::collections::HashMap;

use super::NameLedger;

/// Bytes at the beginning of a name by which those of an entry are looked up.
const START_BYTES: usize = 3;

impl NameLedger {
    /// The numbers of the names of an entry that stand in `part`, each as a whole word.
    // A cut result may have tens of thousands of characters, which take milliseconds to read.
    pub fn names_in_part(&self, seq: u64, part: &str) -> Vec<u32> {
        let mut by_start: HashMap<&[u8], Vec<(u32, &str)>, foldhash::fast::FixedState> =
            HashMap::default();
        let mut found = Vec::new();
        for number in self.entry_names(seq) {
            let Some(row) = self.rows.get(*number as usize) else { continue };
            match row.name.as_bytes().get(..START_BYTES) {
                Some(start) => by_start.entry(start).or_default().push((*number, &row.name)),
                None if part.contains(&*row.name) => found.push(*number),
                None => {}
            }
        }
        for (at, start) in part.as_bytes().windows(START_BYTES).enumerate() {
            let Some(names) = by_start.get_mut(start) else { continue };
            names.retain(|(number, name)| {
                let is_here = is_word_at(part, at, name);
                found.extend(is_here.then_some(*number));
                !is_here
            });
        }
        found
    }
}

/// Whether a name begins at a byte of a text, and neither continues there nor began before.
fn is_word_at(text: &str, at: usize, name: &str) -> bool {
    let Some(rest) = text.get(at..).and_then(|rest| rest.strip_prefix(name)) else { return false };
    let is_inner = |c: char| c.is_alphanumeric() || c == '_';
    let before = text.get(..at).and_then(|before| before.chars().next_back());
    let continues = |one: Option<char>, other: Option<char>| {
        one.is_some_and(is_inner) && other.is_some_and(is_inner)
    };
    !continues(before, name.chars().next())
        && !continues(name.chars().next_back(), rest.chars().next())
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
        assert_eq!(names("(src/first.rs)"), ["src/first.rs"]);
        assert_eq!(names("src/second.rsx, other_src/second.rs, load_tariff_99"), [""; 0]);
        assert_eq!(names("…load_tariff_9\nport 5433"), ["load_tariff_9", "5433"]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_part_shows_what_a_scan_of_it_finds(
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
