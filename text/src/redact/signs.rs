//! Cheap signs of secrets: a pattern is tried only on a text that has what each of its matches has.
//!
//! Most texts have no secret, and trying each pattern takes twice as long.

use std::sync::LazyLock;

use regex::Regex;

/// What every match of a pattern contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SecretSign {
    /// One of the beginnings of known keys.
    Beginning,
    /// A name of a secret before `=` or `:`.
    Assignment,
    /// White space, `:` or a character beyond ASCII.
    Break,
    /// A word of [`NAMES`].
    Name,
}

/// The beginnings of the keys that are known by them.
const BEGINNINGS: &str = r"-----BEGIN |hooks\.slack\.com/services/|(?-u:\b)(?:sk-|AIza|AKIA|ASIA|gh[pousr]_|github_pat_|xox[abprs]-|xapp-|sk_|rk_|whsec_|glpat-|npm_|hf_|pypi-AgE|GOCSPX-|ya29\.|SG\.|dop_v1_|AGE-SECRET-KEY-1|gsk_|xai-|lin_api_|dckr_|shp[acps]|hv[bs]\.|SK[a-f0-9]{8}|eyJ)|\.atlasv1\.|[0-9]:AA[A-Za-z0-9_-]";

/// The words of the patterns of secrets that only the words before them name.
const NAMES: &str = r#"(?i-u:cookie|authorization|pass(?:word|phrase|wd|code|wort)|kennwort|mnemonic|seed|secret_key_base|sig=|signature=)|client-key-data|tls\.key|<(?i-u:secret|token|apikey|privatekey)>|(?i-u:secret|token|key)\\*["'],\s*\\*["'](?i-u:value)|curl|mysql|mariadb|sshpass|docker login|redis-cli|PIN|[Pp]in[- ]?[Cc]ode"#;

static NAME: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(NAMES).ok());
static BEGINNING: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(BEGINNINGS).ok());

/// The ends of names of secrets, in lower case.
const NAME_ENDS: [&str; 5] = ["phrase", "word", "wd", "secret", "token"];
/// The ends of what stands before `key` in names of secrets, with or without `-` or `_`.
const KEY_OWNERS: [&str; 9] =
    ["api", "access", "auth", "account", "private", "secret", "signing", "encryption", "master"];
/// Bytes that hold the longest end of a name, `encryption_key`, with another case of its characters beyond ASCII.
const NAME_BYTES: usize = 24;

/// The signs that a text has.
#[derive(Clone, Copy, Debug)]
pub(super) struct SecretSigns {
    has_beginning: bool,
    has_assignment: bool,
    has_break: bool,
    has_name: bool,
}

impl SecretSigns {
    pub(super) fn of(text: &str) -> SecretSigns {
        let is_break = |byte: u8| {
            byte <= b' ' || matches!(byte, b':' | b'=' | b'<' | b',') || !byte.is_ascii()
        };
        let has_break = text.bytes().any(is_break);
        SecretSigns {
            has_beginning: BEGINNING.as_ref().is_none_or(|pattern| pattern.is_match(text)),
            has_assignment: has_break && has_assignment(text.as_bytes()),
            has_break,
            has_name: has_break && NAME.as_ref().is_none_or(|pattern| pattern.is_match(text)),
        }
    }

    pub(super) fn has(self, sign: SecretSign) -> bool {
        match sign {
            SecretSign::Beginning => self.has_beginning,
            SecretSign::Assignment => self.has_assignment,
            SecretSign::Break => self.has_break,
            SecretSign::Name => self.has_name,
        }
    }
}

/// Whether a name of a secret stands before `=` or `:`, perhaps in quotation marks.
fn has_assignment(text: &[u8]) -> bool {
    let marks = text.iter().enumerate().filter(|(_, byte)| matches!(byte, b':' | b'='));
    marks.map(|(at, _)| text.get(..at).unwrap_or_default()).any(|before| {
        let mut name = trim(before, |byte| byte <= b' ');
        if let [quoted @ .., b'"' | b'\''] = name {
            name = trim(quoted, |byte| byte == b'\\');
        }
        ends_as_secret(name)
    })
}

fn ends_as_secret(text: &[u8]) -> bool {
    // Most words end otherwise.
    let Some(b'e' | b'd' | b't' | b'n' | b'y' | b'E' | b'D' | b'T' | b'N' | b'Y' | 0x80..) =
        text.last()
    else {
        return false;
    };
    let name = text.get(text.len().saturating_sub(NAME_BYTES)..).unwrap_or_default();
    if !name.is_ascii() {
        return true;
    }
    if NAME_ENDS.iter().any(|end| strip_end(name, end).is_some()) {
        return true;
    }
    let Some(owner) = strip_end(name, "key") else { return false };
    let owner = match owner {
        [owner @ .., b'-' | b'_'] => owner,
        _ => owner,
    };
    KEY_OWNERS.iter().any(|end| strip_end(owner, end).is_some())
}

/// A text without its end, compared without case; `None` if it ends otherwise.
fn strip_end<'t>(text: &'t [u8], end: &str) -> Option<&'t [u8]> {
    let (rest, last) = text.split_at_checked(text.len().checked_sub(end.len())?)?;
    last.eq_ignore_ascii_case(end.as_bytes()).then_some(rest)
}

fn trim(mut text: &[u8], is_trimmed: impl Fn(u8) -> bool) -> &[u8] {
    while let [rest @ .., last] = text
        && is_trimmed(*last)
    {
        text = rest;
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::REDACTIONS;
    use super::*;

    #[test]
    fn a_text_without_secrets_has_few_signs() {
        let signs = SecretSigns::of("the key: a value, and max_tokens = 4096 of task_sk");
        assert!(!signs.has_beginning && !signs.has_assignment && signs.has_break);
        assert!(!SecretSigns::of("src/main.rs").has_break);
    }

    proptest! {
        #[test]
        fn what_a_pattern_matches_has_its_sign(
            parts in prop::collection::vec(
                prop_oneof![
                    r#"[ \n:="'\\_-]{1,3}|(=>|:=)|[a-z0-9A-Z]{1,12}|\PC"#,
                    prop::sample::select(vec![
                        "password", "PASSWD", "passPhrase", "pwd", "secret", "ſecret", "toKen",
                        "\u{212a}ey", "api", "Access", "key", "Key", "bearer", "is", "密码", "://",
                        "@", "sk-", "AIza", "AKIA", "ghp_", "xoxb-", "sk_live_", "hf_", "SG.",
                        "eyJ", ".", "-----BEGIN ", "PRIVATE KEY-----", "hooks.slack.com/services/",
                        "0123456789ABCDEFGHIJ0123456789ABCDEF", "Cookie: ", "authorization",
                        "Basic ", "curl -u ", "mysql ", "-p", "&sig=", "seed phrase", "Passcode",
                        "secret_key_base", "=", "\"",
                    ])
                    .prop_map(str::to_owned),
                ],
                0..12,
            )
        ) {
            let text = parts.concat();
            let signs = SecretSigns::of(&text);
            for pattern in REDACTIONS.iter().filter(|pattern| pattern.regex.is_match(&text)) {
                prop_assert!(signs.has(pattern.sign), "{} in {text:?}", pattern.kind);
            }
        }
    }
}
