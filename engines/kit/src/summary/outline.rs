//! A summary with configurable headings, with a retention policy per section.

use std::collections::BTreeMap;

use ctxhost_engine_api::transcript::tokens::weighted_chars;
use serde::{Deserialize, Serialize};

use super::bullets::{NONE, list_chars, render_bullets};

/// A section of a template.
#[derive(Clone, Copy, Debug)]
pub struct SectionSpec {
    /// The heading without marks.
    pub heading: &'static str,
    /// Maximum number of lines.
    pub max_lines: usize,
    /// How its lines are retained.
    pub retention: LineRetention,
}

/// How the lines of a section are retained, and in which order they are dropped if room is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineRetention {
    /// The oldest line is dropped first; the longest such section before all others.
    OldestFirst,
    /// The same for lines of `read` or `changed` and a file; a change outlives a read.
    Files,
    /// The first line is never dropped.
    KeepFirst,
    /// New lines replace all earlier ones.
    ReplaceAll,
    /// Like `OldestFirst`, but dropped last.
    DropLast,
}

/// The sections of a summary, in order.
#[derive(Clone, Copy, Debug)]
pub struct SummaryTemplate(pub &'static [SectionSpec]);

/// The lines of a summary by heading, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummaryOutline(BTreeMap<String, Vec<String>>);

impl SummaryOutline {
    /// The lines under a heading.
    pub fn lines(&self, heading: &str) -> &[String] {
        self.0.get(heading).map_or(&[], Vec::as_slice)
    }

    /// Adds lines under a heading.
    #[must_use]
    pub fn with_lines(
        mut self,
        heading: &str,
        lines: impl IntoIterator<Item = String>,
    ) -> SummaryOutline {
        self.change(heading, |old| old.extend(lines));
        self
    }

    /// Removes the lines under a heading.
    pub fn clear(&mut self, heading: &str) {
        self.0.remove(heading);
    }

    /// An empty heading is removed, so that equal outlines compare equal.
    fn change(&mut self, heading: &str, work: impl FnOnce(&mut Vec<String>)) {
        let mut lines = self.0.remove(heading).unwrap_or_default();
        work(&mut lines);
        if !lines.is_empty() {
            self.0.insert(heading.to_owned(), lines);
        }
    }
}

impl SummaryTemplate {
    /// The headings as rendered: `## 1. Tasks`.
    pub fn headings(&self) -> impl Iterator<Item = String> {
        self.0.iter().enumerate().map(|(at, section)| format!("## {}. {}", at + 1, section.heading))
    }

    /// Renders all sections.
    pub fn render(&self, outline: &SummaryOutline) -> String {
        let lines = self.0.iter().map(|section| render_bullets(outline.lines(section.heading)));
        let parts = self.headings().zip(lines).map(|(heading, body)| format!("{heading}\n{body}"));
        parts.collect::<Vec<_>>().join("\n\n")
    }

    /// Parses a text with these headings, in all spellings that models use; `None` without any
    /// heading.
    pub fn parse(&self, text: &str) -> Option<SummaryOutline> {
        let mut outline = SummaryOutline::default();
        let mut place = None;
        for line in text.lines().map(str::trim) {
            if let Some(heading) = self.heading_of(line) {
                place = Some(heading);
                continue;
            }
            let line = line.trim_start_matches(['-', '*', ' ']);
            let heading = place.filter(|_| !line.is_empty() && line != NONE);
            heading.into_iter().for_each(|at| outline.change(at, |old| old.push(line.to_owned())));
        }
        place.map(|_| outline)
    }

    /// The headings that a text lacks.
    pub fn missing_headings(&self, text: &str) -> Vec<&'static str> {
        let found: Vec<&str> = text.lines().filter_map(|line| self.heading_of(line)).collect();
        let headings = self.0.iter().map(|section| section.heading);
        headings.filter(|heading| !found.contains(heading)).collect()
    }

    /// Appends newer lines: last, unique and bounded.
    pub fn append(&self, outline: &mut SummaryOutline, newer: &SummaryOutline) {
        for section in self.0 {
            let lines = newer.lines(section.heading);
            outline.change(section.heading, |old| section.append(old, lines));
        }
    }

    /// Drops lines until the text takes at most `limit_chars` weighted characters, or no line may
    /// be dropped.
    pub fn fit(&self, outline: &mut SummaryOutline, limit_chars: u64) {
        while weighted_chars(&self.render(outline)) > limit_chars {
            let Some(section) = self.next_to_shed(outline) else { return };
            outline.change(section.heading, |lines| match section.retention {
                LineRetention::OldestFirst | LineRetention::Files => drop(lines.remove(0)),
                _ => drop(lines.pop()),
            });
        }
    }

    fn next_to_shed(&self, outline: &SummaryOutline) -> Option<&SectionSpec> {
        let of = |ages: LineRetention, least: usize| {
            let sections = self.0.iter().filter(move |section| section.retention == ages);
            sections.filter(move |section| outline.lines(section.heading).len() > least)
        };
        let size = |section: &&SectionSpec| list_chars(outline.lines(section.heading));
        let oldest_first = of(LineRetention::OldestFirst, 0).chain(of(LineRetention::Files, 0));
        let rest = of(LineRetention::KeepFirst, 1)
            .chain(of(LineRetention::ReplaceAll, 0))
            .chain(of(LineRetention::DropLast, 0));
        oldest_first.max_by_key(size).or_else(|| rest.into_iter().next())
    }

    /// The heading of a line: `## 9. Next step`, `9. Optional Next Step:`, `**Next Step**`.
    fn heading_of(&self, line: &str) -> Option<&'static str> {
        let mark = |c: char| c.is_ascii_digit() || "#*. :".contains(c);
        let words = line.trim().trim_matches(mark).to_lowercase();
        // The published template says "Optional Next Step".
        let words = words.strip_prefix("optional ").unwrap_or(&words);
        let bare = |c: char| !"#*0123456789".contains(c);
        // A plain sentence that equals a heading is content.
        let is_marked = line.trim_end().ends_with(':') || !line.trim().starts_with(bare);
        let mut headings = self.0.iter().map(|section| section.heading).filter(|_| is_marked);
        headings.find(|heading| heading.to_lowercase() == words)
    }
}

