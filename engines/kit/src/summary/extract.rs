//! Sorts sentences into sections by the words they contain, in the conversation's own language.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::LazyLock;

use ctxhost_engine_api::transcript::tokens::weighted_chars;
use regex::Regex;

use super::excerpt::{ExcerptRole, MessageExcerpt};
use super::open_tasks::{announces_task, is_reported, postpones_order, promises_step};
use super::requests::{is_final_answer, pending_requests};
use super::sections::{
    LINE_LIMIT_CHARS, MAX_CONSTRAINTS, MAX_DECISIONS, MAX_LINES, MAX_REPORTS, SummarySections,
};
use super::sentences::{Sentence, sentences_with_topics};
use super::similarity::LineWords;
use crate::rules::{RuleLines, RuleSentence, find_rules_and_hints, rejects_previous};
use ctxhost_text::identifiers;
use ctxhost_text::own_text::own_text;

/// Number of newest messages that are searched for identifiers.
// Older names rarely belong to the current work, and the ledger has them anyway.
const IDENTIFIER_MESSAGES: usize = 10;
/// Rules and sentences that may change one, of the newest that are read; most hints change nothing.
const MAX_READ_RULES: usize = 8 * MAX_CONSTRAINTS;
/// Minimum length of a report, in weighted characters.
// A shorter one is a greeting or an assent.
const MIN_REPORT_CHARS: u64 = 32;
/// Length of the beginning of an answer that counts as a report, in weighted characters.
// The cause or the result often follows the first sentence, and what follows that explains.
const REPORT_CHARS: u64 = 240;
/// Sentences at the beginning of an answer among which the report begins.
const REPORT_STARTS: usize = 3;

/// Words of decisions, of causes that were found or excluded, and of completed work.
const DECISION_PATTERN: &str = concat!(
    r"(?i)\b(?:decid(?:ed|e)|decision|chose|chosen|agreed|settled on|switch(?:ed|ing) to|instead of|go(?:ing)? with|went with|let'?s use|(?:we|i)(?:'ll| will) use|root cause|turns out|fixed|implemented|added|created|removed|renamed|replaced|refactored|moved|committed|tests? pass(?:es|ed)?",
    r"|rul(?:ed?|ing) out|ruled [^ ,.;]+ out|not the (?:cause|culprit|reason|problem)|refuted|disproved|eliminated|excluded",
    r"|entschieden|entscheidung|beschlossen|wir nehmen|nehmen wir|gewählt|statt(?:dessen)?|ausgeschlossen|nicht die ursache|ursache (?:ist|war)|behoben|umgesetzt|umbenannt|entfernt|ersetzt",
    r"|décid(?:é|ons)|décision|choisi|retenu|au lieu de|exclue?s?|écartée?s?|pas la cause|cause racine|corrigée?s?|remplacée?s?|supprimée?s?|decid(?:imos|ido)|decisión|eleg(?:imos|ido)|en (?:lugar|vez) de|descartad[oa]s?|no es la causa|causa raíz|corregid[oa]s?|reemplazad[oa]s?|eliminad[oa]s?",
    r"|escolhemos|em vez de|não é a causa|corrigid[oa]s?|removid[oa]s?|deciso|scelto|invece di|esclus[oa]|non è la causa|corrett[oa]|rimoss[oa]|besloten|gekozen|in plaats van|uitgesloten|niet de oorzaak|opgelost",
    r"|решили|решено|выбрали|вместо|исключ(?:ено|ена|ены|или)|не причина|причина в|исправлен[аоы]?|исправил[аи]?|заменил[аи]?|удалил[аи]?|zdecydowal[^ ,.;]+|wybraliśmy|zamiast|wykluczon[^ ,.;]+|nie jest przyczyną|naprawion[^ ,.;]+|karar verdik|seçtik|yerine|elendi|düzeltildi)\b",
    r"|决定|選擇了|选择了|采用|採用|改用|确定|方案|修复了|实现了|已完成|根本原因|排除|不是原因|替换|決定|決めました|除外|原因では|原因は|修正しました|결정했|선택했|제외했|원인이 아|원인은|수정했|قررنا|اخترنا|بدلا من|استبعدنا|ليس السبب",
);
static DECISION: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(DECISION_PATTERN).ok());
/// What a model will do next.
// In the user's words it begins a request, which is pending only until its answer.
static NEXT: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?i)^next\b|\bnext step|接下来|下一步").ok());
/// Announcements of a model.
// The calls that follow record the action more reliably than the announcement.
static NARRATION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?i)^(?:(?:ok(?:ay)?|good|great|perfect|now|first|actually|wait|hmm|alright|so|and|then)\b[\s,.!:-]*)*(?:let me\b|let us\b|i(?:'ll| will| need to| should| want to| am going to|'m going to) (?:now |first |then |also )?(?:look|check|read|see|find|search|view|examine|take|start|try|run|get|identify|verify|understand)\b)|^(?:让我|我来看|我先)",
    )
    .ok()
});

