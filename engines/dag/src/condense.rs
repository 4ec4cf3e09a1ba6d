//! Condenses the summaries of some nodes into one, without a model.

use std::collections::HashMap;

use crate::node::{DagNode, NodeLine, WeightedName};

/// Lines that a node keeps of each of its sources, best first.
const LINES_PER_SOURCE: usize = 2;
/// Names that a node keeps.
pub(crate) const MAX_NAMES: usize = 24;

/// The node above some nodes, not rendered yet.
pub(crate) fn condense(sources: &[DagNode]) -> DagNode {
    let fingerprint = sources
        .iter()
        .fold(0, |sum: u64, source| sum.rotate_left(9).wrapping_mul(31) ^ source.fingerprint);
    DagNode {
        entries: sources.iter().map(|source| source.entries).sum(),
        fingerprint,
        // The same number of each source: a busy one must not displace the others.
        lines: sources.iter().flat_map(|source| best_lines(&source.lines)).collect(),
        names: heaviest(sources.iter().flat_map(|source| &source.names)),
        ..DagNode::default()
    }
}

/// The best lines of a source, in their order.
fn best_lines(lines: &[NodeLine]) -> Vec<NodeLine> {
    let mut order: Vec<(usize, &NodeLine)> = lines.iter().enumerate().collect();
    order.sort_by_key(|(_, line)| line.kind);
    order.truncate(LINES_PER_SOURCE);
    // Back in the order of the conversation: of two decisions the later one holds.
    order.sort_by_key(|(at, _)| *at);
    order.into_iter().map(|(_, line)| line.clone()).collect()
}

/// The names with the largest sums of weights, heaviest first; of equal ones the first.
pub(crate) fn heaviest<'a>(names: impl Iterator<Item = &'a WeightedName>) -> Vec<WeightedName> {
    let mut rows: Vec<WeightedName> = Vec::new();
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    for (name, weight) in names {
        let number = *numbers.entry(name).or_insert_with(|| {
            rows.push((name.clone(), 0.0));
            rows.len() - 1
        });
        if let Some(row) = rows.get_mut(number) {
            row.1 += weight;
        }
    }
    // Stable, so that the order of equal weights does not depend on the map.
    rows.sort_by(|left, right| right.1.total_cmp(&left.1));
    rows.truncate(MAX_NAMES);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::LineKind;

    #[test]
    fn each_source_has_its_lines_and_names_add_up() {
        let node = |subject: &str, names: &[(&str, f32)]| DagNode {
            entries: 2,
            fingerprint: subject.len() as u64,
            lines: [LineKind::Report, LineKind::Request, LineKind::Rule]
                .map(|kind| NodeLine { kind, text: format!("{subject} {kind:?}") })
                .to_vec(),
            names: names.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect(),
            ..DagNode::default()
        };
        let one = node("cache", &[("a.rs", 2.0), ("b.rs", 1.0)]);
        let other = node("search", &[("c.rs", 2.5), ("b.rs", 2.0)]);
        let above = condense(&[one.clone(), other.clone()]);
        let texts: Vec<&str> = above.lines.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(texts, ["cache Request", "cache Rule", "search Request", "search Rule"]);
        let names: Vec<&str> = above.names.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["b.rs", "c.rs", "a.rs"]);
        assert_eq!(above.entries, 4);
        assert_ne!(above.fingerprint, condense(&[other, one]).fingerprint);
    }
}
