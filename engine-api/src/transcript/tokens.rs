//! Token estimates: characters weighted by Unicode block, four weighted characters to a token.
//!
//! Estimates have no safety margin; the host applies one when it converts a window to a budget.

use std::borrow::Cow;

use serde::Deserialize;

use super::message::{ContentBlock, Message};

/// The tokens of one image.
pub const IMAGE_TOKENS: u64 = 2_000;

/// The tokens of an image with `"detail": "low"`, as OpenAI bills it (its guide to images and vision).
const LOW_DETAIL_TOKENS: u64 = 85;

/// The part of a file in base64 that is estimated like one image: about a page of a document.
const FILE_PART_CHARS: u64 = 64 * 1024;

/// What a file counts at most. A scanned page may have a megabyte, so the size says little about the number of pages; a provider that
/// counts more refuses the request, and one that counts less must not lose the file.
const MAX_FILE_TOKENS: u64 = 10 * IMAGE_TOKENS;

/// What a block with a file contains: its media type, a data URL, or the key under which OpenAI sends files, recordings and
/// images that it made.
const FILE_KEYS: [&str; 7] = [
    "\"media_type\"",
    "\"mimeType\"",
    "\"mime_type\"",
    ";base64,",
    "\"file_data\"",
    "\"input_audio\"",
    "\"image_generation_call\"",
];

/// What a block whose files are images contains: a media type, a data URL, or the key of an image that OpenAI made.
const IMAGE_DATA_KEYS: [&str; 3] = ["\"image/", ":image/", "\"image_generation_call\""];

/// The types of OpenAI's blocks with an image, which may be given by its URL or as a file of the provider.
const IMAGE_TYPES: [&str; 3] = ["image_url", "input_image", "computer_screenshot"];

/// Shorter base64 is estimated like text: as tokens it is less than one part.
const MIN_FILE_CHARS: u64 = IMAGE_TOKENS * CHARS_PER_TOKEN;

/// What a block with text that only its provider can read contains: encrypted thinking, or a signature that holds it.
const HIDDEN_KEYS: [&str; 6] = [
    "\"encrypted_content\"",
    "\"redacted_thinking\"",
    "\"reasoning.encrypted\"",
    "\"signature\"",
    "\"thoughtSignature\"",
    "\"thought_signature\"",
];

/// Shorter text is an id or a hash.
const MIN_HIDDEN_CHARS: u64 = 128;

/// The bytes by which encrypted thinking is longer than its text: format, keys and padding. The number is the one that
/// Codex uses for its own budget (`estimate_reasoning_length` in `codex-rs/core/src/context_manager/history.rs`).
const HIDDEN_OVERHEAD_BYTES: u64 = 650;

/// Bytes that are checked for ASCII together.
const PIECE_BYTES: usize = 16;

/// Weighted characters per token.
pub const CHARS_PER_TOKEN: u64 = 4;

/// A number with a comma between groups of three digits, as all messages show it.
///
/// ```
/// # use ctxhost_engine_api::transcript::tokens::group_thousands;
/// assert_eq!(group_thousands(48_210), "48,210");
/// ```
pub fn group_thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// The tokens of a text.
///
/// ```
/// # use ctxhost_engine_api::transcript::tokens::estimate;
/// assert_eq!(estimate("abcde"), 2);
/// assert_eq!(estimate("你好"), 2);
/// ```
pub fn estimate(text: &str) -> u64 {
    weighted_chars(text).div_ceil(CHARS_PER_TOKEN)
}

/// The weighted characters of a text: 1 for each UTF-16 unit, more for some scripts.
///
/// ```
/// # use ctxhost_engine_api::transcript::tokens::weighted_chars;
/// assert_eq!(weighted_chars("abcd"), 4);
/// assert_eq!(weighted_chars("日本語テキスト"), 28);
/// assert_eq!(weighted_chars("\u{1F600}"), 2);
/// ```
pub fn weighted_chars(text: &str) -> u64 {
    let mut chars = 0;
    let mut rest = text;
    // Most texts are ASCII, and of others most parts: the check of many bytes at once replaces a lookup for each character.
    loop {
        let ascii = ascii_len(rest.as_bytes());
        chars += ascii as u64;
        let mut others = rest.get(ascii..).unwrap_or_default().chars();
        rest = others.as_str();
        while let Some(other) = others.next().filter(|other| !other.is_ascii()) {
            chars += char_weight(other);
            rest = others.as_str();
        }
        if rest.is_empty() {
            return chars;
        }
    }
}

/// Length of the ASCII characters that bytes begin with.
fn ascii_len(bytes: &[u8]) -> usize {
    let pieces = bytes.chunks_exact(PIECE_BYTES).take_while(|piece| piece.is_ascii());
    let len = pieces.count() * PIECE_BYTES;
    let rest = bytes.get(len..).unwrap_or_default();
    len + rest.iter().take_while(|byte| byte.is_ascii()).count()
}

