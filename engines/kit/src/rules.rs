//! Rules and preferences of the user: sentences with a cue, such as always, never, from now on, I prefer.

mod changes;
mod distinction;
mod forms;
mod known_subjects;
mod narrative;
mod rule_lines;
mod subject;
mod things;
mod user_rules;
mod withdrawn_names;

use std::ops::RangeInclusive;
use std::sync::LazyLock;

use ctxhost_engine_api::transcript::tokens::weighted_chars;
use regex::Regex;

use crate::summary::sentences::strip_bullet;
use ctxhost_text::abbreviations;
use ctxhost_text::own_text::own_ranges;

use changes::{blank, find_words, word_pattern};

pub use changes::parse_hint;
pub(crate) use known_subjects::KnownSubjects;
pub(crate) use narrative::rejects_previous;
pub use rule_lines::{RuleLines, drop_replaced};
pub use subject::RuleSubject;
pub use user_rules::{RuleList, UserRules};

/// Cues of a rule or preference, in the languages most common among agents.
const RULE_WORDS: &str = concat!(
    r"always|never|from now on|going forward|for (?:all|every)|each time|every time|whenever",
    r"|do(?: not|n't|n’t) (?:ever|use|touch|change|edit|commit|push|run|add|write|delete|send|call|mention|include|create|remove|install)",
    r"|must(?: not)?|mustn't|make sure|be sure to|remember (?:that|to)|keep in mind",
    r"|i(?: really| strongly)? (?:prefer|like|love|hate|dislike|don't like|can't stand|can't eat|need you to|want you to)",
    r"|my (?:favou?rite|preferred)|allergic to|i(?:'m| am) (?:a )?(?:vegan|vegetarian)|call me|no longer|instead of|stop (?:using|doing)",
    r"|avoid|shouldn['’]?t|should (?:always|never|only|not)|only (?:on|after|before)|prefer(?:red)?|only use|use only|(?:is|are|goes|lives) now|now (?:is|uses|goes)|changed to|change of plans?|switch(?:ed)? to|has moved|moved to",
    r"|under no circumstances|in no case|for the (?:rest|remainder) of (?:this|the|our) (?:conversation|chat|session|talk|project)|(?:i['’]d|i would) like (?:all|every|each)|we only",
    r"|unter keinen umständen|auf keinen fall|ich (?:will|möchte), dass (?:du|ihr|sie)|en aucun cas|je (?:veux|voudrais) que (?:tu|vous)|bajo ninguna circunstancia|quiero que (?:me|uses|hables|escribas|respondas)|em hipótese alguma|in nessun caso|in geen geval|pod żadnym pozorem|ни в коем случае|за жодних умов",
    // German, French, Spanish, Portuguese, Italian, Dutch, Polish.
    r"|immer|niemals|nie|ab (?:jetzt|sofort)|nicht mehr|stattdessen",
    r"|toujours|jamais|désormais|dorénavant|à partir de maintenant",
    r"|siempre|nunca|de ahora en adelante|a partir de ahora|a partir de agora|daqui em diante",
    r"|sempre|mai più|d'ora in poi|altijd|nooit|vanaf nu|zawsze|nigdy|od teraz",
    // Turkish, Indonesian, Vietnamese, Russian, Ukrainian.
    r"|her zaman|asla|bundan sonra|selalu|jangan|mulai sekarang|luôn luôn|không bao giờ|từ giờ",
    r"|всегда|никогда|с этого момента|отныне|впредь|больше не|теперь|завжди|ніколи|відтепер|більше не",
);
/// Words that announce a rule with the colon behind them.
const RULE_TITLES: &str = concat!(
    "important|rule|note|correction|wichtig|regel|hinweis|korrektur|règle|remarque|importante|regla|nota|corrección",
    "|regra|correção|regola|correzione|belangrijk|opmerking|correctie|ważne|zasada|uwaga|poprawka",
    "|önemli|kural|düzeltme|penting|aturan|catatan|koreksi|quan trọng|quy tắc|lưu ý|sửa lại",
    "|важно|правило|примечание|исправление|важливо|примітка|виправлення",
    "|重要|规则|規則|注意|更正|ルール|訂正|중요|규칙|참고|수정|مهم|قاعدة|ملاحظة|تصحيح|महत्वपूर्ण|नियम|सुधार",
);
/// A colon as these languages write it.
const COLON: &str = r"\s?[:：]";
/// Cues in Chinese, Japanese, Korean, Arabic and Hindi, which stand anywhere.
const RULE_SIGNS: &str = concat!(
    r"总是|總是|永远|永遠|不要|从现在|從現在|必须|必須|禁止|务必|始终|一律|以后|以後|今後|これから|いつも|常に|必ず|絶対|決して|しないで",
    r"|항상|절대|지금부터|앞으로|하지 ?마|دائما|أبدا|من الآن|لا تستخدم|हमेशा|कभी नहीं|कभी न |अब से",
);
/// Cues that an earlier rule does not hold any more.
const CHANGE_WORDS: &str = concat!(
    r"instead|no longer|anymore|any more|changed?|switch(?:ed)?|replace[sd]?|moved?|actually|correction|update[sd]?|rather than|scrap|forget",
    r"|nicht mehr|stattdessen|korrektur|corrección|corre[cç][aã]o|correzione|correctie|poprawka|düzeltme|koreksi|sửa lại",
    r"|исправление|виправлення|больше не|вместо|замість",
);
const CHANGE_SIGNS: &str = "改|更正|訂正|수정|تصحيح|सुधार";
/// Cues from when on a rule holds: it may be the first about its subject, or change an earlier one.
const START_WORDS: &str = concat!(
    r"from now on|going forward|now|ab (?:jetzt|sofort)|désormais|dorénavant|à partir de maintenant",
    r"|a partir de (?:ahora|agora)|d'ora in poi|vanaf nu|od teraz|bundan sonra|mulai sekarang|từ giờ",
    r"|с этого момента|отныне|впредь|теперь|відтепер",
);
const START_SIGNS: &str = "从现在|從現在|以后|以後|今後|これから|지금부터|من الآن|अब से";

