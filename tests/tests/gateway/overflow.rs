//! Overflows: a refused request is retried smaller, and the client does not notice.

use ctxhost_dialects::FailureReason;
use ctxhost_dialects::failure::{Classifier, parse_refusal};
use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Answered, Model, OverflowForm, ScriptedServer, Step, Steps};
use serde_json::{Value, json};

use crate::stage::{Gate, Upstream, client, plain};

/// What the upstream really has, and what the config believes.
pub(crate) const TRUE_WINDOW: u64 = 20_000;
pub(crate) const BELIEVED: &str =
    "[models.m]\nwindow_tokens = 200000\n[models.gemini-3-pro]\nwindow_tokens = 200000\n";

pub(crate) const WIRES: [Wire; 4] =
    [Wire::Anthropic, Wire::OpenAiChat, Wire::Responses, Wire::Gemini];

pub(crate) fn server(wire: Wire, overflow: OverflowForm) -> ScriptedServer {
    let model = Model { overflow, ..Model::new(TRUE_WINDOW) };
    ScriptedServer::start(wire, model).script(Steps::new([vec![Step::say("Here you are.")]]))
}

pub(crate) fn path(wire: Wire, is_stream: bool) -> &'static str {
    match (wire, is_stream) {
        (Wire::Anthropic, _) => "/v1/messages",
        (Wire::OpenAiChat, _) => "/v1/chat/completions",
        (Wire::Responses, _) => "/v1/responses",
        (_, true) => "/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse",
        (_, false) => "/v1beta/models/gemini-3-pro:generateContent",
    }
}

/// A request with these texts, of the person and of the model by turns.
pub(crate) fn request(wire: Wire, texts: &[String], is_stream: bool) -> Value {
    let each = |person: &str, model: &str, of: &dyn Fn(&str, &str, bool) -> Value| -> Value {
        let texts = texts.iter().enumerate();
        texts
            .map(|(n, text)| of(if n % 2 == 0 { person } else { model }, text, n % 2 == 0))
            .collect()
    };
    let plain = |role: &str, text: &str, _: bool| json!({"role": role, "content": text});
    match wire {
        Wire::Anthropic => json!({"model": "m", "max_tokens": 500, "stream": is_stream,
            "messages": each("user", "assistant", &plain)}),
        Wire::OpenAiChat => {
            let mut body = json!({"model": "m", "max_tokens": 500, "stream": is_stream,
                "messages": each("user", "assistant", &plain)});
            if is_stream {
                body["stream_options"] = json!({"include_usage": true});
            }
            body
        }
        Wire::Responses => {
            json!({"model": "m", "max_output_tokens": 500, "stream": is_stream, "store": false,
            "include": ["reasoning.encrypted_content"],
            "input": each("user", "assistant", &|role, text, by_person| {
                let kind = if by_person { "input_text" } else { "output_text" };
                json!({"type": "message", "role": role, "content": [{"type": kind, "text": text}]})
            })})
        }
        _ => json!({"generationConfig": {"maxOutputTokens": 500},
            "contents": each("user", "model", &|role, text, _| json!({"role": role, "parts": [{"text": text}]}))}),
    }
}

pub(crate) fn key(wire: Wire) -> (&'static str, &'static str) {
    match wire {
        Wire::Anthropic => ("x-api-key", "k"),
        Wire::Gemini => ("x-goog-api-key", "k"),
        _ => ("authorization", "Bearer k"),
    }
}

pub(crate) async fn ask(
    gate: &Gate,
    wire: Wire,
    body: &Value,
    is_stream: bool,
) -> reqwest::Response {
    let (name, value) = key(wire);
    let request = client().post(gate.at(path(wire, is_stream))).header(name, value);
    let request = request.header("anthropic-version", "2023-06-01");
    let request = request.header("content-type", "application/json").body(body.to_string());
    request.send().await.unwrap()
}

/// A conversation far larger than the window: each text some 500 tokens.
pub(crate) fn long_conversation() -> Vec<String> {
    let text =
        |n: usize| format!("Part {n} of the plan. {}", "The parser reads the ledger. ".repeat(60));
    (0..81).map(text).collect()
}

