//! Where every key of a file stands, so that a mistake can be shown at its line.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{ConfigDiagnostic, ConfigError};

/// Every key of a file, tables and lists included, in the order of the file.
#[derive(Clone, Debug, Default)]
pub(super) struct KeySpans {
    places: Vec<KeySpan>,
}

/// Where one key stands.
#[derive(Clone, Debug)]
pub(super) struct KeySpan {
    /// The names from the root down. An item of a list is named by its index.
    pub(super) path: Vec<String>,
    /// The name, in bytes.
    pub(super) key: Range<usize>,
    /// What is written there.
    pub(super) value: TomlValueKind,
    /// What is written there, in bytes.
    pub(super) value_span: Range<usize>,
}

/// What is written at a place, as far as a check needs to know.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TomlValueKind {
    Text(String),
    /// A whole number; `None` where it is too large for any setting.
    Whole(Option<i64>),
    Number(f64),
    Flag(bool),
    Date,
    List {
        /// Whether everything in it is text.
        only_text: bool,
    },
    Table,
}

impl KeySpans {
    /// Parses a file.
    pub(super) fn parse(name: &str, text: &str) -> Result<KeySpans, ConfigError> {
        let root = DeTable::parse(text)
            .map_err(|error| ConfigDiagnostic::from_toml(name, text, &error))?;
        let mut places = Vec::new();
        read_table(root.get_ref(), &[], &mut places);
        places.sort_by_key(|place| place.key.start);
        Ok(KeySpans { places })
    }

    /// The place of exactly this path.
    pub(super) fn find(&self, path: &[String]) -> Option<&KeySpan> {
        self.places.iter().find(|place| place.path == path)
    }

    /// The place of this path, or of the nearest table around it.
    pub(super) fn nearest(&self, path: &[String]) -> Option<&KeySpan> {
        (1..=path.len()).rev().find_map(|length| self.find(path.get(..length)?))
    }

    /// Every place in the order of the file.
    pub(super) fn iter(&self) -> impl Iterator<Item = &KeySpan> {
        self.places.iter()
    }
}

impl KeySpan {
    /// `key = value` whole; of a table, whose value may be spread over the file, its name.
    pub(super) fn assignment(&self) -> Range<usize> {
        match self.value {
            TomlValueKind::Table => self.key.clone(),
            _ => self.key.start..self.value_span.end.max(self.key.end),
        }
    }
}

/// The names of a dotted path, quotes taken off. A path that is no TOML is cut at its dots.
pub(super) fn split_path(dotted_path: &str) -> Vec<String> {
    match toml_edit::Key::parse(dotted_path) {
        Ok(keys) => keys.iter().map(|key| key.get().to_owned()).collect(),
        Err(_) => dotted_path.split('.').map(str::to_owned).collect(),
    }
}

/// A dotted path, with quotes where a name needs them.
pub(super) fn join_path<S: AsRef<str>>(path: &[S]) -> String {
    let names =
        path.iter().map(|name| toml_edit::Key::new(name.as_ref()).display_repr().into_owned());
    names.collect::<Vec<_>>().join(".")
}

/// Line and column of a byte, both from 1, columns in characters.
pub(super) fn line_and_column(text: &str, byte: usize) -> (usize, usize) {
    let before = text.get(..byte).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let column = before.get(line_start..).unwrap_or("").chars().count() + 1;
    (before.matches('\n').count() + 1, column)
}

fn read_table(table: &DeTable<'_>, above: &[String], places: &mut Vec<KeySpan>) {
    for (key, value) in table.iter() {
        read_value(key.get_ref(), key.span(), value, above, places);
    }
}

fn read_value(
    name: &str,
    key: Range<usize>,
    value: &Spanned<DeValue<'_>>,
    above: &[String],
    places: &mut Vec<KeySpan>,
) {
    let path: Vec<String> = above.iter().cloned().chain([name.to_owned()]).collect();
    match value.get_ref() {
        DeValue::Table(table) => read_table(table, &path, places),
        DeValue::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                read_value(&index.to_string(), item.span(), item, &path, places);
            }
        }
        _ => {}
    }
    places.push(KeySpan {
        path,
        key,
        value: value_kind(value.get_ref()),
        value_span: value.span(),
    });
}

fn value_kind(value: &DeValue<'_>) -> TomlValueKind {
    match value {
        DeValue::String(text) => TomlValueKind::Text(text.to_string()),
        DeValue::Integer(number) => {
            TomlValueKind::Whole(i64::from_str_radix(number.as_str(), number.radix()).ok())
        }
        // TOML has no other form of a float than those that Rust reads.
        DeValue::Float(number) => {
            TomlValueKind::Number(number.as_str().parse().unwrap_or(f64::NAN))
        }
        DeValue::Boolean(flag) => TomlValueKind::Flag(*flag),
        DeValue::Datetime(_) => TomlValueKind::Date,
        DeValue::Array(items) => {
            TomlValueKind::List { only_text: items.iter().all(|item| item.get_ref().is_str()) }
        }
        DeValue::Table(_) => TomlValueKind::Table,
    }
}
