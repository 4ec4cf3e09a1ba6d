//! Every setting of the file by its dotted path, derived from the definitions of its tables.

use std::sync::LazyLock;

use ctxhost_engine_api::settings::{Allowed, Setting};

use super::Config;
use super::places::Written;

/// A setting and its place in the file.
#[derive(Clone, Debug)]
pub struct CatalogueRow {
    /// Its dotted path. `*` stands for a name of the user's: an engine, a model.
    pub key: String,
    /// What it is.
    pub setting: &'static Setting,
    pub(super) path: Vec<&'static str>,
}

/// Every setting there is, in the order in which people read about them.
pub fn catalogue() -> &'static [CatalogueRow] {
    static ROWS: LazyLock<Vec<CatalogueRow>> = LazyLock::new(|| {
        let mut rows = Vec::new();
        collect(Config::SETTINGS, &[], &mut rows);
        rows
    });
    &ROWS
}

fn collect(table: &'static [Setting], above: &[&'static str], rows: &mut Vec<CatalogueRow>) {
    for setting in table {
        let path = [above, &[setting.name]].concat();
        match setting.allowed {
            Allowed::Table(inner) => collect(inner, &path, rows),
            Allowed::Tables(inner) => collect(inner, &[path.as_slice(), &["*"]].concat(), rows),
            _ => rows.push(CatalogueRow { key: path.join("."), setting, path }),
        }
    }
}

/// Whether a value may be here.
pub(super) fn admits(allowed: Allowed, value: &Written) -> bool {
    match (allowed, value) {
        (Allowed::Slot, _) => true,
        (Allowed::Foreign | Allowed::Texts | Allowed::Upstreams, Written::Table) => true,
        (Allowed::Flag, Written::Flag(_)) => true,
        (Allowed::Word(words), Written::Text(text)) => words.contains(&text.as_str()),
        (Allowed::AnyText, Written::Text(_)) => true,
        (Allowed::Text, Written::Text(text)) => !text.trim().is_empty(),
        (Allowed::Url, Written::Text(text)) => {
            text.starts_with("http://") || text.starts_with("https://")
        }
        (Allowed::Digest, Written::Text(text)) => {
            text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
        }
        (Allowed::List | Allowed::Keys | Allowed::Rules, Written::List { only_text }) => *only_text,
        (_, Written::Whole(Some(number))) => allowed.admits_number(*number as f64),
        (Allowed::Number(..) | Allowed::AtLeast(_) | Allowed::Share, Written::Number(number)) => {
            allowed.admits_number(*number)
        }
        _ => false,
    }
}

/// `"append"` or `"rewrite"`, in the way of a sentence.
pub(super) fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

/// What may stand at a path.
pub(super) enum Known {
    /// A setting.
    Setting(&'static Setting),
    /// Inside a table that is not ours to read.
    Foreign,
    /// A table of settings.
    Table,
    /// Nothing.
    Nothing,
}

/// What may stand at a path.
pub(super) fn known(path: &[String]) -> Known {
    let mut found = Known::Nothing;
    for row in catalogue().iter().filter(|row| fits(&row.path, path)) {
        match row.path.len().cmp(&path.len()) {
            std::cmp::Ordering::Equal => return Known::Setting(row.setting),
            std::cmp::Ordering::Less if has_inner_places(row.setting.allowed) => {
                found = Known::Foreign;
            }
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Greater => found = Known::Table,
        }
    }
    found
}

/// Whether what is inside a value is checked elsewhere: items of a list, a table of the user's own.
fn has_inner_places(allowed: Allowed) -> bool {
    matches!(
        allowed,
        Allowed::Foreign
            | Allowed::Texts
            | Allowed::Upstreams
            | Allowed::Slot
            | Allowed::List
            | Allowed::Keys
            | Allowed::Rules
    )
}

/// The names that may stand in a table, without those that are the user's.
pub(super) fn names_in(table: &[String]) -> Vec<&'static str> {
    let mut names = Vec::new();
    for row in catalogue().iter().filter(|row| fits(&row.path, table)) {
        let Some(name) = row.path.get(table.len()) else { continue };
        if *name != "*" && !names.contains(name) {
            names.push(*name);
        }
    }
    names
}

/// Whether a pattern and a path agree as far as both go.
pub(super) fn fits<S: AsRef<str>>(pattern: &[&str], path: &[S]) -> bool {
    pattern.iter().zip(path).all(|(pattern, name)| *pattern == "*" || *pattern == name.as_ref())
}
