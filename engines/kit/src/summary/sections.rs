//! The five sections of a summary, as text and back.

use ctxhost_engine_api::transcript::tokens::weighted_chars;

use super::asks::is_answered_line;
use super::wrap::is_markup;
use super::{NONE, bullets, list_chars, similar};

/// The headings, in the order a summary shows them.
pub const HEADINGS: [&str; 5] = [
    "## Decisions",
    "## Open TODOs",
    "## Constraints/Rules",
    "## Pending user asks",
    "## Exact identifiers",
];

/// Lines of the section that tells what was done; the longest memory, so the most lines.
pub(super) const MAX_DECISIONS: usize = 24;
/// Lines of the other sections.
pub(super) const MAX_LINES: usize = 12;
/// Requests that wait at the same time.
pub(super) const MAX_ASKS: usize = 3;
/// One line, in weighted characters. A longer sentence is left out, because half of one may say the
/// opposite of the whole.
pub(super) const LINE_LIMIT_CHARS: u64 = 400;
/// One request, in weighted characters; the whole of it is among the requests of the ledger.
pub(super) const ASK_LIMIT_CHARS: u64 = 400;

/// The content of a summary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sections {
    /// What was decided and done, oldest first.
    pub decisions: Vec<String>,
    /// What is left to do, oldest first.
    pub todos: Vec<String>,
    /// Rules of the person, oldest first.
    pub constraints: Vec<String>,
    /// Requests, newest first.
    pub asks: Vec<String>,
    /// Names that must be exact, most recent first.
    pub identifiers: Vec<String>,
}

impl Sections {
    /// The sections as text, each with at least one line.
    pub fn render(&self) -> String {
        let bodies = self.lists().map(bullets);
        let parts = HEADINGS.iter().zip(bodies).map(|(heading, body)| format!("{heading}\n{body}"));
        parts.collect::<Vec<_>>().join("\n\n")
    }

    /// Reads the sections of a summary, also of one that uses other headings.
    pub fn parse(text: &str) -> Self {
        let mut sections = Sections::default();
        let mut place = Place::Decisions;
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
                place = Place::of(line);
            } else {
                sections.take(place, line);
            }
        }
        sections
    }

    /// Says nothing in two sections: what is left to do is not done, and a rule is no decision. What was
    /// done since is not left to do.
    pub(super) fn tell_apart(&mut self) {
        self.asks.retain(|ask| !is_answered_line(ask));
        similar::without(&mut self.decisions, &self.constraints);
        similar::without(&mut self.todos, &self.constraints);
        let (done, rest): (Vec<String>, Vec<String>) =
            self.decisions.iter().cloned().partition(|line| is_ticked(line));
        let bare: Vec<String> = done.iter().map(|line| without_tick(line).to_owned()).collect();
        similar::without(&mut self.todos, &bare);
        let open: Vec<String> =
            self.todos.iter().map(|line| without_tick(line).to_owned()).collect();
        let mut rest = rest;
        similar::without(&mut rest, &open);
        self.decisions.retain(|line| is_ticked(line) || rest.contains(line));
    }

    /// Leaves out lines, the oldest of the longest section first, until the text takes at most
    /// `limit_chars` weighted characters. The newest request and the identifiers go last.
    pub fn fit(&mut self, limit_chars: u64) {
        while weighted_chars(&self.render()) > limit_chars {
            let told = [&mut self.decisions, &mut self.todos, &mut self.constraints];
            let longest = told.into_iter().max_by_key(|lines| list_chars(lines));
            match longest.filter(|lines| !lines.is_empty()) {
                Some(lines) => drop(lines.remove(0)),
                None if self.asks.len() > 1 => drop(self.asks.pop()),
                None if self.identifiers.pop().is_some() => {}
                None => return,
            }
        }
    }

    fn lists(&self) -> [&[String]; 5] {
        [&self.decisions, &self.todos, &self.constraints, &self.asks, &self.identifiers]
    }

    fn take(&mut self, place: Place, line: &str) {
        let line =
            line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")).unwrap_or(line).trim();
        let is_table = line.starts_with('|') || line.starts_with("```");
        if line.is_empty() || line == NONE || is_table || is_markup(line) {
            return;
        }
        let list = match place {
            Place::Decisions => &mut self.decisions,
            Place::Todos => &mut self.todos,
            Place::Constraints => &mut self.constraints,
            Place::Asks => &mut self.asks,
            Place::Identifiers => &mut self.identifiers,
            Place::Skipped => return,
        };
        if !list.iter().any(|known| known == line) {
            list.push(line.to_owned());
        }
    }
}

/// Which section a line belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Decisions,
    Todos,
    Constraints,
    Asks,
    Identifiers,
    Skipped,
}

impl Place {
    /// The section of a heading, ours or another agent's. What nobody knows is told as done.
    fn of(heading: &str) -> Place {
        let words = heading.to_lowercase();
        let has = |options: &[&str]| options.iter().any(|option| words.contains(option));
        if has(&["recent turns", "tool failures"]) {
            Place::Skipped
        } else if has(&["identifier"]) {
            Place::Identifiers
        } else if has(&["constraint", "preference", "rules"]) {
            Place::Constraints
        } else if has(&["todo", "next", "in progress", "blocked", "remaining", "current task"]) {
            Place::Todos
        } else if has(&["goal", "pending user", "request"]) {
            Place::Asks
        } else {
            Place::Decisions
        }
    }
}

fn is_ticked(line: &str) -> bool {
    line.len() > without_tick(line).len() && !line.starts_with("[ ]")
}

/// A task without the box that is ticked off.
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

    fn full() -> Sections {
        let lines = |name: &str, count: usize| (0..count).map(|n| format!("{name} {n}")).collect();
        Sections {
            decisions: lines("decision", 20),
            todos: lines("todo", 5),
            constraints: lines("rule", 5),
            asks: lines("ask", 2),
            identifiers: lines("/path/to", 12),
        }
    }

    #[test]
    fn text_and_back() {
        let with_appendix = format!(
            "{}\n\n## Recent turns preserved verbatim\n- User: x\n\n<read-files>\n/a\n</read-files>",
            full().render()
        );
        assert_eq!(Sections::parse(&with_appendix), full());
    }

    #[test]
    fn a_summary_of_another_agent_keeps_its_content() {
        let text = "# Checkpoint\n## Goal\nRefactor it\n\n## Key Decisions Made\n1. Keep old code\n## Next Steps\n- write docs\n| a | b |";
        let sections = Sections::parse(text);
        assert_eq!(sections.asks, ["Refactor it"]);
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
        assert_eq!(sections.asks, ["ask 0"]);
    }
}
