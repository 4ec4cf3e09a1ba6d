//! The history of a case, the same in every process, and the cuts applied to it while shrinking.

use ctxhost_engine_api::testing::generate::{Script, transcripts};
use ctxhost_engine_api::transcript::log::{NewEntry, TranscriptLog};
use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Flags, Message, Role, Transcript};
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::provider::ProviderFamily;
use super::settings::{SEED, WORK_EVERY};
use super::workload;

/// Length of a shortened text, in characters.
const CUT_CHARS: usize = 8;

/// Maximum length of a text in the report, in characters.
const SHOWN_CHARS: usize = 56;

/// Entries, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct CaseHistory {
    entries: Vec<NewEntry>,
}

/// The entries removed and shortened in a history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct HistoryCut {
    /// Positions of removed entries in the generated history.
    pub(super) without: Vec<usize>,
    /// Positions of entries whose text is shortened.
    pub(super) short: Vec<usize>,
}

impl CaseHistory {
    /// Generates the history of a number in the format of a provider family.
    pub(super) fn generate(number: u64, family: ProviderFamily) -> CaseHistory {
        let script = match number % WORK_EVERY {
            0 => workload::script(number, 4 + number % 13).finish().entries,
            _ => any(number),
        };
        let mut entries = script;
        entries.iter_mut().for_each(|entry| apply_family(entry, family));
        CaseHistory { entries }
    }

