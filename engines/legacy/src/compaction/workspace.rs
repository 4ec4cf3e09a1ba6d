//! The workspace rules that every summary repeats.

use ctxhost_engine_kit::summary::escape_tag;
use ctxhost_text::redact::redact;
use ctxhost_text::truncate::cap_with_marker;

use crate::settings::CompactionSettings;

const TAG: &str = "workspace-critical-rules";

/// Older names of the two default sections, used if neither newer name occurs.
const OLDER_NAMES: [(&str, &str); 2] =
    [("Session Startup", "Every Session"), ("Red Lines", "Safety")];

/// The rules as rendered in a summary; empty without rules.
pub(crate) fn render(settings: &CompactionSettings) -> String {
    let text = settings.workspace_rules.trim();
    if text.is_empty() {
        return String::new();
    }
    let names: Vec<&str> = settings.workspace_sections.iter().map(String::as_str).collect();
    let chosen =
        [names.clone(), older(&names)].into_iter().find_map(|names| sections(text, &names));
    let rules = redact(chosen.as_deref().unwrap_or(text)).into_owned();
    // The text comes from the workspace and is not trusted.
    let rules = cap_with_marker(&rules, settings.workspace_rules_chars);
    format!("<{TAG}>\n{}\n</{TAG}>", escape_tag(&rules, TAG))
}

fn older<'n>(names: &[&'n str]) -> Vec<&'n str> {
    let newer =
        |name: &&str| OLDER_NAMES.iter().find(|(newer, _)| newer.eq_ignore_ascii_case(name));
    names.iter().map(|name| newer(name).map_or(*name, |(_, older)| older)).collect()
}

/// The sections of level two and three with these names, outside code; `None` without a match.
fn sections(text: &str, names: &[&str]) -> Option<String> {
    let mut chosen: Vec<&str> = Vec::new();
    let mut open_level = None;
    let mut is_code = false;
    for line in text.lines() {
        is_code ^= line.trim_start().starts_with("```");
        if let Some((level, name)) = heading(line).filter(|_| !is_code) {
            let ends = open_level.is_some_and(|open| level <= open);
            let begins =
                (2..=3).contains(&level) && names.iter().any(|n| n.eq_ignore_ascii_case(name));
            if begins {
                open_level = Some(level);
            } else if ends {
                open_level = None;
            }
        }
        chosen.extend(open_level.is_some().then_some(line));
    }
    let text = chosen.join("\n").trim().to_owned();
    (!text.is_empty()).then_some(text)
}

fn heading(line: &str) -> Option<(usize, &str)> {
    let rest = line.trim_start_matches('#');
    let level = line.len() - rest.len();
    let name = rest.strip_prefix(' ').filter(|_| level > 0)?;
    Some((level, name.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(text: &str, chars: u64) -> String {
        render(&CompactionSettings {
            workspace_rules: text.into(),
            workspace_rules_chars: chars,
            ..CompactionSettings::default()
        })
    }

    #[test]
    fn named_sections_outside_of_code() {
        let text = "# Agents\nprose\n## red lines\nNever push.\n```\n## Red Lines\n```\n### More\n\
                    Not on main.\n## Style\ntabs";
        let expected = "## red lines\nNever push.\n```\n## Red Lines\n```\n### More\nNot on main.";
        assert_eq!(rendered(text, 2_000), format!("<{TAG}>\n{expected}\n</{TAG}>"));
    }

    #[test]
    fn older_names_then_everything() {
        assert!(rendered("## Safety\nNo rm.\n## Other\nx", 2_000).contains("No rm.\n</"));
        assert!(!rendered("## Safety\nNo rm.\n## Other\nx", 2_000).contains("Other"));
        assert!(rendered("Be kind.", 2_000).contains("Be kind."));
        assert_eq!(rendered("  ", 2_000), "");
    }

    #[test]
    fn rules_fit_their_room_and_tags_without_secrets() {
        let text =
            rendered(&format!("password=hunter2hunter2 </{TAG}> {}", "x".repeat(5_000)), 300);
        assert!(text.len() < 300 + 2 * TAG.len() + 16, "{}", text.len());
        assert_eq!(text.matches(&format!("</{TAG}>")).count(), 1);
        assert!(!text.contains("hunter2"));
    }
}
