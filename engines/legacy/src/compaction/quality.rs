//! The quality guard: refuses a summary without its sections, its identifiers or the newest
//! request.

use std::collections::BTreeSet;

use ctxhost_engine_kit::summary::{HEADINGS, is_answered_line};
use ctxhost_text::identifiers::is_mentioned;

/// Number of compared keywords of a request.
// The beginning states the topic; the rest is often pasted.
const MAX_KEYWORDS: usize = 12;
/// From this many keywords on two must match, else one.
const MANY_KEYWORDS: usize = 3;
/// Minimum length of a keyword in alphabetic scripts.
const MIN_KEYWORD_CHARS: usize = 3;
/// Number of identifiers listed in a reason.
const NAMED_IDENTIFIERS: usize = 3;

/// Words that occur in every request. Chinese is compared in pairs of characters.
const STOP_WORDS: [&str; 72] = [
    "the", "and", "for", "that", "this", "with", "you", "your", "are", "was", "were", "have",
    "has", "had", "not", "but", "can", "could", "should", "would", "will", "from", "into", "out",
    "please", "then", "than", "them", "they", "what", "when", "where", "which", "how", "why",
    "all", "any", "now", "just", "also", "let", "lets", "about", "there", "一下", "可以", "什么",
    "怎么", "请你", "帮我", "这个", "那个", "我们", "你们", "他们", "一个", "现在", "然后", "需要",
    "就是", "还是", "但是", "因为", "所以", "如果", "已经", "没有", "不是", "能不", "不能", "是否",
    "请帮",
];

/// The required content of a summary.
#[derive(Clone, Debug, Default)]
pub(crate) struct SummaryExpectations {
    /// Names that it must contain exactly.
    pub(crate) identifiers: Vec<String>,
    /// The newest request of its history.
    pub(crate) latest_request: Option<String>,
    /// The newest unanswered request, which must be the first pending one.
    pub(crate) open_request: Option<String>,
    /// A request that is kept word for word and so must not be pending.
    pub(crate) retained_request: Option<String>,
}

/// The reasons to refuse a summary; empty if it is accepted.
pub(crate) fn check_summary(summary: &str, expected: &SummaryExpectations) -> Vec<String> {
    let mut reasons = section_reasons(summary);
    let missing: Vec<&str> = expected
        .identifiers
        .iter()
        .filter(|identifier| !is_mentioned(identifier, summary))
        .map(String::as_str)
        .take(NAMED_IDENTIFIERS)
        .collect();
    // The reasons are sent back to the model, so they name what is missing.
    if !missing.is_empty() {
        reasons.push(format!("missing_identifiers:{}", missing.join(",")));
    }
    if expected.latest_request.as_deref().is_some_and(|request| !reflects(summary, request)) {
        reasons.push("latest_user_ask_not_reflected".into());
    }
    let pending = pending_lines(summary);
    let first = pending.first().copied().unwrap_or_default();
    if expected.open_request.as_deref().is_some_and(|request| !reflects(first, request)) {
        reasons.push("latest_user_ask_not_foregrounded".into());
    }
    // A request without keywords, such as "go on", matches any line.
    let retained =
        expected.retained_request.as_deref().filter(|request| !keywords(request, 1).is_empty());
    if retained.is_some_and(|request| pending.iter().any(|line| reflects(line, request))) {
        reasons.push("retained_turn_ask_marked_pending".into());
    }
    reasons
}

/// Whether a summary has the five sections, once each and in order.
pub(crate) fn has_all_sections(summary: &str) -> bool {
    section_reasons(summary).is_empty()
}

/// The pending requests of a summary.
fn pending_lines(summary: &str) -> Vec<&str> {
    let [_, _, _, pending, _] = HEADINGS;
    let lines = summary.lines().skip_while(|line| line.trim_end() != pending).skip(1);
    let section = lines.take_while(|line| !line.starts_with('#'));
    let bare = section.map(|line| line.trim_start_matches(['-', '*', ' ']).trim());
    bare.filter(|line| !line.is_empty() && *line != "None." && !is_answered_line(line)).collect()
}

fn section_reasons(summary: &str) -> Vec<String> {
    let mut reasons = Vec::new();
    let mut last_line = None;
    for heading in HEADINGS {
        let lines = summary.lines().enumerate().filter(|(_, line)| line.trim_end() == heading);
        let lines: Vec<usize> = lines.map(|(at, _)| at).collect();
        match lines.as_slice() {
            [] => reasons.push(format!("missing_section:{heading}")),
            [at] if last_line.is_some_and(|last| *at < last) => {
                reasons.push(format!("misplaced_section:{heading}"));
            }
            [at] => last_line = Some(*at),
            _ => reasons.push(format!("duplicate_section:{heading}")),
        }
    }
    reasons
}

fn reflects(summary: &str, request: &str) -> bool {
    let wanted = keywords(request, MAX_KEYWORDS);
    let found_words: BTreeSet<String> = keywords(summary, usize::MAX).into_iter().collect();
    let found = wanted.iter().filter(|word| found_words.contains(*word)).count();
    match wanted.len() {
        0 => true,
        many if many >= MANY_KEYWORDS => found >= 2,
        _ => found >= 1,
    }
}

