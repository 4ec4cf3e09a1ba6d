//! Finds the records of a Claude Code session that are on abandoned branches.
//!
//! A session is a tree. A prompt that is edited or sent again has the parent of the one that it replaces, and both
//! stay in the file with their replies; one that replaces the first prompt begins a tree of its own. Results of
//! parallel calls branch too, and all of them count, so only a branch with a prompt of the user can be abandoned.

use std::collections::HashMap;

use serde_json::Value;

use super::super::block::kind;
use super::super::json_lines::JsonRecord;

/// For each record, whether it is on an abandoned branch.
pub(super) fn find_abandoned(records: &[JsonRecord]) -> Vec<bool> {
    let tree = RecordTree::new(records);
    let named = tree.named_leaf(records);
    let branches = tree.branches(records, &tree.active_records(records, named));
    let mut has_prompt = vec![false; records.len()];
    for (record, branch) in records.iter().zip(&branches) {
        if let Some(found) = branch.and_then(|branch| has_prompt.get_mut(branch)) {
            *found |= is_prompt(record);
        }
    }
    let replaced = tree.replaced_roots(records, named);
    let is_marked = |marks: &[bool], place: Option<usize>| {
        place.and_then(|place| marks.get(place)).copied().unwrap_or_default()
    };
    let is_abandoned = |place: &usize| {
        let branch = branches.get(*place).copied().flatten();
        is_marked(&has_prompt, branch) || is_marked(&replaced, tree.root(*place))
    };
    tree.first.iter().map(is_abandoned).collect()
}

/// The links between the records, by their places.
struct RecordTree<'a> {
    places: HashMap<&'a str, usize>,
    /// The first record with the id of each record: a resumed session repeats some.
    first: Vec<usize>,
    parents: Vec<Option<usize>>,
    /// The records that a root leads to, each after its parent. Damaged links may form circles, which have no root.
    order: Vec<usize>,
    /// The root of each record.
    roots: Vec<Option<usize>>,
}

impl<'a> RecordTree<'a> {
    fn new(records: &'a [JsonRecord]) -> RecordTree<'a> {
        let mut places = HashMap::new();
        let first = records.iter().enumerate().map(|(place, record)| {
            record.text("uuid").map_or(place, |id| *places.entry(id).or_insert(place))
        });
        let first: Vec<usize> = first.collect();
        let mut parents = vec![None; records.len()];
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); records.len()];
        let mut order = Vec::new();
        for (place, record) in records.iter().enumerate() {
            if first.get(place) != Some(&place) {
                continue;
            }
            let parent = parent_id(record).and_then(|id| places.get(id)).copied();
            match parent.and_then(|parent| children.get_mut(parent)) {
                Some(children) => children.push(place),
                None => order.push(place),
            }
            if let Some(slot) = parents.get_mut(place) {
                *slot = parent;
            }
        }
        let mut roots = vec![None; records.len()];
        let mut at = 0;
        while let Some(place) = order.get(at).copied() {
            order.extend(children.get_mut(place).map(std::mem::take).unwrap_or_default());
            let parent: Option<usize> = parents.get(place).copied().flatten();
            let root = parent.map_or(Some(place), |parent| roots.get(parent).copied().flatten());
            if let Some(slot) = roots.get_mut(place) {
                *slot = root;
            }
            at += 1;
        }
        RecordTree { places, first, parents, order, roots }
    }

    fn parent(&self, place: usize) -> Option<usize> {
        self.parents.get(place).copied().flatten()
    }

    /// The root of a record that may be a repeated one.
    fn root_of(&self, place: usize) -> Option<usize> {
        self.root(self.first.get(place).copied()?)
    }

    fn root(&self, place: usize) -> Option<usize> {
        self.roots.get(place).copied().flatten()
    }

    /// What the newest `last-prompt` names as the end of the active branch.
    fn named_leaf(&self, records: &[JsonRecord]) -> Option<NamedLeaf> {
        let mut notes = records.iter().enumerate().rev();
        let (noted, leaf) = notes.find_map(|(noted, record)| {
            let is_note = record.text("type") == Some("last-prompt");
            let leaf = record.text("leafUuid").filter(|_| is_note)?;
            Some((noted, *self.places.get(leaf)?))
        })?;
        let newer = records.iter().enumerate().skip(noted).rfind(|(_, record)| is_turn(record));
        Some(NamedLeaf {
            leaf,
            is_current: newer.is_none(),
            has_root: newer.is_none_or(|(place, _)| self.root_of(place) == self.root(leaf)),
        })
    }

    /// For each record, whether it is between the root of its tree and the newest message of the active branch.
    fn active_records(&self, records: &[JsonRecord], named: Option<NamedLeaf>) -> Vec<bool> {
        let mut leaves: Vec<Option<usize>> = vec![None; records.len()];
        let current = named.filter(|named| named.is_current).map(|named| named.leaf);
        let below = current.map(|leaf| self.descendants(leaf)).unwrap_or_default();
        let current_root = current.and_then(|leaf| self.root(leaf));
        if let Some(leaf) = current_root.and_then(|root| leaves.get_mut(root)) {
            *leaf = current;
        }
        for (place, _) in records.iter().enumerate().filter(|(_, record)| is_turn(record)) {
            let Some(place) = self.first.get(place).copied() else { continue };
            let root = self.root(place);
            let is_below = below.get(place).copied().unwrap_or_default();
            let is_other = current.is_some() && root == current_root && !is_below;
            if let Some(leaf) = root.filter(|_| !is_other).and_then(|root| leaves.get_mut(root)) {
                *leaf = Some(place);
            }
        }
        let mut active = vec![false; records.len()];
        for leaf in leaves.into_iter().flatten() {
            let mut next = Some(leaf);
            while let Some(place) = next {
                if let Some(mark) = active.get_mut(place) {
                    *mark = true;
                }
                next = self.parent(place);
            }
        }
        active
    }

    /// For each record, whether it is this one or below it.
    fn descendants(&self, top: usize) -> Vec<bool> {
        let mut below = vec![false; self.parents.len()];
        for place in &self.order {
            let parent = self.parent(*place);
            let is_below = parent.and_then(|parent| below.get(parent)).copied().unwrap_or_default();
            if let Some(mark) = below.get_mut(*place) {
                *mark = is_below || *place == top;
            }
        }
        below
    }

    /// For each record off the active branches, the first one of its branch.
    fn branches(&self, records: &[JsonRecord], active: &[bool]) -> Vec<Option<usize>> {
        let is_active = |place: usize| active.get(place).copied().unwrap_or_default();
        // A compaction that begins above what it summarized leaves that on a branch.
        let mut is_summarized = vec![false; records.len()];
        for (place, record) in records.iter().enumerate().filter(|(place, _)| is_active(*place)) {
            let parent = self.parent(place).filter(|_| is_boundary(record));
            if let Some(mark) = parent.and_then(|parent| is_summarized.get_mut(parent)) {
                *mark = true;
            }
        }
        let begins = |parent: usize| is_active(parent) && is_summarized.get(parent) != Some(&true);
        let mut branches: Vec<Option<usize>> = vec![None; self.parents.len()];
        for place in self.order.iter().copied().filter(|place| !is_active(*place)) {
            let Some(parent) = self.parent(place) else { continue };
            let above = branches.get(parent).copied().flatten();
            if let Some(branch) = branches.get_mut(place) {
                *branch = above.or(begins(parent).then_some(place));
            }
        }
        branches
    }

    /// For each record, whether it is the beginning of a session that a newer first prompt replaced. Other records
    /// without a parent continue what is before them: a compaction of older versions, or a file that lacks records.
    fn replaced_roots(&self, records: &[JsonRecord], named: Option<NamedLeaf>) -> Vec<bool> {
        let mut replaced = vec![false; records.len()];
        let begins = |root: usize| records.get(root).is_some_and(is_beginning);
        let newest = named.filter(|named| named.has_root).and_then(|named| self.root(named.leaf));
        let Some(newest) = newest.filter(|root| begins(*root)) else { return replaced };
        for (place, record) in records.iter().enumerate().filter(|(_, record)| is_prompt(record)) {
            let root = self.root_of(place).filter(|root| *root < newest && begins(*root));
            if let Some(mark) = root.and_then(|root| replaced.get_mut(root)) {
                // A record without an id is in no tree.
                *mark |= record.text("uuid").is_some();
            }
        }
        replaced
    }
}

