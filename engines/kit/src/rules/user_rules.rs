//! The user's rules and preferences, valid until replaced.
//!
//! A later rule about the same subject replaces the earlier one, which is then neither pinned nor
//! retrieved.

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;

use super::changes::begins_correction;
use super::withdrawn_names::WithdrawnNames;
use super::{RuleSentence, RuleSubject, find_rules_and_hints, parse_hint, parse_rule};
use crate::name_ledger::NameLedger;
use ctxhost_engine_api::transcript::tokens::weighted_chars;
use ctxhost_text::identifiers::for_each_name;

/// Newest rules that a new one is compared with.
// Keeps the cost of a message constant however long the session is.
const COMPARED_RULES: usize = 400;

/// User messages behind a rule in which a change that hardly says what it changes is about it.
const BARE_CHANGE_MESSAGES: u64 = 2;

/// The rules of one session, oldest first.
#[derive(Debug, Default)]
pub struct UserRules {
    rules: Vec<UserRule>,
    /// Number of replaced rules.
    replaced: u64,
    /// User messages since the newest rule, that of its own included.
    messages_since_rule: u64,
    /// The numbers of the names that only replaced rules have.
    withdrawn_names: WithdrawnNames<u32>,
    /// These names, also those that no entry has.
    withdrawn_texts: WithdrawnNames<Box<str>>,
}

/// A rendered list of rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleList {
    /// The rules as a block; empty without any.
    pub text: String,
    /// Numbers of their names.
    pub names: Vec<u32>,
}

/// One rule.
#[derive(Debug)]
struct UserRule {
    /// Position of its entry.
    seq: u64,
    /// The sentence on one line.
    text: String,
    state: RuleState,
    subject: RuleSubject,
    /// Numbers of its names.
    names: Box<[u32]>,
}

/// Whether a rule is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RuleState {
    Valid,
    /// A later rule says the same. It need not be listed, but what holds it may be shown.
    Restated,
    /// A later rule replaced it.
    Replaced,
}

impl UserRule {
    fn is_valid(&self) -> bool {
        self.state == RuleState::Valid
    }

    fn is_replaced(&self) -> bool {
        self.state == RuleState::Replaced
    }
}

impl UserRules {
    /// Adds the rules in a user message, and the sentences that change an earlier one.
    pub fn read_message(&mut self, seq: u64, text: &str, names: &NameLedger) {
        self.messages_since_rule = self.messages_since_rule.saturating_add(1);
        for sentence in find_rules_and_hints(text) {
            match sentence {
                RuleSentence::Rule(line) => {
                    let subject = RuleSubject::new(&line);
                    self.add(seq, line, subject, names);
                }
                RuleSentence::Hint(line) if !self.rules.is_empty() => {
                    let subject = RuleSubject::new(&line);
                    // What hardly says what it changes is about what was just agreed.
                    let is_of_newest = self.messages_since_rule <= BARE_CHANGE_MESSAGES
                        && begins_correction(&line)
                        && subject.is_bare();
                    if is_of_newest || self.compared().any(|(_, rule)| subject.is_related(rule)) {
                        self.add(seq, line, subject, names);
                    }
                }
                RuleSentence::Hint(_) => {}
            }
        }
    }

    /// The subjects of the newest valid rules, with their numbers.
    fn compared(&self) -> impl Iterator<Item = (usize, &RuleSubject)> {
        let from = self.rules.len().saturating_sub(COMPARED_RULES);
        let compared = self.rules.iter().enumerate().skip(from).filter(|(_, rule)| rule.is_valid());
        compared.map(|(number, rule)| (number, &rule.subject))
    }

    /// Adds a rule.
    fn add(&mut self, seq: u64, line: String, subject: RuleSubject, names: &NameLedger) {
        for number in subject.replaced(self.compared()) {
            let Some(earlier) = self.rules.get_mut(number) else { continue };
            let is_same = subject.restates(&earlier.subject);
            earlier.state = if is_same { RuleState::Restated } else { RuleState::Replaced };
            self.replaced += u64::from(!is_same);
            earlier.names.iter().for_each(|number| self.withdrawn_names.withdraw(*number));
            for text in texts_of_names(&earlier.text) {
                self.withdrawn_texts.withdraw(text);
            }
        }
        texts_of_names(&line).into_iter().for_each(|text| self.withdrawn_texts.add_valid(text));
        let numbers: BTreeSet<u32> = names.name_numbers(&line).into_iter().collect();
        numbers.iter().for_each(|number| self.withdrawn_names.add_valid(*number));
        let names = numbers.into_iter().collect();
        self.messages_since_rule = 0;
        self.rules.push(UserRule { seq, text: line, state: RuleState::Valid, subject, names });
    }

