//! Client requests are ingested, written back byte for byte, and valid where a plan changes them.

use std::collections::HashMap;
use std::ops::Range;

use axum::http::{HeaderMap, HeaderName};
use ctxhost_context::LiveSession;
use ctxhost_dialects::ChatMessage;
use ctxhost_dialects::inbound::{
    EntryLocation, InboundDialect, ItemGroup, ParseContext, ParsedBody, ParsedEntry, SourceBody,
    json_items, render_body,
};
use ctxhost_dialects::{
    AnthropicInbound, GeminiInbound, OllamaInbound, OpenAiChatInbound, OpenAiResponsesInbound,
};
use ctxhost_engine_api::testing::generate::{GeneratedTranscript, plans_for};
use ctxhost_engine_api::{Plan, PlanItem, Role, Transcript};
use ctxhost_invariants::{self as invariants, EnforcedPlan, InvariantSettings};
use ctxhost_session::{Session, SessionHeader};
use ctxhost_tests::rules::{self, Broken, Wire};
use proptest::prelude::*;
use serde_json::Value;

use super::conversations::{Speaker, conversations, speakers};
use super::encoded::{Wish, dialect, reported, request, wishes};

fn speech_of(wire: Wire) -> Box<dyn InboundDialect> {
    match wire {
        Wire::Anthropic => Box::new(AnthropicInbound),
        Wire::OpenAiChat => Box::new(OpenAiChatInbound),
        Wire::Responses => Box::new(OpenAiResponsesInbound),
        Wire::Gemini => Box::new(GeminiInbound),
        Wire::Ollama => Box::new(OllamaInbound),
    }
}

/// A request that a client wrote, taken into a session.
struct ReceivedRequest {
    json: String,
    path: String,
    model: &'static str,
    headers: HeaderMap,
    units: Vec<(Range<usize>, usize)>,
    places: HashMap<String, EntryLocation>,
    conversation: LiveSession,
}

impl ReceivedRequest {
    fn of(
        speech: &dyn InboundDialect,
        speaker: Speaker,
        messages: &[ChatMessage],
        wish: &Wish,
    ) -> ReceivedRequest {
        let dialect = dialect(speaker.wire, wish.is_peculiar);
        let request = request(messages, speaker, wish);
        let json = dialect.encode(&request).to_string();
        let named = dialect.headers(&request).into_iter();
        let header = |(name, value): (&'static str, String)| {
            (HeaderName::from_static(name), value.parse().unwrap())
        };
        let headers = named.map(header).collect();
        let body = speech.parse_body(&json).unwrap();
        let before = ParseContext { is_start: true, items: &[], tool_name_of: &|_| None };
        let units = speech.parse_items(&mut json_items(&body.items), before).unwrap();
        assert_eq!(units.iter().map(|unit| unit.item_count).sum::<usize>(), body.items.len());
        let session = Session::in_memory(SessionHeader::new(Some("heard"), "/", 0));
        let mut conversation = LiveSession::new(session);
        let mut places = HashMap::new();
        for (unit, received) in units.iter().enumerate() {
            for (entry, said) in received.entries.iter().enumerate() {
                places.insert(say(&mut conversation, said), EntryLocation { group: unit, entry });
            }
        }
        let units = spans(&units);
        ReceivedRequest {
            path: dialect.path(&request),
            model: speaker.model(),
            headers,
            json,
            units,
            places,
            conversation,
        }
    }

    fn view(&self) -> Transcript {
        self.conversation.view()
    }

    fn lawful(&self, plan: Plan) -> Option<EnforcedPlan> {
        invariants::enforce(&self.view(), plan, u64::MAX / 4, &InvariantSettings::default()).ok()
    }

    fn render(&self, speech: &dyn InboundDialect, lawful: &EnforcedPlan) -> String {
        let view = self.view();
        let body: ParsedBody<'_> = speech.parse_body(&self.json).unwrap();
        // Where the model is in the path, the body has none.
        let body = ParsedBody { model: self.model.into(), ..body };
        let written = SourceBody {
            json: &self.json,
            body: &body,
            groups: &self.units,
            groups_without_thinking: &[],
        };
        let place = |entry: &ctxhost_engine_api::Entry<'_>| self.places.get(entry.id()).copied();
        let message = |raw: &str| serde_json::from_str(raw).ok();
        let bytes = render_body(speech, written, &lawful.items(&view), &place, &message);
        String::from_utf8(bytes).unwrap()
    }

    /// Whether every kept answer begins with thinking; otherwise the gateway may have to turn it off.
    fn all_answers_think(&self, lawful: &EnforcedPlan) -> bool {
        let view = self.view();
        let items = lawful.items(&view);
        let mut answers = items
            .iter()
            .filter_map(PlanItem::entry)
            .filter(|entry| entry.role() == Role::Assistant);
        answers.all(|entry| {
            let message: Value = serde_json::from_str(entry.raw()).unwrap();
            message["content"][0]["type"] == "thinking"
        })
    }

    fn broken(&self, wire: Wire, json: &str) -> Vec<Broken> {
        let body: Value = serde_json::from_str(json).expect("a request is JSON");
        rules::check(wire, &self.path, &self.headers, &body)
    }
}

fn say(conversation: &mut LiveSession, said: &ParsedEntry) -> String {
    match said {
        ParsedEntry::Message(message) => conversation.append_message(message, 0).unwrap(),
        ParsedEntry::Instruction(text) | ParsedEntry::Note(text) => {
            panic!("no request of ours has a note: {text}")
        }
    }
}

fn spans(units: &[ItemGroup]) -> Vec<(Range<usize>, usize)> {
    let mut from = 0;
    let span = |unit: &ItemGroup| {
        let range = from..from + unit.item_count;
        from = range.end;
        (range, unit.entries.len())
    };
    units.iter().map(span).collect()
}

fn everything(view: &Transcript) -> Plan {
    let mut plan = Plan::default();
    plan.keep(0..view.len() as u64);
    plan
}

fn generated(received: &ReceivedRequest) -> GeneratedTranscript {
    let session = received.conversation.session();
    let entries = received.view().iter().map(|entry| session.entry(entry.id()).unwrap()).collect();
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
        let speech = speech_of(speaker.wire);
        let received = ReceivedRequest::of(&*speech, speaker, &messages, &wish);
        let lawful = received.lawful(everything(&received.view())).unwrap();
        // The law moves results to their calls, which is no engine's doing.
        prop_assume!(lawful.pairing_repairs.is_empty());
        prop_assert_eq!(received.render(&*speech, &lawful), received.json.clone());
    }

    #[test]
    fn what_a_plan_changes_still_keeps_the_rules(
        (messages, speaker, wish, plan) in (conversations(), speakers(), wishes())
            .prop_flat_map(|(messages, speaker, wish)| {
                let speech = speech_of(speaker.wire);
                let entries = generated(&ReceivedRequest::of(&*speech, speaker, &messages, &wish));
                (Just(messages), Just(speaker), Just(wish), plans_for(&entries))
            }),
    ) {
        let speech = speech_of(speaker.wire);
        let received = ReceivedRequest::of(&*speech, speaker, &messages, &wish);
        let Some(lawful) = received.lawful(plan) else { return Ok(()) };
        let json = received.render(&*speech, &lawful);
        let mut broken = received.broken(speaker.wire, &json);
        broken.retain(|broken| broken.rule != "A-14" || received.all_answers_think(&lawful));
        prop_assert!(broken.is_empty(), "{speaker:?}: {}\n{json}", reported(&broken));
    }
}
