//! Requests before the kept turns that are shown without their images and files, which do not fit.

use std::collections::BTreeMap;
use std::ops::Range;

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Plan, Transcript};

use crate::replacement::{Replacement, replace_kept};
use crate::requests::text_of_request;

/// Why a request is shown in another form.
const DETAIL: &str = "the request without its images and files";

/// The texts of such requests, by position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestTexts {
    by_seq: BTreeMap<u64, RequestText>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct RequestText {
    text: String,
    saved_tokens: u64,
}

impl RequestTexts {
    pub(super) fn new(transcript: &Transcript, text_only: &[u64]) -> RequestTexts {
        let by_seq = text_only.iter().filter_map(|seq| {
            let entry = transcript.get(*seq)?;
            let text = text_of_request(&entry);
            let saved_tokens = entry.tokens().saturating_sub(tokens::estimate(&text));
            Some((*seq, RequestText { text, saved_tokens }))
        });
        RequestTexts { by_seq: by_seq.collect() }
    }

    /// Tokens saved in a range.
    pub(super) fn saved_tokens(&self, range: Range<u64>) -> u64 {
        self.by_seq.range(range).map(|(_, text)| text.saved_tokens).sum()
    }

    /// Replaces the requests in a plan that keeps them, in the name of `layer`.
    pub(super) fn apply(&self, plan: &mut Plan, layer: &'static str) {
        let shown = |(seq, request): (&u64, &RequestText)| {
            (*seq, Replacement::from_text(request.text.as_str(), layer, DETAIL))
        };
        if !self.by_seq.is_empty() {
            replace_kept(plan, |range| self.by_seq.range(range).map(shown).collect());
        }
    }
}