impl SectionSpec {
    fn append(&self, old: &mut Vec<String>, newer: &[String]) {
        let pinned = usize::from(self.retention == LineRetention::KeepFirst);
        if self.retention == LineRetention::ReplaceAll && !newer.is_empty() {
            old.clear();
        }
        for line in newer {
            match self.retention {
                LineRetention::Files
                    if is_changed(old, path(line)) && !line.starts_with(CHANGED) =>
                {
                    continue;
                }
                LineRetention::Files => old.retain(|known| path(known) != path(line)),
                _ if old.iter().take(pinned).any(|known| known == line) => continue,
                _ => old.retain(|known| known != line),
            }
            old.push(line.clone());
        }
        let excess = old.len().saturating_sub(self.max_lines);
        // Oldest first, but behind the pinned first line.
        old.drain(pinned.min(old.len())..(pinned + excess).min(old.len()));
    }
}

const CHANGED: &str = "changed ";

fn is_changed(lines: &[String], name: &str) -> bool {
    lines.iter().any(|line| line.strip_prefix(CHANGED) == Some(name))
}

fn path(line: &str) -> &str {
    line.split_once(' ').map_or(line, |(_, path)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn section(heading: &'static str, max_lines: usize, ages: LineRetention) -> SectionSpec {
        SectionSpec { heading, max_lines, retention: ages }
    }

    const FORM: SummaryTemplate = SummaryTemplate(&[
        section("Task", 5, LineRetention::KeepFirst),
        section("Files", 4, LineRetention::Files),
        section("Messages", 8, LineRetention::OldestFirst),
        section("Decisions", 9, LineRetention::OldestFirst),
        section("Current work", 1, LineRetention::ReplaceAll),
        section("Next step", 3, LineRetention::DropLast),
    ]);

    fn lines(name: &str, count: usize) -> Vec<String> {
        (0..count).map(|n| format!("{name} {n}")).collect()
    }

    fn full() -> SummaryOutline {
        SummaryOutline::default()
            .with_lines("Task", lines("task", 3))
            .with_lines("Files", ["read /a".into(), "changed /b".into()])
            .with_lines("Messages", lines("said", 6))
            .with_lines("Decisions", lines("did", 9))
            .with_lines("Current work", lines("doing", 1))
            .with_lines("Next step", lines("ask", 2))
    }

    #[test]
    fn text_and_back() {
        assert_eq!(FORM.parse(&FORM.render(&full())), Some(full()));
        let empty = FORM.render(&SummaryOutline::default());
        assert_eq!(empty.matches("- None.").count(), 6);
        assert_eq!(FORM.parse(&empty), Some(SummaryOutline::default()));
        assert_eq!(FORM.parse("## Elsewhere\n- x"), None);
        assert!(FORM.missing_headings(&empty).is_empty());
        assert_eq!(FORM.missing_headings("## Task\n## Files\n## Messages").len(), 3);
    }

    #[test]
    fn headings_are_known_in_the_ways_models_write_them() {
        for line in ["## 9. Next step", "9. Optional Next Step:", "**Next Step**", "Next step:"] {
            assert_eq!(FORM.heading_of(line), Some("Next step"), "{line}");
        }
        for line in ["next step", "- the next step is", "## Next steps"] {
            assert_eq!(FORM.heading_of(line), None, "{line}");
        }
    }

    #[test]
    fn later_lines_win_and_sizes_are_bounded() {
        let mut outline = full();
        let newer = SummaryOutline::default()
            .with_lines("Task", lines("rule", 40))
            .with_lines("Files", ["changed /a".into(), "read /b".into(), "read /c".into()])
            .with_lines("Messages", ["said 0".into()])
            .with_lines("Current work", ["now".into()]);
        FORM.append(&mut outline, &newer);
        assert_eq!(outline.lines("Task").len(), 5);
        assert_eq!(outline.lines("Task")[..2], ["task 0", "rule 36"]);
        assert_eq!(outline.lines("Files"), ["changed /b", "changed /a", "read /c"]);
        assert_eq!(outline.lines("Messages").last().unwrap(), "said 0");
        assert_eq!((outline.lines("Messages").len(), outline.lines("Current work").len()), (6, 1));
        FORM.append(&mut outline, &SummaryOutline::default().with_lines("Task", ["task 0".into()]));
        assert_eq!(outline.lines("Task")[0], "task 0");
    }

    #[test]
    fn fitting_keeps_the_first_line_and_what_waits() {
        let mut outline = full();
        FORM.fit(&mut outline, 160);
        assert!(weighted_chars(&FORM.render(&outline)) <= 160);
        assert_eq!(outline.lines("Next step").len(), 2);
        FORM.fit(&mut outline, 0);
        assert_eq!(outline, SummaryOutline::default().with_lines("Task", ["task 0".into()]));
    }
}
