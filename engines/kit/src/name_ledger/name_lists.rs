//! The rendered list of names, and the facts that such a list repeats.

use super::{NameRow, NameSet};
use crate::files::FileOperation;
use ctxhost_text::identifiers::{Identifier, IdentifierKind, for_each_identifier};

/// Tag of a rendered list.
pub const TAG: &str = "names";
/// Title of the line of facts, by which the next compaction knows them.
const FACTS: &str = "facts";
/// Title of the line of ids that the model stated.
const STATEMENTS: &str = "stated";

/// Size of the tags and titles, in weighted characters.
pub(super) const BLOCK_CHARS: u64 = 72;

/// The lines of a list of names.
#[derive(Default)]
pub(super) struct NameLists<'n> {
    by_title: [Vec<(u32, &'n str)>; TITLES.len()],
    /// Numbers of the listed names.
    numbers: NameSet,
    /// Numbers of the names that are not listed: what is withheld, and the parts of shown paths.
    left_out: NameSet,
}

/// Titles of the lines. One title for many names costs less than a word behind each.
const TITLES: [&str; 7] = [FACTS, STATEMENTS, "changed", "read", "files", "symbols", "other"];

impl<'n> NameLists<'n> {
    /// Whether a name was listed or left out before.
    pub(super) fn is_done(&self, number: u32) -> bool {
        self.numbers.contains(number) || self.left_out.contains(number)
    }

    /// Leaves a name out. Returns whether it was listed before.
    pub(super) fn leave_out(&mut self, number: u32) -> bool {
        let is_removed = self.numbers.contains(number) && !self.left_out.contains(number);
        self.left_out.insert(number);
        is_removed
    }

    pub(super) fn add(&mut self, number: u32, row: &'n NameRow) {
        let title = match (row.operation, row.kind) {
            (Some(FileOperation::Change), _) => 2,
            (Some(FileOperation::Read), _) => 3,
            _ if row.is_listed_fact() => 0,
            _ if row.is_statement => 1,
            (_, IdentifierKind::File) => 4,
            (_, IdentifierKind::Symbol | IdentifierKind::Variable) => 5,
            _ => 6,
        };
        if let Some(list) = self.by_title.get_mut(title) {
            list.push((number, &row.name));
        }
        self.numbers.insert(number);
    }

    pub(super) fn render(self) -> NameList {
        let NameLists { by_title, numbers, left_out } = self;
        let names_of = |list: Vec<(u32, &'n str)>| -> Vec<&str> {
            let names = list.into_iter().filter(|(number, _)| !left_out.contains(*number));
            names.map(|(_, name)| name).collect()
        };
        let lines: Vec<String> = TITLES
            .iter()
            .zip(by_title.map(names_of))
            .filter(|(_, names)| !names.is_empty())
            .map(|(title, names)| format!("{title}: {}", names.join(", ")))
            .collect();
        let text = if lines.is_empty() {
            String::new()
        } else {
            format!("<{TAG}>\n{}\n</{TAG}>", lines.join("\n"))
        };
        NameList { text, names: numbers.numbers }
    }
}

/// A rendered list of names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameList {
    /// The names as a block; empty without any.
    pub text: String,
    /// Their numbers.
    pub names: Vec<u32>,
}

/// A text up to the first rendered list, the names of that list, and the text behind it.
// A list is longer than what stands around it, and no scan finds more in it than it names.
pub(super) fn split_at_list(text: &str) -> (&str, impl Iterator<Item = &str>, &str) {
    let (begin, end) = (format!("<{TAG}>\n"), format!("\n</{TAG}>"));
    let parts = text.split_once(&begin).and_then(|(before, rest)| {
        let (list, behind) = rest.split_once(&end)?;
        Some((before, list, behind))
    });
    let (before, list, behind) = parts.unwrap_or((text, "", ""));
    let lines = list.lines().filter_map(|line| line.split_once(": "));
    (before, lines.flat_map(|(_, names)| names.split(", ")), behind)
}

/// The facts that a rendered list names, so that they stay facts after a compaction.
pub(super) fn listed_facts(text: &str) -> impl Iterator<Item = Identifier<'_>> {
    listed(text, FACTS)
}

/// The ids that a rendered list names as stated by the model.
pub(super) fn listed_statements(text: &str) -> impl Iterator<Item = Identifier<'_>> {
    listed(text, STATEMENTS)
}

fn listed<'t>(text: &'t str, title: &'static str) -> impl Iterator<Item = Identifier<'t>> {
    let lines = text.lines().filter_map(move |line| line.strip_prefix(title)?.strip_prefix(": "));
    lines.flat_map(|line| line.split(", ")).map(|fact| {
        // A fact without a shape of its own was quoted.
        let mut kind = IdentifierKind::Quotation;
        for_each_identifier(fact, |found| {
            if found.text.len() == fact.len() {
                kind = found.kind;
            }
        });
        Identifier { text: fact, kind, start: 0 }
    })
}
