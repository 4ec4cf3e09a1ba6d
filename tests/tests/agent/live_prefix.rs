//! Summary requests behind the live conversation repeat the provider's cached prefix.

use ctxhost_context::CompactionVerdict;
use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Answered, Fault, Model, ScriptedServer, Seen};
use ctxhost_tests::stage::Stage;
use ctxhost_tests::workplace::{ConfigText, Workplace, model_of};
use serde_json::Value;

const WINDOW_TOKENS: u64 = 32_000;
const WIRE: Wire = Wire::OpenAiChat;
const TURNS: usize = 12;

fn workplace(server: &ScriptedServer, summariser: &str, reuse: bool) -> Workplace {
    ConfigText::new()
        .provider("fake", WIRE, &server.url(), WINDOW_TOKENS)
        .agent("max_output_tokens = 2000")
        .tables(&format!("[summariser]\nprovider = \"fake\"\nmodel = \"{summariser}\""))
        // What is asked is the matter here, not whether the answer is good.
        .tables(&format!(
            "[plugins.entries.legacy.config.compaction]\nreuse_live_prefix = {reuse}\nquality_guard = false"
        ))
        .workplace()
}

async fn talk(stage: &mut Stage) {
    for n in 0..TURNS {
        let text = format!("Request {n}: read file_{n}.rs. {}", "It says nothing. ".repeat(40));
        stage.say(&text).await.unwrap();
    }
}

/// Talks, compacts by hand, and answers what the server saw of it: the last request of the
/// conversation, and those for the summary.
async fn compacted(summariser: &str, reuse: bool, fault: Option<Fault>) -> (Seen, Vec<Seen>) {
    let server = ScriptedServer::start(WIRE, Model::new(WINDOW_TOKENS)).keep_bodies(8);
    let place = workplace(&server, summariser, reuse);
    let mut stage = Stage::open(&place).await;
    talk(&mut stage).await;
    let reported = server.requests().len();
    if let Some(fault) = fault {
        server.fail_next(fault);
    }
    let outcome = stage.runtime.compact(&stage.session, None).await.unwrap();
    let applied = outcome.iter().any(|outcome| outcome.verdict == CompactionVerdict::Applied);
    assert!(applied, "{outcome:?}");
    let seen = server.requests();
    assert_eq!(server.broken(), []);
    (seen[reported - 1].clone(), seen[reported..].to_vec())
}

fn messages(seen: &Seen) -> &[Value] {
    seen.body["messages"].as_array().map(Vec::as_slice).unwrap()
}

#[tokio::test]
async fn the_models_own_summary_is_asked_behind_what_it_has_read() {
    let (last, asked) = compacted(model_of(WIRE), true, None).await;
    assert!(!asked.is_empty(), "nothing was asked");
    // How many attempts there are depends on the length of the temporary folder's name, which is in the conversation.
    for behind in &asked {
        let (read, sent) = (messages(&last), messages(behind));
        assert_eq!(&sent[..read.len()], read, "the cache knows these");
        assert_eq!(sent.len(), read.len() + 1);
        assert_eq!(behind.body["tools"], last.body["tools"]);
        assert_eq!(behind.answered, Answered::Summary);
    }
}

#[tokio::test]
async fn another_models_summary_stands_alone() {
    for (summariser, reuse) in [("gpt-4.1-mini", true), (model_of(WIRE), false)] {
        let (_, asked) = compacted(summariser, reuse, None).await;
        assert_eq!(messages(&asked[0]).len(), 2, "{summariser}: a system prompt and the question");
        assert!(asked[0].body.get("tools").is_none(), "{summariser}");
    }
}

#[tokio::test]
async fn what_does_not_fit_behind_the_conversation_is_asked_alone() {
    let (last, asked) = compacted(model_of(WIRE), true, Some(Fault::Overflow)).await;
    assert!(asked.len() >= 2, "{} requests", asked.len());
    assert_eq!(messages(&asked[0]).len(), messages(&last).len() + 1);
    assert_eq!(messages(&asked[1]).len(), 2, "a system prompt and the question");
}
