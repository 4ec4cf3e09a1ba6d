//! Token counting and compaction by providers.

use super::*;

/// Chat completions with a way to count.
#[derive(Debug)]
struct Counting;

impl Dialect for Counting {
    fn api(&self) -> &'static str {
        "counting"
    }
    fn path(&self, _: &ModelRequest) -> String {
        "/chat".into()
    }
    fn encode(&self, _: &ModelRequest) -> Value {
        Value::Null
    }
    fn new_decoder(&self) -> Box<dyn Decoder> {
        OpenAiChat::default().new_decoder()
    }
    fn count_request(&self, request: &ModelRequest) -> Option<(String, Value)> {
        Some(("/count".into(), json!({ "model": request.model })))
    }
    fn parse_count(&self, answer: &Value) -> Option<u64> {
        answer["tokens"].as_u64()
    }
}

#[tokio::test]
async fn a_provider_counts_where_it_can() {
    let check = async |status: u16, body: &'static str| {
        let server = Server::start(move |turn, _| match turn {
            0 => plain(503, &[], ""),
            _ => plain(status, &[], body),
        })
        .await;
        let settings = settings(&server.base_url);
        let client =
            HttpClient::new("here", Box::new(Counting), ApiKey::none(), &settings).unwrap();
        let count = client.count_tokens(&request()).await;
        let sent = server.requests();
        assert_eq!((sent[1].uri.as_str(), &sent[1].body["model"]), ("/v1/count", &json!("m")));
        count.map_err(|error| error.reason)
    };
    let guess = estimate_tokens(&request());
    assert_eq!(check(200, r#"{"tokens": 4711}"#).await, Ok(4_711));
    assert_eq!(check(404, "no such path").await, Ok(guess));
    assert_eq!(check(200, "{}").await, Ok(guess));
    assert_eq!(check(200, "<html>").await, Err(FailureReason::InvalidResponse));
    assert_eq!(check(401, "no").await, Err(FailureReason::Auth));
    let server = always(|| whole("never")).await;
    assert_eq!(client(&server).count_tokens(&request()).await.unwrap(), guess);
    assert_eq!(server.requests().len(), 0);
}

const COMPACTED: &str = r#"{"id":"resp_9","object":"response.compaction","output":[
    {"type":"message","role":"user","content":[{"type":"input_text","text":"hello"}]},
    {"type":"compaction","id":"cmp_1","encrypted_content":"gAAA"}],"usage":{"input_tokens":9}}"#;

fn responses(server: &Server) -> HttpClient {
    let (key, settings) = (ApiKey::from_secret(KEY.into()), settings(&server.base_url));
    HttpClient::new("here", Box::new(OpenAiResponses), key, &settings).unwrap()
}

#[tokio::test]
async fn a_compaction_of_the_provider_s_is_signed_and_goes_back_as_it_came() {
    let server = Server::start(|number, _| match number {
        0 => plain(503, &[], r#"{"error":{"message":"busy"}}"#),
        _ => plain(200, &[], COMPACTED),
    })
    .await;
    let client = responses(&server);
    let messages = client.compact(&request()).await.unwrap().unwrap();
    let [ChatMessage::Assistant(compacted)] = messages.as_slice() else { panic!("{messages:?}") };
    assert_eq!((compacted.provider.as_str(), compacted.model.as_str()), ("here", "m"));
    assert!(compacted.timestamp > 1_600_000_000_000);
    let sent = server.requests();
    assert_eq!(sent.len(), 2, "a busy server is asked again");
    assert_eq!(sent[1].uri, "/v1/responses/compact");
    assert_eq!(sent[1].header("authorization"), format!("Bearer {KEY}"));
    assert_eq!(sent[1].body.get("stream"), None);

    let next = ModelRequest { messages, ..request() };
    let answer: Value = serde_json::from_str(COMPACTED).unwrap();
    client.compact(&next).await.unwrap();
    assert_eq!(server.requests()[2].body["input"], answer["output"]);
}

#[tokio::test]
async fn an_invalid_or_refused_compaction_is_an_error() {
    let refusal = r#"{"error":{"message":"Your input exceeds the context window of this model.","code":"context_length_exceeded"}}"#;
    let answers = [
        (200, r#"{"output":[]}"#, FailureReason::InvalidResponse),
        (200, "<html>", FailureReason::InvalidResponse),
        (400, refusal, FailureReason::ContextOverflow),
        (200, refusal, FailureReason::ContextOverflow),
    ];
    for (status, body, reason) in answers {
        let server = always(move || plain(status, &[], body)).await;
        let error = responses(&server).compact(&request()).await.unwrap_err();
        assert_eq!(error.reason, reason, "{body}");
        assert_eq!(client(&server).compact(&request()).await.unwrap(), None);
    }
}