    /// The numbers of the names that only replaced rules have.
    pub fn withdrawn_names(&self) -> impl Iterator<Item = u32> {
        self.withdrawn_names.withdrawn().iter().copied()
    }

    /// The names that only replaced rules have, also those that no entry has.
    pub fn withdrawn_texts(&self) -> &HashSet<Box<str>> {
        self.withdrawn_texts.withdrawn()
    }

    /// Number of replaced rules; if it grows, a layout may be outdated.
    pub fn replaced_count(&self) -> u64 {
        self.replaced
    }

    /// The replaced rules of an entry.
    pub fn replaced_texts_of(&self, seq: u64) -> impl Iterator<Item = &str> {
        let first = self.rules.partition_point(|rule| rule.seq < seq);
        let of_entry = self.rules.get(first..).unwrap_or_default().iter();
        let of_entry = of_entry.take_while(move |rule| rule.seq == seq);
        of_entry.filter(|rule| rule.is_replaced()).map(|rule| rule.text.as_str())
    }

    /// The positions of the valid rules in a range.
    pub fn valid_positions(&self, range: Range<u64>) -> impl Iterator<Item = u64> {
        let first = self.rules.partition_point(|rule| rule.seq < range.start);
        let rules = self.rules.get(first..).unwrap_or_default().iter();
        let rules = rules.take_while(move |rule| rule.seq < range.end);
        rules.filter(|rule| rule.is_valid()).map(|rule| rule.seq)
    }

    /// All replaced rules, oldest first.
    pub fn replaced_texts(&self) -> impl Iterator<Item = &str> {
        // Most sessions have none, and the walk is saved.
        let rules = self.rules.iter().filter(|_| self.replaced > 0);
        rules.filter(|rule| rule.is_replaced()).map(|rule| rule.text.as_str())
    }

    /// Whether a part of an entry holds a replaced rule.
    pub fn has_replaced(&self, seq: u64, part: &str) -> bool {
        self.replaced_texts_of(seq).any(|rule| has_words(part, rule))
    }

    /// Renders the newest valid rules in at most `most_chars` weighted characters, newest last,
    /// without those that `is_shown` of their entry.
    pub fn render(&self, most_chars: u64, is_shown: impl Fn(u64, &str) -> bool) -> RuleList {
        let mut room = most_chars.saturating_sub(BLOCK_CHARS);
        let holds = |rule: &&UserRule| rule.is_valid() && !is_shown(rule.seq, &rule.text);
        let mut lines: Vec<String> = Vec::new();
        let mut names = Vec::new();
        for rule in self.rules.iter().rev().filter(holds) {
            let Some(rest) = room.checked_sub(weighted_chars(&rule.text) + 3) else { break };
            room = rest;
            lines.push(format!("- {}", rule.text));
            names.extend_from_slice(&rule.names);
        }
        lines.reverse();
        let text = if lines.is_empty() {
            String::new()
        } else {
            format!("<{TAG}>\n{}\n</{TAG}>", lines.join("\n"))
        };
        RuleList { text, names }
    }

    /// Adds the rules in the block of an earlier summary.
    pub fn read_summary(&mut self, seq: u64, summary: &str, names: &NameLedger) {
        let (open, close) = (format!("<{TAG}>\n"), format!("\n</{TAG}>"));
        let inside =
            summary.split(open.as_str()).skip(1).filter_map(|part| part.split_once(&close));
        for line in inside.flat_map(|(lines, _)| lines.lines()) {
            let line = line.strip_prefix("- ");
            let rule = line.and_then(|line| parse_rule(line).or_else(|| parse_hint(line)));
            if let Some(rule) = rule {
                let subject = RuleSubject::new(&rule);
                self.add(seq, rule, subject, names);
            }
        }
    }
}

