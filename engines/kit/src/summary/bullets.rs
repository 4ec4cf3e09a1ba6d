//! Lists as summaries show them.

use ctxhost_engine_api::transcript::tokens::weighted_chars;

/// The line under an empty heading.
pub(super) const NONE: &str = "None.";

/// Renders lines as a list, `- None.` if there are none.
pub fn render_bullets<T: AsRef<str>>(lines: &[T]) -> String {
    if lines.is_empty() {
        return format!("- {NONE}");
    }
    lines.iter().map(|line| format!("- {}", line.as_ref())).collect::<Vec<_>>().join("\n")
}

/// Size of lines rendered by [`render_bullets`], in weighted characters.
pub(super) fn list_chars(lines: &[String]) -> u64 {
    lines.iter().map(|line| weighted_chars(line) + 3).sum()
}
