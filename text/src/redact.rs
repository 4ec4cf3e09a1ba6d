//! Replaces secrets by typed placeholders before a summariser or a summary sees them.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::LazyLock;

use regex::{Captures, Regex};

use crate::truncate::ends;

mod named;
mod signs;

use named::NAMED;
use signs::{SecretSign, SecretSigns};

/// Pattern, kind and sign. A group named `secret` marks the part to replace; by default it is the whole
/// match.
// Word borders are those of ASCII: a key may follow a Chinese character, and with Unicode borders the
// search takes ten times as long in any text that is not all ASCII.
const PATTERNS: [(&str, &str, SecretSign); 13] = [
    (
        r"(?s)-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----.*?(?:-----END (?:[A-Z0-9]+ )*PRIVATE KEY-----|\z)",
        "private-key",
        SecretSign::Beginning,
    ),
    (r"(?-u:\b)sk-[A-Za-z0-9_-]{8,}", "api-key", SecretSign::Beginning),
    (r"(?-u:\b)AIza[A-Za-z0-9_-]{20,}", "api-key", SecretSign::Beginning),
    (r"(?-u:\b)(?:AKIA|ASIA)[A-Z0-9]{12,}(?-u:\b)", "aws-key", SecretSign::Beginning),
    (
        r"(?-u:\b)(?:gh[pousr]_[A-Za-z0-9]{8,}|github_pat_[A-Za-z0-9_]{8,})",
        "github-token",
        SecretSign::Beginning,
    ),
    (r"(?-u:\b)(?:xox[abprs]|xapp)-[A-Za-z0-9-]{8,}", "slack-token", SecretSign::Beginning),
    (
        r"(?-u:\b)(?:(?:sk|rk|whsec)_(?:live_|test_)?[A-Za-z0-9]{16,}|glpat-[A-Za-z0-9_-]{16,}|npm_[A-Za-z0-9]{30,}|hf_[A-Za-z0-9]{20,}|pypi-AgE[A-Za-z0-9_-]{16,}|GOCSPX-[A-Za-z0-9_-]{16,}|ya29\.[A-Za-z0-9_-]{16,}|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|dop_v1_[a-f0-9]{32,}|AGE-SECRET-KEY-1[A-Z0-9]{16,}|(?:gsk_|xai-|lin_api_|dckr_[po]at_|shp(?:at|ca|pa|ss)_|hv[bs]\.)[A-Za-z0-9_-]{16,}|SK[a-f0-9]{32}(?-u:\b)|[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{40,}|[0-9]{8,10}:AA[A-Za-z0-9_-]{32,40})",
        "api-key",
        SecretSign::Beginning,
    ),
    (
        r"hooks\.slack\.com/services/(?<secret>[A-Za-z0-9_/-]{16,})",
        "webhook",
        SecretSign::Beginning,
    ),
    // `https://name:password@host`: only the password, so that the address stays readable.
    (
        r#"[A-Za-z0-9+.-]://[^\s/:@\[\]<>"'`]{0,128}:(?<secret>[^\s/@\[\]<>"'`]{1,256})@"#,
        "url-password",
        SecretSign::Break,
    ),
    (
        r"(?-u:\b)eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*|\z)|\z)",
        "jwt",
        SecretSign::Beginning,
    ),
    (r"(?i)(?-u:\b)bearer\s+(?<secret>[A-Za-z0-9._~+/=-]{8,})", "bearer-token", SecretSign::Break),
    // The name may end in the middle of a longer one: `clientSecret`, `PGPASSWORD`, `aws_secret_access_key`.
    (
        r#"(?:(?i:(?-u:\b)|_)(?i:passphrase|password|passwd|pwd|secret|token|(?:api|access|auth|account|private|secret|signing|encryption|master)[_-]?(?:key|token))|[A-Z]*(?:PASSWORD|PASSWD|PASSPHRASE)|[a-z0-9](?:Passphrase|Password|Passwd|Pwd|Secret|Token|(?:Api|API|Access|Auth|Account|Private|Secret|Signing|Encryption|Master)Key)|[a-z](?:password|passwd))(?:\\*["'])?\s*(?:=>|:=|[:=])\s*(?:\\*["'])?(?<secret>[^\s"'\[\]{}(),;<>$]{6,})"#,
        "credential",
        SecretSign::Assignment,
    ),
    // In a sentence; a word without a digit is rather `required` or `correct`.
    (
        r#"(?i)(?:password|passphrase|passcode|passwort|kennwort|contraseña|mot de passe|senha|hasło|пароль|密码|密碼|パスワード)(?:[^\n.:=@/\[\]]{0,40}?\s(?:is|was|ist|lautet|est|es)\s+|\s*[:：是は]\s*)["'`„“«「]?(?<secret>[^\s"'`\[\]{}(),;<>“”»」]*[0-9][^\s"'`\[\]{}(),;<>“”»」]*)"#,
        "credential",
        SecretSign::Break,
    ),
];

