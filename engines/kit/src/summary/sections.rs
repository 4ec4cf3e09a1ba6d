//! The five sections of a summary: rendering, parsing and fitting.

use ctxhost_engine_api::transcript::tokens::weighted_chars;

use super::bullets::{NONE, list_chars, render_bullets};
use super::envelope::is_markup;
use super::extract::is_decision_line;
use super::requests::is_answered_line;
use super::sentences::split;
use super::similarity;

/// The headings in order.
pub const HEADINGS: [&str; 5] = [
    "## Decisions",
    "## Open TODOs",
    "## Constraints/Rules",
    "## Pending user asks",
    "## Exact identifiers",
];

/// Maximum decisions; the longest memory of a summary. The room of a summary is mostly less.
pub(super) const MAX_DECISIONS: usize = 60;
/// Maximum reports of answers among them. The rest is for what was decided, which holds longer.
pub(super) const MAX_REPORTS: usize = 40;
/// Maximum rules of the user; what the user wrote is kept before what the model did.
pub(super) const MAX_CONSTRAINTS: usize = 40;
/// Maximum lines of the other sections.
pub(super) const MAX_LINES: usize = 12;
/// Maximum pending requests.
pub(super) const MAX_REQUESTS: usize = 3;
/// Length of a line, in weighted characters; a longer sentence is dropped.
// It is not cut, because half of a sentence can reverse its meaning.
pub(super) const LINE_LIMIT_CHARS: u64 = 400;
/// Length of a request, in weighted characters; the ledger has the full text.
pub(super) const REQUEST_LIMIT_CHARS: u64 = 400;

/// The content of a summary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SummarySections {
    /// Decisions and completed work, oldest first.
    pub decisions: Vec<String>,
    /// Open tasks, oldest first.
    pub todos: Vec<String>,
    /// Rules of the user, oldest first.
    pub constraints: Vec<String>,
    /// Sentences of the user that may change a rule of an older summary, oldest first; not rendered.
    pub hints: Vec<String>,
    /// Pending requests, newest first.
    pub requests: Vec<String>,
    /// Exact identifiers, most recent first.
    pub identifiers: Vec<String>,
}

impl SummarySections {
    /// Renders all sections.
    pub fn render(&self) -> String {
        let bodies = self.lists().map(render_bullets);
        let parts = HEADINGS.iter().zip(bodies).map(|(heading, body)| format!("{heading}\n{body}"));
        parts.collect::<Vec<_>>().join("\n\n")
    }

    /// Parses the sections of a summary, including those with other headings.
    pub fn parse(text: &str) -> Self {
        let mut sections = SummarySections::default();
        let mut kind = SectionKind::Decisions;
        let mut skipped_tag = None;
        for line in text.lines().map(str::trim) {
            if let Some(tag) = &skipped_tag {
                if line == tag {
                    skipped_tag = None;
                }
            } else if let Some(tag) = opening_tag(line) {
                skipped_tag = Some(format!("</{tag}>"));
            } else if is_markup(line) {
                continue;
            } else if line.starts_with('#') {
                kind = SectionKind::from_heading(line);
            } else {
                sections.take(kind, line);
            }
        }
        sections
    }

    /// Removes lines that are in two sections: a completed task is not open, and a rule is not a
    /// decision.
    pub(super) fn remove_overlaps(&mut self) {
        self.requests.retain(|ask| !is_answered_line(ask));
        similarity::remove_similar(&mut self.decisions, &self.constraints);
        similarity::remove_similar(&mut self.todos, &self.constraints);
        // A task that was completed since the last summary is listed as open there.
        let (done, rest): (Vec<String>, Vec<String>) =
            self.decisions.iter().cloned().partition(|line| is_ticked(line));
        let bare: Vec<String> = done.iter().map(|line| without_tick(line).to_owned()).collect();
        similarity::remove_similar(&mut self.todos, &bare);
        let open: Vec<String> =
            self.todos.iter().map(|line| without_tick(line).to_owned()).collect();
        let mut rest = rest;
        similarity::remove_similar(&mut rest, &open);
        self.decisions.retain(|line| is_ticked(line) || rest.contains(line));
    }

    /// Drops lines, the oldest of the longest section first, until the text takes at most
    /// `limit_chars` weighted characters. The newest request and the identifiers go last. Before a decision is
    /// dropped, all are reduced to their first sentences.
    pub fn fit(&mut self, limit_chars: u64) {
        while weighted_chars(&self.render()) > limit_chars {
            if list_chars(&self.decisions)
                >= list_chars(&self.todos).max(list_chars(&self.constraints))
                && shorten_oldest(&mut self.decisions)
            {
                continue;
            }
            let most_chars = list_chars(&self.todos).max(list_chars(&self.constraints));
            if list_chars(&self.decisions) > most_chars {
                drop_oldest(&mut self.decisions);
                continue;
            }
            let lists = [&mut self.todos, &mut self.constraints];
            let longest = lists.into_iter().max_by_key(|lines| list_chars(lines));
            match longest.filter(|lines| !lines.is_empty()) {
                Some(lines) => drop(lines.remove(0)),
                None if self.requests.len() > 1 => drop(self.requests.pop()),
                None if self.identifiers.pop().is_some() => {}
                None => return,
            }
        }
    }