/// The end of the active branch, as the agent noted it.
#[derive(Clone, Copy)]
struct NamedLeaf {
    leaf: usize,
    /// Whether the session did not continue after the note.
    is_current: bool,
    /// Whether it continued in the tree of the leaf, if it did.
    has_root: bool,
}

/// The id of the parent. A compaction has none but names the record that it follows.
fn parent_id(record: &JsonRecord) -> Option<&str> {
    record.text("parentUuid").or_else(|| record.text("logicalParentUuid"))
}

fn is_boundary(record: &JsonRecord) -> bool {
    record.text("type") == Some("system") && record.text("subtype") == Some("compact_boundary")
}

/// Whether a record begins a session: its parent is known to be none, and it is not of a compaction. Output of hooks
/// without a parent may be of a session that was resumed.
fn is_beginning(record: &JsonRecord) -> bool {
    record.text("type") == Some("user")
        && record.fields.get("parentUuid").is_some_and(Value::is_null)
        && record.text("logicalParentUuid").is_none()
        && !record.is_true("isCompactSummary")
}

/// Whether a record is a prompt or a reply. Results may be written late, after the branch of their call was left.
fn is_turn(record: &JsonRecord) -> bool {
    let is_linked = record.text("uuid").is_some();
    is_linked && (record.text("type") == Some("assistant") || is_prompt(record))
}

/// Whether the user wrote it: text, neither results nor a note of the agent.
fn is_prompt(record: &JsonRecord) -> bool {
    let content = record.fields.get("message").and_then(|message| message.get("content"));
    let is_agent_note = ["isMeta", "isCompactSummary"].iter().any(|mark| record.is_true(mark));
    record.text("type") == Some("user") && !is_agent_note && content.is_some_and(is_user_text)
}

fn is_user_text(content: &Value) -> bool {
    match content {
        Value::String(_) => true,
        Value::Array(blocks) => blocks.iter().all(|block| kind(block) != "tool_result"),
        _ => false,
    }
}