/// Bytes that are searched before and after a cut, and at the beginning of a longer secret across it.
// A bound, because searching megabytes takes seconds.
const BESIDE_CUT_BYTES: usize = 8_192;

/// Bytes before a secret that may name it: `access_token = "`.
const NAME_BYTES: usize = 64;

/// The borders of a private key, the only secret with spaces and lines.
const KEY_BEGIN: &str = "-----BEGIN ";
const KEY_END: &str = "-----END ";
const KEY_DASHES: &str = "-----";

/// A compiled pattern.
struct SecretPattern {
    regex: Regex,
    kind: &'static str,
    sign: SecretSign,
}

static REDACTIONS: LazyLock<Vec<SecretPattern>> = LazyLock::new(|| {
    let compile = |(pattern, kind, sign): (&str, &'static str, SecretSign)| {
        Some(SecretPattern { regex: Regex::new(pattern).ok()?, kind, sign })
    };
    let (block, others) = PATTERNS.split_at(1);
    let named = NAMED.map(|(pattern, kind)| (pattern, kind, SecretSign::Name));
    let all = block.iter().copied().chain(named).chain(others.iter().copied());
    all.filter_map(compile).collect()
});

/// The patterns that may match in a text.
fn patterns_for(text: &str) -> impl Iterator<Item = &'static SecretPattern> {
    let signs = SecretSigns::of(text);
    REDACTIONS.iter().filter(move |pattern| signs.has(pattern.sign))
}

/// Replaces every secret; returns a text without secrets unchanged.
pub fn redact(text: &str) -> Cow<'_, str> {
    replace_secrets(text, |kind, _| format!("[redacted:{kind}]"))
}

/// Replaces every secret by the result of `with(kind, secret)`. A result in square brackets never
/// matches a pattern.
pub fn replace_secrets(text: &str, mut with: impl FnMut(&str, &str) -> String) -> Cow<'_, str> {
    let signs = SecretSigns::of(text);
    let mut clean = Cow::Borrowed(text);
    // In order: the pattern of a whole key block comes first, so that no later one matches inside
    // it.
    for SecretPattern { regex, kind, sign } in REDACTIONS.iter() {
        // The signs are those of the text before any replacement.
        if matches!(clean, Cow::Borrowed(_)) && !signs.has(*sign) {
            continue;
        }
        let replaced =
            regex.replace_all(&clean, |found: &Captures<'_>| replaced(found, kind, &mut with));
        if let Cow::Owned(replaced) = replaced {
            clean = Cow::Owned(replaced);
        }
    }
    clean
}

/// Replaces the secret inside a match.
fn replaced(
    found: &Captures<'_>,
    kind: &str,
    with: &mut impl FnMut(&str, &str) -> String,
) -> String {
    let Some(whole) = found.get(0) else { return String::new() };
    let secret = found.name("secret").unwrap_or(whole);
    let text = whole.as_str();
    let before = text.get(..secret.start() - whole.start()).unwrap_or_default();
    let behind = text.get(secret.end() - whole.start()..).unwrap_or_default();
    format!("{before}{}{behind}", with(kind, secret.as_str()))
}