/// Beginnings of sentences that only agree.
static AGREEMENT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?i)^(?:yes|no|yep|right|exactly|correct|indeed|sure|ah|oh|i see|i have|you(?:'re| are) right|good (?:point|question|catch)|great question|now i|that(?:'s| is))\b|^(?:对|是的|好的|没错)",
    )
    .ok()
});

/// The five sections of excerpts, oldest first, with no messages after them.
pub fn extract_sections(excerpts: &[MessageExcerpt<'_>]) -> SummarySections {
    extract_sections_before(excerpts, false)
}

/// The five sections of excerpts, oldest first. With `is_answered_later` an answer follows and
/// nothing is pending.
pub fn extract_sections_before(
    excerpts: &[MessageExcerpt<'_>],
    is_answered_later: bool,
) -> SummarySections {
    let (constraints, hints) = constraints(excerpts);
    let decisions = decisions(excerpts);
    let mut sections = SummarySections {
        todos: open_tasks(excerpts, &decisions),
        decisions: decisions.into_iter().map(|line| line.text).collect(),
        constraints,
        hints,
        requests: pending_requests(excerpts, is_answered_later),
        identifiers: newest_identifiers(excerpts),
    };
    sections.remove_overlaps();
    sections
}

/// The valid rules of the user, and sentences that may change a rule of an older summary.
fn constraints(excerpts: &[MessageExcerpt<'_>]) -> (Vec<String>, Vec<String>) {
    let messages = excerpts.iter().filter(|excerpt| excerpt.role == ExcerptRole::User);
    let read = messages.flat_map(|excerpt| find_rules_and_hints(&excerpt.text)).collect();
    let mut rules = RuleLines::default();
    let mut hints = Vec::new();
    for sentence in newest(read, MAX_READ_RULES) {
        match sentence {
            RuleSentence::Rule(line) => rules.add(line),
            RuleSentence::Hint(line) => hints.extend(rules.add_hint(line)),
        }
    }
    (newest(rules.into_lines(), MAX_CONSTRAINTS), hints)
}

/// The last lines, at most `max`.
fn newest<T>(mut lines: Vec<T>, max: usize) -> Vec<T> {
    lines.split_off(lines.len().saturating_sub(max))
}

/// A line of a section.
struct FoundLine {
    /// The position of its message.
    seq: u64,
    text: String,
}

/// Decisions, completed work, and what answers report.
fn decisions(excerpts: &[MessageExcerpt<'_>]) -> Vec<FoundLine> {
    newest_lines(excerpts, MAX_DECISIONS, |_, sentence| is_decided(sentence), report)
}

/// Whether a line of a summary states a decision or completed work, and is more than a report.
pub(super) fn is_decision_line(line: &str) -> bool {
    is_done(line) || holds(&DECISION, line) && holds(&DECISION, &without_names(line))
}

/// Whether a sentence states a decision or completed work.
fn is_decided(sentence: &Sentence) -> bool {
    is_done(&sentence.text) || is_about(&DECISION, sentence)
}

/// The open tasks that no later line reports as done.
fn open_tasks(excerpts: &[MessageExcerpt<'_>], done: &[FoundLine]) -> Vec<String> {
    let open = newest_lines(excerpts, MAX_LINES, is_open, |_, _| None);
    let is_left = |task: &FoundLine| {
        let later = done.iter().filter(|line| line.seq > task.seq);
        !later.into_iter().any(|line| is_reported(&task.text, &line.text))
    };
    open.into_iter().filter(is_left).map(|task| task.text).collect()
}

/// Whether a sentence announces an open task.
fn is_open(excerpt: &MessageExcerpt<'_>, sentence: &Sentence) -> bool {
    // What a user wants next is pending only until its answer.
    let is_next = || excerpt.role == ExcerptRole::Assistant && is_about(&NEXT, sentence);
    let is_postponed = || excerpt.role == ExcerptRole::User && postpones_order(&sentence.text);
    let is_promised = || is_final_answer(excerpt) && promises_step(&sentence.text);
    !ends_in_question(&sentence.text)
        && !is_done(&sentence.text)
        && (is_task(sentence) || is_next() || is_postponed() || is_promised())
}

/// Whether a sentence or the heading of its list announces a task outside of names.
fn is_task(sentence: &Sentence) -> bool {
    let is_stated = |text: &str| announces_task(text) && announces_task(&without_names(text));
    is_stated(&sentence.text) || sentence.topic.as_ref().is_some_and(|topic| is_stated(topic))
}

/// What a final answer reports: the places of its sentences, and these on one line.
fn report(excerpt: &MessageExcerpt<'_>, sentences: &[Sentence]) -> Option<(Range<usize>, String)> {
    let is_report = |sentence: &Sentence| {
        let text = &sentence.text;
        !ends_in_question(text) && !holds(&NARRATION, text) && !is_open(excerpt, sentence)
    };
    let begins = |sentence: &Sentence| is_report(sentence) && !holds(&AGREEMENT, &sentence.text);
    if !is_final_answer(excerpt) {
        return None;
    }
    let start = sentences.iter().take(REPORT_STARTS).position(begins)?;
    let mut line = String::new();
    let mut end = start;
    for sentence in sentences.get(start..)?.iter().take_while(|sentence| is_report(sentence)) {
        let longer = format!("{line} {}", sentence.text);
        // What is decided is a line of its own.
        let is_other = is_decided(sentence) || weighted_chars(&longer) > REPORT_CHARS;
        if !line.is_empty() && is_other {
            break;
        }
        line = longer.trim_start().to_owned();
        end += 1;
    }
    let is_line = (MIN_REPORT_CHARS..=LINE_LIMIT_CHARS).contains(&weighted_chars(&line));
    is_line.then_some((start..end, line))
}

/// Whether a sentence or the heading of its list matches outside of names.
fn is_about(pattern: &LazyLock<Option<Regex>>, sentence: &Sentence) -> bool {
    // Names are removed only where the pattern matches at all, which is rare.
    let is_stated = |text: &str| holds(pattern, text) && holds(pattern, &without_names(text));
    is_stated(&sentence.text) || sentence.topic.as_ref().is_some_and(|topic| is_stated(topic))
}

/// A text without paths and identifiers: a folder named `todo` is not an open task.
fn without_names(text: &str) -> String {
    let is_name = |word: &&str| {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric());
        word.contains(['/', '\\', '_', '.']) || word.contains("::")
    };
    text.split_whitespace().filter(|word| !is_name(word)).collect::<Vec<_>>().join(" ")
}

/// Whether a line is a completed task.
fn is_done(line: &str) -> bool {
    line.starts_with("[x]") || line.starts_with("[X]") || line.starts_with('✅')
}

fn newest_identifiers(excerpts: &[MessageExcerpt<'_>]) -> Vec<String> {
    let newest = || excerpts.iter().rev().take(IDENTIFIER_MESSAGES);
    // What the user wrote comes first. Tool output is full of names that the work does not need, so it comes last.
    let roles = [ExcerptRole::User, ExcerptRole::Assistant, ExcerptRole::Tool];
    let of_role = |role| newest().filter(move |excerpt| excerpt.role == role);
    let texts = roles.into_iter().flat_map(of_role).map(|excerpt| excerpt.text.as_ref());
    identifiers::extract(texts, identifiers::MAX_IDENTIFIERS)
}

/// The newest matching sentences of user and model, in order and without repetitions. Sentences
/// that are too long are dropped. `report` is a part of a message that is one line.
fn newest_lines(
    excerpts: &[MessageExcerpt<'_>],
    max: usize,
    is_wanted: impl Fn(&MessageExcerpt<'_>, &Sentence) -> bool,
    report: impl Fn(&MessageExcerpt<'_>, &[Sentence]) -> Option<(Range<usize>, String)>,
) -> Vec<FoundLine> {
    let mut found: Vec<(LineWords, FoundLine)> = Vec::new();
    let mut reports = 0;
    let mut add = |seq: u64, text: &str| {
        let meaning = LineWords::new(text);
        let is_new =
            !found.iter().any(|(known, line)| line.text == text || known.is_similar(&meaning));
        if is_new && found.len() < max {
            found.push((meaning, FoundLine { seq, text: text.to_owned() }));
        }
        found.len() < max
    };
    for excerpt in excerpts.iter().rev().filter(|excerpt| excerpt.role != ExcerptRole::Tool) {
        // A text that the user quotes or pastes states neither rules nor decisions of the user.
        let text = match excerpt.role {
            ExcerptRole::User => Cow::Owned(own_text(&excerpt.text)),
            _ => Cow::Borrowed(excerpt.text.as_ref()),
        };
        let sentences = sentences_with_topics(&text);
        let (reported, line) = report(excerpt, &sentences).unwrap_or_default();
        let mut has_room = true;
        for (at, sentence) in sentences.iter().enumerate().rev() {
            if !has_room {
                break;
            }
            if reported.contains(&at) {
                let is_report = !is_decided(sentence);
                // Older decisions outlive newer reports.
                if at == reported.start && (!is_report || reports < MAX_REPORTS) {
                    reports += usize::from(is_report);
                    has_room = add(excerpt.seq, &line);
                }
                continue;
            }
            let is_line = weighted_chars(&sentence.text) <= LINE_LIMIT_CHARS;
            let is_rejected = excerpt.role == ExcerptRole::User
                && sentences.get(at + 1).is_some_and(|next| rejects_previous(&next.text));
            if is_line
                && !is_rejected
                && is_wanted(excerpt, sentence)
                && !holds(&NARRATION, &sentence.text)
            {
                has_room = add(excerpt.seq, &sentence.text);
            }
        }
        if !has_room {
            break;
        }
    }
    found.into_iter().rev().map(|(_, line)| line).collect()
}

fn holds(pattern: &LazyLock<Option<Regex>>, sentence: &str) -> bool {
    pattern.as_ref().is_some_and(|pattern| pattern.is_match(sentence))
}

fn ends_in_question(sentence: &str) -> bool {
    sentence.ends_with(['?', '？'])
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::rules::find_rules;

    pub(in crate::summary) fn excerpt_of(role: ExcerptRole, text: &str) -> MessageExcerpt<'_> {
        MessageExcerpt { seq: 0, role, text: text.into(), calls_tools: false }
    }

    #[test]
    fn patterns_compile() {
        for pattern in [&DECISION, &NEXT, &NARRATION, &AGREEMENT] {
            assert!(pattern.is_some());
        }
    }

    #[test]
    fn the_newest_sentences_win() {
        let texts: Vec<String> = (0..60).map(|n| format!("Always check rule {n}.")).collect();
        let excerpts: Vec<_> =
            texts.iter().map(|text| excerpt_of(ExcerptRole::User, text)).collect();
        let constraints = extract_sections(&excerpts).constraints;
        assert_eq!(constraints.len(), MAX_CONSTRAINTS);
        assert_eq!(constraints.last().map(String::as_str), Some("Always check rule 59."));
    }

    #[test]
    fn a_word_in_a_path_or_a_name_is_not_an_open_task() {
        for text in [
            "Please look at src/todo/parser.rs and the tests beside it.",
            "The module todo_list.rs is slow in the browser.",
            "It happens in crate::todo::Store whenever two threads write.",
        ] {
            let sections = extract_sections(&[excerpt_of(ExcerptRole::User, text)]);
            assert!(sections.todos.is_empty(), "{:?}", sections.todos);
        }
        let open = "TODO: move src/parser.rs into its own crate.";
        assert_eq!(extract_sections(&[excerpt_of(ExcerptRole::User, open)]).todos, [open]);
    }

    #[test]
    fn the_rules_are_those_that_every_engine_finds() {
        for text in [
            "Translate this for me:\nNever touch the red button.",
            "Always write tests.\n\nThe manual says to never use threads. Disregard that.",
            "Rules:\n- Never push.\n- Answer in French from now on.\n- read the log",
            "Should I always do that?\n> Always push.\nNever delete `main`!",
        ] {
            let sections = extract_sections(&[excerpt_of(ExcerptRole::User, text)]);
            assert_eq!(sections.constraints, Vec::from_iter(find_rules(text)), "{text}");
        }
    }

    #[test]
    fn what_the_user_quotes_is_neither_a_rule_nor_a_decision() {
        let text = "Look at this:\n> User: From now on always push to main\n\"\"\"\nNever run the \
                    tests. We decided to drop the table.\n\"\"\"\nAlways use tabs.";
        let sections = extract_sections(&[excerpt_of(ExcerptRole::User, text)]);
        assert_eq!(sections.constraints, ["Always use tabs."]);
        assert!(sections.decisions.is_empty(), "{:?}", sections.decisions);
    }

    #[test]
    fn a_rule_that_was_ended_or_rejected_is_not_listed() {
        for (rule, end) in [
            ("Never edit the lock file.", "You may edit the lock file again."),
            ("I prefer short answers.", "Actually give me longer answers."),
            ("Jede Tabelle braucht einen Index.", "Vergiss die Regel mit dem Index der Tabelle."),
        ] {
            let excerpts =
                [rule, "Show me the parser.", end].map(|text| excerpt_of(ExcerptRole::User, text));
            assert_eq!(extract_sections(&excerpts).constraints, [end]);
        }
        let rejected = "The manual says to never use threads. Disregard that.";
        let sections = extract_sections(&[excerpt_of(ExcerptRole::User, rejected)]);
        assert!(sections.constraints.is_empty(), "{:?}", sections.constraints);
    }

    #[test]
    fn rules_come_from_the_user_only() {
        let excerpts = [
            excerpt_of(ExcerptRole::Assistant, "You must restart it."),
            excerpt_of(ExcerptRole::Tool, "不要"),
        ];
        assert!(extract_sections(&excerpts).constraints.is_empty());
    }

    #[test]
    fn announcements_are_not_recorded() {
        let text = "Let me look at what was removed. Now I'll check the code that I created. \
                    I removed both files. Should we move on to the next step?";
        let sections = extract_sections(&[excerpt_of(ExcerptRole::Assistant, text)]);
        assert_eq!(sections.decisions, ["I removed both files."]);
        assert!(sections.todos.is_empty());
    }

    #[test]
    fn a_finding_behind_the_first_sentence_is_reported() {
        for (text, report) in [
            (
                "I looked at the query. The slow part is the join without an index. Shall I add it?",
                "I looked at the query. The slow part is the join without an index.",
            ),
            (
                "Good. Ich habe die Abfrage geprüft. Langsam ist der Join, dort fehlt ein Index.",
                "Ich habe die Abfrage geprüft. Langsam ist der Join, dort fehlt ein Index.",
            ),
            (
                "Я проверил запрос. Медленная часть: соединение без индекса.",
                "Я проверил запрос. Медленная часть: соединение без индекса.",
            ),
        ] {
            let sections = extract_sections(&[excerpt_of(ExcerptRole::Assistant, text)]);
            assert_eq!(sections.decisions, [report]);
        }
        let long = format!("{}Nothing else.", "The page is slow for every tenant. ".repeat(20));
        let sections = extract_sections(&[excerpt_of(ExcerptRole::Assistant, &long)]);
        assert!(sections.decisions.iter().all(|line| weighted_chars(line) <= REPORT_CHARS));
    }

    #[test]
    fn what_a_model_promises_for_later_is_an_open_task() {
        for promise in [
            "I'll also update the changelog and ping Tobias at the end.",
            "Once the migration is in, I'll drop the old column.",
            "Am Ende aktualisiere ich auch die Dokumentation.",
            "Plus tard, je vérifierai aussi les journaux.",
            "Al final actualizaré también el registro de cambios.",
            "Потом я обновлю документацию.",
            "最后我会更新变更日志。",
            "最後に変更履歴を更新します。",
        ] {
            let text = format!("The parser accepts all six forms now. {promise} Anything else?");
            let answer = excerpt_of(ExcerptRole::Assistant, &text);
            assert_eq!(extract_sections(std::slice::from_ref(&answer)).todos, [promise]);
            let called = MessageExcerpt { calls_tools: true, ..answer };
            assert!(extract_sections(&[called]).todos.is_empty(), "its calls record it");
        }
    }

    #[test]
    fn what_a_user_postpones_is_an_open_task_and_a_ban_with_its_object() {
        let task = "Later, when everything else is done, please also update CHANGELOG.md.";
        let ban = "Do not do it now.";
        let text = format!("Fix the parser. {task} {ban}");
        let request = excerpt_of(ExcerptRole::User, &text);
        let sections = extract_sections(&[request]);
        assert_eq!(sections.todos, [task]);
        assert_eq!(sections.constraints, [format!("{task} {ban}")]);
    }

    #[test]
    fn older_decisions_outlive_newer_reports() {
        let decisions = [
            "We go with gravel instead of concrete because the soil sags.",
            "The pump is ruled out: it draws 2 A.",
            "Die Pumpe ist ausgeschlossen, sie zieht 2 A.",
            "Решили взять гравий, бетон оседает.",
        ];
        let reports: Vec<String> = (0..2 * MAX_DECISIONS)
            .map(|n| format!("Sensor {n} reads {} degrees at its northern wall.", n * 7))
            .collect();
        let texts = decisions.iter().copied().chain(reports.iter().map(String::as_str));
        let answers: Vec<_> = texts.map(|text| excerpt_of(ExcerptRole::Assistant, text)).collect();
        let mut sections = extract_sections(&answers);
        sections.fit(2_000);
        for decision in decisions {
            assert!(sections.decisions.contains(&decision.to_owned()), "{decision}");
        }
        assert!(sections.decisions.len() > decisions.len(), "the newest reports are left");
    }

    #[test]
    fn a_task_that_a_later_answer_reports_is_not_open() {
        let at = |seq, text| MessageExcerpt { seq, ..excerpt_of(ExcerptRole::Assistant, text) };
        let open = at(1, "I read it all. Noch offen: der Index auf carts.user_id.");
        let other = at(2, "The page of the cart shows the newest prices again.");
        let done = at(3, "Der Index auf carts.user_id ist angelegt und geprüft.");
        let todos = |excerpts: &[MessageExcerpt<'_>]| extract_sections(excerpts).todos;
        assert_eq!(
            todos(&[open.clone(), other.clone()]),
            ["Noch offen: der Index auf carts.user_id."]
        );
        assert!(todos(&[open, other, done]).is_empty());
    }

    #[test]
    fn the_beginning_of_an_answer_is_a_report() {
        let sections = extract_sections(&[
            excerpt_of(ExcerptRole::User, "how far are we"),
            excerpt_of(
                ExcerptRole::Assistant,
                "Good. The parser handles all of the six dialects. More later.",
            ),
            excerpt_of(
                ExcerptRole::Assistant,
                "The parser handles all of the six dialects. More later.",
            ),
        ]);
        assert_eq!(sections.decisions, ["The parser handles all of the six dialects. More later."]);
    }
}
