//! The nine sections of a summary and their retention.

use ctxhost_engine_kit::summary::{
    self, LineRetention, SectionSpec, SummaryOutline, SummaryTemplate,
};

/// The task, then the user's rules.
pub(crate) const REQUEST: &str = "Primary request and intent";
/// Exact names.
pub(crate) const CONCEPTS: &str = "Key technical concepts";
/// `changed src/main.rs`, `read src/lib.rs`.
pub(crate) const FILES: &str = "Files and code";
/// Failures of tools.
pub(crate) const ERRORS: &str = "Errors and fixes";
/// Decisions and completed work.
pub(crate) const SOLUTIONS: &str = "Problem solving";
/// User messages.
pub(crate) const MESSAGES: &str = "All user messages";
/// Open tasks.
pub(crate) const PENDING: &str = "Pending tasks";
/// The model's last message.
pub(crate) const CURRENT: &str = "Current work";
/// Unanswered requests.
pub(crate) const NEXT: &str = "Next step";

/// The sections in order.
pub(crate) const TEMPLATE: SummaryTemplate = SummaryTemplate(&[
    section(REQUEST, MAX_RULES + 1, LineRetention::KeepFirst),
    section(CONCEPTS, MAX_LINES, LineRetention::OldestFirst),
    section(FILES, MAX_TOLD_LINES, LineRetention::Files),
    section(ERRORS, MAX_LINES, LineRetention::OldestFirst),
    section(SOLUTIONS, MAX_SOLUTIONS, LineRetention::OldestFirst),
    section(MESSAGES, MAX_TOLD_LINES, LineRetention::OldestFirst),
    section(PENDING, MAX_LINES, LineRetention::OldestFirst),
    section(CURRENT, 1, LineRetention::ReplaceAll),
    section(NEXT, MAX_OPEN, LineRetention::DropLast),
]);

/// Maximum rules of the user, after the task: as many as a summary extracts.
const MAX_RULES: usize = 40;
/// Maximum decisions and reports: as many as a summary extracts.
const MAX_SOLUTIONS: usize = 60;
/// Maximum lines of files and messages.
const MAX_TOLD_LINES: usize = 24;
/// Maximum lines of the other sections.
const MAX_LINES: usize = 12;
/// Maximum pending requests.
const MAX_OPEN: usize = 3;

const fn section(heading: &'static str, max_lines: usize, ages: LineRetention) -> SectionSpec {
    SectionSpec { heading, max_lines, retention: ages }
}

/// Parses a summary with these headings; other headings are mapped from the five standard sections.
pub(crate) fn parse(text: &str) -> SummaryOutline {
    TEMPLATE.parse(text).unwrap_or_else(|| {
        let five = summary::SummarySections::parse(text);
        from_five_sections(five.clone()).with_lines(NEXT, five.requests)
    })
}

/// Maps five sections to nine, without the pending requests.
pub(crate) fn from_five_sections(five: summary::SummarySections) -> SummaryOutline {
    SummaryOutline::default()
        .with_lines(REQUEST, five.constraints)
        .with_lines(CONCEPTS, five.identifiers)
        .with_lines(SOLUTIONS, five.decisions)
        .with_lines(PENDING, five.todos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_of_nine_sections_comes_back_and_one_of_five_keeps_its_content() {
        let nine = SummaryOutline::default()
            .with_lines(FILES, ["changed /a".into()])
            .with_lines(NEXT, ["go".into()]);
        assert_eq!(parse(&TEMPLATE.render(&nine)), nine);
        let five = parse("## Decisions\n- use axum\n\n## Open TODOs\n- tests");
        assert_eq!(
            (five.lines(SOLUTIONS), five.lines(PENDING)),
            (&["use axum".to_owned()][..], &["tests".to_owned()][..])
        );
    }

    #[test]
    fn fitting_keeps_the_task_and_what_is_at_hand() {
        let lines = |name: &str, count: usize| {
            (0..count).map(move |n| format!("{name} {n}")).collect::<Vec<_>>()
        };
        let mut outline = SummaryOutline::default()
            .with_lines(REQUEST, lines("task", 3))
            .with_lines(SOLUTIONS, lines("did", 20))
            .with_lines(CURRENT, lines("doing", 1))
            .with_lines(NEXT, lines("ask", 2));
        TEMPLATE.fit(&mut outline, 420);
        assert_eq!((outline.lines(CURRENT).len(), outline.lines(NEXT).len()), (1, 2));
        TEMPLATE.fit(&mut outline, 0);
        assert_eq!(outline, SummaryOutline::default().with_lines(REQUEST, ["task 0".into()]));
    }
}
