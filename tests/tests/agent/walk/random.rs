//! Random conversations with random faults: every turn ends and every request is valid.

use ctxhost_agent::event::EventKind;
use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Fault, Faults, Model, OverflowForm, ScriptedServer, Wanderer};
use ctxhost_tests::stage::Stage;
use ctxhost_tests::workplace::{ConfigText, answers, words};

/// Conversations of each dialect.
const CASES: u64 = 5;

/// Tries of one request: the recoveries of an overflow, each with the wire's own repetitions.
const MAX_TRIES: usize = 24;

/// What may go wrong.
const FAULTS: [Fault; 12] = [
    Fault::Overflow,
    Fault::OverflowMidStream { after_text: false },
    Fault::OverflowMidStream { after_text: true },
    Fault::RateLimited { retry_after_s: 0 },
    Fault::Overloaded,
    Fault::ServerError,
    Fault::EmptyBody,
    Fault::NothingSaid,
    Fault::CutStream,
    Fault::WrongJson,
    Fault::HtmlPage,
    Fault::Reset,
];

#[tokio::test]
async fn random_conversations_in_every_dialect() {
    for wire in Wire::ALL {
        for case in 0..CASES {
            converse(wire, case * 7 + 1).await;
        }
    }
}

/// One conversation.
async fn converse(wire: Wire, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let window_tokens = random.u64(20_000..48_000);
    let forms = [
        OverflowForm::Plain,
        OverflowForm::Other,
        OverflowForm::TooLarge,
        OverflowForm::MidStream { after_text: true },
    ];
    let overflow = *random.choice(&forms).unwrap();
    let server = ScriptedServer::start(wire, Model { overflow, ..Model::new(window_tokens) })
        .seed(seed)
        .script(Wanderer::new(seed).paths(["notes.txt", "long.txt"].map(str::to_owned)))
        .faults(Faults::random(seed, random.f64() * 0.3, FAULTS));
    let place = ConfigText::new()
        .provider_with("fake", wire, &server.url(), window_tokens, "retries = 2")
        .agent("max_rounds = 12\nmax_output_tokens = 2000")
        .workplace();
    let mut stage = Stage::open(&place).await;
    let (mut said, mut received) = (Vec::new(), 0);
    for n in 0..random.usize(4..9) {
        let text = format!("Say {n}. {}", "Words about the ledger. ".repeat(random.usize(0..250)));
        let before = server.requests().len();
        // A turn may fail: then nobody answered, or the model called tools for ever.
        let _ = stage.say(&text).await;
        said.push(text.trim_end().to_owned());
        let answered = stage
            .last_turn()
            .iter()
            .filter(|what| matches!(what, EventKind::Answered { .. }))
            .count();
        received += answered;
        let requests = server.requests().len() - before;
        assert!(
            requests <= (answered + 1) * MAX_TRIES,
            "{wire:?} {seed}: {requests} requests for {answered} answers"
        );
    }
    stage.close().await;
    assert_eq!(server.broken(), [], "{wire:?} {seed}");
    let session = place.session();
    let kept: Vec<String> = words(&session).iter().map(|text| text.trim_end().to_owned()).collect();
    assert_eq!(kept, said, "{wire:?} {seed}");
    assert_eq!(answers(&session).len(), received, "{wire:?} {seed}");
}
