//! The subjects of earlier rules, for messages whose rules are not kept.

use std::collections::VecDeque;

use super::{RuleSentence, RuleSubject, find_rules_and_hints};

/// Newest rules that a sentence is compared with.
// Keeps the cost of a message constant however long the session is.
const COMPARED_RULES: usize = 100;

/// The subjects of the newest rules of a session.
#[derive(Debug, Default)]
pub(crate) struct KnownSubjects {
    subjects: VecDeque<RuleSubject>,
}

impl KnownSubjects {
    /// Reads a user message. Whether it states a rule, or changes an earlier one.
    pub(crate) fn read_message(&mut self, text: &str) -> bool {
        let mut has_rule = false;
        for sentence in find_rules_and_hints(text) {
            let (line, is_hint) = match sentence {
                RuleSentence::Rule(line) => (line, false),
                RuleSentence::Hint(line) => (line, true),
            };
            // Most messages come before the first rule.
            if is_hint && self.subjects.is_empty() {
                continue;
            }
            let subject = RuleSubject::new(&line);
            if !is_hint || self.subjects.iter().any(|earlier| subject.is_related(earlier)) {
                has_rule = true;
                self.subjects.push_back(subject);
                self.subjects.drain(..self.subjects.len().saturating_sub(COMPARED_RULES));
            }
        }
        has_rule
    }

    /// Memory use in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        let parts = self.subjects.iter().map(RuleSubject::size_bytes);
        self.subjects.capacity() * size_of::<RuleSubject>() + parts.sum::<usize>()
    }
}
