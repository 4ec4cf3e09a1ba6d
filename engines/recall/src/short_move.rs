//! A short move of the window: what stands before the newest entries stays as it is, and with it the cached prefix.

use ctxhost_engine_api::Transcript;
use ctxhost_engine_kit::retrieval::RequestLayout;

use crate::session::RecallSession;
use crate::settings::Settings;

impl RecallSession {
    /// The last layout with other newest entries and names; `None` where that frees too little, or would hide a rule.
    /// A chat has none, because what its prompt finds is most of it.
    pub(crate) fn moved_layout(
        &self,
        transcript: &Transcript,
        budget_tokens: u64,
        last: &RequestLayout,
        settings: &Settings,
    ) -> Option<RequestLayout> {
        let split = self.split(transcript, budget_tokens, settings);
        if split.newer_tokens == 0 {
            return None;
        }
        let mut layout = last.begin_short_move(&self.index)?;
        // An entry that was left out would come back before the newest ones: less of the prefix stays, and the next move
        // comes sooner.
        let rooms = (split.tail_tokens, budget_tokens);
        self.place_tail(transcript, rooms, last.cut, settings, &mut layout);
        let (slack_share, style) = (settings.slack_share, settings.style());
        let room = |layout: &RequestLayout| {
            layout.short_move_room(transcript, budget_tokens, slack_share, &style)
        };
        room(&layout)?;
        self.place_new_requests(transcript, &split, last.cut, &mut layout);
        // Before the names, which take most of the time of a move.
        room(&layout).filter(|room_tokens| *room_tokens >= split.newer_tokens)?;
        if layout.hides_rule_from(last.cut, &self.rules) {
            return None;
        }
        let shown = self.index.shown_and_own_names(transcript, &mut layout);
        self.add_newer(transcript, budget_tokens, &split, &shown, &mut layout);
        Some(layout)
    }
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::AssembleRequest;
    use ctxhost_engine_api::testing::TranscriptBuilder;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn a_short_move_shows_nothing_again(lines in prop::collection::vec(1_usize..120, 40..90)) {
            let mut session = RecallSession::default();
            let settings = Settings::default();
            let mut talk = TranscriptBuilder::new();
            talk.user("Read all of the files.");
            let (mut cut, mut short_moves) = (0, 0);
            for (at, lines) in lines.into_iter().enumerate() {
                let (id, path) = (format!("c{at}"), format!(r#"{{"path":"src/file_{at}.rs"}}"#));
                talk.calls(&[(&id, "read", &path)]);
                let line = |line: usize| format!("{line:>4} let value_{at}_{line} = {at};\n");
                talk.result(&id, "read", &(0..lines).map(line).collect::<String>());
                let request = AssembleRequest { budget: 6_000, ..AssembleRequest::default() };
                session.plan(&talk.transcript(), &request, &settings);
                let Some(layout) = &session.layout else { continue };
                if layout.short_moves > short_moves {
                    prop_assert!(layout.cut >= cut, "{} after {cut}", layout.cut);
                }
                (cut, short_moves) = (layout.cut, layout.short_moves);
            }
        }
    }

    #[test]
    fn a_short_request_is_shown_when_it_leaves_the_newest_entries() {
        let mut session = RecallSession::default();
        let settings = Settings::default();
        let mut talk = TranscriptBuilder::new();
        let filler = |at: u64| {
            format!("Please read file {at} of the long list and report about its values.")
        };
        let (mut short_moves, mut hidden) = (0, Vec::new());
        for at in 0..160 {
            let request =
                if at == 90 { "The second one, for tenant B.".to_owned() } else { filler(at) };
            talk.user(&request);
            let id = format!("c{at}");
            talk.calls(&[(&id, "read", &format!(r#"{{"path":"src/file_{at}.rs"}}"#))]);
            let line = |line: usize| format!("{line:>4} let value_{at}_{line} = {at};\n");
            talk.result(&id, "read", &(0..20).map(line).collect::<String>());
            talk.assistant("Done.");
            let request = AssembleRequest { budget: 6_000, ..AssembleRequest::default() };
            let transcript = talk.transcript();
            session.plan(&transcript, &request, &settings);
            let Some(layout) = &session.layout else { continue };
            let seq = 90 * 4;
            if layout.short_moves > short_moves
                && transcript.len() as u64 > seq
                && !layout.shows(seq)
            {
                hidden.push((at, layout.short_moves));
            }
            short_moves = layout.short_moves;
        }
        assert_eq!(hidden, []);
    }

    #[test]
    fn moves_are_also_short_where_requests_fill_their_share() {
        let (mut session, settings) = (RecallSession::default(), Settings::default());
        let mut talk = TranscriptBuilder::new();
        let (mut cut, mut moves, mut short_moves) = (0, 0, 0);
        for at in 0..240 {
            let id = format!("c{at}");
            let request = format!("why is value {at} wrong? ").repeat(5);
            talk.user(&format!("Look at part_{at}.rs: {request}"));
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
}
