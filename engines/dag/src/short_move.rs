//! A short move of the window, after which the outline, its names, and what was found stay where they were.

use std::collections::BTreeMap;

use ctxhost_engine_api::Transcript;
use ctxhost_engine_kit::requests::RequestRoom;
use ctxhost_engine_kit::retrieval::{NEWER_SHARE, RequestLayout};
use ctxhost_engine_kit::settings::share_of;

use crate::STYLE;
use crate::session::DagSession;
use crate::settings::Settings;
use crate::shown_requests::ShownRequests;

/// Share of the names that a short move chooses again, if there is room. More than in a new layout: the names of the head have
/// aged.
// With half, the names of the last steps are missing; with all, hardly any slack is left after a few moves.
const NAME_SHARE: f64 = 0.75;
/// Share of the outline for the leaves behind that of the head: they are few, and each takes from the prefix.
const OUTLINE_SHARE: f64 = 0.25;

impl DagSession {
    /// The last layout with other newest entries, and before them the leaves that left them and other names; `None`
    /// where that frees too little, or would hide a rule. A chat has none, because what its prompt finds is most of it.
    pub(crate) fn moved_layout(
        &self,
        transcript: &Transcript,
        budget_tokens: u64,
        last: &RequestLayout,
        settings: &Settings,
    ) -> Option<RequestLayout> {
        let split = self.split(transcript, budget_tokens, settings);
        if !split.has_short_moves {
            return None;
        }
        let mut layout = last.begin_short_move(&self.index)?;
        // An entry that was left out would come back before the newest ones, and less of the prefix would stay.
        let rooms = (split.tail, budget_tokens);
        self.place_tail(transcript, rooms, last.cut, settings, &mut layout);
        let (slack_share, style) = (settings.slack_share, STYLE);
        let room = |layout: &RequestLayout| {
            layout.short_move_room(transcript, budget_tokens, slack_share, &style)
        };
        room(&layout)?;
        let tokens = self.index.room_for_new_requests(transcript, &layout, split.requests);
        let request_room = RequestRoom { tokens, long_tokens: 0, may_shorten: true };
        self.index.place_requests(transcript, &self.rules, request_room, last.cut, &mut layout);
        if layout.hides_rule_from(last.cut, &self.rules) {
            return None;
        }
        let shown = ShownRequests::new(transcript, &layout, settings);
        let range = self.range_behind_head(&layout, shown, settings);
        let outline_tokens = share_of(split.outline, OUTLINE_SHARE);
        let outline = self.outline(&range, &BTreeMap::new(), outline_tokens, settings).text;
        let plan = self.index.render_plan(transcript, budget_tokens, &layout);
        for text in [outline, plan] {
            layout.append_newer(&text, self.index.names.name_numbers(&text));
        }
        // Before the names, which take most of the time of a move.
        let least_name_tokens = share_of(split.names, NEWER_SHARE);
        let room_tokens = room(&layout).filter(|room| *room >= least_name_tokens)?;
        let name_tokens = share_of(split.names, NAME_SHARE).min(room_tokens);
        let shown = self.index.shown_and_own_names(transcript, &mut layout);
        self.add_newer_names(&shown, name_tokens, &mut layout);
        Some(layout)
    }
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::AssembleRequest;
    use ctxhost_engine_api::testing::TranscriptBuilder;

    use super::*;

    #[test]
    fn most_moves_keep_the_head_and_show_the_leaves_behind_it() {
        let (mut session, settings) = (DagSession::default(), Settings::default());
        let mut talk = TranscriptBuilder::new();
        talk.user("Read all of the files.");
        let (mut last, mut moves, mut short_moves) = (RequestLayout::default(), 0, 0);
        for at in 0..200 {
            let (id, path) = (format!("c{at}"), format!(r#"{{"path":"src/file_{at}.rs"}}"#));
            talk.calls(&[(&id, "read", &path)]);
            let line = |line: usize| format!("{line:>4} let value_{at}_{line} = {at};\n");
            talk.result(&id, "read", &(0..20 + at % 7 * 15).map(line).collect::<String>());
            let request = AssembleRequest { budget: 8_000, ..AssembleRequest::default() };
            let plan = session.plan(&talk.transcript(), &request, &settings);
            assert!(plan.estimated_tokens <= 8_000, "{}", plan.estimated_tokens);
            let Some(layout) = session.layout.clone() else { continue };
            moves += u32::from(layout.cut != last.cut);
            if layout.short_moves > last.short_moves {
                short_moves += 1;
                assert_eq!((&layout.head, &layout.excerpt), (&last.head, &last.excerpt));
                assert!(layout.cut >= last.cut, "an entry that was left out came back");
                // What was the growing leaf when the head was made, and all after it.
                let newest = session
                    .index
                    .groups()
                    .iter()
                    .rposition(|live| !live.is_empty() && u64::from(live.start) < layout.cut);
                let shown = session.outlined_leaves(&layout.newer_names, &settings);
                assert_eq!(shown.last().copied(), newest, "{}", layout.newer_names);
            }
            last = layout;
        }
        assert!(short_moves * 4 >= moves * 3, "{short_moves} of {moves}");
    }

    #[test]
    fn moves_are_also_short_where_requests_fill_their_share() {
        let (mut session, settings) = (DagSession::default(), Settings::default());
        let mut talk = TranscriptBuilder::new();
        let (mut cut, mut moves, mut short_moves) = (0, 0, 0);
        for at in 0..240 {
            let id = format!("c{at}");
            talk.user(&format!(
                "Look at part_{at}.rs: {}",
                format!("why is value {at} wrong? ").repeat(5)
            ));
            talk.calls(&[(&id, "read", &format!(r#"{{"path":"src/part_{at}.rs"}}"#))]);
            let line = |line: usize| format!("let value_{at}_{line} = load_{at}_{line}();\n");
            talk.result(&id, "read", &(0..20).map(line).collect::<String>());
            let request = AssembleRequest { budget: 16_000, ..AssembleRequest::default() };
            session.plan(&talk.transcript(), &request, &settings);
            let Some(layout) = &session.layout else { continue };
            moves += u32::from(layout.cut != cut);
            short_moves += u32::from(layout.cut != cut && layout.short_moves > 0);
            cut = layout.cut;
        }
        assert!(short_moves * 2 >= moves, "{short_moves} of {moves}");
    }

    impl DagSession {
        /// The leaves below the nodes of an outline.
        fn outlined_leaves(&self, outline: &str, settings: &Settings) -> Vec<usize> {
            let ids = outline.lines().filter_map(|line| line.strip_prefix('[')?.split(',').next());
            let ids = ids.filter_map(crate::node::NodeId::parse);
            ids.flat_map(|id| self.tree.leaf_range(id, settings)).collect()
        }
    }
}