/// The tokens of JSON that is sent as it is. Files and encrypted text in it count as in a [message].
///
/// ```
/// # use ctxhost_engine_api::transcript::tokens::{estimate, estimate_json};
/// let item = |content: &str| format!(r#"{{"type":"compaction","encrypted_content":"{content}"}}"#);
/// let encrypted = item(&"gAAAAABo".repeat(1_000));
/// assert!(estimate_json(&encrypted) < estimate(&encrypted));
/// assert_eq!(estimate_json(&item("none")), estimate(&item("none")));
/// ```
pub fn estimate_json(json: &str) -> u64 {
    let (files_chars, files_tokens) = files_in(json);
    let (hidden_chars, text_chars) = hidden_in(json);
    let chars = weighted_chars(json) - files_chars - hidden_chars + text_chars;
    chars.div_ceil(CHARS_PER_TOKEN) + files_tokens
}

/// The weighted characters of thinking: of its text, or of what its encrypted form stands for if it has no text.
pub fn thinking_chars(text: &str, signature: Option<&str>) -> u64 {
    if text.is_empty() {
        return signature.map_or(0, |signature| hidden_text_chars(signature.len() as u64));
    }
    weighted_chars(text)
}

/// The tokens of a message: its text, thinking and calls, with images at [`IMAGE_TOKENS`].
pub fn message(message: &Message<'_>) -> u64 {
    let mut chars = 0;
    let mut images = 0;
    let mut file_tokens = 0;
    for block in &message.blocks {
        match block {
            ContentBlock::Text(text) => chars += weighted_chars(text),
            ContentBlock::Thinking { text, signature } => {
                chars += thinking_chars(text, signature.as_deref());
            }
            ContentBlock::ToolCall(call) => {
                chars += weighted_chars(&call.name) + weighted_chars(&call.arguments);
            }
            ContentBlock::Image { .. } => images += 1,
            ContentBlock::Other(json) => {
                let (files_chars, files_tokens) = files_in(json);
                let (hidden_chars, text_chars) = hidden_in(json);
                chars += weighted_chars(json) - files_chars - hidden_chars + text_chars;
                file_tokens += attachment_tokens(json, files_tokens);
            }
        }
    }
    chars.div_ceil(CHARS_PER_TOKEN) + images * IMAGE_TOKENS + file_tokens
}

/// What the files and images of a message add to its [tokens](message).
pub fn files_and_images(message: &Message<'_>) -> u64 {
    let tokens = |block: &ContentBlock<'_>| match block {
        ContentBlock::Image { .. } => IMAGE_TOKENS,
        ContentBlock::Other(json) => attachment_tokens(json, files_in(json).1),
        _ => 0,
    };
    message.blocks.iter().map(tokens).sum()
}

/// Whether the JSON of a message may have images or files. Costs less than to parse it.
pub fn may_have_attachments(json: &str) -> bool {
    json.contains("image") || json.contains("screenshot") || has_any(json, &FILE_KEYS)
}

/// The tokens of a block with files of so many tokens.
fn attachment_tokens(json: &str, files_tokens: u64) -> u64 {
    if !is_image(json) {
        return files_tokens;
    }
    let is_low = json.contains("\"detail\"") && json.contains("\"low\"");
    // An image by its URL has no data here, but costs the same.
    if is_low { LOW_DETAIL_TOKENS } else { files_tokens.max(IMAGE_TOKENS) }
}

/// Whether the JSON of a block is an image, by its type or as a file of Gemini.
fn is_image(json: &str) -> bool {
    // The check costs little, and parsing is for the few blocks that pass it.
    let may_be = json.contains("image") || json.contains("computer_screenshot");
    may_be
        && serde_json::from_str::<FileBlockJson<'_>>(json).is_ok_and(|block| {
            IMAGE_TYPES.contains(&&*block.kind) || block.file.mime.starts_with("image/")
        })
}

#[derive(Deserialize)]
struct FileBlockJson<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow, default, rename = "fileData", alias = "file_data")]
    file: FileJson<'a>,
}

#[derive(Default, Deserialize)]
struct FileJson<'a> {
    #[serde(borrow, default, rename = "mimeType", alias = "mime_type")]
    mime: Cow<'a, str>,
}

