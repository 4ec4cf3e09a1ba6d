//! The tree of nodes: leaves in session order, and above them nodes of `fanout` sources each.
//!
//! ```text
//!  depth 2                     d2-0
//!  depth 1        d1-0                     d1-1            …
//!  depth 0   d0-0 d0-1 d0-2           d0-3 d0-4 d0-5       d0-6
//!  entries   a b  c d  e f            …
//! ```
//!
//! Nodes are only added, and a node never changes its sources. So an id stays valid for the whole
//! session, and sources above the leaves follow from the address.

use std::ops::Range;

use crate::condense::condense;
use crate::node::{DagNode, NodeId};
use crate::settings::Settings;

/// The nodes of one session.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeTree {
    /// By depth, then by index.
    levels: Vec<Vec<DagNode>>,
}

impl NodeTree {
    /// Number of leaves.
    pub(crate) fn leaves(&self) -> usize {
        self.levels.first().map_or(0, Vec::len)
    }

    /// The nodes of each depth, leaves first.
    pub(crate) fn levels(&self) -> &[Vec<DagNode>] {
        &self.levels
    }

    /// A node.
    pub(crate) fn get(&self, id: NodeId) -> Option<&DagNode> {
        self.levels.get(id.depth)?.get(id.index)
    }

    /// A node that may be rewritten.
    pub(crate) fn get_mut(&mut self, id: NodeId) -> Option<&mut DagNode> {
        self.levels.get_mut(id.depth)?.get_mut(id.index)
    }

    /// Adds a leaf and every node that it completes. Nodes with the same sources in `known` keep
    /// what a model wrote for them.
    pub(crate) fn push_leaf(&mut self, leaf: DagNode, known: &NodeTree, settings: &Settings) {
        self.push(0, leaf);
        let fanout = settings.fanout as usize;
        let mut depth = 0;
        // A full group of leaves may complete a node, that node another one, and so on.
        while let Some(level) = self.levels.get(depth)
            && level.len().is_multiple_of(fanout)
            && let Some(sources) = level.get(level.len() - fanout..)
        {
            let mut node = condense(sources);
            let index = level.len() / fanout - 1;
            depth += 1;
            // A model's text is expensive, so it survives a restart as long as its sources are the same.
            let before = known.get(NodeId { depth, index });
            node.written = before
                .filter(|before| before.fingerprint == node.fingerprint)
                .and_then(|before| before.written.clone());
            node.render(settings.node_text_tokens);
            self.push(depth, node);
        }
    }

    /// Adds a node as it was stored.
    pub(crate) fn push(&mut self, depth: usize, node: DagNode) {
        while self.levels.len() <= depth {
            self.levels.push(Vec::new());
        }
        if let Some(level) = self.levels.get_mut(depth) {
            level.push(node);
        }
    }

    /// Drops the leaves from `leaves` on, and the nodes above them.
    pub(crate) fn truncate(&mut self, leaves: usize, settings: &Settings) {
        let mut most = leaves;
        for level in &mut self.levels {
            level.truncate(most);
            // A node with one source less is wrong, so it goes with its last source.
            most /= settings.fanout as usize;
        }
    }

    /// The nodes that a node condenses; none for a leaf.
    pub(crate) fn sources(&self, id: NodeId, settings: &Settings) -> Vec<NodeId> {
        let fanout = settings.fanout as usize;
        let Some(depth) = id.depth.checked_sub(1) else { return Vec::new() };
        let first = id.index.saturating_mul(fanout);
        (first..first.saturating_add(fanout)).map(|index| NodeId { depth, index }).collect()
    }

    /// The leaves below a node.
    pub(crate) fn leaf_range(&self, id: NodeId, settings: &Settings) -> Range<usize> {
        let width = width_of(id.depth, settings);
        let first = id.index.saturating_mul(width);
        first..first.saturating_add(width)
    }

    /// The fewest nodes that cover some leaves, in order.
    pub(crate) fn cover(&self, leaves: Range<usize>, settings: &Settings) -> Vec<NodeId> {
        let mut found = Vec::new();
        let mut at = leaves.start;
        while at < leaves.end {
            let is_covering = |depth: &usize| {
                let width = width_of(*depth, settings);
                let id = NodeId { depth: *depth, index: at / width };
                at.is_multiple_of(width) && at + width <= leaves.end && self.get(id).is_some()
            };
            let depth = (0..self.levels.len()).rev().find(is_covering).unwrap_or(0);
            let width = width_of(depth, settings);
            found.push(NodeId { depth, index: at / width });
            at += width;
        }
        found
    }
}

/// Number of leaves below a node of a depth.
fn width_of(depth: usize, settings: &Settings) -> usize {
    let fanout = settings.fanout as usize;
    (0..depth).fold(1, |width: usize, _| width.saturating_mul(fanout))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tree(leaves: usize, settings: &Settings) -> NodeTree {
        let mut tree = NodeTree::default();
        for number in 0..leaves {
            let leaf =
                DagNode { sources: vec![format!("e{number}")], entries: 1, ..DagNode::default() };
            tree.push_leaf(leaf, &NodeTree::default(), settings);
        }
        tree
    }

    proptest! {
        #[test]
        fn every_leaf_is_below_exactly_one_covering_node(
            leaves in 0usize..200, from in 0usize..200, part in 0usize..200, fanout in 2u64..8,
        ) {
            let settings = Settings { fanout, ..Settings::default() };
            let tree = tree(leaves, &settings);
            let part = from.min(leaves)..part.min(leaves);
            let cover = tree.cover(part.clone(), &settings);
            let below: Vec<usize> =
                cover.iter().flat_map(|id| tree.leaf_range(*id, &settings)).collect();
            prop_assert_eq!(below, part.collect::<Vec<_>>());
            for id in cover {
                prop_assert!(tree.get(id).is_some());
                prop_assert!(tree.sources(id, &settings).iter().all(|id| tree.get(*id).is_some()));
            }
        }

        #[test]
        fn dropped_leaves_come_back_the_same(leaves in 1usize..100, kept in 0usize..100) {
            let settings = Settings::default();
            let whole = tree(leaves, &settings);
            let mut part = whole.clone();
            part.truncate(kept.min(leaves), &settings);
            for index in part.leaves()..leaves {
                let leaf = whole.get(NodeId::leaf(index)).unwrap().clone();
                part.push_leaf(leaf, &NodeTree::default(), &settings);
            }
            prop_assert_eq!(part.levels(), whole.levels());
        }
    }

    #[test]
    fn a_node_knows_its_sources() {
        let settings = Settings { fanout: 3, ..Settings::default() };
        let tree = tree(10, &settings);
        let id = NodeId { depth: 1, index: 2 };
        assert_eq!(tree.get(id).unwrap().entries, 3);
        assert_eq!(tree.leaf_range(id, &settings), 6..9);
        let sources: Vec<String> =
            tree.sources(id, &settings).iter().map(ToString::to_string).collect();
        assert_eq!(sources, ["d0-6", "d0-7", "d0-8"]);
        assert_eq!(tree.get(NodeId { depth: 2, index: 0 }).unwrap().entries, 9);
    }
}