/// The secrets of a text, for quoting parts of it.
#[derive(Debug)]
pub struct SecretRanges<'t> {
    text: &'t str,
    /// Byte ranges with their kinds, in order.
    secrets: Vec<(Range<usize>, &'static str)>,
}

impl<'t> SecretRanges<'t> {
    /// Finds the secrets of a text.
    pub fn new(text: &'t str) -> SecretRanges<'t> {
        let mut secrets: Vec<(Range<usize>, &'static str)> = Vec::new();
        for SecretPattern { regex, kind, .. } in patterns_for(text) {
            for found in regex.captures_iter(text) {
                let Some(range) =
                    found.name("secret").or_else(|| found.get(0)).map(|part| part.range())
                else {
                    continue;
                };
                // The first pattern that matches names the secret.
                let is_known = |(known, _): &(Range<usize>, _)| {
                    known.start < range.end && range.start < known.end
                };
                if !secrets.iter().any(is_known) {
                    secrets.push((range, *kind));
                }
            }
        }
        secrets.sort_unstable_by_key(|(range, _)| range.start);
        SecretRanges { text, secrets }
    }

    /// The same for a text that is known to have none.
    pub fn none(text: &'t str) -> SecretRanges<'t> {
        SecretRanges { text, secrets: Vec::new() }
    }

    /// The text.
    pub fn text(&self) -> &'t str {
        self.text
    }

    /// Appends a part of the text to `out`. A secret is replaced where it begins, or where the part
    /// begins inside it, if `out` does not already end with its placeholder.
    pub fn quote(&self, part: Range<usize>, out: &mut String) {
        let mut at = part.start;
        let inside = self
            .secrets
            .iter()
            .filter(|(secret, _)| secret.start < part.end && part.start < secret.end);
        for (secret, kind) in inside {
            out.push_str(self.text.get(at..secret.start).unwrap_or_default());
            let placeholder = format!("[redacted:{kind}]");
            if secret.start >= part.start || !out.ends_with(&placeholder) {
                out.push_str(&placeholder);
            }
            at = secret.end;
        }
        out.push_str(self.text.get(at..part.end).unwrap_or_default());
    }
}

/// Head and end of a long text without secrets, joined by `gap`. Sizes are in weighted characters.
pub fn redacted_ends<'a>(
    text: &'a str,
    head_chars: u64,
    end_chars: u64,
    gap: &str,
) -> Cow<'a, str> {
    let Some((head, end)) = ends(text, head_chars, end_chars) else { return redact(text) };
    // Searched beyond the cuts, because half a secret is not recognised.
    let searched_end = text.floor_char_boundary(head.len() + BESIDE_CUT_BYTES);
    let mut out = String::new();
    SecretRanges::new(text.get(..searched_end).unwrap_or_default()).quote(0..head.len(), &mut out);
    out.push_str(gap);
    let mut end_start = text.len() - end.len();
    if let Some((secret_end, kind)) = long_secret_across(text, end_start) {
        out.push_str(&format!("[redacted:{kind}]"));
        end_start = secret_end;
    }
    let searched_start = text.ceil_char_boundary(end_start.saturating_sub(BESIDE_CUT_BYTES));
    let searched = text.get(searched_start..).unwrap_or_default();
    SecretRanges::new(searched).quote(end_start - searched_start..searched.len(), &mut out);
    Cow::Owned(out)
}

