//! Signatures of calls, which newer models require in the current turn (G-7).

use serde_json::Value;

use super::{call_of, field};

/// The placeholder that Google accepts for a signature the history does not have (G-7).
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// Whether a user turn with these parts starts the current turn. A turn of images alone may belong to results. Signing a
/// step too many is harmless.
pub(super) fn starts_turn(parts: &[Value]) -> bool {
    parts.iter().any(|part| part.get("text").is_some())
}

/// Signs the first call of a step, if it has no signature. Returns whether it did.
pub(super) fn sign_first_call(parts: &mut [Value]) -> bool {
    let first = parts.iter_mut().find(|part| call_of(part).is_some());
    let Some(first) = first else { return false };
    let signature = field(first, "thoughtSignature", "thought_signature").and_then(Value::as_str);
    let is_signed = signature.is_some_and(|signature| !signature.is_empty());
    if let Some(fields) = first.as_object_mut().filter(|_| !is_signed) {
        fields.remove("thought_signature");
        fields.insert("thoughtSignature".into(), NO_SIGNATURE.into());
    }
    !is_signed
}
