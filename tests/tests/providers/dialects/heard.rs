//! What clients write is heard, written back byte for byte, and kept lawful where a plan changes it.

use std::collections::HashMap;
use std::ops::Range;

use axum::http::{HeaderMap, HeaderName};
use ctxhost_context::LiveSession;
use ctxhost_dialects::ChatMessage;
use ctxhost_dialects::inbound::{
    Body, EntryLocation, InboundDialect, ParseContext, ParsedEntry, Unit, Written, render,
};
use ctxhost_dialects::{
    AnthropicInbound, GeminiInbound, OpenAiChatInbound, OpenAiResponsesInbound,
};
use ctxhost_engine_api::testing::generate::{GeneratedTranscript, plans_of};
use ctxhost_engine_api::{Plan, Role, Transcript};
use ctxhost_law::{self as law, LawSettings, Lawful};
use ctxhost_session::{Header, Session};
use ctxhost_tests::rules::{self, Broken, Wire};
use proptest::prelude::*;
use serde_json::Value;

use super::conversations::{Speaker, conversations, speakers};
use super::encoded::{Wish, dialect, request, told, wishes};

/// Four of the five: nobody points an agent that speaks to Ollama at a gateway.
fn speech_of(wire: Wire) -> Option<Box<dyn InboundDialect>> {
    Some(match wire {
        Wire::Anthropic => Box::new(AnthropicInbound),
        Wire::OpenAiChat => Box::new(OpenAiChatInbound),
        Wire::Responses => Box::new(OpenAiResponsesInbound),
        Wire::Gemini => Box::new(GeminiInbound),
        Wire::Ollama => return None,
    })
}

/// A request that a client wrote, taken into a session.
struct Heard {
    json: String,
    path: String,
    headers: HeaderMap,
    units: Vec<(Range<usize>, usize)>,
    places: HashMap<String, EntryLocation>,
    conversation: LiveSession,
}

impl Heard {
    fn of(
        speech: &dyn InboundDialect,
        speaker: Speaker,
        messages: &[ChatMessage],
        wish: &Wish,
    ) -> Heard {
        let dialect = dialect(speaker.wire, wish.is_peculiar);
        let request = request(messages, speaker, wish);
        let json = dialect.encode(&request).to_string();
        let named = dialect.headers(&request).into_iter();
        let header = |(name, value): (&'static str, String)| {
            (HeaderName::from_static(name), value.parse().unwrap())
        };
        let headers = named.map(header).collect();
        let body = speech.body(&json).unwrap();
        let before = ParseContext { is_begin: true, items: 0, last: None, tool_of: &|_| None };
        let units = speech.units(&body.items, before).unwrap();
        assert_eq!(units.iter().map(|unit| unit.items).sum::<usize>(), body.items.len());
        let session = Session::in_memory(Header::new(Some("heard"), "/", 0));
        let mut conversation = LiveSession::new(session);
        let mut places = HashMap::new();
        for (unit, heard) in units.iter().enumerate() {
            for (entry, said) in heard.said.iter().enumerate() {
                places.insert(say(&mut conversation, said), EntryLocation { unit, entry });
            }
        }
        let units = spans(&units);
        Heard { path: dialect.path(&request), headers, json, units, places, conversation }
    }

    fn view(&self) -> Transcript {
        self.conversation.view()
    }

    fn lawful(&self, plan: Plan) -> Option<Lawful> {
        law::enforce(&self.view(), plan, u64::MAX / 4, &LawSettings::default()).ok()
    }

    fn render(&self, speech: &dyn InboundDialect, lawful: &Lawful) -> String {
        let view = self.view();
        let body: Body<'_> = speech.body(&self.json).unwrap();
        let written =
            Written { json: &self.json, body: &body, units: &self.units, without_thinking: &[] };
        let place = |entry: &ctxhost_engine_api::Entry<'_>| self.places.get(entry.id()).copied();
        let message = |raw: &str| serde_json::from_str(raw).ok();
        let bytes = render(speech, written, &lawful.items(&view), &place, &message);
        String::from_utf8(bytes).unwrap()
    }

    fn keeps_last_answer(&self, lawful: &Lawful) -> bool {
        let view = self.view();
        let last = view.iter().rev().find(|entry| entry.role() == Role::Assistant);
        let items = lawful.items(&view);
        let mut kept = items.iter().filter_map(|item| item.entry());
        last.is_none_or(|last| kept.any(|entry| entry.seq() == last.seq()))
    }

    fn broken(&self, wire: Wire, json: &str) -> Vec<Broken> {
        let body: Value = serde_json::from_str(json).expect("a request is JSON");
        rules::check(wire, &self.path, &self.headers, &body)
    }
}

fn say(conversation: &mut LiveSession, said: &ParsedEntry) -> String {
    match said {
        ParsedEntry::Message(message) => conversation.append_message(message, 0).unwrap(),
        ParsedEntry::Note(text) => panic!("no request of ours has a note: {text}"),
    }
}

fn spans(units: &[Unit]) -> Vec<(Range<usize>, usize)> {
    let mut from = 0;
    let span = |unit: &Unit| {
        let range = from..from + unit.items;
        from = range.end;
        (range, unit.said.len())
    };
    units.iter().map(span).collect()
}

fn everything(view: &Transcript) -> Plan {
    let mut plan = Plan::default();
    plan.keep(0..view.len() as u64);
    plan
}

fn generated(heard: &Heard) -> GeneratedTranscript {
    let session = heard.conversation.session();
    let entries = heard.view().iter().map(|entry| session.entry(entry.id()).unwrap()).collect();
    GeneratedTranscript { entries }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_a_plan_keeps_is_written_as_it_came(
        messages in conversations(),
        speaker in speakers(),
        wish in wishes(),
    ) {
        let Some(speech) = speech_of(speaker.wire) else { return Ok(()) };
        let heard = Heard::of(&*speech, speaker, &messages, &wish);
        let lawful = heard.lawful(everything(&heard.view())).unwrap();
        // The law moves results to their calls, which is no engine's doing.
        prop_assume!(lawful.settled.is_empty());
        prop_assert_eq!(heard.render(&*speech, &lawful), heard.json.clone());
    }

    #[test]
    fn what_a_plan_changes_still_keeps_the_rules(
        (messages, speaker, wish, plan) in (conversations(), speakers(), wishes())
            .prop_flat_map(|(messages, speaker, wish)| {
                let entries = speech_of(speaker.wire)
                    .map(|speech| generated(&Heard::of(&*speech, speaker, &messages, &wish)))
                    .unwrap_or_default();
                (Just(messages), Just(speaker), Just(wish), plans_of(&entries))
            }),
    ) {
        let Some(speech) = speech_of(speaker.wire) else { return Ok(()) };
        let heard = Heard::of(&*speech, speaker, &messages, &wish);
        let Some(lawful) = heard.lawful(plan) else { return Ok(()) };
        let json = heard.render(&*speech, &lawful);
        let mut broken = heard.broken(speaker.wire, &json);
        // Which answer is the last one is the plan's doing, and whether that one thought is nobody's.
        broken.retain(|broken| broken.rule != "A-14" || heard.keeps_last_answer(&lawful));
        prop_assert!(broken.is_empty(), "{speaker:?}: {}\n{json}", told(&broken));
    }
}
