//! Lines of rules, without those that a later one replaces.

use super::RuleSubject;

/// Lines of rules, oldest first, while they are read.
#[derive(Debug, Default)]
pub struct RuleLines {
    valid: Vec<(String, RuleSubject)>,
}

impl RuleLines {
    /// Adds a rule and removes those that it replaces.
    pub fn add(&mut self, rule: String) {
        let subject = RuleSubject::new(&rule);
        self.replace(rule, subject);
    }

    /// Adds a sentence that may change a rule if it is about one; returns it otherwise.
    pub fn add_hint(&mut self, hint: String) -> Option<String> {
        let subject = RuleSubject::new(&hint);
        if self.valid.iter().any(|(_, earlier)| subject.is_related(earlier)) {
            self.replace(hint, subject);
            return None;
        }
        Some(hint)
    }

    /// The valid lines.
    #[must_use]
    pub fn into_lines(self) -> Vec<String> {
        self.valid.into_iter().map(|(rule, _)| rule).collect()
    }

    fn replace(&mut self, rule: String, subject: RuleSubject) {
        let earlier = self.valid.iter().enumerate().map(|(number, (_, subject))| (number, subject));
        let replaced = subject.replaced(earlier);
        let mut number = 0..;
        self.valid.retain(|_| number.next().is_none_or(|number| !replaced.contains(&number)));
        self.valid.push((rule, subject));
    }
}

/// The rules, oldest first, without those that a later one replaces.
#[must_use]
pub fn drop_replaced(rules: Vec<String>) -> Vec<String> {
    let mut lines = RuleLines::default();
    rules.into_iter().for_each(|rule| lines.add(rule));
    lines.into_lines()
}
