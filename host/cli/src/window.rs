//! Parses window sizes: `32k`, `200k`, `1m`, `32000`.

use ctxhost_config::MAX_WINDOW_TOKENS;

/// Parses a number of tokens; `k` is 1,000 and `m` is 1,000,000, as models are advertised.
pub(super) fn parse_tokens(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let (digits, unit) = match lower.strip_suffix(['k', 'm']) {
        Some(digits) if lower.ends_with('k') => (digits, 1_000),
        Some(digits) => (digits, 1_000_000),
        None => (lower.as_str(), 1),
    };
    let number: u64 = digits
        // Accepts numbers as they are copied from model pages, such as 128,000.
        .replace(['_', ','], "")
        .parse()
        .map_err(|_| format!("{text:?} is not a number of tokens; write 32k, 200k, 1m or 32000"))?;
    match number.checked_mul(unit) {
        Some(tokens @ 1..=MAX_WINDOW_TOKENS) => Ok(tokens),
        _ => Err(format!(
            "{text:?} is not a valid window; write a number from 1 to {MAX_WINDOW_TOKENS}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_tokens;

    #[test]
    fn parses_common_notations() {
        for (text, tokens) in
            [("32k", 32_000), ("200K", 200_000), ("1m", 1_000_000), ("128,000", 128_000)]
        {
            assert_eq!(parse_tokens(text), Ok(tokens));
        }
        for text in ["", "k", "0", "0k", "-1", "3.5k", "99999999999999999999m", "1001m"] {
            assert!(parse_tokens(text).is_err(), "{text}");
        }
    }
}
