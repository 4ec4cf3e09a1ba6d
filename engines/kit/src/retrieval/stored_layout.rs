//! Layouts as JSON, so that a restart does not change the prefix.

use serde::{Deserialize, Serialize};

use super::history_index::HistoryIndex;
use super::layout::RequestLayout;
use super::text_names::TextNames;
use crate::live_round::LiveRoundCuts;

/// Version of the format; other versions are ignored.
const VERSION: u32 = 2;

/// A layout as stored.
#[derive(Debug, Serialize, Deserialize)]
struct SavedLayout {
    version: u32,
    /// Fingerprint of the entries before the cut.
    fingerprint: u64,
    budget_tokens: u64,
    replaced_rules: u64,
    kept: Vec<(u64, Option<String>)>,
    head: String,
    excerpt: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    newer_names: String,
    #[serde(default)]
    short_moves: u32,
    cut: u64,
    #[serde(default)]
    head_cut: u64,
    masked: Vec<u64>,
    #[serde(default, skip_serializing_if = "LiveRoundCuts::is_empty")]
    cuts: LiveRoundCuts,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    antecedents: Vec<(u64, String)>,
    notes: Vec<(u64, String)>,
}

/// Serialises the layout of a session; empty for none.
pub fn layout_to_json(layout: Option<&RequestLayout>, index: &HistoryIndex) -> String {
    // An empty value overwrites a layout that is not used any more.
    let Some(layout) = layout else { return String::new() };
    let saved = SavedLayout {
        version: VERSION,
        fingerprint: index.fingerprint_before(layout.cut),
        budget_tokens: layout.budget_tokens,
        replaced_rules: layout.replaced_rules,
        kept: layout.kept.iter().map(|(seq, text)| (*seq, text.clone())).collect(),
        head: layout.head.clone(),
        excerpt: layout.excerpt.clone(),
        newer_names: layout.newer_names.clone(),
        short_moves: layout.short_moves,
        cut: layout.cut,
        head_cut: layout.head_cut,
        masked: layout.masked.keys().copied().collect(),
        cuts: layout.cuts.clone(),
        antecedents: layout.antecedents.iter().map(|(seq, note)| (*seq, note.clone())).collect(),
        notes: layout.notes.iter().map(|(seq, note)| (*seq, note.clone())).collect(),
    };
    serde_json::to_string(&saved).unwrap_or_default()
}

/// Parses a stored layout; `None` if it belongs to another transcript or format.
pub fn layout_from_json(json: &str, index: &HistoryIndex) -> Option<RequestLayout> {
    let saved: SavedLayout = serde_json::from_str(json).ok()?;
    let len = index.len();
    let is_current = saved.version == VERSION
        && saved.cut < len
        && saved.fingerprint == index.fingerprint_before(saved.cut)
        && saved.kept.iter().all(|(seq, _)| *seq < saved.cut)
        && saved.masked.iter().all(|seq| (saved.cut..len).contains(seq))
        && saved.cuts.caps().all(|(seq, _)| (saved.cut..len).contains(&seq))
        && saved.antecedents.iter().all(|(seq, _)| *seq < len)
        && saved.notes.iter().all(|(seq, _)| *seq < len);
    if !is_current {
        return None;
    }
    // A mask is a function of the transcript, so its position identifies it.
    let mask = |seq: u64| index.masks.saved_tokens(seq).map(|saved_tokens| (seq, saved_tokens));
    Some(RequestLayout {
        budget_tokens: saved.budget_tokens,
        replaced_rules: saved.replaced_rules,
        kept: saved.kept.into_iter().collect(),
        head: saved.head,
        excerpt: saved.excerpt,
        newer_names: saved.newer_names,
        short_moves: saved.short_moves,
        cut: saved.cut,
        head_cut: saved.head_cut,
        masked: saved.masked.into_iter().filter_map(mask).collect(),
        cuts: saved.cuts,
        antecedents: saved.antecedents.into_iter().collect(),
        notes: saved.notes.into_iter().collect(),
        text_names: TextNames::default(),
    })
}
