//! Words that announce a secret: what follows them is never a fact.

use std::sync::LazyLock;

use regex::Regex;

/// Beginnings or parts of words for a secret, in lower case.
const SECRET_WORDS: [&str; 22] = [
    "password",
    "passwd",
    "passphrase",
    "passwort",
    "kennwort",
    "passcode",
    "secret",
    "token",
    "bearer",
    "credential",
    "apikey",
    "api_key",
    "api-key",
    "contraseñ",
    "senha",
    "пароль",
    "密码",
    "密碼",
    "パスワード",
    "비밀번호",
    "hasło",
    "parola",
];
/// Whole words for a secret.
const WHOLE_WORDS: [&str; 6] = ["pin", "pwd", "cvv", "cvc", "otp", "passe"];
/// Finds each of the words anywhere in a text.
static ANY_WORD: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let words: Vec<&str> = SECRET_WORDS.into_iter().chain(WHOLE_WORDS).collect();
    Regex::new(&format!("(?i){}", words.join("|"))).ok()
});

/// The words before the current one, as far as they matter.
// Few words are followed by what may be a secret, so a word is judged only then.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SecretContext<'t> {
    /// The last word that is not a joint.
    word: &'t str,
}

impl<'t> SecretContext<'t> {
    /// Whether the current word is a secret.
    pub(super) fn is_announced(self) -> bool {
        !self.word.ends_with('.') && is_secret_word(self.word)
    }

    /// Moves behind a word.
    pub(super) fn advance(&mut self, word: &'t str) {
        // A copula keeps the announcement: `the PIN is 4839`.
        if !is_joint(word) {
            self.word = word;
        }
    }
}

/// Whether a word stands between the name of a secret and the secret. None of them announces one itself.
fn is_joint(word: &str) -> bool {
    matches!(
        word,
        "is" | "was"
            | "="
            | ":"
            | "ist"
            | "lautet"
            | "war"
            | "est"
            | "es"
            | "é"
            | "è"
            | "—"
            | "->"
            | "是"
    )
}

fn is_secret_word(word: &str) -> bool {
    let word = word.trim_end_matches([':', '=', ',']);
    if word.len() < 3 || word.len() > 48 {
        return false;
    }
    // Most words are none, and this takes no copy.
    if ANY_WORD.as_ref().is_some_and(|words| !words.is_match(word)) {
        return false;
    }
    let lower = word.to_lowercase();
    // `tokens` are counted, and a number follows.
    (SECRET_WORDS.iter().any(|secret| lower.contains(secret)) && !lower.ends_with("tokens"))
        || WHOLE_WORDS.contains(&lower.as_str())
}
