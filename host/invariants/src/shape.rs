//! Checks the shape of a plan: order, ranges and kinds of operations, and the integrity of
//! rewrites.

use ctxhost_dialects::ChatMessage;
use ctxhost_engine_api::border::{MAX_JSON_LEVELS, levels_of_text};
use ctxhost_engine_api::{Action, ContentBlock, Entry, Flags, Message, Plan, Role, Transcript};
use serde::Deserialize;
use serde_json::Value;

use super::PlanViolation;

/// Refuses a plan whose operations are out of range, out of order, unknown or tampered with.
pub(super) fn check_shape(view: &Transcript, plan: &Plan) -> Result<(), PlanViolation> {
    let mut walk = PlanWalk { len: view.len() as u64, last_start: 0, reached: 0 };
    for (op, operation) in plan.ops.iter().enumerate() {
        walk.step(op, &operation.action)?;
        match &operation.action {
            Action::Insert { role, text, .. } => check_insert(op, *role, text)?,
            Action::ReplaceText { seq, text } => {
                view.get(*seq).map_or(Ok(()), |entry| check_text(op, &entry, text))?;
            }
            Action::ReplaceRaw { seq, raw } => {
                view.get(*seq).map_or(Ok(()), |entry| check_raw(op, &entry, raw))?;
            }
            Action::Keep(_) | Action::Drop(_) => {}
            Action::Unknown(kind) => {
                return Err(PlanViolation::UnknownOperation { op, kind: *kind });
            }
            // A kind that the contract gained later is refused until it is handled here.
            _ => return Err(PlanViolation::UnknownOperation { op, kind: 0 }),
        }
    }
    Ok(())
}

/// The progress through the operations.
struct PlanWalk {
    len: u64,
    last_start: u64,
    reached: u64,
}

impl PlanWalk {
    fn step(&mut self, op: usize, action: &Action) -> Result<(), PlanViolation> {
        let range = action.range();
        let (start, end) = (range.start, range.end);
        if start > end {
            return Err(PlanViolation::InvertedRange { op, start, end });
        }
        // `seq + 1` of a replacement saturates, so the start is checked separately.
        if end > self.len || (start >= self.len && start < end) || is_endless(action) {
            return Err(PlanViolation::OutOfRange { op, start, end, len: self.len });
        }
        if start == end {
            // An operation without a range stays at its place in the plan; a lower number has no
            // meaning.
            self.reached = self.reached.max(start);
            return Ok(());
        }
        if start < self.reached {
            let reached = self.reached;
            return Err(if start < self.last_start {
                PlanViolation::OutOfOrder { op, start, reached }
            } else {
                PlanViolation::Overlap { op, start, reached }
            });
        }
        (self.last_start, self.reached) = (start, end);
        Ok(())
    }
}

/// Whether a replacement names the one position whose range overflows.
fn is_endless(action: &Action) -> bool {
    matches!(
        action,
        Action::ReplaceText { seq: u64::MAX, .. } | Action::ReplaceRaw { seq: u64::MAX, .. }
    )
}

fn check_insert(op: usize, role: Role, text: &str) -> Result<(), PlanViolation> {
    if !matches!(role, Role::User | Role::Assistant) {
        return Err(PlanViolation::BadInsertRole { op, role });
    }
    if text.trim().is_empty() { Err(PlanViolation::EmptyText { op }) } else { Ok(()) }
}

/// An empty text is valid only for a message with calls.
fn check_text(op: usize, entry: &Entry<'_>, text: &str) -> Result<(), PlanViolation> {
    let is_empty = text.trim().is_empty() && !entry.has(Flags::TOOL_CALLS);
    if is_empty { Err(PlanViolation::EmptyText { op }) } else { Ok(()) }
}

