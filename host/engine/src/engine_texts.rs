//! Limits the texts of an engine for people, logs and sessions, where its reply reaches the host.
//!
//! What the model reads of a plan is not cut: the invariants check that it fits the budget.

use std::collections::HashSet;

use ctxhost_engine_api::border::EngineReply;
use ctxhost_engine_api::transcript::tokens::group_thousands;
use ctxhost_engine_api::*;
use serde_json::Value;

use crate::deep_replies::refuse_deep_reply;

/// The longest text: a reason is one line, and an error may quote the answer of a provider.
const MAX_TEXT_BYTES: usize = 16 * 1024;

/// The largest JSON value, and the longest answer of a tool: a compaction may list 10,000 files.
const MAX_VALUE_BYTES: usize = 4 * 1024 * 1024;

/// All texts and values of one reply: a plan may explain each of 100,000 entries.
const MAX_REPLY_BYTES: usize = 16 * 1024 * 1024;

/// The most names in a message.
const MAX_NAMES: usize = 16;

/// The memory of a JSON value beside its texts.
const VALUE_BYTES: usize = size_of::<Value>();

/// Cuts the texts of a reply, and leaves out values and tools that are too large. A reply that is nested too deep becomes an error.
pub(super) fn limit_reply(reply: &mut Result<EngineReply>) {
    refuse_deep_reply(reply);
    let mut budget = TextBudget { left: MAX_REPLY_BYTES };
    match reply {
        Err(error) => budget.cut_error(error),
        Ok(EngineReply::Assemble(plan) | EngineReply::Compact(Compaction::Plan(plan))) => {
            budget.cut_plan(plan);
        }
        Ok(EngineReply::Compact(Compaction::Nothing { reason })) => budget.cut(reason),
        Ok(EngineReply::Bootstrap(BootstrapReply { reason, .. })) => budget.cut_all(reason),
        Ok(EngineReply::Maintain(MaintainReply { reason, .. })) => budget.cut_all(reason),
        Ok(EngineReply::Tools(tools)) => tools.retain_mut(|tool| budget.admits_tool(tool)),
        Ok(EngineReply::CallTool(answer)) => budget.cut_to(&mut answer.text, MAX_VALUE_BYTES),
        Ok(EngineReply::Status(status)) => {
            budget.cut(&mut status.summary);
            budget.clear_large(&mut status.details);
        }
        // A token is the engine's own and only goes back to it.
        Ok(EngineReply::PrepareSubagentSpawn(_)) => {}
        Ok(
            EngineReply::Created
            | EngineReply::Ingest(_)
            | EngineReply::Compact(Compaction::Delegate)
            | EngineReply::AfterTurn(())
            | EngineReply::CommitTurn(_)
            | EngineReply::RollbackSubagentSpawn(())
            | EngineReply::OnSubagentEnded(())
            | EngineReply::Dispose(()),
        ) => {}
    }
}

/// Cuts the texts of an error outside of a reply: an engine could not be created.
pub(super) fn limit_error(mut error: EngineError) -> EngineError {
    TextBudget { left: MAX_REPLY_BYTES }.cut_error(&mut error);
    error
}

/// Cuts one text to a line.
pub(super) fn limit_line(mut text: String) -> String {
    TextBudget { left: MAX_REPLY_BYTES }.cut(&mut text);
    join_lines(&mut text);
    text
}

/// Cuts what an engine states about itself to lines, all of them together to one text.
pub(super) fn limit_info(mut info: EngineInfo) -> EngineInfo {
    let mut budget = TextBudget { left: MAX_TEXT_BYTES };
    let EngineInfo { id, name, version, requires, .. } = &mut info;
    let mut known = HashSet::new();
    requires.retain(|name| known.insert(name.clone()));
    for text in [id, name, version].into_iter().chain(requires) {
        budget.cut(text);
        join_lines(text);
    }
    info
}

/// The first of many names, and how many there are beside them.
pub(super) fn limit_names(mut names: Vec<String>) -> Vec<String> {
    let more = names.len().saturating_sub(MAX_NAMES);
    if more > 0 {
        names.truncate(MAX_NAMES);
        names.push(format!("{} more", group_thousands(more as u64)));
    }
    names
}

