//! A node: the summary of some entries (a leaf) or of the nodes below it, with its sources.

use std::fmt;

use ctxhost_engine_api::transcript::tokens::{self, weighted_chars};
use ctxhost_text::truncate::clip;
use serde::{Deserialize, Serialize};

/// Prefix of a node's id, before depth and index: `d1-3`.
const ID_PREFIX: char = 'd';
/// The id of the whole tree.
pub(crate) const ROOT: &str = "root";

/// Stands before a request.
pub(crate) const REQUEST: &str = "user: ";

/// Share of a node's text for its names, as a divisor.
const NAME_PART: u64 = 3;

/// The address of a node: its depth, 0 for leaves, and its number at that depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeId {
    pub(crate) depth: usize,
    pub(crate) index: usize,
}

impl NodeId {
    /// The id of a leaf.
    pub(crate) fn leaf(index: usize) -> NodeId {
        NodeId { depth: 0, index }
    }

    /// Parses `d1-3`.
    pub(crate) fn parse(text: &str) -> Option<NodeId> {
        let (depth, index) = text.strip_prefix(ID_PREFIX)?.split_once('-')?;
        Some(NodeId { depth: depth.parse().ok()?, index: index.parse().ok()? })
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{ID_PREFIX}{}-{}", self.depth, self.index)
    }
}

/// What a line of a summary is about; the first kinds are kept longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LineKind {
    /// A standing rule of the user.
    Rule,
    /// A request of the user.
    Request,
    /// A failed call.
    Failure,
    /// The beginning of an answer.
    Report,
}

/// A line of a summary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeLine {
    pub(crate) kind: LineKind,
    pub(crate) text: String,
}

impl NodeLine {
    /// The user's words in it, for a request or a rule.
    pub(crate) fn request(&self) -> Option<&str> {
        // The kind first: an outline asks thousands of lines, whose texts lie far apart.
        if !matches!(self.kind, LineKind::Rule | LineKind::Request) {
            return None;
        }
        self.text.strip_prefix(REQUEST)
    }
}

/// A name and the sum of the weights of its mentions.
pub(crate) type WeightedName = (String, f32);

/// A node. Nothing in it contains a secret.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct DagNode {
    /// Entry ids of a leaf, oldest first; empty above, where the address gives the sources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) sources: Vec<String>,
    /// Number of entries below it.
    pub(crate) entries: u64,
    /// Hash of the sources: a node with the same one has the same contents.
    pub(crate) fingerprint: u64,
    /// In the order of the sources.
    pub(crate) lines: Vec<NodeLine>,
    /// Heaviest first.
    pub(crate) names: Vec<WeightedName>,
    /// What a model wrote in place of the lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) written: Option<String>,
    /// Lines and names as shown.
    pub(crate) text: String,
}

impl DagNode {
    /// Renders the text: the best lines in their order, then names, within a limit.
    pub(crate) fn render(&mut self, limit_tokens: u64) {
        // Rendered once and stored: a node whose text depended on the request would change the prefix.
        self.text = self.text_of(&self.lines.iter().collect::<Vec<_>>(), limit_tokens);
    }

    /// The text with some of its lines.
    pub(crate) fn text_of(&self, lines: &[&NodeLine], limit_tokens: u64) -> String {
        let limit_chars = limit_tokens * tokens::CHARS_PER_TOKEN;
        let names = render_names(&self.names, limit_chars / NAME_PART);
        let line_chars = limit_chars.saturating_sub(weighted_chars(&names));
        let lines = match &self.written {
            Some(written) => clip(written, line_chars).into_owned(),
            None => join_best(lines, line_chars),
        };
        let parts: Vec<&str> =
            [lines.as_str(), names.as_str()].into_iter().filter(|part| !part.is_empty()).collect();
        parts.join(" | ")
    }

    /// The user's messages with a rule.
    pub(crate) fn rules(&self) -> impl Iterator<Item = &str> {
        let lines = self.lines.iter().filter(|line| line.kind == LineKind::Rule);
        lines.map(|line| line.request().unwrap_or(&line.text))
    }

    /// The line that stands for the node: `[d0-3, 8 entries] …`.
    pub(crate) fn line(&self, id: &str) -> String {
        self.line_with(id, &self.text)
    }

    /// The same with another text.
    pub(crate) fn line_with(&self, id: &str, text: &str) -> String {
        let noun = if self.entries == 1 { "entry" } else { "entries" };
        format!("[{id}, {} {noun}] {text}", self.entries).trim_end().to_owned()
    }
}

fn render_names(names: &[WeightedName], limit_chars: u64) -> String {
    let mut room = limit_chars.saturating_sub(weighted_chars("names: "));
    let mut shown: Vec<&str> = Vec::new();
    for (name, _) in names {
        let Some(rest) = room.checked_sub(weighted_chars(name) + 2) else { continue };
        // A longer path already contains the file name.
        if shown.iter().any(|longer| longer.contains(name.as_str())) {
            continue;
        }
        room = rest;
        shown.push(name);
    }
    if shown.is_empty() { String::new() } else { format!("names: {}", shown.join(", ")) }
}

/// The best lines that fit, in their own order.
fn join_best(lines: &[&NodeLine], limit_chars: u64) -> String {
    let mut order: Vec<usize> = (0..lines.len()).collect();
    // Stable: of equal kinds the earlier line wins, which names the subject.
    order.sort_by_key(|at| lines.get(*at).map(|line| line.kind));
    let mut room = limit_chars;
    let mut kept: Vec<usize> = Vec::new();
    for at in order {
        let Some(line) = lines.get(at) else { continue };
        let Some(rest) = room.checked_sub(weighted_chars(&line.text) + 2) else { continue };
        room = rest;
        kept.push(at);
    }
    kept.sort_unstable();
    let texts = kept.iter().filter_map(|at| lines.get(*at)).map(|line| line.text.as_str());
    let joined = texts.collect::<Vec<_>>().join("; ");
    match lines.first() {
        // Not even one line fits whole: its beginning is better than nothing.
        Some(first) if joined.is_empty() => clip(&first.text, limit_chars).into_owned(),
        _ => joined,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(kind: LineKind, text: &str) -> NodeLine {
        NodeLine { kind, text: text.into() }
    }

    #[test]
    fn ids_come_back() {
        for id in [NodeId::leaf(0), NodeId { depth: 3, index: 1_204 }] {
            assert_eq!(NodeId::parse(&id.to_string()), Some(id));
        }
        assert!(
            ["", "d", "d1", "1-2", "dx-1", ROOT].iter().all(|text| NodeId::parse(text).is_none())
        );
    }

    #[test]
    fn the_best_lines_stay_in_their_order() {
        let mut node = DagNode {
            entries: 4,
            lines: vec![
                line(LineKind::Request, "user: move the cache"),
                line(LineKind::Report, &"moved ".repeat(40)),
                line(LineKind::Rule, "user: never touch main"),
            ],
            names: vec![("src/cache.rs".into(), 4.0), ("cache.rs".into(), 1.0)],
            ..DagNode::default()
        };
        node.render(40);
        assert_eq!(node.text, "user: move the cache; user: never touch main | names: src/cache.rs");
        assert_eq!(node.line("d0-7"), format!("[d0-7, 4 entries] {}", node.text));
        node.written = Some("The cache was moved.".into());
        node.render(40);
        assert_eq!(node.text, "The cache was moved. | names: src/cache.rs");
    }
}
