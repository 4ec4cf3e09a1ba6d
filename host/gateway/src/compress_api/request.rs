//! The body of `POST /v1/compress`: `{messages, model, target_tokens, window_tokens}`.

use std::num::NonZeroU64;

use ctxhost_config::MAX_WINDOW_TOKENS;
use ctxhost_dialects::inbound::describe_json_error;
use ctxhost_engine_api::transcript::tokens;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::proxy::CompressionLimits;

/// The fields that the API itself reads; the proxy parses the rest.
#[derive(Debug, Deserialize)]
pub(super) struct CompressRequest<'a> {
    #[serde(borrow)]
    messages: &'a RawValue,
    #[serde(default)]
    target_tokens: Option<NonZeroU64>,
    #[serde(default)]
    window_tokens: Option<NonZeroU64>,
}

impl<'a> CompressRequest<'a> {
    /// Parses a body. The error says what is wrong and what is expected.
    pub(super) fn parse(body: &'a [u8]) -> Result<CompressRequest<'a>, String> {
        const EXPECTED: &str = "send a JSON object with `messages`, a non-empty list of OpenAI chat completion messages";
        if !body.trim_ascii_start().starts_with(b"{") {
            return Err(format!("the body is not a JSON object; {EXPECTED}"));
        }
        let describe = |error| {
            let json = std::str::from_utf8(body).unwrap_or_default();
            format!("cannot parse the body ({}); {EXPECTED}", describe_json_error(&error, json))
        };
        let request: CompressRequest<'a> = serde_json::from_slice(body).map_err(describe)?;
        let messages: Vec<&RawValue> = serde_json::from_str(request.messages.get())
            .map_err(|_| format!("`messages` is not a list; {EXPECTED}"))?;
        if messages.is_empty() {
            return Err(format!("`messages` is empty; {EXPECTED}"));
        }
        if let Some(number) = messages.iter().position(|it| !it.get().starts_with('{')) {
            return Err(format!("message {number} is not an object; {EXPECTED}"));
        }
        if let Some(tokens) = request.window_tokens.filter(|value| value.get() > MAX_WINDOW_TOKENS)
        {
            return Err(format!(
                "`window_tokens` is {tokens}, above the maximum of {MAX_WINDOW_TOKENS}; {EXPECTED}"
            ));
        }
        match messages.iter().position(|message| is_gemini(message)) {
            Some(number) => {
                Err(format!("message {number} is a Gemini content (`parts`); {EXPECTED}"))
            }
            None => Ok(request),
        }
    }

    /// The messages as JSON text.
    pub(super) fn messages(&self) -> &'a str {
        self.messages.get()
    }

    /// The limits for compression.
    pub(super) fn limits(&self) -> CompressionLimits {
        CompressionLimits { target_tokens: self.target_tokens, window_tokens: self.window_tokens }
    }

    /// Tokens of messages that the proxy cannot parse.
    pub(super) fn tokens(&self) -> u64 {
        tokens::estimate(self.messages())
    }
}

/// Whether a message is a Gemini content. The chat parser would find no text in it to compress.
fn is_gemini(message: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct WireMessageShape {
        #[serde(default)]
        parts: Option<IgnoredAny>,
        #[serde(default)]
        content: Option<IgnoredAny>,
    }
    // The substring check avoids parsing most messages.
    message.get().contains("\"parts\"")
        && serde_json::from_str::<WireMessageShape>(message.get())
            .is_ok_and(|message| message.parts.is_some() && message.content.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_bodies_are_rejected_with_the_reason() {
        let check = |body: &str, expected: &str| {
            let error = CompressRequest::parse(body.as_bytes()).unwrap_err();
            assert!(error.starts_with(expected), "{body}: {error}");
        };
        for body in ["", "[]", "null", "[[{}]]", "[{\"messages\":[", "\"messages\""] {
            check(body, "the body is not a JSON object");
        }
        check("{}", "cannot parse the body (missing field `messages`");
        check(r#"{"messages":[{}],"target_tokens":0}"#, "cannot parse the body");
        check(r#"{"messages":[{}],"window_tokens":"8k"}"#, "cannot parse the body");
        check(r#"{"messages":[{}],"window_tokens":1000000001}"#, "`window_tokens` is 1000000001");
        let long = format!(r#"{{"messages":[{{}}],"target_tokens":"{}"}}"#, "x".repeat(100_000));
        let found = "cannot parse the body (`target_tokens`: found string, expected a nonzero u64";
        check(&long, found);
        assert!(CompressRequest::parse(long.as_bytes()).unwrap_err().len() < 300);
        check(r#"{"messages":[{}]"#, "cannot parse the body");
        check(r#"{"messages":[{"role":}]}"#, "cannot parse the body");
        check(r#"{"messages":[{"role":"user"},{"role"]}"#, "cannot parse the body");
        check(r#"{"messages":{}}"#, "`messages` is not a list");
        check(r#"{"messages":[]}"#, "`messages` is empty");
        check(r#"{"messages":[{},"x"]}"#, "message 1 is not an object");
        check(
            r#"{"messages":[{"role":"user","parts":[{"text":"a"}]}]}"#,
            "message 0 is a Gemini content",
        );
        check(r#"{"contents":[{"parts":[{"text":"a"}]}]}"#, "cannot parse the body (missing field");
        let quoted = br#"{"messages":[{"role":"user","content":"its \"parts\" are here"}]}"#;
        assert!(CompressRequest::parse(quoted).is_ok());
    }

    #[test]
    fn messages_keep_their_bytes() {
        let body = br#" {"target_tokens":9, "messages" : [ {"role":"user"} ,{}],"model":1.0}"#;
        let request = CompressRequest::parse(body).unwrap();
        assert_eq!(request.messages(), r#"[ {"role":"user"} ,{}]"#);
        let limits = CompressionLimits { target_tokens: NonZeroU64::new(9), window_tokens: None };
        assert_eq!(request.limits(), limits);
    }
}
