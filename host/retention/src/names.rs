//! Names that must be exact, by the engines' definition.

use ctxhost_engine_api::{EntryKind, Message, PlanItem, ToolCall};
use ctxhost_text::identifiers::{Identifier, IdentifierKind, for_each_identifier};
use serde_json::Value;

use super::redact;
use super::secrets::{KnownSecrets, PLACEHOLDER, is_bare_value, is_secret_field};

/// Every exact name in a text: paths, addresses, contacts, references, amounts, dates, codes. No secrets.
pub fn names_in(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for_each_exact(&redact(text), |name| names.push(name.canonical().into_owned()));
    names
}

/// The same with the symbols of code.
pub fn names_and_symbols_in(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for_each_identifier(&redact(text), |name| {
        if name.kind.is_exact() || name.kind == IdentifierKind::Symbol {
            names.push(name.canonical().into_owned());
        }
    });
    names
}

/// Calls `found` with the exact names in a text without secrets. Redaction is the expensive part.
pub(super) fn for_each_exact<'t>(text: &'t str, mut found: impl FnMut(Identifier<'t>)) {
    for_each_identifier(text, |name| {
        if name.kind.is_exact() {
            found(name);
        }
    });
}

/// The text of an item and the texts in the arguments of its calls. A value that the name of its field states to be a
/// secret is replaced: without the name it would be read as an identifier.
pub fn texts_of(item: &PlanItem<'_>) -> Vec<String> {
    texts_with_secrets(item, &mut KnownSecrets::default())
}

/// The same. Adds the replaced values to `secrets`.
pub(super) fn texts_with_secrets(item: &PlanItem<'_>, secrets: &mut KnownSecrets) -> Vec<String> {
    let mut texts = vec![without_frame(item)];
    for call in &calls_of(item) {
        add_arguments(call, &mut texts, secrets);
    }
    texts
}

/// The text of an item without the host's frame around a summary, whose ids are not of the conversation.
fn without_frame(item: &PlanItem<'_>) -> String {
    let text = item.text();
    let is_summary = matches!(item, PlanItem::Kept(entry)
        if matches!(entry.kind(), EntryKind::CompactionSummary | EntryKind::BranchSummary));
    let framed = text.split_once("<summary source=").filter(|_| is_summary);
    match framed.and_then(|(_, framed)| framed.split_once(">\n")) {
        Some((_, summary)) => summary.to_owned(),
        None => text.into_owned(),
    }
}

/// The calls of an item.
pub(super) fn calls_of<'a>(item: &PlanItem<'a>) -> Vec<ToolCall<'a>> {
    match item {
        PlanItem::Kept(entry) | PlanItem::ReplacedText { entry, .. } => entry.tool_calls(),
        PlanItem::ReplacedRaw { raw, .. } => Message::parse(raw, "").tool_calls(),
        _ => Vec::new(),
    }
}

fn add_arguments(call: &ToolCall<'_>, texts: &mut Vec<String>, secrets: &mut KnownSecrets) {
    let mut values = vec![(call.arguments_value(), false)];
    while let Some((value, is_secret)) = values.pop() {
        match value {
            Value::String(text) if is_secret && is_bare_value(&text) => {
                secrets.add(&text);
                texts.push(PLACEHOLDER.to_owned());
            }
            Value::String(text) => texts.push(text),
            Value::Number(number) => texts.push(number.to_string()),
            Value::Array(list) => values.extend(list.into_iter().map(|value| (value, is_secret))),
            Value::Object(fields) => values
                .extend(fields.into_iter().map(|(name, value)| (value, is_secret_field(&name)))),
            Value::Null | Value::Bool(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::TranscriptBuilder;

    use super::*;

    #[test]
    fn the_frame_of_a_summary_holds_no_names() {
        let mut talk = TranscriptBuilder::new();
        let frame =
            "It was compacted.\n\n<summary source=\"compaction deadbeefcafe\" trust=\"untrusted\">";
        talk.summary(&format!("{frame}\nsee src/a.rs\n</summary>"))
            .user("<summary source=\"x\">\ny");
        let transcript = talk.transcript();
        let texts: Vec<Vec<String>> =
            transcript.iter().map(|entry| texts_of(&PlanItem::Kept(entry))).collect();
        assert_eq!(texts, [["see src/a.rs\n</summary>"], ["<summary source=\"x\">\ny"]]);
    }

    #[test]
    fn names_are_exact_and_no_secrets() {
        let text = "src/a.rs /srv/app https://a.example/b deadbeefcafe password=hunter2/hunter2.rs \
                    parse_body --all of max@example.com, ORD-2024-00817";
        let expected = [
            "src/a.rs",
            "/srv/app",
            "https://a.example/b",
            "DEADBEEFCAFE",
            "max@example.com",
            "ORD-2024-00817",
        ];
        assert_eq!(names_in(text), expected);
        assert!(names_and_symbols_in(text).contains(&"parse_body".to_owned()));
    }
}