/// The characters of all base64 files in the JSON of a block, and their tokens: providers count the pages of a
/// document and the seconds of a recording, not the characters of its encoding.
fn files_in(json: &str) -> (u64, u64) {
    // Data of a block that is no file, such as a chart, is read by the model as text.
    if !has_any(json, &FILE_KEYS) {
        return (0, 0);
    }
    // No other text has so many of these characters in a row. Encrypted thinking is base64 for URLs, which differs.
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
    let runs = json.as_bytes().split(|byte| !is_base64(byte)).map(|run| run.len() as u64);
    // An image costs the same however many bytes it has.
    let is_of_images = has_any(json, &IMAGE_DATA_KEYS);
    let max_tokens = if is_of_images { IMAGE_TOKENS } else { MAX_FILE_TOKENS };
    runs.filter(|chars| *chars >= MIN_FILE_CHARS).fold((0, 0), |(all, tokens), chars| {
        let own_tokens = chars.div_ceil(FILE_PART_CHARS) * IMAGE_TOKENS;
        (all + chars, tokens + own_tokens.min(max_tokens))
    })
}

/// The characters of all encrypted texts in the JSON of a block, and the characters that they stand for.
fn hidden_in(json: &str) -> (u64, u64) {
    // A file may have a signature beside its data, which is much larger.
    if !has_any(json, &HIDDEN_KEYS) || has_any(json, &FILE_KEYS) {
        return (0, 0);
    }
    // Base64 of both kinds.
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=-_".contains(byte);
    let runs = json.as_bytes().split(|byte| !is_base64(byte)).map(|run| run.len() as u64);
    let runs = runs.filter(|chars| *chars >= MIN_HIDDEN_CHARS);
    runs.fold((0, 0), |(all, text), chars| (all + chars, text + hidden_text_chars(chars)))
}

/// The characters of a text by those of its encrypted form. Base64 has four characters for three bytes.
///
/// This is what a provider counts while the turn lasts. Most leave thinking out of finished turns, newer models of
/// Anthropic do not; the host learns that from the usage that they report, which replaces estimates.
fn hidden_text_chars(encoded_chars: u64) -> u64 {
    (encoded_chars * 3 / 4).saturating_sub(HIDDEN_OVERHEAD_BYTES)
}

fn has_any(json: &str, keys: &[&str]) -> bool {
    keys.iter().any(|key| json.contains(key))
}

