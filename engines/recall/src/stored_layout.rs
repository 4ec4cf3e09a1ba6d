//! Stores the layout of a session, so that a restart does not change the prefix.

use ctxhost_engine_api::Transcript;
use ctxhost_engine_kit::hash;
use ctxhost_engine_kit::replacement::{Replacement, ReplacementBody, ReplacementMap};
use serde::{Deserialize, Serialize};

use crate::LAYER;
use crate::layout::RequestLayout;

/// Version of the format; other versions are ignored.
const VERSION: u32 = 1;

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
    cut: u64,
    masked: Vec<SavedMask>,
    notes: Vec<(u64, String)>,
}

/// A mask as stored.
#[derive(Debug, Serialize, Deserialize)]
struct SavedMask {
    seq: u64,
    is_raw: bool,
    text: String,
    detail: String,
}

/// Serialises a layout; empty for none.
pub(crate) fn to_json(layout: Option<&RequestLayout>, transcript: &Transcript) -> String {
    // An empty value overwrites a layout that is not used any more.
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

/// Parses a stored layout; `None` if it belongs to another transcript or format.
pub(crate) fn from_json(json: &str, transcript: &Transcript) -> Option<RequestLayout> {
    let saved: SavedLayout = serde_json::from_str(json).ok()?;
    let len = transcript.len() as u64;
    let is_current = saved.version == VERSION
        && saved.cut < len
        && saved.fingerprint == fingerprint(transcript, saved.cut)
        && saved.kept.iter().all(|(seq, _)| *seq < saved.cut)
        && saved.notes.iter().all(|(seq, _)| *seq < len);
    if !is_current {
        return None;
    }
    let mut masked = ReplacementMap::default();
    for SavedMask { seq, is_raw, text, detail } in saved.masked {
        let form = if is_raw { ReplacementBody::Raw(text) } else { ReplacementBody::Text(text) };
        masked.insert(&transcript.get(seq)?, Replacement { body: form, layer: LAYER, detail });
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

/// Fingerprint of the entries before a position. An edited entry keeps its id but not its size.
fn fingerprint(transcript: &Transcript, end: u64) -> u64 {
    transcript.range(0..end).fold(0, |sum: u64, entry| {
        sum.rotate_left(7) ^ hash::fnv1a(entry.id()) ^ entry.tokens().rotate_left(32)
    })
}
