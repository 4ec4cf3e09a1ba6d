//! Hides replaced rules in an outline: their text, the beginning of one that was cut, and names that only they have.

use std::collections::{HashMap, HashSet};

use ctxhost_text::fingerprint::TextFingerprint;

/// Stands for a rule that a later rule replaced.
const REPLACED: &str = "[replaced]";
/// Marks where a text was cut.
const CUT: char = '…';
/// Title of the names of a node.
const NAMES: &str = "names: ";
/// Bytes of a rule by which a cut one is known.
const LEAST_BEGIN_BYTES: usize = 12;

/// An outline without the replaced `rules` and the `names` that only they have.
pub(crate) fn hide_replaced(outline: &str, rules: &[&str], names: &HashSet<Box<str>>) -> String {
    if rules.is_empty() {
        return outline.to_owned();
    }
    // A long session has thousands of them, and an outline shows few.
    let fingerprint = TextFingerprint::new(outline);
    let begins_in_outline = |rule: &&&str| {
        fingerprint
            .may_contain(rule.get(..rule.floor_char_boundary(LEAST_BEGIN_BYTES)).unwrap_or(rule))
    };
    let rules: Vec<&str> = rules.iter().filter(begins_in_outline).copied().collect();
    // Each replacement copies the outline, and many rules begin with the same words.
    let in_outline = rules.iter().filter(|rule| fingerprint.may_contain(rule));
    let whole = in_outline.fold(outline.to_owned(), |text, rule| text.replace(rule, REPLACED));
    let begins = RuleBegins::new(&rules);
    let lines = whole.lines().map(|line| hide_names(&hide_cut(line, &begins), names));
    lines.collect::<Vec<_>>().join("\n")
}

/// Rules by their beginnings.
// To try each beginning of each rule at each cut took a third of a request.
struct RuleBegins<'r> {
    /// The numbers and texts of the rules with a beginning, in their order.
    by_begin: HashMap<&'r [u8], Vec<(usize, &'r str)>>,
    /// Excludes most places of a text without hashing them for the map.
    fingerprint: TextFingerprint,
    /// Bytes of the longest rule.
    most_bytes: usize,
}

impl<'r> RuleBegins<'r> {
    fn new(rules: &[&'r str]) -> RuleBegins<'r> {
        let mut by_begin: HashMap<&[u8], Vec<(usize, &str)>> = HashMap::new();
        for (number, rule) in rules.iter().copied().enumerate() {
            if let Some(begin) = rule.as_bytes().get(..LEAST_BEGIN_BYTES) {
                by_begin.entry(begin).or_default().push((number, rule));
            }
        }
        let most_bytes = rules.iter().map(|rule| rule.len()).max().unwrap_or(0);
        let fingerprint = TextFingerprint::of_beginnings(rules.iter().copied());
        RuleBegins { by_begin, fingerprint, most_bytes }
    }

    /// What stands before the beginning of a rule that ends a text: of the first such rule, the longest beginning.
    fn text_before<'t>(&self, text: &'t str) -> Option<&'t str> {
        let first = text.len().saturating_sub(self.most_bytes);
        let windows = text.as_bytes().get(first..)?.windows(LEAST_BEGIN_BYTES);
        let windows = windows.enumerate();
        let windows = windows.filter(|(_, window)| self.fingerprint.may_begin_with(window));
        let places = windows.filter_map(|(at, window)| {
            let at = first + at;
            let end = text.get(at..)?;
            let is_cut = |rule: &str| rule.len() > end.len() && rule.starts_with(end);
            let rules = self.by_begin.get(window)?;
            let (number, _) = rules.iter().find(|(_, rule)| is_cut(rule))?;
            Some((*number, at))
        });
        let (_, at) = places.min()?;
        text.get(..at)
    }
}

/// A line without rules that were cut.
fn hide_cut(line: &str, rules: &RuleBegins<'_>) -> String {
    let parts: Vec<&str> = line.split(CUT).collect();
    let last = parts.len().saturating_sub(1);
    let hidden = parts.iter().enumerate().map(|(at, part)| {
        let before = if at < last { rules.text_before(part) } else { None };
        before.map_or_else(|| (*part).to_owned(), |before| format!("{before}{REPLACED}"))
    });
    hidden.collect::<Vec<_>>().join(&CUT.to_string())
}

/// A line whose names lack `names`.
fn hide_names(line: &str, names: &HashSet<Box<str>>) -> String {
    let Some((before, list)) = line.rsplit_once(NAMES) else { return line.to_owned() };
    let is_hidden = |name: &str| names.contains(name.trim_end_matches(CUT));
    let kept: Vec<&str> = list.split(", ").filter(|name| !is_hidden(name)).collect();
    if kept.is_empty() {
        before.trim_end_matches([' ', '|']).to_owned()
    } else {
        format!("{before}{NAMES}{}", kept.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_replaced_rule_and_its_names_are_hidden() {
        let rules = ["Always deploy to the region eu_west."];
        let names = HashSet::from(["eu_west".into()]);
        let outline = "[d0-0, 4 entries] user: Fix it. Always deploy to the region eu_west.; Done. | names: a.rs, eu_west\n\
            [d0-1, 2 entries] user: Always deploy to the region eu_w…; Deployed to eu_west. | names: eu_west";
        assert_eq!(
            hide_replaced(outline, &rules, &names),
            "[d0-0, 4 entries] user: Fix it. [replaced]; Done. | names: a.rs\n\
            [d0-1, 2 entries] user: [replaced]…; Deployed to eu_west."
        );
        assert_eq!(hide_replaced(outline, &[], &names), outline);
    }

    /// What stands before a cut rule, found by trying each beginning of each rule.
    fn text_before_by_trying<'t>(text: &'t str, rules: &[&str]) -> Option<&'t str> {
        rules.iter().find_map(|rule| {
            let ends = (LEAST_BEGIN_BYTES..rule.len()).rev();
            let mut begins = ends.filter_map(|end| rule.get(..end));
            begins.find_map(|begin| text.strip_suffix(begin))
        })
    }

    proptest! {
        #[test]
        fn a_cut_rule_is_found_as_by_trying_each(
            rules in prop::collection::vec("(ab|é){5,16}", 0..6),
            before in "(ab|é){0,9}", cut in 0usize..40, which in 0usize..6,
        ) {
            let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
            let rule = rules.get(which).copied().unwrap_or_default();
            let begin = rule.get(..rule.floor_char_boundary(cut)).unwrap_or_default();
            let text = format!("{before}{begin}");
            prop_assert_eq!(RuleBegins::new(&rules).text_before(&text), text_before_by_trying(&text, &rules));
        }
    }
}