/// Where a secret ends that begins more than [`BESIDE_CUT_BYTES`] before a cut and reaches across it, and its
/// kind. Only its beginning is searched.
fn long_secret_across(text: &str, cut: usize) -> Option<(usize, &'static str)> {
    let searched_start = text.ceil_char_boundary(cut.saturating_sub(BESIDE_CUT_BYTES));
    let before = text.get(..searched_start)?;
    let key = before
        .rfind(KEY_BEGIN)
        .filter(|begin| !text.get(*begin..cut).is_some_and(|key| key.contains(KEY_END)));
    let (begin, end) = match key {
        Some(begin) => (begin, key_end(text, cut)),
        None => {
            let is_border = |c: char| c.is_whitespace() || "\"'[]{}(),;<>$".contains(c);
            let run = before.rfind(is_border).map_or(0, |border| border + 1);
            // A run without a border from there on, across the cut.
            text.get(searched_start..cut)?.find(is_border).is_none().then_some(())?;
            (run, text.get(cut..)?.find(is_border).map(|end| cut + end))
        }
    };
    let named_from = text.ceil_char_boundary(begin.saturating_sub(NAME_BYTES));
    let searched_end = text.floor_char_boundary((begin + BESIDE_CUT_BYTES).min(searched_start));
    let searched = text.get(named_from..searched_end)?;
    let (last, kind) = SecretRanges::new(searched).secrets.pop()?;
    (last.end == searched.len()).then_some((end.unwrap_or(text.len()), kind))
}

/// The end of the line that ends a private key.
fn key_end(text: &str, from: usize) -> Option<usize> {
    let label = from + text.get(from..)?.find(KEY_END)? + KEY_END.len();
    Some(label + text.get(label..)?.find(KEY_DASHES)? + KEY_DASHES.len())
}

