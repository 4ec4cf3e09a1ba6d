//! The lines of nodes beside the requests that are shown.

use std::collections::BTreeMap;
use std::sync::Arc;

use ctxhost_engine_api::transcript::tokens;

use crate::node::NodeId;
use crate::session::DagSession;
use crate::shown_requests::ShownRequests;

/// A line as rendered. From move to move most of them are the same.
#[derive(Debug, Default)]
pub(crate) struct RenderedLine {
    /// The places of the node's lines that it leaves out.
    left_out: Vec<usize>,
    /// Of the node.
    fingerprint: u64,
    /// Whether a model wrote the node's text.
    is_written: bool,
    text: String,
    tokens: u64,
}

/// The lines of nodes. Each is rendered once: a choice asks for its size, too.
pub(crate) struct NodeLines<'s> {
    session: &'s DagSession,
    shown: &'s ShownRequests,
    lines: BTreeMap<NodeId, Arc<RenderedLine>>,
}

impl<'s> NodeLines<'s> {
    pub(crate) fn new(session: &'s DagSession, shown: &'s ShownRequests) -> NodeLines<'s> {
        NodeLines { session, shown, lines: BTreeMap::new() }
    }

    /// The line of a node.
    pub(crate) fn get(&mut self, id: NodeId) -> &str {
        &self.entry(id).text
    }

    /// Its size in tokens.
    pub(crate) fn tokens(&mut self, id: NodeId) -> u64 {
        self.entry(id).tokens
    }

    fn entry(&mut self, id: NodeId) -> &RenderedLine {
        let NodeLines { session, shown, lines } = self;
        lines.entry(id).or_insert_with(|| session.render_line(id, shown))
    }
}

impl DagSession {
    /// The line of a node, rendered again if other requests are shown than before, or a model wrote its text.
    fn render_line(&self, id: NodeId, shown: &ShownRequests) -> Arc<RenderedLine> {
        let Some(node) = self.tree.get(id) else { return Arc::default() };
        let (left_out, is_written) = (shown.shown_lines(node), node.written.is_some());
        let mut known = self.rendered_lines.borrow_mut();
        let fingerprint = node.fingerprint;
        let same = known.get(&id).filter(|line| {
            line.fingerprint == fingerprint
                && line.left_out == left_out
                && line.is_written == is_written
        });
        if let Some(line) = same {
            return Arc::clone(line);
        }
        let text = node.line_with(&id.to_string(), &shown.text_without(node, &left_out, id.depth));
        let tokens = line_tokens(&text);
        let line = Arc::new(RenderedLine { left_out, fingerprint, is_written, text, tokens });
        known.insert(id, Arc::clone(&line));
        line
    }
}

/// Size of a line with its end, in tokens.
pub(crate) fn line_tokens(line: &str) -> u64 {
    tokens::estimate(line) + 1
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::TranscriptBuilder;
    use ctxhost_engine_kit::retrieval::RequestLayout;

    use super::*;
    use crate::settings::Settings;

    #[test]
    fn a_line_changes_with_the_requests_that_are_shown_and_with_its_text() {
        let mut talk = TranscriptBuilder::new();
        for turn in 0..40 {
            talk.user(&format!("Explain part {turn} of the tariff.")).assistant("It reads it.");
        }
        let transcript = talk.transcript();
        let (mut session, settings) = (DagSession::default(), Settings::default());
        session.follow(&transcript, &settings);
        let (id, text) = (NodeId::leaf(0), "part 0 of");
        let all = RequestLayout::default();
        let none = RequestLayout { cut: 80, ..RequestLayout::default() };
        let line = |session: &DagSession, layout: &RequestLayout| {
            let shown = ShownRequests::new(&transcript, layout, &settings);
            NodeLines::new(session, &shown).get(id).to_owned()
        };
        for _ in 0..2 {
            assert!(line(&session, &none).contains(text), "{}", line(&session, &none));
            assert!(!line(&session, &all).contains(text), "{}", line(&session, &all));
        }
        let before = line(&session, &none);
        let node = session.tree.get_mut(id).unwrap();
        node.written = Some("A model wrote this.".into());
        node.render(settings.node_text_tokens);
        let after = line(&session, &none);
        assert!(after.contains("A model wrote this.") && after != before, "{after}");
    }
}
