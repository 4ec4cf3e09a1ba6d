//! A conversation whose roles alternate still alternates after a plan has changed it: many chat templates require that.

use serde_json::{Value, json};

use crate::linked::{ENGINES, bodies, text};

/// Turns of a question and an answer, every other one with a call and its result.
fn turns(with_tools: bool) -> Vec<Value> {
    let mut history = vec![json!({ "role": "system", "content": "You are brief." })];
    for turn in 0..40 {
        let message =
            |role: &str, words: &str| json!({ "role": role, "content": text(words, turn) });
        history.push(message("user", "What does the ledger have on this page? "));
        if with_tools && turn % 2 == 0 {
            let id = format!("call_{turn}");
            let call = json!({ "id": id, "type": "function", "function": { "name": "read", "arguments": "{}" } });
            history.extend([
                json!({ "role": "assistant", "content": "I look.", "tool_calls": [call] }),
                json!({ "role": "tool", "tool_call_id": id, "content": text("A line. ", turn) }),
            ]);
        }
        history.push(message("assistant", "It has a sum and a name there. "));
    }
    history
}

/// The roles of a body, by their first character; results of tools and system messages left out.
fn roles(body: &Value) -> String {
    let messages = body["messages"].as_array().unwrap();
    let roles = messages.iter().filter_map(|message| message["role"].as_str()?.chars().next());
    roles.filter(|role| !"st".contains(*role)).collect()
}

#[tokio::test]
async fn questions_and_answers_alternate_in_every_request() {
    for with_tools in [false, true] {
        let history = turns(with_tools);
        for engine in ENGINES {
            let is_question = |message: &Value| message["role"] == "user";
            let body = |messages: &[Value]| json!({ "model": "m", "messages": messages });
            let bodies = bodies(engine, "/v1/chat/completions", &history, is_question, body).await;
            for body in &bodies {
                let roles = roles(body);
                assert!(roles.starts_with('u') && !roles.contains("uu"), "{engine}: {roles}");
                // An answer after a result follows the answer with the call.
                assert!(with_tools || !roles.contains("aa"), "{engine}: {roles}");
            }
            let last = bodies.last().unwrap()["messages"].as_array().unwrap();
            assert!(last.len() + 4 < history.len(), "{engine} dropped nothing");
        }
    }
}

#[tokio::test]
async fn an_answer_that_an_engine_inserts_is_no_words_of_the_user() {
    let history = turns(true);
    let is_question = |message: &Value| message["role"] == "user";
    let body = |messages: &[Value]| json!({ "model": "m", "messages": messages });
    let bodies = bodies("boundary", "/v1/chat/completions", &history, is_question, body).await;
    let messages = bodies.iter().flat_map(|body| body["messages"].as_array().unwrap());
    let acknowledges = |message: &&Value| message.to_string().contains("I have read the summary");
    // Only where the kept messages do not begin with an answer.
    let roles: Vec<&Value> =
        messages.filter(acknowledges).map(|message| &message["role"]).collect();
    assert!(!roles.is_empty() && roles.iter().all(|role| *role == "assistant"), "{roles:?}");
}
