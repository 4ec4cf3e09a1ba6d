//! Stores nodes in the engine's store.
//!
//! Nodes are stored in pages of one depth, so that a new leaf rewrites one page. Whatever is missing
//! or of another version is rebuilt from the transcript, or from the host's history.

use ctxhost_engine_api::{Host, SessionRef};
use ctxhost_engine_kit::store::session_key;
use serde::{Deserialize, Serialize};

use crate::node::DagNode;
use crate::session::DagSession;
use crate::settings::Settings;
use crate::tree::NodeTree;

/// Key prefix. The number is the version of the format.
const NODES_KEY: &str = "nodes/1/";
/// Nodes of a page.
// A page is rewritten for each new node, so it is a few kilobytes.
const PAGE_NODES: usize = 32;

/// A page of nodes of one depth.
#[derive(Debug, Serialize, Deserialize)]
struct NodePage {
    /// Nodes of another fanout have other sources.
    fanout: u64,
    nodes: Vec<DagNode>,
}

fn page_key(session: &SessionRef, depth: usize, page: usize) -> String {
    format!("{}.{depth}.{page}", session_key(NODES_KEY, session))
}

/// Loads the nodes of a session, as far as they are stored without a gap.
pub(crate) async fn load_nodes(host: &Host, session: &SessionRef, settings: &Settings) -> NodeTree {
    let mut tree = NodeTree::default();
    for depth in 0.. {
        let mut page = 0;
        while let Some(nodes) = load_page(host, &page_key(session, depth, page), settings).await {
            let is_full = nodes.len() == PAGE_NODES;
            nodes.into_iter().for_each(|node| tree.push(depth, node));
            page += 1;
            if !is_full {
                break;
            }
        }
        if tree.levels().len() <= depth {
            break;
        }
    }
    tree
}

async fn load_page(host: &Host, key: &str, settings: &Settings) -> Option<Vec<DagNode>> {
    let stored = host.kv_get(key).await.ok()??;
    let page: NodePage = serde_json::from_str(&stored).ok()?;
    // With another fanout the numbers of nodes mean other ranges.
    (page.fanout == settings.fanout && !page.nodes.is_empty()).then_some(page.nodes)
}

impl DagSession {
    /// The pages that differ from the stored ones, with their keys; they count as stored from then
    /// on. The draft that a compaction folded is the newest leaf of its page.
    pub(crate) fn take_changed_pages(
        &mut self,
        session: &SessionRef,
        settings: &Settings,
    ) -> Vec<(String, String)> {
        let mut pages = Vec::new();
        self.stored.resize(self.tree.levels().len().max(1), 0);
        let folded_draft = self.folded_draft.as_ref().filter(|(at, _)| *at == self.tree.leaves());
        for (depth, stored) in self.stored.iter_mut().enumerate() {
            let mut nodes: Vec<&DagNode> =
                self.tree.levels().get(depth).map_or_else(Vec::new, |level| level.iter().collect());
            let count = nodes.len();
            nodes.extend(folded_draft.filter(|_| depth == 0).map(|(_, draft)| draft));
            let first = *stored / PAGE_NODES;
            // Also after a node became unknown: the rest of its page is written again.
            if *stored < nodes.len() {
                let changed = nodes.chunks(PAGE_NODES).enumerate().skip(first);
                pages.extend(changed.map(|(page, nodes)| {
                    let nodes = nodes.iter().map(|node| (*node).clone()).collect();
                    let page_json = NodePage { fanout: settings.fanout, nodes };
                    let json = serde_json::to_string(&page_json).unwrap_or_default();
                    (page_key(session, depth, page), json)
                }));
            }
            *stored = count;
        }
        pages
    }

    /// Writes a leaf and the nodes above it again at the next chance.
    pub(crate) fn mark_leaf_changed(&mut self, leaf: usize, settings: &Settings) {
        let mut index = leaf;
        for stored in &mut self.stored {
            *stored = (*stored).min(index);
            // Every node above contains the leaf.
            index /= settings.fanout as usize;
        }
    }

    /// Writes a node again at the next chance.
    pub(crate) fn mark_changed(&mut self, depth: usize, index: usize) {
        if let Some(stored) = self.stored.get_mut(depth) {
            *stored = (*stored).min(index);
        }
    }
}

/// Stores changed pages. A page that is not stored is rebuilt after a restart.
pub(crate) async fn store_pages(host: &Host, pages: Vec<(String, String)>) {
    for (key, json) in pages {
        let _ = host.kv_put(&key, &json).await;
    }
}
