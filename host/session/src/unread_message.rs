//! Why a message is not a part of the conversation although its line is a record.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// The roles that a message of a session may have.
const ROLES: [&str; 7] =
    ["user", "assistant", "toolResult", "system", "custom", "hookMessage", "bashExecution"];

/// Why the JSON of a message cannot be read; `None` if it can.
pub(super) fn unread_reason(message: &str) -> Option<String> {
    if message == "null" {
        return Some("its message is left out: the record has none".to_owned());
    }
    let head: MessageHead<'_> = match serde_json::from_str(message) {
        Ok(head) => head,
        // Its place in the message is of no use: the caller names the line.
        Err(error) => return Some(format!("its message is left out: {}", without_place(&error))),
    };
    let Some(BorrowedText(role)) = head.role else {
        return Some("its message is left out: it has no role".to_owned());
    };
    if !ROLES.contains(&&*role) {
        return Some(format!(
            "its message is left out: this version does not know the role `{role}`"
        ));
    }
    let is_content = |json: &RawValue| json.get().starts_with(['"', '[']);
    let has_other = head.content.is_some_and(|content| !is_content(content));
    has_other.then(|| "its message is left out: the content is neither text nor a list".to_owned())
}

/// What the transcript and requests read of a message, apart from its blocks.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "other types in these fields hide the message")]
struct MessageHead<'a> {
    #[serde(borrow)]
    role: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    stop_reason: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    tool_call_id: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    tool_name: Option<BorrowedText<'a>>,
    is_error: Option<bool>,
}

// serde borrows a `Cow` in a field, but not inside an `Option`.
#[derive(Deserialize)]
struct BorrowedText<'a>(#[serde(borrow)] Cow<'a, str>);

fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_left_out_is_named() {
        for (message, named) in [
            (r#"{"role":"oracle","content":"x"}"#, "role `oracle`"),
            (r#"{"content":"x"}"#, "no role"),
            (r#"{"role":"user","content":7}"#, "neither text nor a list"),
            (r#"{"role":"assistant","stopReason":5,"content":[]}"#, "integer `5`"),
            ("[]", "left out"),
            ("null", "has none"),
        ] {
            let reason = unread_reason(message).unwrap();
            assert!(reason.contains(named) && !reason.contains("column"), "{message}: {reason}");
        }
        for read in [
            r#"{"role":"user","content":"x"}"#,
            r#"{"role":"assistant","content":null,"timestamp":"now"}"#,
            r#"{"role":"bashExecution","command":"ls"}"#,
        ] {
            assert_eq!(unread_reason(read), None, "{read}");
        }
    }
}