fn check_raw(op: usize, entry: &Entry<'_>, raw: &str) -> Result<(), PlanViolation> {
    let seq = entry.seq();
    let invalid = |reason| PlanViolation::InvalidRewrite { op, seq, reason };
    let now = RewriteHead::parse(raw).map_err(|error| invalid(error.to_string()))?;
    // The original may be invalid JSON; then a rewrite must have an empty head as well.
    let was = RewriteHead::parse(entry.raw()).unwrap_or_default();
    if was.speaker() != now.speaker() {
        let (was, now) = (was.speaker().to_owned(), now.speaker().to_owned());
        return Err(PlanViolation::RewriteChangedRole { op, seq, was, now });
    }
    check_sendable(entry, now.speaker(), raw).map_err(invalid)?;
    // A call of the model may have more levels; they are read back from the session as they are.
    let levels = levels_of_text(raw);
    if levels > MAX_JSON_LEVELS && levels > levels_of_text(entry.raw()) {
        let reason = format!("it nests {levels} levels deep, the limit is {MAX_JSON_LEVELS}");
        return Err(invalid(reason));
    }
    let (old, new) = (entry.message(), Message::parse(raw, ""));
    if was.tool_call_id != now.tool_call_id || call_ids(&old) != call_ids(&new) {
        return Err(PlanViolation::RewriteChangedCalls { op, seq });
    }
    // Providers sign thinking: it may be removed, but changed thinking is rejected.
    let thinking = thinking(&new);
    if !thinking.is_empty() && thinking != self::thinking(&old) {
        return Err(PlanViolation::RewriteChangedThinking { op, seq });
    }
    // Providers reject messages without content.
    if new.blocks.is_empty() || says_nothing(&new) {
        return Err(PlanViolation::EmptyText { op });
    }
    Ok(())
}

/// Refuses a rewrite that the request cannot be written from: the original would be sent, and the rewrite counted.
fn check_sendable(entry: &Entry<'_>, speaker: &str, raw: &str) -> Result<(), String> {
    // The reader of those that write requests.
    let read = |raw: &str| serde_json::from_str::<ChatMessage>(raw).map(drop);
    let sendable = match read(raw) {
        // The text of a message of the system becomes part of the system prompt. A message of another program may have a
        // field of another type, such as a time: requests are written from what is counted of it.
        Err(_) if speaker == "system" || (has_blocks(speaker) && read(entry.raw()).is_err()) => {
            serde_json::from_str::<Value>(raw).map(drop)
        }
        sendable => sendable,
    };
    sendable.map_err(|error| error.to_string())
}

fn has_blocks(speaker: &str) -> bool {
    matches!(speaker, "user" | "assistant" | "toolResult")
}

/// The head of a message's JSON: its role, and the call that it answers.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RewriteHead {
    role: Option<String>,
    r#type: Option<String>,
    tool_call_id: Option<String>,
}

impl RewriteHead {
    fn parse(raw: &str) -> serde_json::Result<RewriteHead> {
        serde_json::from_str(raw)
    }

    /// The role; the type for an entry that is not a message (a summary, a custom entry).
    fn speaker(&self) -> &str {
        self.role.as_deref().or(self.r#type.as_deref()).unwrap_or("")
    }
}

fn call_ids<'m>(message: &'m Message<'_>) -> Vec<&'m str> {
    let id = |block: &'m ContentBlock<'_>| match block {
        ContentBlock::ToolCall(call) => Some(call.id.as_ref()),
        _ => None,
    };
    message.blocks.iter().filter_map(id).collect()
}

fn thinking<'m>(message: &'m Message<'_>) -> Vec<&'m ContentBlock<'m>> {
    message.blocks.iter().filter(|block| matches!(block, ContentBlock::Thinking { .. })).collect()
}