    pub(super) fn apply_cut(mut self, cut: &HistoryCut) -> CaseHistory {
        for &at in &cut.short {
            if let Some(entry) = self.entries.get_mut(at) {
                shorten(entry);
            }
        }
        let mut at = 0;
        self.entries.retain(|_| {
            at += 1;
            !cut.without.contains(&(at - 1))
        });
        // Relinks the entries after removed ones.
        let mut parent = String::new();
        for entry in &mut self.entries {
            entry.parent_id = std::mem::replace(&mut parent, entry.id.clone());
        }
        self
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the text of an entry can be shortened.
    pub(super) fn is_long(&self, at: usize) -> bool {
        self.entries.get(at).is_some_and(|entry| entry.text.chars().count() > CUT_CHARS)
    }

    pub(super) fn transcript(&self) -> Transcript {
        self.first(self.len())
    }

    /// The transcript of the first `entries` entries.
    pub(super) fn first(&self, entries: usize) -> Transcript {
        let mut log = TranscriptLog::new(0);
        self.entries.iter().take(entries).for_each(|entry| _ = log.append(entry.clone()));
        log.snapshot()
    }

    /// Its entries as lines of the report: `[1] assistant  tool_use t1`.
    pub(super) fn lines(&self) -> Vec<String> {
        let line = |(at, entry): (usize, &NewEntry)| {
            format!("[{at}] {:<10} {}", entry.role.name(), describe_entry(entry))
        };
        self.entries.iter().enumerate().map(line).collect()
    }
}

/// A generated conversation, determined by its number.
fn any(number: u64) -> Vec<NewEntry> {
    let mut seed = [0; 32];
    // A separate generator for each number: a case must not depend on the cases before it.
    let numbers = [SEED, number, SEED.rotate_left(17), !number];
    for (bytes, word) in seed.chunks_mut(8).zip(numbers) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(Config::default(), random);
    let tree = transcripts().new_tree(&mut runner);
    tree.map_or_else(|_| Script::new().finish(), |tree| tree.current()).entries
}

/// The JSON object of a message.
type MessageMembers = Map<String, Value>;

/// Rewrites the model names, call ids and signatures of an entry to those of a provider family.
fn apply_family(entry: &mut NewEntry, family: ProviderFamily) {
    let Ok(mut message) = serde_json::from_str::<MessageMembers>(&entry.raw) else { return };
    if entry.role == Role::Assistant {
        for (name, value) in ["api", "provider", "model"].into_iter().zip(family.wire_names()) {
            message.insert(name.to_owned(), value.into());
        }
    }
    for block in blocks(&mut message) {
        if is_of(block, "toolCall") {
            let id = block.get("id").and_then(Value::as_str).unwrap_or_default();
            let id = rename_call(id, family);
            block.insert("id".to_owned(), id.into());
            if family == ProviderFamily::Gemini {
                // Gemini rejects calls that it made with a signature and gets back without one.
                block.insert("thoughtSignature".to_owned(), "c2lnbmVk".into());
            }
        }
    }
    if let Some(id) = message.get_mut("toolCallId") {
        *id = rename_call(id.as_str().unwrap_or_default(), family).into();
    }
    entry.calls.iter_mut().for_each(|id| *id = rename_call(id, family));
    entry.answers = entry.answers.as_deref().map(|id| rename_call(id, family));
    rewrite(entry, message);
}

/// The call id in the format of a family.
fn rename_call(id: &str, family: ProviderFamily) -> String {
    match family {
        // Responses has two ids for each call; Pi joins them with a bar.
        ProviderFamily::OpenaiResponses => format!("{id}|fc_{id}"),
        _ => id.to_owned(),
    }
}

/// Shortens all texts of an entry.
fn shorten(entry: &mut NewEntry) {
    let Ok(mut message) = serde_json::from_str::<MessageMembers>(&entry.raw) else { return };
    message.get_mut("content").into_iter().for_each(cut_text);
    for block in blocks(&mut message) {
        if is_of(block, "text") {
            block.get_mut("text").into_iter().for_each(cut_text);
        }
        if is_of(block, "toolCall") {
            block.insert("arguments".to_owned(), MessageMembers::new().into());
        }
    }
    rewrite(entry, message);
}

/// Shortens a JSON string; other values are unchanged.
fn cut_text(text: &mut Value) {
    if let Some(long) = text.as_str() {
        *text = long.chars().take(CUT_CHARS).collect::<String>().into();
    }
}

/// The blocks of a message.
fn blocks(message: &mut MessageMembers) -> impl Iterator<Item = &mut MessageMembers> {
    let content = message.get_mut("content").and_then(Value::as_array_mut);
    content.into_iter().flatten().filter_map(Value::as_object_mut)
}

fn is_of(block: &MessageMembers, kind: &str) -> bool {
    block.get("type").is_some_and(|found| found == kind)
}

fn rewrite(entry: &mut NewEntry, message: MessageMembers) {
    entry.raw = Value::Object(message).to_string();
    let parsed = Message::parse(&entry.raw, "");
    (entry.text, entry.tokens) = (parsed.text(), tokens::message(&parsed));
}

/// The content of an entry on one line.
fn describe_entry(entry: &NewEntry) -> String {
    let mut parts = Vec::new();
    if let Some(id) = &entry.answers {
        parts.push(format!("tool_result {id}"));
    }
    if !entry.text.is_empty() && entry.answers.is_none() {
        parts.push(quote(&entry.text));
    }
    if entry.flags.contains(Flags::IMAGES) {
        parts.push("(with images)".to_owned());
    }
    parts.extend(entry.calls.iter().map(|id| format!("tool_use {id}")));
    if parts.is_empty() { "\"\"".to_owned() } else { parts.join("  ") }
}

/// A text in quotes, on one line, truncated.
pub(super) fn quote(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_CHARS).collect();
    if text.chars().nth(SHOWN_CHARS).is_some() {
        shown.push('…');
    }
    format!("{shown:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_determine_histories_and_cuts_stay_valid() {
        for number in 0..12 {
            for family in ProviderFamily::ALL {
                let history = CaseHistory::generate(number, family);
                let again = CaseHistory::generate(number, family);
                assert_eq!(history.lines(), again.lines(), "{number}");
                for entry in history.transcript().iter() {
                    let (raw, text) = (entry.raw().to_owned(), entry.text().to_owned());
                    assert_eq!(Message::parse(&raw, "").text(), text);
                }
            }
        }
        let work = CaseHistory::generate(0, ProviderFamily::OpenaiResponses);
        assert!(work.lines()[1].contains("tool_use r0a|fc_r0a"), "{:?}", work.lines());
        let cut = HistoryCut { without: vec![2, 3, 4], short: vec![0] };
        let small = work.clone().apply_cut(&cut).transcript();
        assert_eq!(small.len() + 3, work.len());
        assert_eq!(small.get(0).unwrap().text(), "Please r");
        assert!(small.get(1).unwrap().has(Flags::UNANSWERED));
        assert!(work.is_long(0) && !work.is_long(usize::MAX));
    }

    #[test]
    fn every_family_leaves_its_marks() {
        let raw = |family| CaseHistory::generate(0, family).entries[1].raw.clone();
        assert!(raw(ProviderFamily::Gemini).contains("thoughtSignature"));
        assert!(raw(ProviderFamily::OpenaiChat).contains("openai-completions"));
        assert!(raw(ProviderFamily::Anthropic).contains("claude"));
    }
}
