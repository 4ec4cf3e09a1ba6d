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
/// Words between the name of a secret and the secret.
const JOINTS: [&str; 14] =
    ["is", "was", "=", ":", "ist", "lautet", "war", "est", "es", "é", "è", "—", "->", "是"];

/// Finds each of the words anywhere in a line.
static ANY_WORD: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let words: Vec<&str> = SECRET_WORDS.into_iter().chain(WHOLE_WORDS).collect();
    Regex::new(&format!("(?i){}", words.join("|"))).ok()
});

/// The words before the current one, as far as they matter.
#[derive(Clone, Copy, Debug)]
pub(super) struct SecretContext {
    /// Whether the line has such a word at all: most have none, and their words need no look.
    has_word: bool,
    is_announced: bool,
}

impl SecretContext {
    /// The context at the beginning of a line.
    pub(super) fn new(line: &str) -> SecretContext {
        let has_word = ANY_WORD.as_ref().is_none_or(|words| words.is_match(line));
        SecretContext { has_word, is_announced: false }
    }

    /// Whether the current word is a secret.
    pub(super) fn is_announced(self) -> bool {
        self.is_announced
    }

    /// Moves behind a word.
    pub(super) fn advance(&mut self, word: &str) {
        if !self.has_word {
            return;
        }
        // A copula keeps the announcement: `the PIN is 4839`.
        if self.is_announced && JOINTS.contains(&word) {
            return;
        }
        self.is_announced = !word.ends_with('.') && is_secret_word(word);
    }
}

fn is_secret_word(word: &str) -> bool {
    let word = word.trim_end_matches([':', '=', ',']);
    if word.len() < 3 || word.len() > 48 {
        return false;
    }
    let lower = word.to_lowercase();
    // `tokens` are counted, and a number follows.
    (SECRET_WORDS.iter().any(|secret| lower.contains(secret)) && !lower.ends_with("tokens"))
        || WHOLE_WORDS.contains(&lower.as_str())
}