/// Headings of lists of rules. "Implement these rules:" and "The rules of the API:" announce the rules of something else.
const RULE_LABELS: &str = concat!(
    r"(?:and |please |here (?:are|is) |these are )*(?:my |our |the |some |these |general |basic |a few )*(?:[^ :]+[- ])?(?:rules|style(?: ?guide| rules)?|conventions?|guidelines|preferences)(?: (?:for|in|of) (?:all|every|each|you|us|me|this (?:chat|conversation|session|project|repo(?:sitory)?|book|text)|(?:the|our|my) (?:answers?|reports?|replies|texts?|brochure|book|code|commits?|project|repo(?:sitory)?|docs|documentation|team))[^:]*)?",
    r"|(?:meine |unsere |die |hier |sind |ein paar |allgemeine )*(?:regeln|stilregeln|stil|konventionen|vorgaben|vorlieben)(?: (?:für|in|im) [^:]{2,40})?|(?:mes |nos |les )*(?:règles|consignes|conventions|préférences)(?: (?:pour|de) [^:]{2,40})?|(?:mis |nuestras |las )*(?:reglas|normas|preferencias|convenciones)(?: (?:para|de) [^:]{2,40})?",
    r"|(?:minhas |nossas |as )*(?:regras|normas|preferências)(?: (?:para|de) [^:]{2,40})?|(?:le |le mie |le nostre )*(?:regole|preferenze|convenzioni)(?: (?:per|di) [^:]{2,40})?|(?:mijn |onze |de )*(?:regels|voorkeuren)(?: voor [^:]{2,40})?|(?:moje |nasze )*(?:zasady|reguły)(?: dla [^:]{2,40})?|(?:мои |наши |общие )*правила(?: для [^:]{2,40})?|kurallar(?:ım)?|aturan(?: untuk [^:]{2,40})?|quy tắc[^:]{0,40}",
    r"|[^，。:：]{0,8}(?:规则|規則|规范|規範|约定|約定)|[^、。:：]{0,8}(?:ルール|規約|決まり)|[^.:：]{0,8}(?:규칙|원칙)|القواعد|قواعد[^:]{0,20}|नियम",
);

