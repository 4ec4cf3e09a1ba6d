//! G-1 to G-12.

use ctxhost_tests::rules::Part;
use serde_json::json;

use super::*;

pub(crate) fn story() -> Story {
    Story {
        wire: Wire::Gemini,
        path: "/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse",
        headers: &[],
        good: json!({
            "systemInstruction": {"parts": [{"text": "You help."}]},
            "tools": [{"functionDeclarations": [{"name": "read"}]}],
            "contents": [
                {"role": "user", "parts": [{"text": "read both"}]},
                {"role": "model", "parts": [
                    {"functionCall": {"id": "1", "name": "read", "args": {"path": "a"}}, "thoughtSignature": "c2lnMQ=="},
                    {"functionCall": {"id": "2", "name": "list"}}]},
                {"role": "user", "parts": [
                    {"functionResponse": {"id": "1", "name": "read", "response": {"output": "one"}}},
                    {"functionResponse": {"id": "2", "name": "list", "response": {}}}]},
                {"role": "model", "parts": [{"text": "done"}]},
            ],
        }),
        breaks: &[
            ("G-1", |body| set(body, "/contents", json!([]))),
            ("G-1", |body| set(body, "/contents/0/parts", json!([]))),
            ("G-1", |body| set(body, "/contents/3/role", json!("assistant"))),
            ("G-2", |body| remove(body, "/contents", 0)),
            ("G-3", |body| {
                insert(body, "/contents", 1, json!({"role": "model", "parts": [{"text": "so"}]}))
            }),
            ("G-4", |body| {
                insert(body, "/contents", 2, json!({"role": "user", "parts": [{"text": "wait"}]}))
            }),
            ("G-5", |body| remove(body, "/contents/2/parts", 1)),
            ("G-6", |body| set(body, "/contents/2/parts/0/functionResponse/id", json!("2"))),
            ("G-6", |body| {
                unset(body, "/contents/1/parts/0/functionCall/id");
                unset(body, "/contents/2/parts/0/functionResponse/id");
            }),
            ("G-7", |body| unset(body, "/contents/1/parts/0/thoughtSignature")),
            ("G-8", |body| set(body, "/contents/1/parts/0/thoughtSignature", json!("abc"))),
            ("G-8", |body| set(body, "/contents/1/parts/0/thoughtSignature", json!("c2lnOQ=="))),
            ("G-8", |body| set(body, "/contents/3/parts/0/thoughtSignature", json!("c2lnMQ=="))),
            ("G-9", |body| set(body, "/contents/1/parts/0/functionCall/args", json!("{}"))),
            ("G-9", |body| {
                set(body, "/contents/2/parts/0/functionResponse/response", json!("one"))
            }),
            ("G-10", |body| set(body, "/messages", json!([]))),
            ("G-10", |body| set(body, "/contents/0/parts/0/type", json!("text"))),
            ("G-11", |body| set(body, "/cachedContent", json!("cachedContents/1"))),
            ("G-12", |body| {
                // Media in results come with the third generation; this is a request to an older one.
                set(body, "/model", json!("gemini-2.5-pro"));
                set(
                    body,
                    "/contents/2/parts/0/functionResponse/parts",
                    json!([{"inlineData": {}}]),
                );
            }),
        ],
        issued: Some((json!({}), issued())),
    }
}

fn issued() -> Issued {
    let signature = "c2lnMQ==".to_owned();
    let call =
        Part::Call { id: String::new(), call_id: "1".into(), name: "read".into(), signature };
    Issued { response_id: "r".into(), is_stored: false, parts: vec![call] }
}

#[test]
fn a_stand_in_is_accepted() {
    let story = story();
    let mut body = story.good.clone();
    let stand_in = json!("skip_thought_signature_validator");
    set(&mut body, "/contents/1/parts/0/thoughtSignature", stand_in);
    assert_eq!(story.numbers(&body), Vec::<&str>::new());
}
