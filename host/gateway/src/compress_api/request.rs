//! What somebody wants made smaller: `{messages, model, target_tokens, window_tokens}`.

use std::num::NonZeroU64;

use ctxhost_config::MAX_WINDOW_TOKENS;
use ctxhost_engine_api::transcript::tokens;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::proxy::CompressionLimits;

/// A body that was read as far as it matters here; its other fields are the exchange's.
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
    /// Of a body; what is wrong with it otherwise, and what it should be.
    pub(super) fn parse(body: &'a [u8]) -> Result<CompressRequest<'a>, String> {
        const WANTED: &str = "send an object with `messages`, a list of at least one message of OpenAI chat completions";
        if !body.trim_ascii_start().starts_with(b"{") {
            return Err(format!("the body is no JSON object; {WANTED}"));
        }
        let wanted: CompressRequest<'a> = serde_json::from_slice(body)
            .map_err(|error| format!("the body cannot be read ({error}); {WANTED}"))?;
        let messages: Vec<&RawValue> = serde_json::from_str(wanted.messages.get())
            .map_err(|_| format!("`messages` is no list; {WANTED}"))?;
        if messages.is_empty() {
            return Err(format!("`messages` is empty; {WANTED}"));
        }
        if let Some(number) = messages.iter().position(|it| !it.get().starts_with('{')) {
            return Err(format!("message {number} is no object; {WANTED}"));
        }
        if let Some(tokens) = wanted.window_tokens.filter(|it| it.get() > MAX_WINDOW_TOKENS) {
            return Err(format!(
                "`window_tokens` is {tokens}, and no window is larger than {MAX_WINDOW_TOKENS}; {WANTED}"
            ));
        }
        match messages.iter().position(|message| is_gemini(message)) {
            Some(number) => {
                Err(format!("message {number} has `parts`, as Gemini writes it; {WANTED}"))
            }
            None => Ok(wanted),
        }
    }

    /// The messages, as they were written.
    pub(super) fn messages(&self) -> &'a str {
        self.messages.get()
    }

    /// How small they are wanted.
    pub(super) fn limits(&self) -> CompressionLimits {
        CompressionLimits { target_tokens: self.target_tokens, window_tokens: self.window_tokens }
    }

    /// About what they take, where nobody took them apart.
    pub(super) fn tokens(&self) -> u64 {
        tokens::estimate(self.messages())
    }
}

/// Whether a message is a content of Gemini's: nothing in it would be counted or made smaller.
fn is_gemini(message: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct WireMessageShape {
        #[serde(default)]
        parts: Option<IgnoredAny>,
        #[serde(default)]
        content: Option<IgnoredAny>,
    }
    // Few messages have the word in them, so few are read.
    message.get().contains("\"parts\"")
        && serde_json::from_str::<WireMessageShape>(message.get())
            .is_ok_and(|it| it.parts.is_some() && it.content.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_list_of_messages_is_refused_by_name() {
        let check = |body: &str, expected: &str| {
            let error = CompressRequest::parse(body.as_bytes()).unwrap_err();
            assert!(error.starts_with(expected), "{body}: {error}");
        };
        for body in ["", "[]", "null", "[[{}]]", "\"messages\""] {
            check(body, "the body is no JSON object");
        }
        check("{}", "the body cannot be read (missing field `messages`");
        check(r#"{"messages":[{}],"target_tokens":0}"#, "the body cannot be read");
        check(r#"{"messages":[{}],"window_tokens":"8k"}"#, "the body cannot be read");
        check(r#"{"messages":[{}],"window_tokens":1000000001}"#, "`window_tokens` is 1000000001");
        check(r#"{"messages":[{}]"#, "the body cannot be read");
        check(r#"{"messages":{}}"#, "`messages` is no list");
        check(r#"{"messages":[]}"#, "`messages` is empty");
        check(r#"{"messages":[{},"x"]}"#, "message 1 is no object");
        check(r#"{"messages":[{"role":"user","parts":[{"text":"a"}]}]}"#, "message 0 has `parts`");
        check(
            r#"{"contents":[{"parts":[{"text":"a"}]}]}"#,
            "the body cannot be read (missing field",
        );
        let quoted = br#"{"messages":[{"role":"user","content":"its \"parts\" are here"}]}"#;
        assert!(CompressRequest::parse(quoted).is_ok());
    }

    #[test]
    fn messages_keep_their_bytes() {
        let body = br#" {"target_tokens":9, "messages" : [ {"role":"user"} ,{}],"model":1.0}"#;
        let wanted = CompressRequest::parse(body).unwrap();
        assert_eq!(wanted.messages(), r#"[ {"role":"user"} ,{}]"#);
        let wish = CompressionLimits { target_tokens: NonZeroU64::new(9), window_tokens: None };
        assert_eq!(wanted.limits(), wish);
    }
}
