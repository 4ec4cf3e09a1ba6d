//! Names that must be exact: identifiers by the engines' definition, and paths inside a project.

use std::sync::LazyLock;

use ctxhost_engine_api::{Message, PlanItem, ToolCall};
use ctxhost_engine_kit::identifiers;
use regex::Regex;
use serde_json::Value;

use super::redact;

/// `src/main.rs`, but neither `and/or` nor the rest of an absolute path.
const RELATIVE_PATH: &str = r#"(?:^|[\s"'`(\[=:,<|])(?:\./)?((?:[A-Za-z0-9_.@+-]+/)+[A-Za-z0-9_.@+-]*\.[A-Za-z][A-Za-z0-9]{0,7})\b"#;

static RELATIVE_PATHS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(RELATIVE_PATH).ok());

/// Every name in a text: paths, URLs, hosts, hashes, long numbers. No secrets.
pub fn names_in(text: &str) -> Vec<String> {
    names_in_clean(&redact(text))
}

/// The names in a text without secrets. Redaction is the expensive part.
pub(super) fn names_in_clean(text: &str) -> Vec<String> {
    identifiers::find_in_redacted(text).chain(relative_paths(text)).collect()
}

/// Whether a name is a path.
pub(super) fn is_path(name: &str) -> bool {
    name.contains(['/', '\\']) && !name.contains("://")
}

/// The paths of files inside a project.
fn relative_paths(text: &str) -> impl Iterator<Item = String> {
    let found = RELATIVE_PATHS.iter().flat_map(|pattern| pattern.captures_iter(text));
    found.filter_map(|parts| Some(parts.get(1)?.as_str().to_owned()))
}

/// The text of an item and the texts in the arguments of its calls.
pub fn texts_of(item: &PlanItem<'_>) -> Vec<String> {
    let mut texts = vec![item.text().into_owned()];
    for call in &calls_of(item) {
        add_arguments(call, &mut texts);
    }
    texts
}

/// The calls of an item.
pub(super) fn calls_of<'a>(item: &PlanItem<'a>) -> Vec<ToolCall<'a>> {
    match item {
        PlanItem::Kept(entry) | PlanItem::ReplacedText { entry, .. } => entry.tool_calls(),
        PlanItem::ReplacedRaw { raw, .. } => Message::parse(raw, "").tool_calls(),
        _ => Vec::new(),
    }
}

fn add_arguments(call: &ToolCall<'_>, texts: &mut Vec<String>) {
    let mut values = vec![call.arguments_value()];
    while let Some(value) = values.pop() {
        match value {
            Value::String(text) => texts.push(text),
            Value::Number(number) => texts.push(number.to_string()),
            Value::Array(list) => values.extend(list),
            Value::Object(fields) => values.extend(fields.into_iter().map(|(_, value)| value)),
            Value::Null | Value::Bool(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_inside_a_project_is_a_name() {
        let found = |text| relative_paths(text).collect::<Vec<_>>();
        assert_eq!(
            found("see ./src/a.rs:12, `b/c.toml` d/e.md"),
            ["src/a.rs", "b/c.toml", "d/e.md"]
        );
        let none = "and/or 1/2.5 /srv/app/main.rs https://example.com/a.html main.rs";
        assert_eq!(found(none), Vec::<String>::new());
    }

    #[test]
    fn names_are_paths_or_identifiers_and_no_secrets() {
        let text = "src/a.rs /srv/app https://a.example/b deadbeefcafe password=hunter2/hunter2.rs";
        let (paths, ids): (Vec<_>, Vec<_>) =
            names_in(text).into_iter().partition(|name| is_path(name));
        assert_eq!(paths, ["/srv/app", "src/a.rs"]);
        assert_eq!(ids, ["https://a.example/b", "DEADBEEFCAFE"]);
    }
}
