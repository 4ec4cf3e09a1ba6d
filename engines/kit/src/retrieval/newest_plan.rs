//! The newest plan of a session: the list of tasks that the model keeps, so that a moved window shows what is open.

use ctxhost_engine_api::transcript::tokens::CHARS_PER_TOKEN;
use ctxhost_engine_api::{Entry, Role, Transcript};
use ctxhost_text::redact::redact;
use ctxhost_text::truncate::clip;

use crate::files::plain_tool_name;
use crate::settings::share_of;
use crate::summary::envelope::wrap_untrusted;

use super::history_index::HistoryIndex;
use super::layout::RequestLayout;

const TAG: &str = "plan";
/// Share of a budget for the plan: about twelve tasks at 8,000 tokens.
const PLAN_SHARE: f64 = 0.04;
/// With fewer tokens, a plan would be hardly more than its tags.
const LEAST_TOKENS: u64 = 40;
/// Lines with a box from which a text is a plan.
const LEAST_TASKS: usize = 2;
/// Bytes of arguments from which a call states a plan; `{}` asks for one.
const LEAST_ARGUMENT_BYTES: usize = 16;
/// Bytes of a text that are searched for tasks.
const READ_BYTES: usize = 20_000;

/// Whether a tool of this name keeps a plan.
pub(crate) fn is_plan_tool(name: &str) -> bool {
    let name = plain_tool_name(name).to_lowercase();
    name.contains("todo") || name.contains("plan")
}

impl HistoryIndex {
    /// Remembers an entry that states a plan; it replaces every earlier one.
    pub(super) fn read_plan(&mut self, entry: &Entry<'_>) {
        if entry.role() == Role::Assistant && plan_of(entry).is_some() {
            self.newest_plan = Some(entry.seq());
        }
    }

    /// The newest plan, if a layout does not show it; empty otherwise.
    pub fn render_plan(
        &self,
        transcript: &Transcript,
        budget_tokens: u64,
        layout: &RequestLayout,
    ) -> String {
        let hidden = self.newest_plan.filter(|seq| !layout.shows(*seq));
        let plan = hidden.and_then(|seq| plan_of(&transcript.get(seq)?));
        let room_tokens = share_of(budget_tokens, PLAN_SHARE);
        match plan {
            Some(plan) if room_tokens >= LEAST_TOKENS => {
                let frame_tokens = LEAST_TOKENS / 2;
                let most_chars = (room_tokens - frame_tokens) * CHARS_PER_TOKEN;
                wrap_untrusted(TAG, &clip(&redact(&plan), most_chars))
            }
            _ => String::new(),
        }
    }
}

/// The plan that an answer states: the arguments of its last call of such a tool, or the lines with a box.
fn plan_of(entry: &Entry<'_>) -> Option<String> {
    let calls = entry.tool_calls();
    let call = calls
        .iter()
        .rev()
        .find(|call| is_plan_tool(&call.name) && call.arguments.len() >= LEAST_ARGUMENT_BYTES);
    call.map(|call| call.arguments.clone().into_owned()).or_else(|| tasks_of(entry.text()))
}

fn tasks_of(text: &str) -> Option<String> {
    let text = text.get(..text.floor_char_boundary(READ_BYTES)).unwrap_or_default();
    let tasks: Vec<&str> = text.lines().map(str::trim).filter(|line| is_task(line)).collect();
    (tasks.len() >= LEAST_TASKS).then(|| tasks.join("\n"))
}

/// Whether a line is `- [ ] task`, with any mark of a list and in the box.
fn is_task(line: &str) -> bool {
    let is_mark = |c: char| c.is_ascii_digit() || c.is_whitespace() || "-*+.)".contains(c);
    let line = line.trim_start_matches(is_mark);
    let open = ["[ ] ", "[x] ", "[X] ", "[~] ", "[-] ", "[/] ", "☐", "☑", "☒"];
    open.iter().any(|open| line.starts_with(open))
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::TranscriptBuilder;

    use super::*;

    fn plan_at(talk: &TranscriptBuilder, cut: u64) -> String {
        let mut index = HistoryIndex::default();
        let transcript = talk.transcript();
        transcript.iter().for_each(|entry| index.read_entry(&transcript, &entry, 0, "test"));
        let layout = RequestLayout { cut, ..RequestLayout::default() };
        index.render_plan(&transcript, 8_000, &layout)
    }

    #[test]
    fn the_newest_plan_is_shown_until_the_window_has_it() {
        let mut talk = TranscriptBuilder::new();
        talk.user("Plan it.").assistant("Here:\n- [ ] first\n- [ ] second");
        talk.user("And?").assistant("Done so far:\n1. [x] first\n2. [ ] second\nNow the next.");
        let plan = plan_at(&talk, talk.len());
        assert!(plan.contains("1. [x] first\n2. [ ] second") && !plan.contains("Now"), "{plan}");
        assert!(!plan.contains("- [ ] first"), "{plan}");
        assert_eq!(plan_at(&talk, 3), "");
        let arguments = r#"{"todos":[{"content":"third","status":"pending"}]}"#;
        talk.calls(&[("c", "TodoWrite", arguments)]).result("c", "TodoWrite", "ok");
        talk.calls(&[("d", "TodoRead", "{}")]).result("d", "TodoRead", "third");
        let plan = plan_at(&talk, talk.len());
        assert!(plan.contains("third") && !plan.contains("second"), "{plan}");
    }

    #[test]
    fn a_list_of_the_user_and_a_single_box_are_no_plan() {
        let mut talk = TranscriptBuilder::new();
        talk.user("- [ ] one\n- [ ] two").assistant("The mark [ ] is open.\n- [ ] alone");
        assert_eq!(plan_at(&talk, talk.len()), "");
    }
}
