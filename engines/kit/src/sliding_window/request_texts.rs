//! Requests before the kept turns that do not fit as they are: shown without images and files, or shortened.

use std::collections::BTreeMap;
use std::ops::Range;

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Plan, Transcript};

use crate::replacement::{Replacement, replace_kept};
use crate::requests::RequestForm;

/// Why a request is shown in another form.
const WITHOUT_FILES: &str = "the request without its images and files";
const SHORTENED: &str = "the request without what is pasted";

/// The texts of such requests, by position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestTexts {
    by_seq: BTreeMap<u64, RequestText>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct RequestText {
    text: String,
    detail: &'static str,
    saved_tokens: u64,
}

impl RequestTexts {
    pub(super) fn new(
        transcript: &Transcript,
        forms: impl IntoIterator<Item = (u64, RequestForm)>,
    ) -> RequestTexts {
        let by_seq = forms.into_iter().filter_map(|(seq, form)| {
            let entry = transcript.get(seq)?;
            let text = form.text(&entry)?;
            let saved_tokens = entry.tokens().saturating_sub(tokens::estimate(&text));
            let is_short = matches!(form, RequestForm::Short(_));
            let detail = if is_short { SHORTENED } else { WITHOUT_FILES };
            Some((seq, RequestText { text, detail, saved_tokens }))
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
            (*seq, Replacement::from_text(request.text.as_str(), layer, request.detail))
        };
        if !self.by_seq.is_empty() {
            replace_kept(plan, |range| self.by_seq.range(range).map(shown).collect());
        }
    }
}
