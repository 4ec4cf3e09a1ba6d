//! All settings by dotted path, derived from the `settings!` tables.

use std::sync::LazyLock;

use ctxhost_engine_api::settings::{Setting, SettingKind};

use super::Config;
use super::spans::TomlValueKind;

/// A setting and its path.
#[derive(Clone, Debug)]
pub struct SettingRow {
    /// Dotted path. `*` stands for a user's name: an engine, a model.
    pub key: String,
    /// Its definition.
    pub setting: &'static Setting,
    pub(super) path: Vec<&'static str>,
}

/// All settings, in the order of the documentation.
pub fn all_settings() -> &'static [SettingRow] {
    // Built once: the table is walked for every key of every file.
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

/// Whether a value is allowed.
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
            let is_allowed = |char: char| !char.is_whitespace() && !"{}<>\"".contains(char);
            (text.starts_with("http://") || text.starts_with("https://"))
                && text.chars().all(is_allowed)
        }
        (SettingKind::Digest, TomlValueKind::Text(text)) => {
            text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
        }
        (SettingKind::Variable, TomlValueKind::Text(text)) => is_variable_name(text),
        (
            SettingKind::List | SettingKind::Keys | SettingKind::Rules,
            TomlValueKind::List { only_text },
        ) => *only_text,
        // TOML writes 1 for 1.0, so an integer is accepted for every kind of number.
        (_, TomlValueKind::Whole(Some(number))) => allowed.allows_number(*number as f64),
        (
            SettingKind::Number(..) | SettingKind::AtLeast(_) | SettingKind::Share,
            TomlValueKind::Number(number),
        ) => allowed.allows_number(*number),
        _ => false,
    }
}

/// Whether a text is the name of an environment variable, and not a key that was pasted in its place. Many keys have
/// only letters, digits and underscores too, but names are words.
fn is_variable_name(text: &str) -> bool {
    const MIN_KEY_CHARS: usize = 20;
    let has = |is: fn(&u8) -> bool| text.bytes().any(|byte| is(&byte));
    let is_word = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let is_key =
        text.len() >= MIN_KEY_CHARS && has(u8::is_ascii_lowercase) && has(u8::is_ascii_digit);
    is_word && !is_key && text.starts_with(|first: char| !first.is_ascii_digit())
}

/// Quotes names for a sentence: `` `append`, `rewrite` ``.
pub(super) fn quote_list(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

/// What a path of the file means.
pub(super) enum PathKind {
    /// A setting.
    Setting(&'static Setting),
    /// An item of a table whose names the user chooses and whose values are texts.
    Item(&'static Setting),
    /// Inside a table or list that is checked elsewhere.
    Foreign,
    /// A table of settings.
    Table,
    /// Not a setting.
    Unknown,
}

/// Classifies a path of the file.
pub(super) fn classify_path(path: &[String]) -> PathKind {
    let mut found = PathKind::Unknown;
    for row in all_settings().iter().filter(|row| matches_pattern(&row.path, path)) {
        match row.path.len().cmp(&path.len()) {
            // An exact match wins over a `*` that would also match a prefix.
            std::cmp::Ordering::Equal => return PathKind::Setting(row.setting),
            std::cmp::Ordering::Less
                if matches!(row.setting.kind, SettingKind::Texts | SettingKind::Upstreams)
                    && row.path.len() + 1 == path.len() =>
            {
                found = PathKind::Item(row.setting);
            }
            std::cmp::Ordering::Less if holds_unchecked_values(row.setting.kind) => {
                found = PathKind::Foreign;
            }
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Greater => found = PathKind::Table,
        }
    }
    found
}

/// Whether the contents of a value are checked elsewhere: items of a list, keys of a user's table.
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

/// The keys of a table, without user-chosen names.
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

/// Whether a pattern and a path agree over their common length.
pub(super) fn matches_pattern<S: AsRef<str>>(pattern: &[&str], path: &[S]) -> bool {
    pattern.iter().zip(path).all(|(pattern, name)| *pattern == "*" || *pattern == name.as_ref())
}
