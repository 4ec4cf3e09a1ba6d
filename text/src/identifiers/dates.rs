//! Dates and times: `2026-11-23`, `23.11.2026`, `3. März 2025`, `14:30`, `2024年3月5日`.

use super::characters::{digits_len, small_number};

/// Names of months, in lower case, by their beginning: English, German, French, Spanish, Portuguese, Italian, Dutch.
const MONTHS: [&str; 44] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
    "januar",
    "februar",
    "märz",
    "mai",
    "juni",
    "juli",
    "oktober",
    "dezember",
    "janvier",
    "février",
    "mars",
    "avril",
    "juin",
    "juillet",
    "août",
    "septembre",
    "octobre",
    "novembre",
    "décembre",
    "enero",
    "febrero",
    "marzo",
    "abril",
    "mayo",
    "junio",
    "julio",
    "agosto",
    "septiembre",
    "octubre",
    "noviembre",
    "diciembre",
    "maart",
];
/// Short names of months.
const SHORT_MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep", "sept", "oct", "nov", "dec"];
/// Bytes of a time with its zone behind a date: `T10:15:30.123456+01:00`.
const TIME_BYTES: usize = 32;

/// Length in bytes of the date or time at the beginning of a text; 0 if there is none.
pub(super) fn date_len(rest: &str) -> usize {
    let Some(first) = rest.chars().next() else { return 0 };
    if !first.is_ascii_digit() {
        let day = if first.is_uppercase() { month_and_day_len(rest) } else { 0 };
        let time = rest.get(day..).unwrap_or_default();
        return if day > 0 { day + time_behind(time) } else { 0 };
    }
    let day = [numeric_date_len, east_asian_len, day_and_month_len]
        .iter()
        .map(|find| find(rest))
        .find(|len| *len > 0);
    match day {
        Some(len) => len + time_behind(rest.get(len..).unwrap_or_default()),
        None => time_len(rest),
    }
}

/// `2026-11-23`, `2026/11/23`, `23.11.2026`, `11/23/26`.
fn numeric_date_len(rest: &str) -> usize {
    let first = digits_len(rest);
    let Some(separator) = rest.get(first..).and_then(|behind| behind.chars().next()) else {
        return 0;
    };
    if !matches!(separator, '-' | '/' | '.') {
        return 0;
    }
    let second_start = first + 1;
    let second = digits_len(rest.get(second_start..).unwrap_or_default());
    let third_start = second_start + second + 1;
    let is_same = rest.get(second_start + second..).is_some_and(|b| b.starts_with(separator));
    let third = if is_same { digits_len(rest.get(third_start..).unwrap_or_default()) } else { 0 };
    let part = |start: usize, len: usize| rest.get(start..start + len).and_then(small_number);
    let (Some(a), Some(b), Some(c)) =
        (part(0, first), part(second_start, second), part(third_start, third))
    else {
        return 0;
    };
    let is_year = |year: u32, len: usize| len == 4 && (1900..=2199).contains(&year);
    let is_day = |day: u32, month: u32| (1..=31).contains(&day) && (1..=12).contains(&month);
    let is_iso = is_year(a, first) && is_day(c, b) && second <= 2 && third <= 2;
    // `23.11.26` may be a version.
    let has_year = is_year(c, third) || (separator == '/' && third == 2);
    let is_local = has_year && first <= 2 && second <= 2 && (is_day(a, b) || is_day(b, a));
    let end = third_start + third;
    let runs_on = rest.get(end..).unwrap_or_default();
    // `2026-11-23-notes` is a name, and `2026.11.23.4` a version.
    let is_whole = match runs_on.chars().next() {
        Some('T') => true,
        Some(c) if c == separator => !runs_on.chars().nth(1).is_some_and(|c| c.is_alphanumeric()),
        Some(c) => !(c.is_alphanumeric() && c.is_ascii() || c == '_'),
        None => true,
    };
    if (is_iso || is_local) && is_whole { end } else { 0 }
}

/// `2024年3月5日`.
fn east_asian_len(rest: &str) -> usize {
    let mut end = 0;
    for (most, mark) in [(4, ['年', '년']), (2, ['月', '월']), (2, ['日', '일'])] {
        let blank = usize::from(end > 0 && rest.get(end..).is_some_and(|b| b.starts_with(' ')));
        let digits = digits_len(rest.get(end + blank..).unwrap_or_default());
        let behind = rest.get(end + blank + digits..).unwrap_or_default();
        let Some(found) = behind.chars().next().filter(|c| mark.contains(c)) else { break };
        if digits == 0 || digits > most {
            break;
        }
        end += blank + digits + found.len_utf8();
    }
    end
}

/// `3. März 2025`, `5 May`, `1st of June 2025`.
fn day_and_month_len(rest: &str) -> usize {
    let digits = digits_len(rest);
    if !rest.get(..digits).and_then(small_number).is_some_and(|day| (1..=31).contains(&day)) {
        return 0;
    }
    let mut end = digits;
    for suffix in [".", "st", "nd", "rd", "th"] {
        if rest.get(end..).is_some_and(|behind| behind.starts_with(suffix)) {
            end += suffix.len();
            break;
        }
    }
    for joint in [" of ", " de ", " "] {
        if rest.get(end..).is_some_and(|behind| behind.starts_with(joint)) {
            end += joint.len();
            let month = month_len(rest.get(end..).unwrap_or_default());
            if month == 0 {
                return 0;
            }
            let end = end + month;
            return end + year_behind(rest.get(end..).unwrap_or_default());
        }
    }
    0
}

