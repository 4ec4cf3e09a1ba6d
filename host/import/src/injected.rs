//! Marks text that an agent wrote into a message of the user, so that it does not count as a request.

use ctxhost_text::injected_text::user_text;

/// Element of several agents for text that is not the user's.
const OPEN: &str = "<system-reminder>";
const CLOSE: &str = "</system-reminder>";

/// The text in an element that [`user_text`] leaves out. Text that it leaves out anyway, and empty text, is unchanged.
pub(super) fn mark(text: &str) -> String {
    if user_text(text).is_empty() {
        return text.to_owned();
    }
    // An end within the text, such as in the content of a file, would end the element too early.
    let inner = text.replace(CLOSE, &format!("{CLOSE}\n{OPEN}"));
    format!("{OPEN}\n{inner}\n{CLOSE}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_marked_text_is_the_users() {
        for text in [
            "Called the Read tool",
            "a <system-reminder> without an end",
            "a file with </system-reminder> and more",
            "<system-reminder>one</system-reminder> between <system-reminder>two</system-reminder> end",
        ] {
            let marked = mark(text);
            assert_eq!(user_text(&marked), "", "{marked}");
            assert_eq!(mark(&marked), marked, "marked once");
        }
        assert_eq!(mark(""), "");
    }
}
