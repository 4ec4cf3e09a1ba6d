//! The model that the server simulates.

use serde_json::Value;

use crate::rules::Wire;

/// Characters of one token of the fake model.
const CHARS_PER_TOKEN: f64 = 3.5;
/// An image, in tokens.
const IMAGE_TOKENS: u64 = 1_200;
/// Texts that are no prompt: images, and what only the server can read.
const UNCOUNTED: [&str; 5] =
    ["data", "signature", "encrypted_content", "thoughtSignature", "thought_signature"];

/// A model and its limits.
#[derive(Clone, Debug)]
pub struct Model {
    /// Prompt and answer together, in tokens.
    pub window_tokens: u64,
    /// The longest answer, in tokens.
    pub max_output_tokens: u64,
    /// The prompt tokens of a body.
    pub count: fn(&Value) -> u64,
    /// How it says that a request is too large.
    pub overflow: OverflowForm,
    /// Whether its thinking is bound to everything before it.
    pub binds_thinking: bool,
    /// Whether it refuses requests that break a rule, as real ones do, or only notes it.
    pub is_strict: bool,
}

impl Model {
    /// A strict model with a window, a quarter of which an answer may take.
    pub fn new(window_tokens: u64) -> Model {
        Model {
            window_tokens,
            max_output_tokens: window_tokens / 4,
            count: count_texts,
            overflow: OverflowForm::Plain,
            binds_thinking: false,
            is_strict: true,
        }
    }
}

/// How a provider says that a request is too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverflowForm {
    /// An error before the answer, in the provider's usual words. Ollama has none: it is silent.
    Plain,
    /// An error before the answer, in the provider's other words: the sum of prompt and answer, Azure's,
    /// Vertex's, those of Ollama when it may not truncate.
    Other,
    /// Status 413, where a provider has it; else as `Plain`.
    TooLarge,
    /// Inside a stream that began well.
    MidStream {
        /// Whether some text has come already.
        after_text: bool,
    },
    /// Nothing is said: Ollama forgets the beginning, others count more than their window.
    Silent,
}

impl OverflowForm {
    /// The form as a dialect has it.
    pub(super) fn of(self, wire: Wire) -> OverflowForm {
        match (self, wire) {
            (OverflowForm::Plain, Wire::Ollama) => OverflowForm::Silent,
            (OverflowForm::TooLarge, Wire::Anthropic) => OverflowForm::TooLarge,
            (OverflowForm::TooLarge, _) => OverflowForm::Plain.of(wire),
            (form, _) => form,
        }
    }
}

/// The tokens of all texts of a body, at 3.5 characters each, and of its images.
pub fn count_texts(body: &Value) -> u64 {
    let mut images = 0;
    let chars = chars(body, &mut images);
    tokens(chars) + images * IMAGE_TOKENS
}

/// Characters as tokens.
pub(super) fn tokens(chars: usize) -> u64 {
    (chars as f64 / CHARS_PER_TOKEN).ceil() as u64
}

/// Tokens as characters.
pub(super) fn chars_of(tokens: u64) -> usize {
    (tokens as f64 * CHARS_PER_TOKEN) as usize
}

fn chars(value: &Value, images: &mut u64) -> usize {
    match value {
        Value::String(text) => text.chars().count(),
        Value::Array(items) => items.iter().map(|item| chars(item, images)).sum(),
        Value::Object(fields) => {
            let counted = fields.iter().filter(|(key, _)| !UNCOUNTED.contains(&key.as_str()));
            *images += u64::from(fields.contains_key("data"));
            counted.map(|(_, field)| chars(field, images)).sum()
        }
        _ => 0,
    }
}
