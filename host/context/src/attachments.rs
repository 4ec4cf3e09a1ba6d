//! The estimated sizes of the images and files in a transcript.

use ctxhost_engine_api::transcript::message::Message;
use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{PlanItem, Transcript};

/// The entries with images or files, and what these are estimated at.
#[derive(Debug, Default)]
pub(crate) struct AttachmentSizes {
    epoch: u64,
    /// The entries that were looked at.
    seen: u64,
    /// The number of an entry and the estimated tokens of its images and files, by number.
    sizes: Vec<(u64, u64)>,
    total_tokens: u64,
}

impl AttachmentSizes {
    /// Updates to a transcript that has grown. Each entry is parsed once.
    pub(crate) fn update(&mut self, view: &Transcript) {
        if view.epoch() != self.epoch || (view.len() as u64) < self.seen {
            // A new epoch renumbers the entries; a shorter transcript is another one.
            *self = AttachmentSizes { epoch: view.epoch(), ..AttachmentSizes::default() };
        }
        for entry in view.range(self.seen..view.len() as u64) {
            if !tokens::may_have_attachments(entry.raw()) {
                continue;
            }
            let own_tokens = tokens::files_and_images(&Message::parse(entry.raw(), ""));
            let own_tokens = own_tokens.min(entry.tokens());
            if own_tokens > 0 {
                self.sizes.push((entry.seq(), own_tokens));
                self.total_tokens += own_tokens;
            }
        }
        self.seen = view.len() as u64;
    }

    /// What the images and files of the transcript are estimated at.
    pub(crate) fn total_tokens(&self) -> u64 {
        self.total_tokens
    }

    /// The same of a plan. What replaces an entry has no images.
    pub(crate) fn tokens_of(&self, items: &[PlanItem<'_>]) -> u64 {
        if self.sizes.is_empty() {
            return 0;
        }
        let size_of = |item: &PlanItem<'_>| {
            let PlanItem::Kept(entry) = item else { return None };
            let at = self.sizes.binary_search_by_key(&entry.seq(), |(seq, _)| *seq).ok()?;
            self.sizes.get(at).map(|(_, tokens)| *tokens)
        };
        items.iter().filter_map(size_of).sum()
    }
}