/// Whether a text has the words of a rule one behind the other, with any white space between them.
fn has_words(text: &str, rule: &str) -> bool {
    let first = rule.split(' ').next().unwrap_or(rule);
    text.match_indices(first)
        .any(|(at, _)| text.get(at..).is_some_and(|rest| begins_with_words(rest, rule)))
}

fn begins_with_words(text: &str, rule: &str) -> bool {
    let mut words = rule.split(' ');
    let first = words.next().and_then(|word| text.strip_prefix(word));
    let behind = words.try_fold(first, |rest, word| {
        let rest = rest?.strip_prefix(char::is_whitespace)?;
        Some(rest.trim_start().strip_prefix(word))
    });
    behind.flatten().is_some()
}

/// The names in the text of a rule, each once.
fn texts_of_names(rule: &str) -> BTreeSet<Box<str>> {
    let mut texts = BTreeSet::new();
    for_each_name(rule, |name| _ = texts.insert(name.text.into()));
    texts
}

/// Tag of the block.
const TAG: &str = "rules-of-the-user";
/// Size of the tags, in weighted characters.
const BLOCK_CHARS: u64 = 44;

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::TranscriptBuilder;

    use super::*;

    fn holding(texts: &[&str]) -> Vec<String> {
        let mut book = UserRules::default();
        for (seq, text) in texts.iter().enumerate() {
            book.read_message(seq as u64, text, &NameLedger::default());
        }
        let list = book.render(10_000, |_, _| false);
        list.text.lines().filter_map(|line| line.strip_prefix("- ").map(str::to_owned)).collect()
    }

    #[test]
    fn a_rule_is_separated_from_the_rest_of_its_message() {
        assert_eq!(
            holding(&["Thanks! Always run the tests first. What is next?"]),
            ["Always run the tests first."]
        );
        assert_eq!(holding(&["I prefer window seats", "请不要修改配置文件。"]).len(), 2);
        assert_eq!(
            holding(&["Should I always do that?", "fix the parser", "it was 3.5 km"]),
            Vec::<String>::new()
        );
    }

    #[test]
    fn what_ends_a_rule_replaces_it() {
        for (rule, end) in [
            ("Never edit the lock file; ask me first.", "You may edit the lock file again."),
            ("Always indent with spaces here.", "Actually forget the spaces, use tabs."),
            ("From now on answer in Polish.", "Please switch back to Dutch."),
            ("Always run the formatter.", "You can stop running the formatter."),
            ("Always mention the ticket.", "Undo what I asked about the ticket."),
            ("Always squash commits.", "Scrap the rule about squashing commits."),
            ("No emojis in commit messages.", "Emojis in commit messages are fine after all."),
            ("Always use port 7001 for metrics.", "no, port 7002, not 7001"),
            ("Antworte immer auf Deutsch.", "Lieber doch auf Englisch antworten."),
            ("Toujours répondre en italien.", "Finalement, réponds en anglais."),
            ("Responde siempre en francés.", "Mejor responde en inglés."),
            ("Всегда пиши тесты.", "Передумал, тесты писать не надо."),
            ("Her zaman İspanyolca cevap ver.", "Vazgeçtim, Fransızca cevap ver."),
            ("总是用德语回答。", "还是用英语回答吧。"),
            ("必ずドイツ語で答えてください。", "やっぱりフランス語で答えて。"),
            ("回答中不要使用表格。", "现在可以使用表格了。"),
            ("لا تستخدم الجداول.", "يمكنك استخدام الجداول الآن."),
        ] {
            let list = holding(&[rule, "The parser is slow today.", end]);
            assert_eq!(list, [end], "{rule}");
        }
    }

    #[test]
    fn a_hint_without_a_rule_about_the_same_is_not_listed() {
        let rule = "Always write tests for parsers.";
        for text in ["Actually show me the first page.", "Read the config again, please."] {
            assert_eq!(holding(&[text]), Vec::<String>::new());
            assert_eq!(holding(&[rule, text]), [rule]);
        }
        let apart = ["Write commit messages always in English.", "From now on answer in French."];
        assert_eq!(holding(&apart), apart);
    }

    #[test]
    fn a_correction_stays_beside_the_rule_that_it_corrects() {
        for (rule, correction) in [
            (
                "Always plan 20 mg for the evening dose.",
                "Reduce the evening dose to 12 mg, Dr. Paulsen called.",
            ),
            ("Immer mittwochs gießen.", "Nein, lieber donnerstags."),
            ("Always keep it below 120 euros.", "Make that 150 euros."),
            ("每周四总是发报告。", "改成周五吧。谢谢你。"),
            ("敬語は使わないで。", "やっぱり敬語でお願い。"),
            ("तालिका का उपयोग मत करो।", "अब तालिका चल सकती है।"),
        ] {
            let list = holding(&[rule, "The parser is slow today.", correction]);
            let newest = list.last().is_some_and(|last| correction.starts_with(last.as_str()));
            assert!(newest, "{rule}: {list:?}");
        }
        let rule = "Always keep it below 120 euros.";
        let later = [rule, "Read the file.", "And the next.", "Make that 150 euros."];
        assert_eq!(holding(&later), [rule], "what it is about is too long ago to know");
    }

    #[test]
    fn a_block_with_a_change_is_read_back() {
        let names = NameLedger::default();
        let mut rules = UserRules::default();
        rules.read_message(0, "I prefer short answers.", &names);
        rules.read_message(1, "Actually give me longer answers.", &names);
        let block = rules.render(1_000, |_, _| false).text;
        assert!(block.contains("Actually give") && !block.contains("prefer"), "{block}");
        let mut again = UserRules::default();
        again.read_summary(0, &block, &names);
        assert_eq!(again.render(1_000, |_, _| false).text, block);
    }

    #[test]
    fn a_block_is_read_back() {
        let names = NameLedger::default();
        let mut book = UserRules::default();
        book.read_message(0, "Always deploy to eu-1. I prefer tea.", &names);
        let block = book.render(1_000, |_, _| false).text;
        let mut again = UserRules::default();
        again.read_summary(0, &format!("before\n{block}\nafter"), &names);
        assert_eq!(again.render(1_000, |_, _| false).text, block);
        again.read_message(5, "From now on, deploy to eu-2.", &names);
        assert_eq!(again.replaced_texts_of(0).collect::<Vec<_>>(), ["Always deploy to eu-1."]);
        assert_eq!(again.replaced_count(), 1);
    }

    #[test]
    fn a_rule_is_found_over_the_ends_of_lines_and_not_in_other_words() {
        let mut rules = UserRules::default();
        let names = NameLedger::default();
        rules.read_message(0, "Always deploy to eu-1.", &names);
        rules.read_message(1, "From now on, deploy to eu-2.", &names);
        for (part, holds) in [
            ("Note. Always deploy\n   to eu-1. Thanks.", true),
            ("Always, I said: Always deploy to eu-1.", true),
            ("Always deployto eu-1.", false),
            ("Always deploy to eu-3.", false),
            ("Always", false),
        ] {
            assert_eq!(rules.has_replaced(0, part), holds, "{part}");
        }
        assert!(!rules.has_replaced(1, "Always deploy to eu-1."), "it is of another entry");
    }

    #[test]
    fn room_is_for_the_newest() {
        let mut book = UserRules::default();
        (0..50).for_each(|number| {
            book.read_message(
                number,
                &format!("Always do thing{number} well{number}."),
                &NameLedger::default(),
            )
        });
        let block = book.render(BLOCK_CHARS + 80, |_, _| false).text;
        assert!(block.contains("thing49") && !block.contains("thing0 "), "{block}");
        assert!(weighted_chars(&block) <= BLOCK_CHARS + 80);
    }

    #[test]
    fn an_id_that_only_the_word_before_it_shows_is_withdrawn_with_its_rule() {
        let mut rules = UserRules::default();
        let mut talk = TranscriptBuilder::new();
        talk.user("Always use the staging server amber-42.");
        talk.user("From now on always use the staging server birch-17 instead.");
        let mut names = NameLedger::default();
        for entry in talk.transcript().iter() {
            names.read_entry(&entry);
            rules.read_message(entry.seq(), entry.text(), &names);
        }
        assert_eq!(
            rules.render(1_000, |_, _| false).names,
            Vec::from_iter(names.find_number("birch-17"))
        );
        assert_eq!(Vec::from_iter(rules.withdrawn_texts()), [&Box::from("amber-42")]);
        let withdrawn: Vec<u32> = rules.withdrawn_names().collect();
        assert_eq!(withdrawn, Vec::from_iter(names.find_number("amber-42")));
    }
}