/// The weight of one character, in weighted characters.
pub fn char_weight(character: char) -> u64 {
    // The ranges and weights are those of OpenClaw 2026.9.6, so that budgets agree with its sessions.
    let code = character as u32;
    match code {
        0..=0xB6 | 0xB8..=0x10FF => 1,
        0xB7 | 0x3000..=0x319F | 0x4E00..=0x9FA5 | 0xAC00..=0xD7AF | 0xFF01..=0xFF60 => 4,
        0xFE10..=0xFE4F | 0xFF61..=0xFFDC | 0xFFE0..=0xFFE6 => 8,
        0x1100..=0x11FF
        | 0x2E80..=0x2FFF
        | 0x31A0..=0x4DFF
        | 0x9FA6..=0x9FFF
        | 0xA000..=0xA4FF
        | 0xA700..=0xA707
        | 0xA960..=0xA97F
        | 0xD7B0..=0xD7FF
        | 0xF900..=0xFAFF
        | 0x1D360..=0x1D371 => 12,
        0x16FE0..=0x16FFF
        | 0x1AFF0..=0x1B16F
        | 0x1F200..=0x1F2FF
        | 0x20000..=0x2FA1F
        | 0x30000..=0x3347F => 16,
        // UTF-16 units, because the original counts JavaScript strings.
        _ => character.len_utf16() as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_weighs_what_its_characters_weigh() {
        let parts =
            ["a", "é", "·", "日本", "한", "\u{1F600}", "ＦＦ", "﹅", "\n", "word of a line"];
        for count in 1..200_usize {
            let text: String =
                (0..count).map(|at| parts[(at * at + count) % parts.len()]).collect();
            let weight: u64 = text.chars().map(char_weight).sum();
            assert_eq!(weighted_chars(&text), weight, "{text}");
        }
    }

    #[test]
    fn a_file_is_not_estimated_as_text() {
        let tokens = |data: &str| {
            let source =
                format!(r#"{{"type":"base64","media_type":"application/pdf","data":"{data}"}}"#);
            let block = format!(r#"{{"type":"document","title":"report","source":{source}}}"#);
            let raw = format!(r#"{{"role":"user","content":[{block}]}}"#);
            message(&Message::parse(&raw, ""))
        };
        let around = tokens("");
        assert_eq!(tokens(&"JVBERi0xLjQK".repeat(100)), around + 300);
        assert!((5 * 2_000..6 * 2_000).contains(&tokens(&"JVBERi0xLjQ/".repeat(27_000))));
        let largest = tokens(&"JVBERi0xLjQ/".repeat(1_000_000));
        assert_eq!(largest, around + MAX_FILE_TOKENS, "a scan of 9 MB");
        let chart = "c".repeat(30_000);
        let raw = format!(r#"{{"role":"user","content":[{{"type":"chart","data":"{chart}"}}]}}"#);
        assert!(message(&Message::parse(&raw, "")) > 7_500, "no file");
        for block in [
            format!(r#"{{"type":"image_generation_call","id":"ig_1","result":"{chart}"}}"#),
            format!(
                r#"{{"type":"video_url","video_url":{{"url":"data:video/mp4;base64,{chart}"}}}}"#
            ),
        ] {
            let raw = format!(r#"{{"role":"user","content":[{block}]}}"#);
            assert!((2_000..2_050).contains(&message(&Message::parse(&raw, ""))), "{block}");
        }
        let encrypted = "gAAAAABo-xYz_w".repeat(10_000);
        assert_eq!(tokens(&encrypted), around + 35_000);
        // Text in a text block is text, whatever it encodes.
        let data = "JVBERi0xLjQK".repeat(10_000);
        let raw = format!(r#"{{"role":"user","content":"{data}"}}"#);
        assert_eq!(message(&Message::parse(&raw, "")), 30_000);
    }

    #[test]
    fn encrypted_text_counts_as_the_text_that_it_stands_for() {
        let tokens = |block: &str| {
            let raw = format!(r#"{{"role":"assistant","content":[{block}]}}"#);
            message(&Message::parse(&raw, ""))
        };
        // 8,000 characters of base64 are 6,000 bytes, of which 5,350 are text.
        let encrypted = "gAAAAABo-xYz_w90".repeat(500);
        let expected = 5_350_u64.div_ceil(CHARS_PER_TOKEN);
        for block in [
            r#"{"type":"providerItem","api":"openai-responses","item":{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"DATA"}}"#,
            r#"{"type":"redacted_thinking","data":"DATA"}"#,
            r#"{"executableCode":{"code":"1"},"thoughtSignature":"DATA"}"#,
            r#"{"type":"thinking","thinking":"","thinkingSignature":"DATA"}"#,
        ] {
            let around = tokens(&block.replace("DATA", ""));
            let counted = tokens(&block.replace("DATA", &encrypted));
            assert!((expected..=around + expected + 1).contains(&counted), "{counted}: {block}");
            // A short thought has little but its frame.
            let short = tokens(&block.replace("DATA", &encrypted[..800]));
            assert!(short <= around, "{short}: {block}");
        }
        // The text is known: its signature adds nothing, and neither does that of a call.
        let known = r#"{"type":"thinking","thinking":"hm, so","thinkingSignature":"DATA"}"#;
        assert_eq!(tokens(&known.replace("DATA", &encrypted)), 2);
        let call = r#"{"type":"toolCall","id":"1","name":"read","arguments":{},"thoughtSignature":"DATA"}"#;
        assert_eq!(tokens(&call.replace("DATA", &encrypted)), tokens(call));
        // An id is text.
        let id = r#"{"type":"reasoning","id":"rs_0123456789abcdef0123456789abcdef","encrypted_content":null}"#;
        assert_eq!(tokens(id), estimate(id));
    }

    #[test]
    fn an_image_by_its_url_costs_the_same_as_inline() {
        let tokens = |block: &str| {
            let raw = format!(r#"{{"role":"user","content":[{block}]}}"#);
            message(&Message::parse(&raw, ""))
        };
        for image in [
            r#"{"type":"image","source":{"type":"url","url":"https://x.org/a.png"}}"#,
            r#"{"type":"image_url","image_url":{"url":"https://x.org/a.png"}}"#,
            r#"{"type":"input_image","file_id":"file-1"}"#,
            r#"{"type":"computer_screenshot","image_url":"https://x.org/a.png"}"#,
            r#"{"fileData":{"mimeType":"image/png","fileUri":"gs://a"}}"#,
        ] {
            assert!((2_000..2_050).contains(&tokens(image)), "{image}");
        }
        for other in [
            r#"{"type":"input_file","file_data":"image"}"#,
            r#"{"type":"web_search_call","action":{"query":"image_url"}}"#,
            r#"{"fileData":{"mimeType":"text/plain","fileUri":"gs://image"}}"#,
        ] {
            assert!(tokens(other) < 50, "{other}");
        }
    }

    #[test]
    fn weights_of_the_recorded_cases() {
        let cases = [
            ("", 0),
            ("abcd", 4),
            ("你好", 8),
            ("你好 hello", 14),
            ("日本語テキスト", 28),
            ("한국어", 12),
            ("\u{1F600}", 2),
            ("\u{20BB7}", 16),
            ("é", 1),
            ("㐀", 12),
        ];
        for (text, weight) in cases {
            assert_eq!(weighted_chars(text), weight, "{text}");
        }
    }
}
