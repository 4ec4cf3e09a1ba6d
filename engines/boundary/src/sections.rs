//! The nine sections of a summary, as text and back.

use ctxhost_engine_api::transcript::tokens::weighted_chars;
use ctxhost_engine_kit::summary;
use serde::{Deserialize, Serialize};

/// The headings, in the order a summary shows them.
pub(crate) const HEADINGS: [&str; 9] = [
    "Primary request and intent",
    "Key technical concepts",
    "Files and code",
    "Errors and fixes",
    "Problem solving",
    "All user messages",
    "Pending tasks",
    "Current work",
    "Next step",
];

/// Lines of the longest memories: what was solved, and what the person said.
const MAX_TOLD_LINES: usize = 24;
/// Lines of the other sections.
const MAX_LINES: usize = 12;
/// Requests that wait at the same time.
const MAX_OPEN: usize = 3;

const NONE: &str = "None.";

/// What a summary says, line by line, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Sections {
    /// The task, then the person's rules.
    pub(crate) request: Vec<String>,
    /// Names that must be exact.
    pub(crate) concepts: Vec<String>,
    /// `changed src/main.rs`, `read src/lib.rs`.
    pub(crate) files: Vec<String>,
    /// What tools failed with.
    pub(crate) errors: Vec<String>,
    /// What was decided and done.
    pub(crate) solutions: Vec<String>,
    /// What the person said.
    pub(crate) messages: Vec<String>,
    /// What is left to do.
    pub(crate) pending: Vec<String>,
    /// The model's last words.
    pub(crate) current: Vec<String>,
    /// Requests that nobody has answered.
    pub(crate) next: Vec<String>,
}

impl Sections {
    /// The sections as text, each with at least one line.
    pub(crate) fn render(&self) -> String {
        let part = |(at, (heading, lines)): (usize, (&str, &Vec<String>))| {
            let shown: Vec<String> = lines.iter().map(|line| format!("- {line}")).collect();
            let body = if shown.is_empty() { format!("- {NONE}") } else { shown.join("\n") };
            format!("## {}. {heading}\n{body}", at + 1)
        };
        HEADINGS
            .into_iter()
            .zip(self.lists())
            .enumerate()
            .map(part)
            .collect::<Vec<_>>()
            .join("\n\n")
    }

    /// Reads a summary of these headings; one of other headings by what the kit makes of it.
    pub(crate) fn parse(text: &str) -> Sections {
        if missing(text).len() == HEADINGS.len() {
            return Sections::from(summary::Sections::parse(text));
        }
        let mut sections = Sections::default();
        let mut place = None;
        for line in text.lines().map(str::trim) {
            if let Some(heading) = heading_of(line) {
                place = Some(heading);
                continue;
            }
            let line = line.trim_start_matches(['-', '*', ' ']);
            let lists = sections.lists_mut().into_iter();
            let list = place.and_then(|at| lists.into_iter().nth(at));
            if let Some(list) = list.filter(|_| !line.is_empty() && line != NONE) {
                list.push(line.to_owned());
            }
        }
        sections
    }

    /// Takes in what came later: the newer words stand last, nothing twice, nothing grows for ever.
    pub(crate) fn append(&mut self, newer: Sections) {
        let Sections {
            request,
            concepts,
            files,
            errors,
            solutions,
            messages,
            pending,
            current,
            next,
        } = newer;
        self.files.retain(|old| {
            let name = path(old);
            let again = files.iter().any(|new| path(new) == name);
            !again
                || (is_changed(old)
                    && !files.iter().any(|new| path(new) == name && is_changed(new)))
        });
        let fresh = files
            .into_iter()
            .filter(|new| is_changed(new) || !self.files.iter().any(|old| path(old) == path(new)));
        let fresh: Vec<String> = fresh.collect();
        extend(&mut self.files, fresh, 0, MAX_TOLD_LINES);
        // The first line is the task: it stays whatever follows.
        extend(&mut self.request, request, 1, MAX_LINES);
        extend(&mut self.concepts, concepts, 0, MAX_LINES);
        extend(&mut self.errors, errors, 0, MAX_LINES);
        extend(&mut self.solutions, solutions, 0, MAX_TOLD_LINES);
        extend(&mut self.messages, messages, 0, MAX_TOLD_LINES);
        extend(&mut self.pending, pending, 0, MAX_LINES);
        extend(&mut self.next, next, 0, MAX_OPEN);
        if !current.is_empty() {
            self.current = current;
        }
    }

    /// Leaves out lines, the oldest of the longest section first, until the text takes at most
    /// `limit_chars` weighted characters. The task goes never, what is at hand goes last.
    pub(crate) fn fit(&mut self, limit_chars: u64) {
        while weighted_chars(&self.render()) > limit_chars {
            let told = [
                &mut self.concepts,
                &mut self.files,
                &mut self.errors,
                &mut self.solutions,
                &mut self.messages,
                &mut self.pending,
            ];
            let longest = told.into_iter().max_by_key(|lines| chars(lines));
            match longest.filter(|lines| !lines.is_empty()) {
                Some(lines) => drop(lines.remove(0)),
                None if self.request.len() > 1 => drop(self.request.pop()),
                None if !self.current.is_empty() => drop(self.current.pop()),
                None if self.next.pop().is_some() => {}
                None => return,
            }
        }
    }