/// Length of a rule, in weighted characters.
// A longer sentence is a narrative that happens to contain a cue.
const RULE_CHARS: RangeInclusive<u64> = 8..=400;
/// Bytes at each end of a message that are searched for rules.
// Users write before or behind what they paste.
const READ_BYTES: usize = 4_000;

/// The cues, as a [word pattern](changes::word_pattern).
static RULE_CUES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let words = format!(r"(?:{RULE_WORDS})(?:\W|$)|(?:{RULE_TITLES}){COLON}");
    Regex::new(&format!(r"(?i)(?:^|\W)(?:{words})|{RULE_SIGNS}")).ok()
});
static RULE_LABEL: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(&format!(r"(?i)^[#*\s]*(?:{RULE_LABELS})\**{COLON}?\**$")).ok());
static CHANGE_CUES: LazyLock<Option<Regex>> =
    LazyLock::new(|| word_pattern(CHANGE_WORDS, CHANGE_SIGNS));
static START_CUES: LazyLock<Option<Regex>> =
    LazyLock::new(|| word_pattern(START_WORDS, START_SIGNS));

/// What a sentence of a user says about rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RuleSentence {
    /// It is a rule, or ends one.
    Rule(String),
    /// It changes a rule if there is an earlier one about the same.
    Hint(String),
}

/// The rules at both ends of a user message, each on one line. What the user quotes or rejects is none.
pub fn find_rules(text: &str) -> impl Iterator<Item = String> {
    let sentences = read_sentences(text);
    (0..sentences.len()).filter_map(move |at| rule_at(&sentences, at))
}

/// The rules at both ends of a user message, and the sentences that may change an earlier one.
pub(crate) fn find_rules_and_hints(text: &str) -> impl Iterator<Item = RuleSentence> {
    let sentences = read_sentences(text);
    (0..sentences.len()).filter_map(move |at| {
        let sentence = sentences.get(at)?;
        let rule = rule_at(&sentences, at).map(RuleSentence::Rule);
        rule.or_else(|| parse_hint(sentence.text).map(RuleSentence::Hint))
    })
}

/// A sentence of the user, or an item of a list of rules.
#[derive(Clone, Copy, Debug)]
struct UserSentence<'t> {
    text: &'t str,
    /// Whether the heading of its list says that it is a rule.
    is_listed_rule: bool,
}

/// The user's own sentences at both ends of a message.
fn read_sentences(text: &str) -> Vec<UserSentence<'_>> {
    let head = text.floor_char_boundary(text.len().min(READ_BYTES));
    let tail = text.ceil_char_boundary(text.len().saturating_sub(READ_BYTES)).max(head);
    let own = own_ranges(text).into_iter();
    let ends =
        own.flat_map(move |part| [part.start..part.end.min(head), part.start.max(tail)..part.end]);
    let lines = ends.filter_map(|range| text.get(range)).map(str::trim);
    let mut all = Vec::new();
    let mut is_list_of_rules = false;
    for line in lines.filter(|line| !line.is_empty()) {
        let item = strip_bullet(line);
        if item.len() == line.len() {
            is_list_of_rules = matches(&RULE_LABEL, line);
        }
        let is_listed_rule = is_list_of_rules && item.len() < line.len();
        if is_listed_rule {
            all.push(UserSentence { text: item, is_listed_rule });
        } else {
            let sentences = sentences(item).filter(|sentence| !sentence.trim().is_empty());
            all.extend(sentences.map(|text| UserSentence { text, is_listed_rule }));
        }
    }
    all
}