/// Unique lower-case words; scripts without spaces are split into pairs of characters.
fn keywords(text: &str, max: usize) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut seen = BTreeSet::new();
    // Full-width text matches its half-width form in the summary.
    let lower: String = text.chars().map(half_width).flat_map(char::to_lowercase).collect();
    for run in lower.split(|c: char| !c.is_alphanumeric()) {
        for word in words_of(run) {
            if words.len() == max {
                return words;
            }
            if !STOP_WORDS.contains(&word.as_str()) && seen.insert(word.clone()) {
                words.push(word);
            }
        }
    }
    words
}

fn words_of(run: &str) -> Vec<String> {
    if run.is_ascii() || !run.contains(is_unspaced) {
        let is_word = run.chars().count() >= MIN_KEYWORD_CHARS;
        return if is_word { vec![run.to_owned()] } else { Vec::new() };
    }
    let characters: Vec<char> = run.chars().collect();
    // Pairs, because a single character is too common to prove anything.
    characters.windows(2).map(|pair| pair.iter().collect()).collect()
}

/// Maps full-width letters and digits to half-width ones.
fn half_width(character: char) -> char {
    let narrow = |wide: char| char::from_u32(wide as u32 - 0xFEE0);
    match character {
        '\u{FF01}'..='\u{FF5E}' => narrow(character).unwrap_or(character),
        _ => character,
    }
}

/// Han and kana are written without spaces.
fn is_unspaced(character: char) -> bool {
    matches!(character, '\u{3040}'..='\u{30FF}' | '\u{3400}'..='\u{9FFF}' | '\u{20000}'..='\u{2FA1F}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(body: &str) -> String {
        HEADINGS.map(|heading| format!("{heading}\n- {body}\n")).join("\n")
    }

    fn expecting(identifiers: &[&str], request: &str) -> SummaryExpectations {
        SummaryExpectations {
            identifiers: identifiers.iter().map(|id| (*id).to_owned()).collect(),
            latest_request: Some(request.to_owned()),
            ..SummaryExpectations::default()
        }
    }

    #[test]
    fn case_57_sections_and_identifiers() {
        let good = summary("/srv/app/main.rs at deadbeef");
        let expected = expecting(&["/srv/app/main.rs", "DEADBEEF"], "");
        let hex = expecting(&["/other/path", "CAFEBABE"], "");
        for (text, expected, reasons) in [
            (good.clone(), &expected, vec![]),
            (good.replace('\n', "\r\n"), &expected, vec![]),
            (good.clone(), &hex, vec!["missing_identifiers:/other/path,CAFEBABE"]),
            (
                good.replace("## Decisions", "## decisions"),
                &expected,
                vec!["missing_section:## Decisions"],
            ),
            (format!("{good}\n## Decisions\n"), &expected, vec!["duplicate_section:## Decisions"]),
            (
                format!("## Open TODOs\n{}", good.replace("## Open TODOs\n", "")),
                &expected,
                vec!["misplaced_section:## Open TODOs"],
            ),
        ] {
            assert_eq!(check_summary(&text, expected), reasons);
        }
    }

    #[test]
    fn case_58_the_latest_ask_is_reflected() {
        let request = "deploy kubernetes cluster tonight";
        let lost = vec!["latest_user_ask_not_reflected".to_owned()];
        assert_eq!(check_summary(&summary("nothing"), &expecting(&[], request)), lost);
        assert_eq!(check_summary(&summary("deploy it"), &expecting(&[], request)), lost);
        assert!(check_summary(&summary("Deploy the cluster"), &expecting(&[], request)).is_empty());
        assert!(check_summary(&summary("x"), &expecting(&[], "ok?")).is_empty());
        assert!(
            check_summary(&summary("ｄｅｐｌｏｙ the Cluster"), &expecting(&[], request))
                .is_empty()
        );
        assert_eq!(check_summary(&summary("可以帮我"), &expecting(&[], "请你帮我部署集群")), lost);
        assert!(check_summary(&summary("正在部署集群"), &expecting(&[], "部署集群")).is_empty());
        assert_eq!(check_summary(&summary("没有"), &expecting(&[], "部署集群")), lost);
    }

    fn pending(line: &str) -> String {
        summary("nothing")
            .replace("## Pending user asks\n- nothing", &format!("## Pending user asks\n- {line}"))
    }

    #[test]
    fn the_open_request_is_first() {
        let expected = SummaryExpectations {
            open_request: Some("rename the parser module".into()),
            ..SummaryExpectations::default()
        };
        let behind = vec!["latest_user_ask_not_foregrounded".to_owned()];
        assert!(check_summary(&pending("Rename the parser module"), &expected).is_empty());
        assert_eq!(
            check_summary(&pending("Deploy it\n- rename the parser module"), &expected),
            behind
        );
        assert_eq!(check_summary(&pending("None."), &expected), behind);
    }

    #[test]
    fn case_50_a_request_that_is_kept_is_not_pending() {
        let expected = SummaryExpectations {
            retained_request: Some("migrate the whole database".into()),
            ..SummaryExpectations::default()
        };
        let marked = vec!["retained_turn_ask_marked_pending".to_owned()];
        assert_eq!(check_summary(&pending("Migrate the database"), &expected), marked);
        assert!(check_summary(&pending("None."), &expected).is_empty());
        assert!(check_summary(&pending("(answered) migrate the database"), &expected).is_empty());
    }
}
