//! Amounts of money: `€ 1.249,50`, `$3,400`, `1 200 CHF`.

use super::characters::digits_len;

/// Signs of currencies.
const SIGNS: [char; 12] = ['€', '$', '£', '¥', '₹', '₽', '₩', '₺', '₴', '₫', '฿', '₪'];
/// Codes and words of currencies, before or behind a number.
const NAMES: [&str; 40] = [
    "EUR", "USD", "GBP", "CHF", "JPY", "CNY", "INR", "PLN", "CZK", "SEK", "NOK", "DKK", "HUF",
    "RUB", "TRY", "BRL", "AUD", "CAD", "NZD", "MXN", "KRW", "SGD", "HKD", "ZAR", "UAH", "BTC",
    "Fr.", "R$", "US$", "euros", "euro", "Euro", "dollars", "zł", "Kč", "kr", "руб", "元", "円",
    "원",
];
/// Length of a number with its separators, in bytes.
const NUMBER_BYTES: usize = 24;

/// Length in bytes of the amount at the beginning of a text; 0 if there is none.
pub(super) fn amount_len(rest: &str) -> usize {
    if rest.starts_with(|c: char| c.is_ascii_digit()) {
        number_first(rest)
    } else {
        currency_first(rest)
    }
}

/// `$3,400`, `EUR 12`.
fn currency_first(rest: &str) -> usize {
    let currency_bytes = currency_len(rest);
    if currency_bytes == 0 {
        return 0;
    }
    let behind = rest.get(currency_bytes..).unwrap_or_default();
    let blank = blank_len(behind);
    let number = number_len(behind.get(blank..).unwrap_or_default());
    // `$1` is the first argument of a shell script.
    let is_argument = rest.starts_with('$') && blank == 0 && number == 1;
    if number == 0 || is_argument { 0 } else { currency_bytes + blank + number }
}

/// `1.249,50 €`, `12 EUR`.
fn number_first(rest: &str) -> usize {
    let number = number_len(rest);
    let behind = rest.get(number..).unwrap_or_default();
    let blank = blank_len(behind);
    let currency = currency_len(behind.get(blank..).unwrap_or_default());
    // `12 $HOME` is a variable.
    let is_variable = behind.get(blank + currency..).unwrap_or_default().starts_with(is_name_char);
    if number == 0 || currency == 0 || (is_variable && !is_unspaced_name(behind, blank)) {
        0
    } else {
        number + blank + currency
    }
}

fn is_unspaced_name(behind: &str, blank: usize) -> bool {
    behind.get(blank..).unwrap_or_default().starts_with(super::characters::is_unspaced)
}

fn is_name_char(character: char) -> bool {
    character.is_alphanumeric() || character == '_' || character == '{'
}

fn currency_len(text: &str) -> usize {
    if let Some(sign) = text.chars().next().filter(|c| SIGNS.contains(c)) {
        return sign.len_utf8();
    }
    // Most words begin as no name does.
    let first = text
        .as_bytes()
        .first()
        .filter(|first| matches!(first, b'A'..=b'Z' | b'd' | b'e' | b'k' | b'z' | 0x80..));
    let begins = |name: &&&str| name.as_bytes().first() == first && text.starts_with(**name);
    let name = NAMES.iter().find(|name| first.is_some() && begins(name));
    name.map_or(0, |name| name.len())
}

fn blank_len(text: &str) -> usize {
    text.chars()
        .next()
        .filter(|c| matches!(c, ' ' | '\u{a0}' | '\u{202f}'))
        .map_or(0, char::len_utf8)
}

/// Length in bytes of a number with separators and a suffix such as `k`.
fn number_len(text: &str) -> usize {
    let mut end = digits_len(text);
    while end > 0 && end < NUMBER_BYTES {
        let behind = text.get(end..).unwrap_or_default();
        let Some(separator) = behind.chars().next() else { break };
        let digits = digits_len(behind.get(separator.len_utf8()..).unwrap_or_default());
        let is_separator = match separator {
            '.' | ',' | '\'' | '’' => digits > 0,
            // A blank separates groups of three digits only.
            ' ' | '\u{a0}' | '\u{202f}' => digits == 3,
            _ => false,
        };
        if !is_separator {
            break;
        }
        end += separator.len_utf8() + digits;
    }
    if end > NUMBER_BYTES {
        return 0;
    }
    let behind = text.get(end..).unwrap_or_default();
    let has_suffix =
        behind.starts_with(['k', 'K', 'M']) && !behind.chars().nth(1).is_some_and(is_name_char);
    end + usize::from(end > 0 && has_suffix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_of_a_currency_is_found() {
        for name in NAMES {
            assert_eq!(currency_len(name), name.len(), "{name}");
        }
    }
}