#[tokio::test]
async fn a_refusal_of_any_form_is_answered_by_a_smaller_request() {
    for wire in WIRES {
        let forms = [
            OverflowForm::Plain,
            OverflowForm::Other,
            OverflowForm::TooLarge,
            OverflowForm::MidStream { after_text: false },
        ];
        for form in forms {
            let is_stream = matches!(form, OverflowForm::MidStream { .. });
            let server = server(wire, form);
            let gate = Gate::before(&server.url(), BELIEVED).await;
            let body = request(wire, &long_conversation(), is_stream);
            let answer = ask(&gate, wire, &body, is_stream).await;
            let reported =
                |name: &str| answer.headers().get(name).map(|it| it.to_str().unwrap().to_owned());
            let (compaction, engine) =
                (reported("x-ctxhost-compaction"), reported("x-ctxhost-engine"));
            let status = answer.status();
            let text = answer.text().await.unwrap();
            assert_eq!(status, 200, "{wire:?} {form:?}: {text}");
            assert_eq!(compaction.as_deref(), Some("applied"), "{wire:?} {form:?}");
            assert_eq!(engine.as_deref(), Some("legacy"), "{wire:?} {form:?}");
            assert!(
                !text.contains("error\":{") && text.contains("Here"),
                "{wire:?} {form:?}: {text}"
            );
            let asked: Vec<_> = server.requests().into_iter().map(|seen| seen.answered).collect();
            assert!(matches!(asked[0], Answered::Overflow(_)), "{wire:?} {form:?}: {asked:?}");
            assert!(
                matches!(asked.last(), Some(Answered::Answer { .. })),
                "{wire:?} {form:?}: {asked:?}"
            );
            assert_eq!(server.broken(), [], "{wire:?} {form:?}");
        }
    }
}

#[tokio::test]
async fn what_cannot_be_made_smaller_is_refused_in_words_the_client_knows() {
    let classifier = Classifier::for_phrases(&[]).unwrap();
    for wire in WIRES {
        let server = server(wire, OverflowForm::Plain);
        let gate = Gate::before(&server.url(), BELIEVED).await;
        let mut body = request(wire, &["Where are we?".to_owned()], false);
        instruct(wire, &mut body, &"The parser reads the ledger. ".repeat(6_000));
        let answer = ask(&gate, wire, &body, false).await;
        let status = answer.status().as_u16();
        let text = answer.text().await.unwrap();
        assert!(status == 400 || status == 413, "{wire:?}: {status} {text}");
        let reason = classifier.classify(&parse_refusal(Some(status), &text)).reason;
        assert_eq!(reason, FailureReason::ContextOverflow, "{wire:?}: {text}");
    }
}

#[tokio::test]
async fn words_in_one_conversation_take_no_room_from_others() {
    let upstream = Upstream::start(|seen| {
        let body = std::str::from_utf8(&seen.body).unwrap();
        if body.contains("service_tier") {
            let message = "Invalid value: 'maximum context length is 5 tokens'.";
            let error = json!({"error": {"message": message, "code": "invalid_value"}});
            plain(400, "application/json", error.to_string())
        } else {
            plain(200, "application/json", "{\"choices\":[]}")
        }
    });
    let upstream = upstream.await;
    let gate = Gate::before(&upstream.url, "").await;
    let texts = |word: &str| [format!("{word}. {}", "The parser reads the ledger. ".repeat(60))];
    let mut body = request(Wire::OpenAiChat, &texts("One"), false);
    body["service_tier"] = "maximum context length is 5 tokens".into();
    let refused = ask(&gate, Wire::OpenAiChat, &body, false).await;
    assert_eq!(refused.status(), 400);
    for word in ["One", "Two"] {
        let body = request(Wire::OpenAiChat, &texts(word), false);
        let answer = ask(&gate, Wire::OpenAiChat, &body, false).await;
        let status = answer.status();
        assert_eq!(status, 200, "{word}: {}", answer.text().await.unwrap());
        assert_eq!(upstream.last().body, body.to_string(), "{word}");
    }
}

/// Words in front of the conversation, which no engine may leave out.
fn instruct(wire: Wire, body: &mut Value, words: &str) {
    match wire {
        Wire::Anthropic => body["system"] = words.into(),
        Wire::OpenAiChat => {
            let parameters = json!({"type": "object", "properties": {}});
            let function = json!({"name": "plan", "description": words, "parameters": parameters});
            body["tools"] = json!([{"type": "function", "function": function}]);
        }
        Wire::Responses => body["instructions"] = words.into(),
        _ => body["systemInstruction"] = json!({"parts": [{"text": words}]}),
    }
}

/// What the model said in a whole answer.
pub(crate) fn said(wire: Wire, answer: &Value) -> String {
    let text = match wire {
        Wire::Anthropic => answer.pointer("/content/0/text"),
        Wire::OpenAiChat => answer.pointer("/choices/0/message/content"),
        Wire::Responses => answer.pointer("/output/0/content/0/text"),
        _ => answer.pointer("/candidates/0/content/parts/0/text"),
    };
    text.and_then(Value::as_str).unwrap_or_else(|| panic!("{wire:?}: {answer}")).to_owned()
}

