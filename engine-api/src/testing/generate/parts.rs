//! The parts of generated conversations.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::Script;
use super::script::AssistantTurn;
use crate::transcript::EntryKind;
use crate::transcript::links::AnswerLinks;

/// A part of a conversation.
#[derive(Clone, Debug)]
pub enum ScriptPart {
    /// A system entry.
    System(String),
    /// A user message, with or without images.
    User {
        /// The text.
        text: String,
        /// The number of images.
        images: usize,
    },
    /// A message of a heartbeat.
    Heartbeat(String),
    /// An assistant message without calls.
    Assistant {
        /// The text, possibly empty.
        text: String,
        /// Whether it begins with thinking.
        thinking: bool,
    },
    /// An entry of another kind than a message.
    NonMessage(EntryKind, String),
    /// A result without a call.
    Orphan(String),
    /// Calls and their results.
    Round(ToolRound),
}

/// The calls of one assistant message and their results.
#[derive(Clone, Debug)]
pub struct ToolRound {
    /// The text of the message.
    pub text: String,
    /// A text in the arguments of each call.
    pub argument: String,
    /// Whether it begins with thinking.
    pub thinking: bool,
    /// Whether the user aborted it.
    pub aborted: bool,
    /// Whether a tool of the provider makes the calls, and its output is in a later message.
    pub provider_tool: bool,
    /// Whether the call ids are the same in every such round.
    pub reuses_ids: bool,
    /// Whether each two calls of the message have the same id.
    pub repeats_ids: bool,
    /// The number of calls.
    pub calls: usize,
    /// The results in order of arrival. A call may have no result. Those beyond the number of calls with
    /// their id are orphans.
    pub results: Vec<RoundResult>,
}

/// One result in a round.
#[derive(Clone, Debug)]
pub struct RoundResult {
    /// The call it answers.
    pub call: Index,
    /// Its text.
    pub text: String,
    /// Whether the tool failed.
    pub is_error: bool,
    /// A user message before the result.
    pub interruption: Option<String>,
}

/// Any part.
pub fn script_parts() -> impl Strategy<Value = ScriptPart> {
    let kind_strategy = prop_oneof![
        Just(EntryKind::CompactionSummary),
        Just(EntryKind::BranchSummary),
        Just(EntryKind::Custom),
        Just(EntryKind::Bash),
    ];
    prop_oneof![
        3 => texts().prop_map(|text| ScriptPart::User { text, images: 0 }),
        4 => rounds().prop_map(ScriptPart::Round),
        2 => (texts(), any::<bool>())
            .prop_map(|(text, thinking)| ScriptPart::Assistant { text, thinking }),
        1 => (texts(), 1..3_usize).prop_map(|(text, images)| ScriptPart::User { text, images }),
        1 => texts().prop_map(ScriptPart::Orphan),
        1 => texts().prop_map(ScriptPart::System),
        1 => texts().prop_map(ScriptPart::Heartbeat),
        1 => (kind_strategy, texts()).prop_map(|(kind, text)| ScriptPart::NonMessage(kind, text)),
    ]
}

/// Texts of several scripts and lengths, including empty and blank ones.
pub fn texts() -> impl Strategy<Value = String> {
    let long = (prop_oneof![Just('x'), Just('你'), Just('\u{1F600}'), Just(' ')], 100..1_500_usize);
    prop_oneof![
        4 => "[a-z ,.]{0,40}",
        1 => Just(String::new()),
        2 => "[你好世界日本語テキスト한국어]{1,16}",
        1 => "[a-z\u{1F600}\u{1F680}\u{1F468}\u{200D}\u{1F469}]{1,16}",
        1 => long.prop_map(|(character, times)| character.to_string().repeat(times)),
    ]
}

fn rounds() -> impl Strategy<Value = ToolRound> {
    let text = prop_oneof![Just(String::new()), texts()];
    let argument = prop_oneof![4 => Just(String::new()), 1 => texts()];
    let aborted = prop::bool::weighted(0.2);
    // Rare shapes are weighted so that most transcripts stay valid.
    let reuses_ids = prop::bool::weighted(0.3);
    let repeats_ids = prop::bool::weighted(0.2);
    let results = vec(round_results(), 0..5);
    let provider_tool = prop::bool::weighted(0.2);
    let flags = (any::<bool>(), aborted, provider_tool, reuses_ids, repeats_ids);
    (text, argument, flags, 1..4_usize, results).prop_map(
        |(text, argument, flags, calls, results)| {
            let (thinking, aborted, provider_tool, reuses_ids, repeats_ids) = flags;
            ToolRound {
                text,
                argument,
                thinking,
                aborted,
                provider_tool,
                reuses_ids,
                repeats_ids,
                calls,
                results,
            }
        },
    )
}

fn round_results() -> impl Strategy<Value = RoundResult> {
    let interruption = prop::option::weighted(0.2, texts());
    (any::<Index>(), texts(), any::<bool>(), interruption).prop_map(
        |(call, text, is_error, interruption)| RoundResult { call, text, is_error, interruption },
    )
}

impl Script {
    /// Appends a part.
    pub fn push_part(&mut self, scene: &ScriptPart) {
        match scene {
            ScriptPart::System(text) => self.push_system(text),
            ScriptPart::User { text, images } => self.push_user(text, *images),
            ScriptPart::Heartbeat(text) => self.push_heartbeat(text),
            ScriptPart::Assistant { text, thinking } => {
                self.push_turn(&AssistantTurn {
                    text,
                    thinking: *thinking,
                    ..AssistantTurn::default()
                });
            }
            ScriptPart::NonMessage(kind, text) => self.push_kind(*kind, "custom", text),
            ScriptPart::Orphan(text) => self.push_result("orphan", text, false),
            ScriptPart::Round(round) => self.play_round(round),
        }
    }

    fn play_round(&mut self, round: &ToolRound) {
        // Some providers number calls from zero in every response.
        let number = if round.reuses_ids { 0 } else { self.next_round() };
        let per_id = if round.repeats_ids { 2 } else { 1 };
        let ids: Vec<String> =
            (0..round.calls).map(|k| format!("call_{number}_{}", k / per_id)).collect();
        let tool = round.provider_tool.then(|| format!("provider_{number}"));
        let links =
            AnswerLinks { ids: tool.clone().into_iter().collect(), ..AnswerLinks::default() };
        self.push_turn(&AssistantTurn {
            text: &round.text,
            ids: &ids,
            argument: &round.argument,
            thinking: round.thinking,
            // What an aborted message started has no output.
            aborted: round.aborted && !round.provider_tool,
            links,
        });
        for result in &round.results {
            if let Some(text) = &result.interruption {
                self.push_user(text, 0);
            }
            let id: &String = result.call.get(&ids);
            self.push_result(id, &result.text, result.is_error);
        }
        if let Some(tool) = tool {
            let links = AnswerLinks { refers_to: vec![tool], ..AnswerLinks::default() };
            self.push_turn(&AssistantTurn { text: "output", links, ..AssistantTurn::default() });
        }
    }
}
