//! Reads a message of a server. One that cannot be read becomes the error of its request, which would otherwise wait until
//! its timeout.

use rmcp::model::{ErrorCode, ErrorData, JsonRpcError, RequestId, ServerJsonRpcMessage};
use serde_json::Value;

/// The error code of a response that cannot be read. Servers use other numbers: those of JSON-RPC, or small ones.
pub(super) const UNREADABLE: ErrorCode = ErrorCode(i32::MIN);

/// Characters of a line that are logged.
const LOGGED_CHARS: usize = 200;

/// The messages of a line: none if it holds nothing for us, several if it is a batch.
pub(super) fn read(server: &str, line: &[u8]) -> Vec<ServerJsonRpcMessage> {
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line).trim_ascii();
    if line.is_empty() {
        return Vec::new();
    }
    if let Ok(message) = serde_json::from_slice(line) {
        return vec![message];
    }
    let text = replace_lone_surrogates(&String::from_utf8_lossy(line));
    match serde_json::from_str(&text) {
        Ok(Value::Array(batch)) => {
            batch.into_iter().filter_map(|value| read_value(server, value)).collect()
        }
        Ok(value) => read_value(server, value).into_iter().collect(),
        Err(error) => unreadable(server, &text, &format!("invalid JSON: {error}")),
    }
}

/// The error of the request that a text responds to; nothing if the text does not show its id.
pub(super) fn unreadable(server: &str, text: &str, cause: &str) -> Vec<ServerJsonRpcMessage> {
    // Servers print notes to the wrong stream, and these lines are skipped. Others may hold what a tool read.
    tracing::warn!(%server, %cause, bytes = text.len(), "cannot read a message of the MCP server");
    tracing::debug!(%server, line = %text.chars().take(LOGGED_CHARS).collect::<String>(), "the unreadable message");
    visible_id(text).map(|id| failure(id, cause)).into_iter().collect()
}

fn read_value(server: &str, value: Value) -> Option<ServerJsonRpcMessage> {
    let id = value.get("id").and_then(|id| serde_json::from_value(id.clone()).ok());
    let is_response = value.get("method").is_none();
    match serde_json::from_value(value) {
        Ok(message) => Some(message),
        Err(_) => {
            let cause = "it is valid JSON, but not a JSON-RPC 2.0 response";
            tracing::warn!(%server, "skipping a message of the MCP server that is not JSON-RPC 2.0");
            id.filter(|_| is_response).map(|id| failure(id, cause))
        }
    }
}

fn failure(id: RequestId, cause: &str) -> ServerJsonRpcMessage {
    let error = ErrorData::new(UNREADABLE, cause.to_owned(), None);
    ServerJsonRpcMessage::Error(JsonRpcError::new(Some(id), error))
}

/// The `id` of a message that is not valid JSON or not complete.
fn visible_id(text: &str) -> Option<RequestId> {
    let mut depth = 0_usize;
    let mut rest = text.char_indices();
    // The last string, which is a key if a colon follows.
    let mut last = "";
    while let Some((at, character)) = rest.next() {
        match character {
            '{' | '[' => depth += 1,
            '}' | ']' => depth = depth.saturating_sub(1),
            '"' => {
                let mut end = text.len();
                while let Some((at, character)) = rest.next() {
                    match character {
                        '\\' => drop(rest.next()),
                        '"' => {
                            end = at;
                            break;
                        }
                        _ => {}
                    }
                }
                last = text.get(at + 1..end).unwrap_or_default();
            }
            ':' if depth == 1 && last == "id" => {
                let value = text.get(at + 1..).unwrap_or_default();
                return leading_id(value);
            }
            _ => {}
        }
    }
    None
}

/// The number or string at the beginning of a text.
fn leading_id(text: &str) -> Option<RequestId> {
    let values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let id = values.into_iter().next()?.ok()?;
    serde_json::from_value(id).ok()
}

/// Replaces escapes of half a character (`\ud800`), which some servers write where they cut a text, by `\ufffd`.
fn replace_lone_surrogates(json: &str) -> String {
    let mut replaced = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        replaced.push_str(before);
        let (kept, length) = match (escaped_unit(escape), escape.get(6..).and_then(escaped_unit)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => (escape.get(..12), 12),
            (Some(0xd800..=0xdfff), _) => (Some("\\ufffd"), 6),
            // Two characters, so that the second of `\\` does not begin an escape.
            _ => {
                let length = escape.chars().take(2).map(char::len_utf8).sum();
                (escape.get(..length), length)
            }
        };
        replaced.push_str(kept.unwrap_or_default());
        rest = escape.get(length..).unwrap_or_default();
    }
    replaced.push_str(rest);
    replaced
}

/// The number of an escape such as `\u00e9` at the beginning of a text.
fn escaped_unit(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    u32::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read_json(line: impl AsRef<[u8]>) -> Value {
        serde_json::to_value(read("fix", line.as_ref())).unwrap()
    }

    fn response(result: &str) -> String {
        format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{result}}}\r\n")
    }

    #[test]
    fn half_characters_and_bytes_that_are_not_utf8_are_replaced() {
        let result = |json: Value| json[0]["result"]["a"].clone();
        let lone = response("{\"a\":\"x\\ud800 \\udc00\\\\ud800 \\ud83d\\ude00\\ud83d\"}");
        assert_eq!(result(read_json(lone)), "x\u{fffd} \u{fffd}\\ud800 😀\u{fffd}");
        let mut bytes = response("{\"a\":\"x?y\"}").into_bytes();
        let at = bytes.iter().position(|&byte| byte == b'?').unwrap();
        bytes[at] = 0xff;
        assert_eq!(result(read_json(bytes)), "x\u{fffd}y");
        assert_eq!(replace_lone_surrogates("a\\"), "a\\");
        assert_eq!(replace_lone_surrogates("\\é\\u12"), "\\é\\u12");
    }

    #[test]
    fn what_cannot_be_read_fails_its_request() {
        let check = |line: &str, id: Value, words: &str| {
            let read = read_json(line);
            assert_eq!(read[0]["id"], id, "{line}: {read}");
            assert!(read[0]["error"]["message"].as_str().unwrap().contains(words), "{read}");
        };
        check(&response("{\"a\":NaN}"), json!(1), "invalid JSON: expected value at line 1");
        let end = "{\"result\":{\"id\":5,\"a\":\"}\\\"\",},\"id\": \"x\"}";
        check(end, json!("x"), "invalid JSON: trailing comma");
        check("{\"id\": 12, \"result\"", json!(12), "invalid JSON: EOF");
        check("{\"id\":4,\"answer\":{}}", json!(4), "not a JSON-RPC 2.0 response");
        for skipped in
            ["Starting server...", "", "\n", "[]", "{\"a\":1}", "{\"method\":\"x\",\"a\":}"]
        {
            assert_eq!(read_json(skipped), json!([]), "{skipped}");
        }
    }

    #[test]
    fn a_batch_is_read_message_by_message() {
        let one = response("{\"a\":1}");
        let batch = read_json(format!("[{one},7,{}]", one.replace("\"id\":1", "\"id\":2")));
        assert_eq!([&batch[0]["id"], &batch[1]["id"]], [1, 2]);
        assert_eq!(batch[0]["result"], json!({"a": 1}));
    }
}