#[tokio::test]
async fn a_conversation_of_four_windows_goes_on_over_a_restart() {
    for wire in WIRES {
        let steps =
            (0..40).map(|n| vec![Step::say(format!("Noted, {n}: {}", "I go on. ".repeat(40)))]);
        let model = Model::new(TRUE_WINDOW);
        let server = ScriptedServer::start(wire, model).script(Steps::new(steps));
        let mut gate = Gate::before(&server.url(), BELIEVED).await;
        let mut texts = Vec::new();
        for turn in 0..24 {
            texts.push(format!(
                "Step {turn}. {}",
                "The parser reads the ledger again. ".repeat(330)
            ));
            let answer = ask(&gate, wire, &request(wire, &texts, false), false).await;
            let status = answer.status();
            let text = answer.text().await.unwrap();
            assert_eq!(status, 200, "{wire:?} {turn}: {text}");
            texts.push(said(wire, &serde_json::from_str(&text).unwrap()));
            if turn == 12 {
                gate.end.cancel();
                let Gate { task, state, .. } = gate;
                task.await.unwrap();
                gate = Gate::again(&server.url(), BELIEVED, state).await;
            }
        }
        assert_eq!(server.broken(), [], "{wire:?}");
        let sent: u64 = texts.iter().map(|text| text.len() as u64).sum();
        assert!(sent as f64 / 3.5 > 3.5 * TRUE_WINDOW as f64, "a conversation of {sent} bytes");
        // Not every turn pays for what the first one has learned. Of OpenAI's Responses there is little
        // to learn: their refusal names no number.
        let overflows =
            server.requests().into_iter().filter(|it| matches!(it.answered, Answered::Overflow(_)));
        let overflows = overflows.count();
        let most = if wire == Wire::Responses { 12 } else { 5 };
        assert!(overflows <= most, "{wire:?}: {overflows} of 24 turns");
    }
}

/// An upstream whose tokens are larger than estimated: a conversation that it holds is above its window by the
/// estimate with a margin, which is all that a gateway has that has forgotten the counts.
#[tokio::test]
async fn a_restart_does_not_compact_what_the_upstream_has_counted() {
    const CONFIG: &str = "[models.m]\nwindow_tokens = 16000\n";
    let upstream = Upstream::start(|seen| {
        let answer = json!({ "choices": [{ "index": 0, "finish_reason": "stop",
            "message": { "role": "assistant", "content": "Noted." } }],
            "usage": { "prompt_tokens": seen.body.len() / 5, "completion_tokens": 3 } });
        plain(200, "application/json", answer.to_string())
    })
    .await;
    let mut gate = Gate::before(&upstream.url, CONFIG).await;
    let mut texts: Vec<String> = Vec::new();
    let mut asked = |gate: &Gate, is_next: bool| {
        if is_next {
            let number = texts.len();
            let text =
                format!("Step {number}. {}", "The parser reads the ledger again. ".repeat(60));
            texts.extend([text, "Noted.".to_owned()]);
        }
        let body = request(Wire::OpenAiChat, &texts[..texts.len() - 1], false);
        let gate = gate.url.clone();
        async move {
            let url = format!("{gate}{}", path(Wire::OpenAiChat, false));
            let answer = client().post(url).json(&body).send().await.unwrap();
            let compaction = answer.headers()["x-ctxhost-compaction"].to_str().unwrap().to_owned();
            answer.bytes().await.unwrap();
            compaction == "none"
        }
    };
    let mut turns = 0;
    // Until a quarter of a window is left.
    while upstream.count() == 0 || upstream.last().body.len() / 5 < 9_000 {
        assert!(asked(&gate, true).await, "turn {turns}");
        turns += 1;
    }
    let before = upstream.last().body;
    let Gate { end, task, state, .. } = gate;
    end.cancel();
    task.await.unwrap();
    gate = Gate::again(&upstream.url, CONFIG, state).await;
    assert!(asked(&gate, false).await);
    assert_eq!(upstream.last().body, before, "the request fits as it did before");
}

/// The config alone says how often; a provider that is never content is told of in its own words.
#[tokio::test]
async fn as_many_forms_are_tried_as_the_config_says() {
    let error = json!({"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long"}});
    let refusal = error.to_string();
    let upstream = Upstream::start(move |_| plain(400, "application/json", refusal.clone())).await;
    let texts: Vec<String> = (0..2).flat_map(|_| long_conversation()).collect();
    for tries in [0, 2, 10] {
        let before = upstream.count();
        let config = format!("{BELIEVED}[gateway]\ntoo_large_tries = {tries}\n");
        let gate = Gate::before(&upstream.url, &config).await;
        let body = request(Wire::Anthropic, &texts, false);
        let answer = ask(&gate, Wire::Anthropic, &body, false).await;
        assert_eq!(answer.status(), 400, "{tries}");
        let reported = answer.text().await.unwrap();
        assert_eq!(
            reported,
            error.to_string(),
            "{tries}: nothing is invented beside the words of the provider"
        );
        assert_eq!(upstream.count() - before, 1 + tries, "{tries}");
    }
}
