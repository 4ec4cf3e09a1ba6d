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

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::Plan;
    use ctxhost_session::{RecordBody, Session, SessionHeader};
    use serde_json::{Value, json};

    use super::*;

    /// A transcript of messages of the user with these contents.
    fn transcript(contents: &[Value]) -> Transcript {
        let mut session = Session::in_memory(SessionHeader::new(Some("s"), "/", 0));
        for content in contents {
            let message = json!({ "role": "user", "content": content, "timestamp": 0 });
            session.append_at(RecordBody::from_message(&message).unwrap(), 0).unwrap();
        }
        session.live(1).snapshot()
    }

    fn total_tokens(block: Value) -> u64 {
        let view = transcript(&[json!([{ "type": "text", "text": "look" }, block])]);
        let mut sizes = AttachmentSizes::default();
        sizes.update(&view);
        sizes.total_tokens()
    }

    #[test]
    fn images_and_files_have_their_own_sizes() {
        let data = "JVBERi0x".repeat(140_000);
        let image = json!({ "type": "image", "data": "x", "mimeType": "image/png" });
        let by_url = json!({ "type": "image_url", "image_url": { "url": "https://h/a.png" } });
        let low = json!({ "type": "image_url", "image_url": { "url": "https://h/a.png", "detail": "low" } });
        let made = json!({ "type": "image_generation_call", "id": "ig", "result": data });
        let source = json!({ "type": "base64", "media_type": "application/pdf", "data": data });
        let document = json!({ "type": "document", "source": source });
        let text = json!({ "type": "text", "text": "an image of a screenshot" });
        let expected =
            [(image, 2_000), (by_url, 2_000), (low, 85), (made, 2_000), (document, 20_000)];
        for (block, tokens) in expected {
            assert_eq!(total_tokens(block.clone()), tokens, "{block}");
        }
        assert_eq!(total_tokens(text), 0);
    }

    #[test]
    fn a_plan_has_the_images_of_the_entries_that_it_keeps() {
        let image = json!([{ "type": "image", "data": "x", "mimeType": "image/png" }]);
        let view = transcript(&[image.clone(), json!("text"), image.clone(), image]);
        let mut sizes = AttachmentSizes::default();
        sizes.update(&view);
        assert_eq!(sizes.total_tokens(), 6_000);
        let mut plan = Plan::default();
        plan.keep(1..3).replace_text(3, "no image");
        assert_eq!(sizes.tokens_of(&plan.project(&view)), 2_000);
        // Nothing is counted twice.
        sizes.update(&view);
        assert_eq!(sizes.total_tokens(), 6_000);
    }
}