    fn lists(&self) -> [&[String]; 5] {
        [&self.decisions, &self.todos, &self.constraints, &self.requests, &self.identifiers]
    }

    fn take(&mut self, kind: SectionKind, line: &str) {
        let line =
            line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")).unwrap_or(line).trim();
        // Tables and code lose their meaning line by line.
        let is_table = line.starts_with('|') || line.starts_with("```");
        if line.is_empty() || line == NONE || is_table || is_markup(line) {
            return;
        }
        let list = match kind {
            SectionKind::Decisions => &mut self.decisions,
            SectionKind::Todos => &mut self.todos,
            SectionKind::Constraints => &mut self.constraints,
            SectionKind::Asks => &mut self.requests,
            SectionKind::Identifiers => &mut self.identifiers,
            SectionKind::Skipped => return,
        };
        if !list.iter().any(|known| known == line) {
            list.push(line.to_owned());
        }
    }
}

/// Removes the oldest report if there are as many as decisions, else the oldest line.
pub(super) fn drop_oldest(lines: &mut Vec<String>) {
    let is_decision: Vec<bool> = lines.iter().map(|line| is_decision_line(line)).collect();
    let reports = is_decision.iter().filter(|is_decision| !**is_decision).count();
    let oldest_report = is_decision.iter().position(|is_decision| !is_decision);
    let oldest = oldest_report.filter(|_| 2 * reports >= lines.len()).unwrap_or(0);
    if oldest < lines.len() {
        lines.remove(oldest);
    }
}

/// The section of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SectionKind {
    Decisions,
    Todos,
    Constraints,
    Asks,
    Identifiers,
    Skipped,
}

impl SectionKind {
    /// The section of a heading of any agent; unknown headings count as decisions.
    fn from_heading(heading: &str) -> SectionKind {
        let words = heading.to_lowercase();
        let has = |options: &[&str]| options.iter().any(|option| words.contains(option));
        // These sections quote the conversation and are written again by each compaction.
        if has(&["recent turns", "tool failures"]) {
            SectionKind::Skipped
        } else if has(&["identifier"]) {
            SectionKind::Identifiers
        } else if has(&["constraint", "preference", "rules"]) {
            SectionKind::Constraints
        } else if has(&["todo", "next", "in progress", "blocked", "remaining", "current task"]) {
            SectionKind::Todos
        } else if has(&["goal", "pending user", "request"]) {
            SectionKind::Asks
        } else {
            SectionKind::Decisions
        }
    }
}

/// Reduces the oldest line of several sentences to its first one; `false` without any.
fn shorten_oldest(lines: &mut [String]) -> bool {
    let shorter = |line: &String| {
        let first = split(line).into_iter().next()?;
        (first.len() < line.len()).then_some(first)
    };
    let found = lines.iter_mut().find_map(|line| shorter(line).map(|first| (line, first)));
    found.map(|(line, first)| *line = first).is_some()
}

fn is_ticked(line: &str) -> bool {
    line.len() > without_tick(line).len() && !line.starts_with("[ ]")
}

/// A task without its check box.
fn without_tick(line: &str) -> &str {
    let boxes = ["[ ]", "[x]", "[X]", "✅"];
    boxes.iter().find_map(|tick| line.strip_prefix(tick)).unwrap_or(line).trim_start()
}

fn opening_tag(line: &str) -> Option<&str> {
    let tag = line.strip_prefix('<')?.strip_suffix('>')?;
    let is_name = tag.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    (is_name && !tag.is_empty()).then_some(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> SummarySections {
        let lines = |name: &str, count: usize| (0..count).map(|n| format!("{name} {n}")).collect();
        SummarySections {
            decisions: lines("decision", 20),
            todos: lines("todo", 5),
            constraints: lines("rule", 5),
            hints: Vec::new(),
            requests: lines("ask", 2),
            identifiers: lines("/path/to", 12),
        }
    }

    #[test]
    fn text_and_back() {
        let with_appendix = format!(
            "{}\n\n## Recent turns preserved verbatim\n- User: x\n\n<read-files>\n/a\n</read-files>",
            full().render()
        );
        assert_eq!(SummarySections::parse(&with_appendix), full());
    }

    #[test]
    fn a_summary_of_another_agent_keeps_its_content() {
        let text = "# Checkpoint\n## Goal\nRefactor it\n\n## Key Decisions Made\n1. Keep old code\n## Next Steps\n- write docs\n| a | b |";
        let sections = SummarySections::parse(text);
        assert_eq!(sections.requests, ["Refactor it"]);
        assert_eq!(sections.decisions, ["1. Keep old code"]);
        assert_eq!(sections.todos, ["write docs"]);
    }

    #[test]
    fn fitting_drops_the_oldest_of_the_longest_section_first() {
        let mut sections = full();
        sections.fit(600);
        assert!(weighted_chars(&sections.render()) <= 600);
        assert_eq!(sections.decisions.last().map(String::as_str), Some("decision 19"));
        assert_eq!(sections.identifiers.len(), 12);
        sections.fit(0);
        assert_eq!(sections.requests, ["ask 0"]);
    }
}
