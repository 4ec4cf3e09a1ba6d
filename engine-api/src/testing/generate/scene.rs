//! Scenes: the pieces that generated conversations are put together from.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::Script;
use super::script::Turn;
use crate::transcript::Kind;

/// One piece of a conversation.
#[derive(Clone, Debug)]
pub enum Scene {
    /// An entry of the operator.
    System(String),
    /// A message of the person, perhaps with pictures.
    User {
        /// What it says.
        text: String,
        /// How many pictures it carries.
        images: usize,
    },
    /// A message of a heartbeat.
    Heartbeat(String),
    /// An answer that calls nothing.
    Assistant {
        /// What it says; may be nothing at all.
        text: String,
        /// Whether it begins with thinking.
        thinking: bool,
    },
    /// An entry that is no plain message.
    Aside(Kind, String),
    /// A result of a call that is nowhere.
    Orphan(String),
    /// Calls and what became of them.
    Round(Round),
}

/// Calls of one assistant message and what became of them.
#[derive(Clone, Debug)]
pub struct Round {
    /// What the model says beside its calls.
    pub text: String,
    /// The text that each call carries in its arguments.
    pub argument: String,
    /// Whether it begins with thinking.
    pub thinking: bool,
    /// Whether the person aborted it.
    pub aborted: bool,
    /// Whether the call ids are those that every such round uses.
    pub reuses_ids: bool,
    /// How many calls.
    pub calls: usize,
    /// The results in order of arrival; each names a call by its place. A call may be named twice
    /// (the second is an orphan then) or never.
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
    /// What the person said just before it came.
    pub interruption: Option<String>,
}

/// Any scene.
pub fn scenes() -> impl Strategy<Value = Scene> {
    let aside = prop_oneof![
        Just(Kind::CompactionSummary),
        Just(Kind::BranchSummary),
        Just(Kind::Custom),
        Just(Kind::Bash),
    ];
    prop_oneof![
        3 => texts().prop_map(|text| Scene::User { text, images: 0 }),
        4 => rounds().prop_map(Scene::Round),
        2 => (texts(), any::<bool>())
            .prop_map(|(text, thinking)| Scene::Assistant { text, thinking }),
        1 => (texts(), 1..3_usize).prop_map(|(text, images)| Scene::User { text, images }),
        1 => texts().prop_map(Scene::Orphan),
        1 => texts().prop_map(Scene::System),
        1 => texts().prop_map(Scene::Heartbeat),
        1 => (aside, texts()).prop_map(|(kind, text)| Scene::Aside(kind, text)),
    ]
}

/// Texts of several scripts and lengths; the empty one and a blank one among them.
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

fn rounds() -> impl Strategy<Value = Round> {
    let text = prop_oneof![Just(String::new()), texts()];
    let argument = prop_oneof![4 => Just(String::new()), 1 => texts()];
    let aborted = prop::bool::weighted(0.2);
    let reuses_ids = prop::bool::weighted(0.3);
    let results = vec(round_results(), 0..5);
    (text, argument, any::<bool>(), aborted, reuses_ids, 1..4_usize, results).prop_map(
        |(text, argument, thinking, aborted, reuses_ids, calls, results)| Round {
            text,
            argument,
            thinking,
            aborted,
            reuses_ids,
            calls,
            results,
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
    /// Writes one scene.
    pub fn play(&mut self, scene: &Scene) {
        match scene {
            Scene::System(text) => self.push_system(text),
            Scene::User { text, images } => self.push_user(text, *images),
            Scene::Heartbeat(text) => self.push_heartbeat(text),
            Scene::Assistant { text, thinking } => {
                self.push_turn(&Turn { text, thinking: *thinking, ..Turn::default() });
            }
            Scene::Aside(kind, text) => self.push_kind(*kind, "custom", text),
            Scene::Orphan(text) => self.push_result("nobody", text, false),
            Scene::Round(round) => self.play_round(round),
        }
    }

    fn play_round(&mut self, round: &Round) {
        let number = if round.reuses_ids { 0 } else { self.next_round() };
        let ids: Vec<String> = (0..round.calls).map(|k| format!("call_{number}_{k}")).collect();
        self.push_turn(&Turn {
            text: &round.text,
            ids: &ids,
            argument: &round.argument,
            thinking: round.thinking,
            aborted: round.aborted,
        });
        for result in &round.results {
            if let Some(text) = &result.interruption {
                self.push_user(text, 0);
            }
            let id: &String = result.call.get(&ids);
            self.push_result(id, &result.text, result.is_error);
        }
    }
}
