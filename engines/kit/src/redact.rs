//! Secrets replaced by typed placeholders, before a summariser or a summary sees them.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

/// Pattern and replacement. The whole block of a key goes first, so that no later pattern eats into it.
const PATTERNS: [(&str, &str); 9] = [
    (
        r"(?s)-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----.*?(?:-----END (?:[A-Z0-9]+ )*PRIVATE KEY-----|\z)",
        "[redacted:private-key]",
    ),
    (r"\bsk-[A-Za-z0-9_-]{8,}", "[redacted:api-key]"),
    (r"\bAIza[A-Za-z0-9_-]{20,}", "[redacted:api-key]"),
    (r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b", "[redacted:aws-key]"),
    (r"\b(?:gh[pousr]_[A-Za-z0-9]{8,}|github_pat_[A-Za-z0-9_]{8,})", "[redacted:github-token]"),
    (r"\bxox[abprs]-[A-Za-z0-9-]{8,}", "[redacted:slack-token]"),
    (r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*", "[redacted:jwt]"),
    (r"(?i)\b(bearer)\s+[A-Za-z0-9._~+/=-]{8,}", "$1 [redacted:bearer-token]"),
    (
        r#"(?i)\b((?:[a-z0-9]+[_-])*(?:password|passwd|pwd|secret|api[_-]?key|access[_-]?token|auth[_-]?token|token)["']?\s*[:=]\s*["']?)[^\s"'\[\]{}(),;<>$]{6,}"#,
        "${1}[redacted:credential]",
    ),
];

static REDACTIONS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let compile = |(pattern, with): &(&str, &'static str)| Some((Regex::new(pattern).ok()?, *with));
    PATTERNS.iter().filter_map(compile).collect()
});

/// The text with every secret replaced. What holds none is answered as it is.
pub fn redact(text: &str) -> Cow<'_, str> {
    let mut clean = Cow::Borrowed(text);
    for (pattern, with) in REDACTIONS.iter() {
        if let Cow::Owned(replaced) = pattern.replace_all(&clean, *with) {
            clean = Cow::Owned(replaced);
        }
    }
    clean
}

/// Whether a text holds something that looks like a secret.
pub fn holds_secret(text: &str) -> bool {
    REDACTIONS.iter().any(|(pattern, _)| pattern.is_match(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles() {
        assert_eq!(REDACTIONS.len(), PATTERNS.len());
    }

    #[test]
    fn each_kind_of_secret_has_its_placeholder() {
        let cases = [
            ("key sk-ant-REDACTED", "key [redacted:api-key]"),
            ("AKIAIOSFODNN7EXAMPLE", "[redacted:aws-key]"),
            ("ghp_0123456789abcdef0123", "[redacted:github-token]"),
            ("Authorization: Bearer abcdef123456", "Authorization: Bearer [redacted:bearer-token]"),
            ("password=hunter2hunter2", "password=[redacted:credential]"),
            ("\"api_key\": \"abcdef123\"", "\"api_key\": \"[redacted:credential]\""),
            ("DB_PASSWORD=verysecret", "DB_PASSWORD=[redacted:credential]"),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\nrest",
                "[redacted:private-key]\nrest",
            ),
        ];
        for (text, clean) in cases {
            assert_eq!(redact(text), clean);
            assert_eq!(redact(clean), clean, "a placeholder is no secret");
        }
    }

    #[test]
    fn plain_text_is_borrowed() {
        for text in ["the token count is 12", "risk-free tasks", "max_tokens: 4096", "/a/b.rs"] {
            assert!(matches!(redact(text), Cow::Borrowed(_)), "{text}");
        }
    }
}