/// The rule in a sentence that the one before it does not hand over, and the next one does not reject.
fn rule_at(sentences: &[UserSentence<'_>], at: usize) -> Option<String> {
    let sentence = sentences.get(at)?;
    let listed = || sentence.is_listed_rule.then(|| listed_rule(sentence.text)).flatten();
    let rule = parse_rule(sentence.text).or_else(listed)?;
    let before = at.checked_sub(1).and_then(|before| sentences.get(before));
    let is_handed_over = before.is_some_and(|before| narrative::hands_over(before.text));
    let is_rejected = sentences.get(at + 1).is_some_and(|next| rejects_previous(next.text));
    (!is_handed_over && !is_rejected).then(|| with_object(rule, before))
}

/// A ban of "it", together with the sentence before, which says what "it" is.
fn with_object(rule: String, before: Option<&UserSentence<'_>>) -> String {
    // A rule before it is listed by itself.
    let says_object = |before: &&UserSentence<'_>| parse_rule(before.text).is_none();
    let Some(before) = before.filter(|_| narrative::forbids_previous(&rule)).filter(says_object)
    else {
        return rule;
    };
    let words: Vec<&str> = before.text.split_whitespace().chain([rule.as_str()]).collect();
    let line = words.join(" ");
    if RULE_CHARS.contains(&weighted_chars(&line)) { line } else { rule }
}

/// An item of a list of rules on one line.
fn listed_rule(item: &str) -> Option<String> {
    let line = item.split_whitespace().collect::<Vec<_>>().join(" ");
    (!is_question(&line) && RULE_CHARS.contains(&weighted_chars(&line))).then_some(line)
}

/// A sentence on one line, if it is a rule or ends one.
pub fn parse_rule(sentence: &str) -> Option<String> {
    let line = sentence.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_rule = !is_question(&line)
        && RULE_CHARS.contains(&weighted_chars(&line))
        && has_sign(&line)
        && !narrative::orders_nothing(&line)
        && has_sign(&narrative::without_narrative(&line));
    is_rule.then_some(line)
}

/// Whether a text has a cue or a form of a rule, or ends one.
fn has_sign(text: &str) -> bool {
    matches(&RULE_CUES, text) || forms::has_form(text) || changes::is_end(text)
}

/// Whether a line asks: a question asks about a rule and does not state one.
fn is_question(line: &str) -> bool {
    line.ends_with(['?', '？', '؟'])
}

fn matches(pattern: &LazyLock<Option<Regex>>, text: &str) -> bool {
    pattern.as_ref().is_some_and(|pattern| pattern.is_match(text))
}

/// How clearly a rule announces that an earlier one changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangeKind {
    /// It announces nothing, and replaces what it repeats.
    None,
    /// It holds from now on.
    Start,
    /// It says that another rule changes.
    Change,
    /// It ends another rule.
    End,
}

impl ChangeKind {
    fn of(rule: &str) -> ChangeKind {
        if changes::is_end(rule) {
            ChangeKind::End
        } else if matches(&CHANGE_CUES, rule)
            // A rule may have such words as "again" beside its cue.
            || !matches(&RULE_CUES, rule) && changes::hints_at_change(rule)
        {
            ChangeKind::Change
        } else if matches(&START_CUES, rule) {
            ChangeKind::Start
        } else {
            ChangeKind::None
        }
    }
}

/// The cues of a rule, in lower case.
fn cues_of(rule: &str) -> Vec<String> {
    let cues = find_words(&RULE_CUES, rule).into_iter();
    cues.filter_map(|cue| rule.get(cue)).map(str::to_lowercase).collect()
}

/// A rule without its cues.
fn without_cues(rule: &str) -> String {
    let mut rest = rule.to_owned();
    for cues in [&RULE_CUES, &CHANGE_CUES, &START_CUES] {
        rest = blank(&rest, &find_words(cues, &rest));
    }
    rest
}