    fn lists(&self) -> [&Vec<String>; 9] {
        [
            &self.request,
            &self.concepts,
            &self.files,
            &self.errors,
            &self.solutions,
            &self.messages,
            &self.pending,
            &self.current,
            &self.next,
        ]
    }

    fn lists_mut(&mut self) -> [&mut Vec<String>; 9] {
        [
            &mut self.request,
            &mut self.concepts,
            &mut self.files,
            &mut self.errors,
            &mut self.solutions,
            &mut self.messages,
            &mut self.pending,
            &mut self.current,
            &mut self.next,
        ]
    }
}

impl From<summary::Sections> for Sections {
    fn from(five: summary::Sections) -> Sections {
        Sections {
            request: five.constraints,
            concepts: five.identifiers,
            solutions: five.decisions,
            pending: five.todos,
            next: five.asks,
            ..Sections::default()
        }
    }
}

/// The headings that a text does not have.
pub(crate) fn missing(text: &str) -> Vec<&'static str> {
    let found: Vec<usize> = text.lines().filter_map(heading_of).collect();
    let is_missing = |(at, _): &(usize, &str)| !found.contains(at);
    HEADINGS.into_iter().enumerate().filter(is_missing).map(|(_, heading)| heading).collect()
}

/// Which heading a line is: `## 9. Next step`, `9. Optional Next Step:`, `**Next Step**`.
fn heading_of(line: &str) -> Option<usize> {
    let mark = |c: char| c.is_ascii_digit() || "#*. :".contains(c);
    let words = line.trim().trim_matches(mark).to_lowercase();
    let words = words.strip_prefix("optional ").unwrap_or(&words);
    let bare = |c: char| !"#*0123456789".contains(c);
    let is_marked = line.trim_end().ends_with(':') || !line.trim().starts_with(bare);
    let at = HEADINGS.iter().position(|heading| heading.to_lowercase() == words);
    at.filter(|_| is_marked)
}

fn extend(older: &mut Vec<String>, newer: Vec<String>, pinned: usize, max: usize) {
    for line in newer {
        match older.iter().position(|known| *known == line) {
            Some(at) if at < pinned => continue,
            Some(at) => drop(older.remove(at)),
            None => {}
        }
        older.push(line);
    }
    let excess = older.len().saturating_sub(max);
    older.drain(pinned.min(older.len())..(pinned + excess).min(older.len()));
}

fn is_changed(line: &str) -> bool {
    line.starts_with("changed ")
}

fn path(line: &str) -> &str {
    line.split_once(' ').map_or(line, |(_, path)| path)
}

fn chars(lines: &[String]) -> u64 {
    lines.iter().map(|line| weighted_chars(line) + 3).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(name: &str, count: usize) -> Vec<String> {
        (0..count).map(|n| format!("{name} {n}")).collect()
    }

    fn full() -> Sections {
        Sections {
            request: lines("task", 3),
            concepts: lines("name", 4),
            files: vec!["read /a".into(), "changed /b".into()],
            errors: lines("error", 2),
            solutions: lines("did", 20),
            messages: lines("said", 6),
            pending: lines("todo", 2),
            current: lines("doing", 1),
            next: lines("ask", 2),
        }
    }

    #[test]
    fn text_and_back() {
        assert_eq!(Sections::parse(&full().render()), full());
        assert_eq!(Sections::parse(&Sections::default().render()), Sections::default());
        assert!(missing(&full().render()).is_empty());
    }

    #[test]
    fn headings_are_known_in_the_ways_models_write_them() {
        for line in ["## 9. Next step", "9. Optional Next Step:", "**Next Step**", "Next step:"] {
            assert_eq!(heading_of(line), Some(8), "{line}");
        }
        for line in ["next step", "- the next step is", "## Next steps"] {
            assert_eq!(heading_of(line), None, "{line}");
        }
    }

    #[test]
    fn a_summary_of_five_sections_keeps_its_content() {
        let sections = Sections::parse("## Decisions\n- use axum\n\n## Open TODOs\n- tests");
        assert_eq!(
            (sections.solutions[0].as_str(), sections.pending[0].as_str()),
            ("use axum", "tests")
        );
    }

    #[test]
    fn later_words_win_and_nothing_grows_for_ever() {
        let mut sections = full();
        let newer = Sections {
            request: lines("rule", 40),
            files: vec!["changed /a".into(), "read /b".into(), "read /c".into()],
            messages: vec!["said 0".into()],
            current: vec!["now".into()],
            ..Sections::default()
        };
        sections.append(newer);
        assert_eq!((sections.request.len(), sections.request[0].as_str()), (MAX_LINES, "task 0"));
        assert_eq!(sections.files, ["changed /b", "changed /a", "read /c"]);
        assert_eq!(sections.messages.last().map(String::as_str), Some("said 0"));
        assert_eq!((sections.messages.len(), sections.current[0].as_str()), (6, "now"));
    }

    #[test]
    fn fitting_keeps_the_task_and_what_is_at_hand() {
        let mut sections = full();
        sections.fit(420);
        assert!(weighted_chars(&sections.render()) <= 420);
        assert_eq!((sections.current.len(), sections.next.len()), (1, 2));
        sections.fit(0);
        assert_eq!(sections.request, ["task 0"]);
    }
}
