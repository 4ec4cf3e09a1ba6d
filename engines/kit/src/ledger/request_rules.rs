//! Which requests replace a rule of an earlier one.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::items::LedgerItems;
use super::requests::{RequestKind, kind_without_rules};
use crate::antecedent::without_quote;
use crate::rules::{RuleSentence, RuleSubject, find_rules_and_hints};

/// Newest rules that a sentence is compared with.
// Keeps the cost of a request constant however long the session is.
const COMPARED_RULES: usize = 100;

/// The sentences about rules in the requests that were read, by the text of the request.
// A compaction reads the same requests for each of its cuts.
#[derive(Debug, Default)]
pub(super) struct RequestRules(HashMap<String, Vec<RequestRule>>);

#[derive(Debug)]
struct RequestRule {
    line: String,
    is_hint: bool,
    subject: OnceCell<RuleSubject>,
}

impl RequestRule {
    fn new(sentence: RuleSentence) -> RequestRule {
        let (line, is_hint) = match sentence {
            RuleSentence::Rule(line) => (line, false),
            RuleSentence::Hint(line) => (line, true),
        };
        RequestRule { line, is_hint, subject: OnceCell::new() }
    }

    fn subject(&self) -> &RuleSubject {
        self.subject.get_or_init(|| RuleSubject::new(&self.line))
    }
}

impl RequestRules {
    /// Marks the requests whose rules a later one replaces, and ranks them by the rules that are left.
    pub(super) fn mark(&mut self, requests: &mut LedgerItems) {
        for item in requests.oldest_first() {
            if !self.0.contains_key(&item.text) {
                let sentences = find_rules_and_hints(without_quote(&item.text));
                self.0.insert(item.text.clone(), sentences.map(RequestRule::new).collect());
            }
        }
        let mut valid: Vec<(usize, &RuleSubject)> = Vec::new();
        let mut replaced: BTreeMap<usize, usize> = BTreeMap::new();
        for (at, item) in requests.oldest_first().into_iter().enumerate() {
            for rule in self.0.get(&item.text).into_iter().flatten() {
                // Most requests come before the first rule.
                let is_about =
                    |(_, earlier): &(usize, &RuleSubject)| rule.subject().is_related(earlier);
                if rule.is_hint && !valid.iter().any(is_about) {
                    continue;
                }
                let subject = rule.subject();
                let earlier = valid.iter().enumerate().map(|(number, (_, other))| (number, *other));
                let numbers: BTreeSet<usize> = subject.replaced(earlier).into_iter().collect();
                for (of, other) in numbers.iter().filter_map(|number| valid.get(*number)) {
                    if *of != at && !subject.restates(other) {
                        replaced.insert(*of, at);
                    }
                }
                let mut number = 0..;
                valid.retain(|_| number.next().is_none_or(|number| !numbers.contains(&number)));
                valid.push((at, subject));
                valid.drain(..valid.len().saturating_sub(COMPARED_RULES));
            }
        }
        let changes: BTreeSet<usize> = replaced.values().copied().collect();
        let has_rule: BTreeSet<usize> = valid.iter().map(|(at, _)| *at).collect();
        for (at, item) in requests.oldest_first_mut().into_iter().enumerate() {
            item.replaced_by = replaced.get(&at).copied();
            if changes.contains(&at) {
                item.request_kind = RequestKind::Rule;
            } else if item.replaced_by.is_some() && !has_rule.contains(&at) {
                item.request_kind = kind_without_rules(&item.text);
            }
        }
    }
}
