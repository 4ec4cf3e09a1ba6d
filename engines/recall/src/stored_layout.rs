//! The layout of a session in the engine's store, so that a restart moves no prefix.

use ctxhost_engine_api::Transcript;
use ctxhost_engine_kit::hash;
use ctxhost_engine_kit::replacement::{EntryReplacement, ReplacementBody, ReplacementMap};
use serde::{Deserialize, Serialize};

use crate::LAYER;
use crate::layout::RequestLayout;

/// The form of what is stored. What has another one is worked out anew.
const VERSION: u32 = 1;

/// A layout as it is stored.
#[derive(Debug, Serialize, Deserialize)]
struct SavedLayout {
    version: u32,
    /// Of the entries before the cut: the same positions mean the same entries.
    fingerprint: u64,
    budget_tokens: u64,
    replaced_rules: u64,
    kept: Vec<(u64, Option<String>)>,
    head: String,
    excerpt: String,
    cut: u64,
    masked: Vec<SavedMask>,
    notes: Vec<(u64, String)>,
}

/// How one entry is shown.
#[derive(Debug, Serialize, Deserialize)]
struct SavedMask {
    seq: u64,
    is_raw: bool,
    text: String,
    detail: String,
}

/// The value that is stored for a layout; empty for none.
pub(crate) fn to_json(layout: Option<&RequestLayout>, transcript: &Transcript) -> String {
    let Some(layout) = layout else { return String::new() };
    let masked = (layout.cut..transcript.len() as u64).filter_map(|seq| {
        let shown = layout.masked.get(seq)?;
        let (is_raw, text) = match &shown.body {
            ReplacementBody::Text(text) => (false, text.clone()),
            ReplacementBody::Raw(raw) => (true, raw.clone()),
        };
        Some(SavedMask { seq, is_raw, text, detail: shown.detail.clone() })
    });
    let saved = SavedLayout {
        version: VERSION,
        fingerprint: fingerprint(transcript, layout.cut),
        budget_tokens: layout.budget_tokens,
        replaced_rules: layout.replaced_rules,
        kept: layout.kept.iter().map(|(seq, text)| (*seq, text.clone())).collect(),
        head: layout.head.clone(),
        excerpt: layout.excerpt.clone(),
        cut: layout.cut,
        masked: masked.collect(),
        notes: layout.notes.iter().map(|(seq, note)| (*seq, note.clone())).collect(),
    };
    serde_json::to_string(&saved).unwrap_or_default()
}

/// The layout of a stored value; `None` where it is of another transcript or another form.
pub(crate) fn from_json(json: &str, transcript: &Transcript) -> Option<RequestLayout> {
    let saved: SavedLayout = serde_json::from_str(json).ok()?;
    let len = transcript.len() as u64;
    let is_of_this = saved.version == VERSION
        && saved.cut < len
        && saved.fingerprint == fingerprint(transcript, saved.cut)
        && saved.kept.iter().all(|(seq, _)| *seq < saved.cut)
        && saved.notes.iter().all(|(seq, _)| *seq < len);
    if !is_of_this {
        return None;
    }
    let mut masked = ReplacementMap::default();
    for SavedMask { seq, is_raw, text, detail } in saved.masked {
        let form = if is_raw { ReplacementBody::Raw(text) } else { ReplacementBody::Text(text) };
        masked.insert(&transcript.get(seq)?, EntryReplacement { body: form, layer: LAYER, detail });
    }
    Some(RequestLayout {
        budget_tokens: saved.budget_tokens,
        replaced_rules: saved.replaced_rules,
        kept: saved.kept.into_iter().collect(),
        head: saved.head,
        excerpt: saved.excerpt,
        cut: saved.cut,
        masked,
        notes: saved.notes.into_iter().collect(),
    })
}

/// What tells the entries before a position from others. An entry that was edited keeps its id, not its size.
fn fingerprint(transcript: &Transcript, end: u64) -> u64 {
    transcript.range(0..end).fold(0, |sum: u64, entry| {
        sum.rotate_left(7) ^ hash::fnv1a(entry.id()) ^ entry.tokens().rotate_left(32)
    })
}