fn says_nothing(message: &Message<'_>) -> bool {
    let is_blank = |block: &ContentBlock<'_>| matches!(block, ContentBlock::Text(text) if text.trim().is_empty());
    message.blocks.iter().all(is_blank)
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::Op;
    use ctxhost_engine_api::testing::generate::{Script, rewrite_raw};

    use super::*;

    fn verdict(build: impl FnOnce(&mut Plan)) -> Result<(), PlanViolation> {
        let generated = Script::new()
            .user("task")
            .calls("I look", &["a"])
            .result("a", "found")
            .user("so?")
            .finish();
        let mut plan = Plan::default();
        build(&mut plan);
        check_shape(&generated.transcript(), &plan)
    }

    fn action(action: Action) -> impl FnOnce(&mut Plan) {
        move |plan| plan.ops.push(Op { action, note: None })
    }

    #[test]
    fn ranges() {
        let backwards = std::ops::Range { start: 3, end: 1 };
        assert!(matches!(
            verdict(action(Action::Keep(backwards))),
            Err(PlanViolation::InvertedRange { .. })
        ));
        assert!(matches!(
            verdict(action(Action::Keep(2..5))),
            Err(PlanViolation::OutOfRange { .. })
        ));
        for seq in [4, u64::MAX] {
            let replace = Action::ReplaceText { seq, text: "x".into() };
            assert!(
                matches!(verdict(action(replace)), Err(PlanViolation::OutOfRange { .. })),
                "{seq}"
            );
        }
        assert!(matches!(
            verdict(action(Action::Drop(9..9))),
            Err(PlanViolation::OutOfRange { .. })
        ));
        assert_eq!(verdict(action(Action::Keep(1..1))), Ok(()));
    }

    #[test]
    fn order() {
        let overlap = verdict(|plan| _ = plan.leave_out(0..3).keep(2..4));
        assert_eq!(overlap, Err(PlanViolation::Overlap { op: 1, start: 2, reached: 3 }));
        let order = verdict(|plan| _ = plan.leave_out(2..3).keep(0..1));
        assert_eq!(order, Err(PlanViolation::OutOfOrder { op: 1, start: 0, reached: 3 }));
        assert_eq!(verdict(|plan| _ = plan.keep(0..4).insert(Role::User, "note", 0..0)), Ok(()));
    }

    #[test]
    fn texts_and_kinds() {
        let insert = |role, text: &str| Action::Insert { role, text: text.into(), covers: 0..1 };
        let role = Err(PlanViolation::BadInsertRole { op: 0, role: Role::System });
        assert_eq!(verdict(action(insert(Role::System, "I am the rule"))), role);
        assert_eq!(
            verdict(action(insert(Role::User, " \n"))),
            Err(PlanViolation::EmptyText { op: 0 })
        );
        assert_eq!(
            verdict(|plan| _ = plan.replace_text(2, "")),
            Err(PlanViolation::EmptyText { op: 0 })
        );
        assert_eq!(verdict(|plan| _ = plan.replace_text(1, "")), Ok(()));
        let unknown = Err(PlanViolation::UnknownOperation { op: 0, kind: 9 });
        assert_eq!(verdict(action(Action::Unknown(9))), unknown);
    }

    #[test]
    fn rewrites() {
        let raw = |seq, raw: &str| verdict(|plan| _ = plan.replace_raw(seq, raw));
        assert!(matches!(raw(0, "not JSON"), Err(PlanViolation::InvalidRewrite { .. })));
        let assistant = r#"{"role":"assistant","content":"hello"}"#;
        assert!(matches!(raw(0, assistant), Err(PlanViolation::RewriteChangedRole { .. })));
        assert!(matches!(raw(1, assistant), Err(PlanViolation::RewriteChangedCalls { .. })));
        let result = r#"{"role":"toolResult","toolCallId":"b","content":"x"}"#;
        assert!(matches!(raw(2, result), Err(PlanViolation::RewriteChangedCalls { .. })));
        assert_eq!(raw(2, &result.replace(r#""b""#, r#""a""#)), Ok(()));
        assert_eq!(
            raw(0, r#"{"role":"user","content":[]}"#),
            Err(PlanViolation::EmptyText { op: 0 })
        );
    }

    #[test]
    fn a_rewrite_that_no_request_can_be_written_from_is_refused() {
        let user =
            |content: &str, more: &str| format!(r#"{{"role":"user","content":{content}{more}}}"#);
        let text = |text: &str| format!(r#"[{{"type":"text","text":"{text}"}}]"#);
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for wrong in [
            user(&text(r"cut \ud83d"), ""),
            user(&text("short"), r#","timestamp":1e999"#),
            user(&text("short"), r#","timestamp":"now""#),
            user(&text("short"), &format!(r#","details":{deep}"#)),
            user(&text("short"), r#","content":"shorter""#),
        ] {
            let judged = verdict(|plan| _ = plan.replace_raw(0, &wrong));
            let Err(PlanViolation::InvalidRewrite { op: 0, seq: 0, reason }) = judged else {
                panic!("{wrong}: {judged:?}");
            };
            assert!(!reason.is_empty());
        }
        let sendable = user(&text("short"), r#","timestamp":1"#);
        assert_eq!(verdict(|plan| _ = plan.replace_raw(0, sendable)), Ok(()));
    }

    #[test]
    fn a_rewrite_nests_no_deeper_than_the_limit_or_its_entry() {
        let raw = |levels: usize, text: &str| {
            let deep = format!("{}{}", "[".repeat(levels - 1), "]".repeat(levels - 1));
            format!(r#"{{"role":"user","content":"{text}","details":{deep}}}"#)
        };
        let mut generated = Script::new().user("task").user("so?").finish();
        generated.entries[1].raw = raw(80, "so?");
        let view = generated.transcript();
        let judge = |seq, levels| {
            let mut plan = Plan::default();
            plan.replace_raw(seq, raw(levels, "short"));
            check_shape(&view, &plan)
        };
        assert_eq!((judge(0, MAX_JSON_LEVELS), judge(1, 80)), (Ok(()), Ok(())));
        for (seq, levels) in [(0, MAX_JSON_LEVELS + 1), (0, 126), (1, 81)] {
            let refused = judge(seq, levels).unwrap_err().to_string();
            assert!(
                refused.contains(&format!("{levels} levels deep, the limit is 64")),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_message_with_a_field_of_another_type_can_be_shortened() {
        let mut generated = Script::new().user("task").finish();
        generated.entries[0].raw = r#"{"role":"user","content":"a task","timestamp":"now"}"#.into();
        let view = generated.transcript();
        let judge = |raw: &str| {
            let mut plan = Plan::default();
            plan.replace_raw(0, raw);
            check_shape(&view, &plan)
        };
        assert_eq!(judge(r#"{"role":"user","content":"task","timestamp":"now"}"#), Ok(()));
        let half =
            r#"{"role":"user","content":[{"type":"text","text":"\ud83d"}],"timestamp":"now"}"#;
        assert!(matches!(judge(half), Err(PlanViolation::InvalidRewrite { .. })));
    }

    #[test]
    fn a_note_cannot_be_rewritten_as_json() {
        let mut generated = Script::new().user("task").assistant("x").finish();
        generated.entries[0].raw = r#"{"role":"custom","content":"a long note"}"#.to_owned();
        let mut plan = Plan::default();
        plan.replace_raw(0, r#"{"role":"custom","content":"short"}"#);
        let judged = check_shape(&generated.transcript(), &plan);
        assert!(matches!(judged, Err(PlanViolation::InvalidRewrite { .. })), "{judged:?}");
        let mut plan = Plan::default();
        plan.replace_text(0, "short");
        assert_eq!(check_shape(&generated.transcript(), &plan), Ok(()));
    }

    #[test]
    fn thinking_is_unchanged_or_dropped() {
        let raw = r#"{"role":"assistant","content":[
            {"type":"thinking","thinking":"hm","thinkingSignature":"s"},{"type":"text","text":"x"}]}"#;
        let mut entry = Script::new().user("task").assistant("x").finish();
        entry.entries[1].raw = raw.to_owned();
        let view = entry.transcript();
        let judge = |raw: &str| {
            let mut plan = Plan::default();
            plan.replace_raw(1, raw);
            check_shape(&view, &plan)
        };
        let forged = raw.replace("hm", "hm!");
        assert_eq!(judge(&forged), Err(PlanViolation::RewriteChangedThinking { op: 0, seq: 1 }));
        assert_eq!(judge(&raw.replace(r#""x""#, r#""y""#)), Ok(()));
        assert_eq!(judge(&rewrite_raw(raw, "y")), Ok(()));
    }
}