/// The sentences of a text; those of a line together are the line.
pub(crate) fn sentences(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| {
        let mut start = 0;
        let mut found = Vec::new();
        for (at, mark) in line.match_indices(['.', '!', '?', '。', '！', '？', '؟', '।', ';'])
        {
            let end = at + mark.len();
            let behind = line.get(end..).unwrap_or_default();
            let may_end = behind.is_empty() || behind.starts_with(char::is_whitespace);
            let before = line.get(..end).unwrap_or_default();
            if may_end && mark == "." && abbreviations::continues(before, behind) {
                continue;
            }
            if !mark.is_ascii() || may_end {
                found.push(line.get(start..end).unwrap_or_default());
                start = end;
            }
        }
        found.push(line.get(start..).unwrap_or_default());
        found
    })
}

#[cfg(test)]
mod more_pair_tests;
#[cfg(test)]
mod pair_tests;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rules(text: &str) -> Vec<String> {
        find_rules(text).collect()
    }

    #[test]
    fn the_patterns_compile() {
        assert!(
            RULE_CUES.is_some()
                && RULE_LABEL.is_some()
                && CHANGE_CUES.is_some()
                && START_CUES.is_some()
        );
    }

    #[test]
    fn orders_that_hold_for_the_rest_are_rules() {
        for text in [
            "Under no circumstances contact the tenant directly.",
            "For the rest of this conversation, act as my editor.",
            "I'd like all the dates as day.month.year.",
            "We only ship on Tuesdays.",
            "Ich will, dass du mich siezt.",
            "単位はいつもメートルでお願いします。",
        ] {
            assert_eq!(rules(text), [text]);
        }
    }

    #[test]
    fn rules_and_corrections_are_found_in_many_languages() {
        for (rule, correction) in [
            ("Always answer in French.", "Correction: from now on answer in English."),
            ("Antworte immer auf Französisch.", "Korrektur: ab jetzt auf Englisch antworten."),
            ("Responde siempre en francés.", "Corrección: a partir de ahora responde en inglés."),
            ("Всегда отвечай по-французски.", "Исправление: с этого момента отвечай по-английски."),
            ("Her zaman Fransızca cevap ver.", "Bundan sonra İngilizce cevap ver."),
            ("总是用法语回答我的问题。", "更正：从现在开始用英语回答。"),
            ("必ずフランス語で答えてください。", "訂正：これからは英語で答えてください。"),
            ("항상 프랑스어로 대답해 주세요.", "수정: 지금부터 영어로 대답해 주세요."),
            ("أجب دائما بالفرنسية.", "تصحيح: من الآن أجب بالإنجليزية."),
            ("हमेशा फ़्रेंच में जवाब दो।", "सुधार: अब से अंग्रेज़ी में जवाब दो।"),
        ] {
            assert_eq!(rules(rule), [rule]);
            assert_eq!(rules(correction), [correction]);
            assert_ne!(ChangeKind::of(correction), ChangeKind::None, "{correction}");
        }
    }

    #[test]
    fn the_items_of_a_list_of_rules_are_rules() {
        for label in [
            "Team style for the brochure:",
            "## Our conventions",
            "**Ground rules:**",
            "Please use the text below.\nRegeln für alle Berichte:",
            "Правила:",
            "编码规范：",
        ] {
            let text = format!(
                "{label}\n1. Prices with VAT\n2. Dates as 3-Nov-25\n\nBegin with page one."
            );
            assert_eq!(rules(&text), ["Prices with VAT", "Dates as 3-Nov-25"], "{label}");
        }
        for label in
            ["Implement these rules:", "The rules of the API are:", "Requirements:", "Files:"]
        {
            let text = format!("{label}\n- Prices with VAT\n- Dates as 3-Nov-25");
            assert_eq!(rules(&text), Vec::<String>::new(), "{label}");
        }
    }

    #[test]
    fn a_ban_of_a_pronoun_is_listed_with_what_it_forbids() {
        for text in [
            "Later, when everything else is done, please also update CHANGELOG.md. Do not do it now.",
            "Da ist noch der Ordner alt/. Bitte lösche ihn nicht.",
            "Il reste le dossier vieux/. Ne le touche pas.",
            "Остался каталог old/. Не трогай его.",
        ] {
            assert_eq!(rules(text), [text]);
        }
        let apart = ["Never deploy on Fridays.", "Do not do it now."];
        assert_eq!(rules(&apart.join(" ")), apart);
        assert_eq!(rules("Read the file. Do not edit the tests."), ["Do not edit the tests."]);
    }

    #[test]
    fn an_abbreviation_does_not_end_a_rule() {
        for rule in [
            "Call me Dr. Brandt from now on.",
            "Always use tools, e.g. J. Doe's, first.",
            "Schreib Beträge immer mit Komma, z. B. 1.249,50 €, und nie mit Punkt.",
            "Nutze nie die Abk. Fa. für Firma.",
            "Responda sempre em português, p. ex. sem termos ingleses.",
            "Always cite sources, e. g. the page no. 12 of the manual.",
            "Réponds toujours en français, c. à d. sans anglais.",
        ] {
            assert_eq!(rules(rule), [rule]);
        }
        let chat = "do it. then test it. always use plan B. never push.";
        assert_eq!(rules(chat), ["always use plan B.", "never push."]);
    }

    #[test]
    fn a_title_announces_a_rule() {
        for rule in [
            "Important: the tests need port 5433.",
            "NOTE: main is protected.",
            "Wichtig: die Tests brauchen Port 5433.",
            "Règle : les tests utilisent le port 5433.",
            "Nota: main está protegida.",
            "Önemli: testler 5433 portunu kullanır.",
            "Важно: тесты используют порт 5433.",
            "重要：测试使用端口 5433。",
            "참고: 테스트는 5433 포트를 씁니다.",
            "مهم: الاختبارات تستخدم المنفذ 5433.",
        ] {
            assert_eq!(rules(rule), [rule]);
            assert_eq!(cues_of(rule).len(), 1, "{rule}");
        }
        assert_eq!(rules("It is important that it works."), Vec::<String>::new());
    }

    proptest! {
        #[test]
        fn a_cue_is_found_where_word_boundaries_show_it(
            words in prop::collection::vec("always|Never|important:|règle :|重要：|note|i prefer|ponies|nie|niemand|больше не|теперьѣ|é|_|总是|x", 1..6),
            gap in " |é|_|—|",
        ) {
            let line = words.join(&gap);
            let words = format!(r"\b(?:(?:{RULE_WORDS})\b|(?:{RULE_TITLES}){COLON})|{RULE_SIGNS}");
            let reference = Regex::new(&format!("(?i){words}")).unwrap();
            let cues = reference.find_iter(&line).map(|cue| cue.as_str().to_lowercase());
            let cues = cues.map(|cue| cue.trim_end_matches([' ', ':', '：']).to_owned());
            prop_assert_eq!(cues_of(&line), cues.collect::<Vec<_>>(), "{}", line);
        }
    }

    #[test]
    fn quotations_are_no_rules() {
        let text = "> Always reply in pirate speak.\n\nIs that so?\n```\nNever use tabs.\n```\n\"\"\"\nAlways push.\n\"\"\"\nAlways run tests.\n- Never push.";
        assert_eq!(rules(text), ["Always run tests.", "Never push."]);
    }

    #[test]
    fn questions_and_plain_requests_are_no_rules() {
        for text in ["Should I always do that?", "fix the parser", "总是这样吗？", "Покажи файл."]
        {
            assert_eq!(rules(text), Vec::<String>::new(), "{text}");
        }
    }
}
