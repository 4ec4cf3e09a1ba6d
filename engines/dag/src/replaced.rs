//! Hides replaced rules in an outline: their text, the beginning of one that was cut, and names that only they have.

use ctxhost_engine_kit::text::fingerprint::TextFingerprint;

/// Stands for a rule that a later rule replaced.
const REPLACED: &str = "[replaced]";
/// Marks where a text was cut.
const CUT: char = '…';
/// Title of the names of a node.
const NAMES: &str = "names: ";
/// Bytes of a rule by which a cut one is known.
const LEAST_BEGIN_BYTES: usize = 12;

/// An outline without the replaced `rules` and the names that only they have.
pub(crate) fn hide_replaced(outline: &str, rules: &[&str], names: &[String]) -> String {
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
    let whole = rules.iter().fold(outline.to_owned(), |text, rule| text.replace(rule, REPLACED));
    let lines = whole.lines().map(|line| hide_names(&hide_cut(line, &rules), names));
    lines.collect::<Vec<_>>().join("\n")
}

/// A line without rules that were cut.
fn hide_cut(line: &str, rules: &[&str]) -> String {
    let parts: Vec<&str> = line.split(CUT).collect();
    let last = parts.len().saturating_sub(1);
    let hidden = parts.iter().enumerate().map(|(at, part)| {
        let begin = if at < last { cut_rule(part, rules) } else { None };
        begin.map_or_else(|| (*part).to_owned(), |begin| format!("{begin}{REPLACED}"))
    });
    hidden.collect::<Vec<_>>().join(&CUT.to_string())
}

/// What stands before the beginning of a rule that ends a text.
fn cut_rule<'t>(text: &'t str, rules: &[&str]) -> Option<&'t str> {
    rules.iter().find_map(|rule| {
        let ends = (LEAST_BEGIN_BYTES..rule.len()).rev();
        let mut begins = ends.filter_map(|end| rule.get(..end));
        begins.find_map(|begin| text.strip_suffix(begin))
    })
}

/// A line whose names lack `names`.
fn hide_names(line: &str, names: &[String]) -> String {
    let Some((before, list)) = line.rsplit_once(NAMES) else { return line.to_owned() };
    let is_hidden = |name: &str| names.iter().any(|hidden| hidden == name.trim_end_matches(CUT));
    let kept: Vec<&str> = list.split(", ").filter(|name| !is_hidden(name)).collect();
    if kept.is_empty() {
        before.trim_end_matches([' ', '|']).to_owned()
    } else {
        format!("{before}{NAMES}{}", kept.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_rule_and_its_names_are_hidden() {
        let rules = ["Always deploy to the region eu_west."];
        let names = ["eu_west".to_owned()];
        let outline = "[d0-0, 4 entries] user: Fix it. Always deploy to the region eu_west.; Done. | names: a.rs, eu_west\n\
            [d0-1, 2 entries] user: Always deploy to the region eu_w…; Deployed to eu_west. | names: eu_west";
        assert_eq!(
            hide_replaced(outline, &rules, &names),
            "[d0-0, 4 entries] user: Fix it. [replaced]; Done. | names: a.rs\n\
            [d0-1, 2 entries] user: [replaced]…; Deployed to eu_west."
        );
        assert_eq!(hide_replaced(outline, &[], &names), outline);
    }
}
