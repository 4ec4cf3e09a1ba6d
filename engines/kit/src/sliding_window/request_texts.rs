//! Requests that are not shown as they are: without images and files, shortened, or with what they refer to.

use std::collections::BTreeMap;
use std::ops::Range;

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Plan, Transcript};

use crate::replacement::{Replacement, insert_before_kept, replace_kept};
use crate::requests::{RequestForm, RequestList};

/// Why a request is shown in another form.
const WITHOUT_FILES: &str = "the request without its images and files";
const SHORTENED: &str = "the request without what is pasted";
const ANTECEDENT: &str = "the request with what it refers to";
/// Why a text is inserted before a request.
const NOTE: &str = "what the next request refers to";

/// The texts of such requests, by position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestTexts {
    by_seq: BTreeMap<u64, RequestText>,
    /// What requests refer to that must stay as they are.
    notes: BTreeMap<u64, String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct RequestText {
    text: String,
    detail: &'static str,
    saved_tokens: u64,
    added_tokens: u64,
}

impl RequestTexts {
    /// The texts of requests in their forms. `is_shown` is whether an entry is shown whole.
    pub(super) fn new(
        transcript: &Transcript,
        requests: &RequestList,
        forms: impl IntoIterator<Item = (u64, RequestForm)>,
        is_shown: impl Fn(u64) -> bool,
    ) -> RequestTexts {
        let by_seq = forms.into_iter().filter_map(|(seq, form)| {
            let entry = transcript.get(seq)?;
            let text = requests.text_of(&entry, form, &is_shown)?;
            let (before, after) = (entry.tokens(), tokens::estimate(&text));
            let detail = match form {
                RequestForm::Short(_) => SHORTENED,
                RequestForm::Text if after < before => WITHOUT_FILES,
                _ => ANTECEDENT,
            };
            let saved_tokens = before.saturating_sub(after);
            let added_tokens = after.saturating_sub(before);
            Some((seq, RequestText { text, detail, saved_tokens, added_tokens }))
        });
        RequestTexts { by_seq: by_seq.collect(), notes: BTreeMap::new() }
    }

    /// Adds notes of what the requests at positions refer to, which are shown as they are.
    pub(super) fn with_notes(
        mut self,
        requests: &RequestList,
        positions: impl IntoIterator<Item = u64>,
        is_shown: impl Fn(u64) -> bool,
    ) -> RequestTexts {
        for seq in positions {
            let antecedent = requests.antecedent_of(seq, &is_shown);
            self.notes.extend(antecedent.map(|antecedent| (seq, antecedent.note())));
        }
        self
    }

    /// Size of a range with these texts, in tokens; it has `tokens` without them.
    pub(super) fn shown_tokens(&self, range: Range<u64>, tokens: u64) -> u64 {
        let texts = || self.by_seq.range(range.clone()).map(|(_, text)| text);
        let notes = self.notes.range(range.clone()).map(|(_, note)| tokens::estimate(note));
        let added_tokens = texts().map(|text| text.added_tokens).sum::<u64>() + notes.sum::<u64>();
        let saved_tokens: u64 = texts().map(|text| text.saved_tokens).sum();
        (tokens + added_tokens).saturating_sub(saved_tokens)
    }

    /// Replaces the requests in a plan that keeps them and inserts the notes, in the name of `layer`.
    pub(super) fn apply(&self, plan: &mut Plan, layer: &'static str) {
        let shown = |(seq, request): (&u64, &RequestText)| {
            (*seq, Replacement::from_text(request.text.as_str(), layer, request.detail))
        };
        if !self.by_seq.is_empty() {
            replace_kept(plan, |range| self.by_seq.range(range).map(shown).collect());
        }
        for (seq, note) in &self.notes {
            insert_before_kept(plan, *seq, note, layer, NOTE);
        }
    }
}