/// Joins the lines of a text, so that none passes for another message.
fn join_lines(text: &mut String) {
    let ends_line =
        |char| matches!(char, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}');
    if text.contains(ends_line) {
        *text = text
            .split(ends_line)
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect::<Vec<_>>()
            .join(" ");
    }
}

/// The bytes that the texts of a reply may still take.
struct TextBudget {
    left: usize,
}

impl TextBudget {
    fn cut(&mut self, text: &mut String) {
        self.cut_to(text, MAX_TEXT_BYTES);
    }

    fn cut_all<'a>(&mut self, texts: impl IntoIterator<Item = &'a mut String>) {
        texts.into_iter().for_each(|text| self.cut(text));
    }

    fn cut_to(&mut self, text: &mut String, max_bytes: usize) {
        let bytes = text.len();
        if self.left < bytes.min(max_bytes) {
            *text = String::new();
        } else if bytes > max_bytes {
            text.truncate(text.floor_char_boundary(max_bytes));
            let (bytes, limit) = (group_thousands(bytes as u64), group_thousands(max_bytes as u64));
            *text += &format!("… [cut: {bytes} bytes, the limit is {limit}]");
            // The rest would stay allocated as long as the text.
            text.shrink_to_fit();
        }
        self.left = self.left.saturating_sub(text.len());
    }

    /// Replaces a value that is too large by null.
    fn clear_large(&mut self, value: &mut Value) {
        let bytes = size_of_value(value);
        if bytes > MAX_VALUE_BYTES.min(self.left) {
            *value = Value::Null;
        } else {
            self.left -= bytes;
        }
    }

    fn cut_error(&mut self, error: &mut EngineError) {
        self.cut(&mut error.message);
        join_lines(&mut error.message);
        self.clear_large(&mut error.detail);
    }

    fn cut_plan(&mut self, plan: &mut Plan) {
        let Plan { ops, extras, .. } = plan;
        self.cut_all(&mut extras.compaction_wanted);
        self.clear_large(&mut extras.details);
        let notes = ops.iter_mut().filter_map(|op| op.note.as_mut()).chain(&mut extras.notes);
        self.cut_all(notes.flat_map(|note| [&mut note.layer, &mut note.detail]));
    }

    /// Whether a tool is offered; one with a schema that is too large is not.
    fn admits_tool(&mut self, tool: &mut ToolSpec) -> bool {
        let had = (tool.name.is_empty(), tool.input_schema.is_null());
        self.cut_all([&mut tool.name, &mut tool.description]);
        self.clear_large(&mut tool.input_schema);
        had == (tool.name.is_empty(), tool.input_schema.is_null())
    }
}

