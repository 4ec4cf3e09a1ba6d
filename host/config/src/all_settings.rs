//! Every setting of the file by its dotted path, derived from the definitions of its tables.

use std::sync::LazyLock;

use ctxhost_engine_api::settings::{Setting, SettingKind};

use super::Config;
use super::spans::TomlValueKind;

/// A setting and its place in the file.
#[derive(Clone, Debug)]
pub struct SettingRow {
    /// Its dotted path. `*` stands for a name of the user's: an engine, a model.
    pub key: String,
    /// What it is.
    pub setting: &'static Setting,
    pub(super) path: Vec<&'static str>,
}

/// Every setting there is, in the order in which people read about them.
pub fn all_settings() -> &'static [SettingRow] {
    static ROWS: LazyLock<Vec<SettingRow>> = LazyLock::new(|| {
        let mut rows = Vec::new();
        collect(Config::SETTINGS, &[], &mut rows);
        rows
    });
    &ROWS
}

fn collect(table: &'static [Setting], above: &[&'static str], rows: &mut Vec<SettingRow>) {
    for setting in table {
        let path = [above, &[setting.name]].concat();
        match setting.kind {
            SettingKind::Table(inner) => collect(inner, &path, rows),
            SettingKind::Tables(inner) => collect(inner, &[path.as_slice(), &["*"]].concat(), rows),
            _ => rows.push(SettingRow { key: path.join("."), setting, path }),
        }
    }
}

/// Whether a value may be here.
pub(super) fn is_allowed(allowed: SettingKind, value: &TomlValueKind) -> bool {
    match (allowed, value) {
        (SettingKind::Slot, _) => true,
        (
            SettingKind::Foreign | SettingKind::Texts | SettingKind::Upstreams,
            TomlValueKind::Table,
        ) => true,
        (SettingKind::Flag, TomlValueKind::Flag(_)) => true,
        (SettingKind::Word(words), TomlValueKind::Text(text)) => words.contains(&text.as_str()),
        (SettingKind::AnyText, TomlValueKind::Text(_)) => true,
        (SettingKind::Text, TomlValueKind::Text(text)) => !text.trim().is_empty(),
        (SettingKind::Url, TomlValueKind::Text(text)) => {
            text.starts_with("http://") || text.starts_with("https://")
        }
        (SettingKind::Digest, TomlValueKind::Text(text)) => {
            text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
        }
        (
            SettingKind::List | SettingKind::Keys | SettingKind::Rules,
            TomlValueKind::List { only_text },
        ) => *only_text,
        (_, TomlValueKind::Whole(Some(number))) => allowed.allows_number(*number as f64),
        (
            SettingKind::Number(..) | SettingKind::AtLeast(_) | SettingKind::Share,
            TomlValueKind::Number(number),
        ) => allowed.allows_number(*number),
        _ => false,
    }
}

/// `"append"` or `"rewrite"`, in the way of a sentence.
pub(super) fn quote_list(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

/// What may stand at a path.
pub(super) enum PathKind {
    /// A setting.
    Setting(&'static Setting),
    /// Inside a table that is not ours to read.
    Foreign,
    /// A table of settings.
    Table,
    /// Nothing.
    Unknown,
}

/// What may stand at a path.
pub(super) fn classify_path(path: &[String]) -> PathKind {
    let mut found = PathKind::Unknown;
    for row in all_settings().iter().filter(|row| matches_pattern(&row.path, path)) {
        match row.path.len().cmp(&path.len()) {
            std::cmp::Ordering::Equal => return PathKind::Setting(row.setting),
            std::cmp::Ordering::Less if holds_unchecked_values(row.setting.kind) => {
                found = PathKind::Foreign;
            }
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Greater => found = PathKind::Table,
        }
    }
    found
}

/// Whether what is inside a value is checked elsewhere: items of a list, a table of the user's own.
fn holds_unchecked_values(allowed: SettingKind) -> bool {
    matches!(
        allowed,
        SettingKind::Foreign
            | SettingKind::Texts
            | SettingKind::Upstreams
            | SettingKind::Slot
            | SettingKind::List
            | SettingKind::Keys
            | SettingKind::Rules
    )
}

/// The names that may stand in a table, without those that are the user's.
pub(super) fn keys_in_table(table: &[String]) -> Vec<&'static str> {
    let mut names = Vec::new();
    for row in all_settings().iter().filter(|row| matches_pattern(&row.path, table)) {
        let Some(name) = row.path.get(table.len()) else { continue };
        if *name != "*" && !names.contains(name) {
            names.push(*name);
        }
    }
    names
}

/// Whether a pattern and a path agree as far as both go.
pub(super) fn matches_pattern<S: AsRef<str>>(pattern: &[&str], path: &[S]) -> bool {
    pattern.iter().zip(path).all(|(pattern, name)| *pattern == "*" || *pattern == name.as_ref())
}
