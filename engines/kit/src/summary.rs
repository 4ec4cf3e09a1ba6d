//! Extractive summaries: the conversation's own sentences, sorted into five sections.
//!
//! Deterministic: the same entries give the same bytes. Engines use them without a model, and as
//! the fallback when a model fails.

pub(crate) mod bullets;
pub(crate) mod envelope;
mod error_lines;
mod excerpt;
mod extract;
mod merge;
mod open_tasks;
mod outline;
mod requests;
mod sections;
pub(crate) mod sentences;
mod similarity;

pub use bullets::render_bullets;
pub use envelope::{Provenance, escape_tag, unwrap_summary, wrap_summary, wrap_untrusted};
pub use error_lines::error_line;
pub use excerpt::{
    ExcerptRole, MessageExcerpt, earlier_summaries, merge_earlier_summaries, message_excerpts,
};
pub use extract::{extract_sections, extract_sections_before};
pub use merge::{merge, merge_rules, with_later_changes};
pub use outline::{LineRetention, SectionSpec, SummaryOutline, SummaryTemplate};
pub use requests::is_answered_line;
pub use sections::{HEADINGS, SummarySections};

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use ctxhost_engine_api::testing::TranscriptBuilder;

    fn sample() -> TranscriptBuilder {
        let mut sample = TranscriptBuilder::new();
        sample.user("Fix the login in /srv/app/login.rs. Never touch the schema. 必须保留日志。");
        sample.calls(&[("1", "read", &json!({"path": "/srv/app/login.rs"}).to_string())]);
        sample.result("1", "read", "commit deadbeefcafe");
        sample.assistant("I decided to use a session table instead of cookies. Next step: tests.");
        sample.user("Now deploy it with password=hunter2hunter2");
        sample
    }

    #[test]
    fn the_same_entries_give_the_same_bytes_in_five_sections() {
        let transcript = sample().transcript();
        let once = extract_sections(&message_excerpts(&transcript, &[0..5])).render();
        assert_eq!(once, extract_sections(&message_excerpts(&transcript, &[0..5])).render());
        let expected = "\
## Decisions
- I decided to use a session table instead of cookies.

## Open TODOs
- Next step: tests.

## Constraints/Rules
- Never touch the schema.
- 必须保留日志。

## Pending user asks
- Now deploy it with password=[redacted:credential]

## Exact identifiers
- /srv/app/login.rs
- deadbeefcafe";
        assert_eq!(once, expected);
    }

    #[test]
    fn a_summary_of_a_summary_neither_nests_nor_grows() {
        let mut text = String::new();
        let mut sizes = Vec::new();
        for round in 0..6 {
            let mut sample = sample();
            if !text.is_empty() {
                sample.summary(&text);
            }
            let transcript = sample.transcript();
            let ranges = [0..transcript.len() as u64];
            let newer = extract_sections(&message_excerpts(&transcript, &ranges));
            let whole = merge_earlier_summaries(&transcript, &ranges)
                .map_or(newer.clone(), |old| merge(old, newer));
            text = wrap_summary(&whole.render(), &Provenance { entries: 5, writer: "extractive" });
            assert_eq!(text.matches("<summary>").count(), 1, "round {round}");
            sizes.push(text.len());
        }
        assert_eq!(sizes[0], sizes[5]);
    }

    #[test]
    fn no_messages_give_five_empty_sections() {
        let text = extract_sections(&[]).render();
        assert_eq!(text.matches("- None.").count(), 5);
        assert_eq!(SummarySections::parse(&text), SummarySections::default());
    }
}
