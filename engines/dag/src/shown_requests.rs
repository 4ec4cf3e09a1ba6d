//! The requests that a layout shows, which its outline need not repeat.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Bound;

use ctxhost_engine_api::Transcript;
use ctxhost_engine_kit::retrieval::RequestLayout;
use ctxhost_text::truncate::{clip, one_line};

use crate::node::{DagNode, NodeLine};
use crate::settings::Settings;

/// Of a longer request, in weighted characters, only the beginning is compared: a line of a node is shorter.
const COMPARED_CHARS: u64 = 600;

/// The beginnings of the messages of the user that a layout shows, each on one line.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShownRequests {
    texts: BTreeSet<String>,
    leaf_tokens: u64,
    node_tokens: u64,
}

impl ShownRequests {
    /// Those of a layout.
    pub(crate) fn new(
        transcript: &Transcript,
        layout: &RequestLayout,
        settings: &Settings,
    ) -> ShownRequests {
        let one = |text: &str| one_line(clip(text.trim(), COMPARED_CHARS).as_ref());
        let kept = layout.kept.iter().filter_map(|(seq, text)| {
            let entry = transcript.get(*seq).filter(|entry| entry.is_user_message())?;
            Some(one(text.as_deref().unwrap_or(entry.text())))
        });
        let newest = transcript.range(layout.cut..transcript.len() as u64);
        let newest =
            newest.filter(|entry| entry.is_user_message() && !layout.cuts.contains(entry.seq()));
        ShownRequests {
            texts: kept.chain(newest.map(|entry| one(entry.text()))).collect(),
            leaf_tokens: settings.leaf_text_tokens,
            node_tokens: settings.node_text_tokens,
        }
    }

    /// The text of a node of some depth without the requests that are shown. Their room is for its other lines.
    pub(crate) fn text_beside<'n>(&self, node: &'n DagNode, depth: usize) -> Cow<'n, str> {
        self.text_without(node, &self.shown_lines(node), depth)
    }

    /// The places of the lines of a node whose request is shown; none where a model wrote its text.
    pub(crate) fn shown_lines(&self, node: &DagNode) -> Vec<usize> {
        let lines = node.lines.iter().enumerate().filter(|_| node.written.is_none());
        lines.filter(|(_, line)| self.has(line)).map(|(at, _)| at).collect()
    }

    /// The text of a node of some depth without some of its lines, whose places rise.
    pub(crate) fn text_without<'n>(
        &self,
        node: &'n DagNode,
        left_out: &[usize],
        depth: usize,
    ) -> Cow<'n, str> {
        if left_out.is_empty() {
            return Cow::Borrowed(&node.text);
        }
        let lines = node.lines.iter().enumerate();
        let others = lines.filter(|(at, _)| left_out.binary_search(at).is_err());
        let others: Vec<&NodeLine> = others.map(|(_, line)| line).collect();
        let limit_tokens = if depth == 0 { self.leaf_tokens } else { self.node_tokens };
        Cow::Owned(node.text_of(&others, limit_tokens))
    }

    /// Whether the request of a line is shown as far as the line has it.
    fn has(&self, line: &NodeLine) -> bool {
        let Some(request) = line.request() else { return false };
        let request = request.trim_end_matches('…').trim_end();
        let from = (Bound::Included(request), Bound::Unbounded);
        let first = self.texts.range::<str, _>(from).next();
        !request.is_empty() && first.is_some_and(|text| text.starts_with(request))
    }
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::AssembleRequest;
    use ctxhost_engine_api::testing::TranscriptBuilder;

    use super::*;
    use crate::session::DagSession;

    #[test]
    fn an_outline_repeats_no_request_that_is_shown() {
        for budget in [4_000, 8_000, 16_000] {
            let mut talk = TranscriptBuilder::new();
            for turn in 0..120 {
                talk.user(&format!(
                    "Please find out why value {turn} of the tariff table is wrong."
                ));
                let id = format!("c{turn}");
                talk.calls(&[(&id, "read", &format!(r#"{{"path":"src/part_{turn}.rs"}}"#))]);
                let line = |line: usize| format!("let value_{turn}_{line} = {line};\n");
                talk.result(&id, "read", &(0..40).map(line).collect::<String>());
                talk.assistant(&format!(
                    "Value {turn} was read from the wrong column by load_{turn}."
                ));
            }
            let transcript = talk.transcript();
            let request = AssembleRequest { budget, ..AssembleRequest::default() };
            let plan = DagSession::default().plan(&transcript, &request, &Settings::default());
            let texts: Vec<String> =
                plan.project(&transcript).iter().map(|item| item.text().into_owned()).collect();
            let is_head = |text: &&String| text.contains("<outline");
            let head = texts.iter().find(is_head).unwrap();
            let outline = head.split("<outline").nth(1).unwrap().split("</outline").next().unwrap();
            let others: String = texts.iter().filter(|text| !is_head(text)).cloned().collect();
            let listed = outline
                .split("user: ")
                .skip(1)
                .map(|item| item.split([';', '|', '\n']).next().unwrap().trim());
            let repeated: Vec<&str> = listed.filter(|item| others.contains(*item)).collect();
            assert_eq!(repeated, [""; 0], "budget {budget}");
            assert!(
                outline.contains("was read from the wrong column"),
                "budget {budget}: {outline}"
            );
        }
    }
}