/// The approximate memory of a value.
fn size_of_value(value: &Value) -> usize {
    let inner = match value {
        Value::String(text) => text.len(),
        Value::Array(list) => list.iter().map(size_of_value).sum(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| VALUE_BYTES + name.len() + size_of_value(value)).sum()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    VALUE_BYTES + inner
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limited(reply: EngineReply) -> EngineReply {
        let mut reply = Ok(reply);
        limit_reply(&mut reply);
        reply.unwrap()
    }

    #[test]
    fn what_an_engine_states_of_itself_fits_one_text_of_lines() {
        let requires = (0..300_000).map(|number| format!("cap-{number}"));
        let requires = ["kv".to_owned(), "kv".to_owned()].into_iter().chain(requires).collect();
        let id = "x\nERROR forged".to_owned();
        let info = limit_info(EngineInfo { id, requires, ..EngineInfo::default() });
        assert_eq!(info.id, "x ERROR forged");
        assert_eq!(info.requires.iter().filter(|name| *name == "kv").count(), 1);
        let bytes: usize = info.requires.iter().map(String::len).sum();
        assert!(bytes <= MAX_TEXT_BYTES, "{bytes}");
        let names = limit_names(info.requires);
        assert_eq!(names.len(), MAX_NAMES + 1);
        assert!(names[MAX_NAMES].ends_with(" more"), "{}", names[MAX_NAMES]);
        assert_eq!(limit_names(vec!["a".into()]), ["a"]);
    }

    #[test]
    fn an_error_is_one_line() {
        let error = limit_error(EngineError::failed("first\r\n\u{2028}  second\nERROR third\n"));
        assert_eq!(error.message, "first second ERROR third");
        assert_eq!(limit_line("[2J forged \n second".into()), "[2J forged second");
    }

    #[test]
    fn a_reason_of_any_call_is_cut_with_its_size() {
        let huge = "ü".repeat(8 << 20);
        let reasons = |reason: String| {
            let some = Some(reason.clone());
            [
                EngineReply::Compact(Compaction::Nothing { reason }),
                EngineReply::Bootstrap(BootstrapReply {
                    reason: some.clone(),
                    ..Default::default()
                }),
                EngineReply::Maintain(MaintainReply { reason: some, ..Default::default() }),
            ]
        };
        for reply in reasons(huge.clone()).map(limited) {
            let json = serde_json::to_string(&reply).unwrap();
            assert!(json.len() < 2 * MAX_TEXT_BYTES, "{}", json.len());
            assert!(json.contains("[cut: 16,777,216 bytes, the limit is 16,384]"), "{json}");
        }
        for (before, after) in reasons("short".into()).into_iter().zip(reasons("short".into())) {
            let texts =
                [limited(before), after].map(|reply| serde_json::to_string(&reply).unwrap());
            assert_eq!(texts[0], texts[1]);
        }
        let error = EngineError::failed(huge.as_str()).with_detail(huge.into());
        let mut failed = Err(error.clone());
        limit_reply(&mut failed);
        for error in [failed.unwrap_err(), limit_error(error)] {
            assert!(error.message.len() < 2 * MAX_TEXT_BYTES);
            assert_eq!(error.detail, Value::Null);
        }
    }

    #[test]
    fn the_notes_of_a_plan_fit_together_and_its_messages_stay() {
        let text = "x".repeat(1 << 20);
        let mut plan = Plan::default();
        for _ in 0..4000 {
            plan.insert(Role::User, "read by the model", 0..1).note("layer", text.as_str());
        }
        plan.replace_text(7, text.as_str());
        plan.extras.details = Value::Array(vec![text.clone().into(); 8]);
        plan.extras.compaction_wanted = Some(text.clone());
        let EngineReply::Assemble(plan) = limited(EngineReply::Assemble(plan)) else {
            panic!("another reply")
        };
        let notes = plan.ops.iter().filter_map(|op| op.note.as_ref());
        let bytes: usize = notes.map(|note| note.detail.len()).sum();
        assert!(bytes <= MAX_REPLY_BYTES, "{bytes}");
        assert_eq!((plan.ops.len(), &plan.extras.details), (4001, &Value::Null));
        assert!(
            matches!(&plan.ops[4000].action, Action::ReplaceText { text: kept, .. } if *kept == text)
        );
        assert!(plan.extras.compaction_wanted.unwrap().len() < 2 * MAX_TEXT_BYTES);
    }

    #[test]
    fn tools_answers_and_states_are_limited() {
        let huge = "x".repeat(8 << 20);
        let tool = |schema: Value| ToolSpec {
            name: "find".into(),
            description: huge.clone(),
            input_schema: schema,
        };
        let object = serde_json::json!({ "type": "object" });
        let tools = [huge.clone().into(), object, Value::Null].map(tool).to_vec();
        let EngineReply::Tools(tools) = limited(EngineReply::Tools(tools)) else { panic!() };
        assert_eq!(tools.len(), 2, "without the one whose schema is too large");
        assert!(tools[0].description.len() < 2 * MAX_TEXT_BYTES);
        let answer = ToolAnswer { text: huge.clone(), is_error: false };
        let EngineReply::CallTool(answer) = limited(EngineReply::CallTool(answer)) else {
            panic!()
        };
        assert!(answer.text.len() < 2 * MAX_VALUE_BYTES);
        let summary = huge.clone();
        let status = EngineStatus { summary, details: huge.into(), ..EngineStatus::default() };
        let EngineReply::Status(status) = limited(EngineReply::Status(status)) else { panic!() };
        assert!(status.summary.len() < 2 * MAX_TEXT_BYTES && status.details.is_null());
    }
}