/// `March 3, 2025`, `May 2025`, at a capital: `may 5` and `mars 3` are prose.
fn month_and_day_len(rest: &str) -> usize {
    let month = month_word_len(rest);
    let behind = rest.get(month..).unwrap_or_default();
    // Most words have no number behind them.
    let [b' ', b'0'..=b'9', ..] = behind.as_bytes() else { return 0 };
    if month_len(rest) == 0 {
        return 0;
    }
    let digits = digits_len(behind.get(1..).unwrap_or_default());
    let number = behind.get(1..1 + digits).and_then(small_number);
    let ends = behind.get(1 + digits..).unwrap_or_default();
    let suffix = ["st", "nd", "rd", "th"].iter().find(|suffix| ends.starts_with(**suffix));
    let end = month + 1 + digits + suffix.map_or(0, |suffix| suffix.len());
    match number {
        Some(1..=31) => end + year_behind(rest.get(end..).unwrap_or_default()),
        Some(1900..=2199) => month + 1 + digits,
        _ => 0,
    }
}

fn month_len(text: &str) -> usize {
    let word = month_word_len(text);
    let name = text.get(..word).unwrap_or_default();
    let mut months = MONTHS.iter().chain(&SHORT_MONTHS);
    let is_month = if name.is_ascii() {
        months.any(|month| month.eq_ignore_ascii_case(name))
    } else {
        let name = name.to_lowercase();
        months.any(|month| *month == name)
    };
    if is_month { word } else { 0 }
}

/// Length in bytes of the alphabetic characters at the beginning of a text, as far as a month can be long.
fn month_word_len(text: &str) -> usize {
    text.chars().take(12).take_while(|c| c.is_alphabetic()).map(char::len_utf8).sum()
}

/// ` 2025`, `, 2025`, ` de 2025`.
fn year_behind(text: &str) -> usize {
    let joint = [", ", ". ", " de ", " "].iter().find(|joint| text.starts_with(**joint));
    let Some(start) = joint.map(|joint| joint.len()) else { return 0 };
    let digits = digits_len(text.get(start..).unwrap_or_default());
    let year = text.get(start..start + digits).and_then(small_number);
    let is_year = digits == 4 && year.is_some_and(|year| (1900..=2199).contains(&year));
    if is_year { start + digits } else { 0 }
}

/// `T10:15:30Z`, ` 14:30`.
fn time_behind(text: &str) -> usize {
    let joint = usize::from(text.starts_with(['T', ' ']));
    let time = time_len(text.get(joint..).unwrap_or_default());
    if joint == 0 || time == 0 { 0 } else { joint + time }
}

/// `14:30`, `9:05:30.25`, `3 pm`, `3:30pm`, `14 Uhr`, with a zone.
fn time_len(rest: &str) -> usize {
    let hour = digits_len(rest);
    let is_hour = rest.get(..hour).and_then(small_number).is_some_and(|hour| hour <= 24);
    if hour == 0 || hour > 2 || !is_hour {
        return 0;
    }
    let mut end = hour;
    let part = |end: usize| {
        let behind = rest.get(end..)?.strip_prefix(':')?;
        let digits = digits_len(behind);
        let is_part = digits == 2 && behind.get(..2).and_then(small_number)? < 60;
        is_part.then_some(end + 3)
    };
    let mut has_minutes = false;
    for _ in 0..2 {
        let Some(next) = part(end) else { break };
        (end, has_minutes) = (next, true);
    }
    let behind = rest.get(end..).unwrap_or_default();
    let suffix = [" pm", " am", "pm", "am", " Uhr", " PM", " AM", "PM", "AM", "h"]
        .iter()
        .find(|suffix| behind.starts_with(**suffix))
        .map_or(0, |suffix| suffix.len());
    // `12h` is a duration.
    let is_duration = !has_minutes && behind.starts_with('h');
    let zone = if has_minutes && suffix == 0 { zone_len(behind) } else { suffix };
    let runs_on = rest.get(end + zone..).unwrap_or_default();
    let is_whole = !runs_on.starts_with(|c: char| c.is_ascii_alphanumeric() || ":_".contains(c));
    let is_time = (has_minutes || suffix > 0) && is_whole && !is_duration;
    if is_time && end + zone <= TIME_BYTES { end + zone } else { 0 }
}

/// `.123Z`, `+01:00`.
fn zone_len(text: &str) -> usize {
    let mut end = 0;
    if let Some(fraction) = text.strip_prefix(['.', ',']) {
        let digits = digits_len(fraction);
        end = if digits > 0 { 1 + digits } else { 0 };
    }
    let behind = text.get(end..).unwrap_or_default();
    if behind.starts_with('Z') {
        return end + 1;
    }
    let is_offset = behind.starts_with(['+', '-']);
    let hours = digits_len(behind.get(1..).unwrap_or_default());
    if !is_offset || !matches!(hours, 2 | 4) {
        return end;
    }
    let minutes = behind.get(1 + hours..).and_then(|b| b.strip_prefix(':')).map_or(0, digits_len);
    end + 1 + hours + if minutes == 2 { 3 } else { 0 }
}