/// Whether a text contains something that looks like a secret.
pub fn contains_secret(text: &str) -> bool {
    patterns_for(text).any(|pattern| pattern.regex.is_match(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles() {
        assert_eq!(REDACTIONS.len(), PATTERNS.len() + NAMED.len());
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
            ("{\\\"token\\\": \\\"abcdef1", "{\\\"token\\\": \\\"[redacted:credential]"),
            ("DB_PASSWORD=verysecret", "DB_PASSWORD=[redacted:credential]"),
            ("PGPASSWORD=verysecret", "PGPASSWORD=[redacted:credential]"),
            ("mypassword: verysecret", "mypassword: [redacted:credential]"),
            ("{\"clientSecret\":\"nah-12345678\"}", "{\"clientSecret\":\"[redacted:credential]\"}"),
            ("dbPassword: verysecret", "dbPassword: [redacted:credential]"),
            ("refreshToken = 'abcdef1'", "refreshToken = '[redacted:credential]'"),
            ("secretKey=abcdef1 ", "secretKey=[redacted:credential] "),
            ("secret_key=abcdef1", "secret_key=[redacted:credential]"),
            ("privateKey: abcdef1", "privateKey: [redacted:credential]"),
            ("aws_secret_access_key = abc/def+1", "aws_secret_access_key = [redacted:credential]"),
            ("AccountKey=abcdef1==", "AccountKey=[redacted:credential]"),
            (":token => 'abcdef1'", ":token => '[redacted:credential]'"),
            ("__token__: verysecret", "__token__: verysecret"),
            ("sk_live_0123456789abcdefABCD", "[redacted:api-key]"),
            ("glpat-0123456789abcdefABCD", "[redacted:api-key]"),
            (
                "postgres://app:hunter2@db:5432/x",
                "postgres://app:[redacted:url-password]@db:5432/x",
            ),
            ("https://:t0ken@git.example/a", "https://:[redacted:url-password]@git.example/a"),
            (
                "https://hooks.slack.com/services/T00000000/B00000000/abcdEFGH",
                "https://hooks.slack.com/services/[redacted:webhook]",
            ),
            ("my password is hunter2hunter2.", "my password is [redacted:credential]"),
            ("login kurt, password Xk7-moon-41", "login kurt, password [redacted:credential]"),
            ("the PIN of the gate is 90817.", "the PIN of the gate is [redacted:credential]."),
            ("pin code: 4711", "pin code: [redacted:credential]"),
            ("the password field2 of form 3", "the password field2 of form 3"),
            ("set PIN 7 high, pin version 2024", "set PIN 7 high, pin version 2024"),
            (
                "the password for staging is Tr0ub4dor",
                "the password for staging is [redacted:credential]",
            ),
            ("Das Passwort lautet „Blau4Reiher“", "Das Passwort lautet „[redacted:credential]“"),
            ("密码是hunter2", "密码是[redacted:credential]"),
            ("密钥sk-0123456789abcdef", "密钥[redacted:api-key]"),
            ("密码password=hunter2hunter2", "密码password=[redacted:credential]"),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\nrest",
                "[redacted:private-key]\nrest",
            ),
        ];
        for (text, clean) in cases {
            assert_eq!(redact(text), clean);
            assert_eq!(redact(clean), clean, "placeholders are not secrets");
        }
    }

    #[test]
    fn a_secret_at_a_cut_is_not_shown_in_part() {
        let secret = "ghp_0123456789abcdef0123";
        for far in [100, 100_000] {
            let text = format!("{} {secret} {}", "a".repeat(far), "b".repeat(far));
            for chars in far as u64 - 10..far as u64 + 40 {
                let ends = redacted_ends(&text, 20, chars, " … ");
                let heads = redacted_ends(&text, chars, 20, " … ");
                for cut in [ends, heads] {
                    let is_part = (0..secret.len() - 4).any(|at| cut.contains(&secret[at..at + 4]));
                    assert!(!is_part, "{}", &cut[cut.len() / 2..]);
                }
            }
        }
        assert_eq!(redacted_ends("ghp_0123456789abcdef", 50, 9, "…"), "[redacted:github-token]");
    }

    #[test]
    fn a_secret_longer_than_the_searched_part_is_not_shown_in_part() {
        let long = "Zq9".repeat(20_000);
        let lines = long.as_bytes().chunks(60).map(|line| str::from_utf8(line).unwrap());
        let key = lines.collect::<Vec<_>>().join("\n");
        let begin = "-----BEGIN PRIVATE KEY-----";
        let secrets = [
            format!("password = \"{long}\""),
            format!("Authorization: Bearer {long}"),
            format!("sk-{long}"),
            format!("eyJ{long}.{long}.{long}"),
            format!("{begin}\n{key}\n-----END PRIVATE KEY-----"),
        ];
        for secret in secrets {
            let text = format!("{} {secret} the end", "a ".repeat(9_000));
            for end_chars in [100, 20_000, 59_000] {
                let cut = redacted_ends(&text, 18_100, end_chars, " … ");
                let shown = cut.get(..60).unwrap_or(&cut);
                assert!(!cut.contains("Zq9Zq9"), "{shown} … {}", &cut[cut.len() - 60..]);
                assert!(cut.ends_with("the end"), "{end_chars}: {}", &cut[cut.len() - 60..]);
            }
        }
        // Not every long run is a secret.
        let text = format!("{} the end", long.repeat(3));
        assert!(redacted_ends(&text, 10, 20_000, " … ").ends_with("9Zq9 the end"));
    }

    #[test]
    fn who_replaces_sees_the_secret_alone() {
        let mut seen = Vec::new();
        let text = "bearer abcdef123456, password: hunter2hunter2";
        replace_secrets(text, |kind, secret| {
            seen.push(format!("{kind} {secret}"));
            "[gone]".into()
        });
        assert_eq!(seen, ["bearer-token abcdef123456", "credential hunter2hunter2"]);
    }

    #[test]
    fn plain_text_is_borrowed() {
        for text in [
            "the token count is 12",
            "risk-free tasks",
            "max_tokens: 4096",
            "/a/b.rs",
            "the password is required",
            "https://a.example:8080/b@c",
            "git@github.com:owner/name.git",
            "ssh://git@host:22/a",
        ] {
            assert!(matches!(redact(text), Cow::Borrowed(_)), "{text}");
        }
    }
}
