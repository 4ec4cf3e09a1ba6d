//! Positions of all keys of a file, for errors.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{ConfigDiagnostic, ConfigError};

/// All keys of a file, including tables and list items, in file order.
#[derive(Clone, Debug, Default)]
pub(super) struct KeySpans {
    spans: Vec<KeySpan>,
}

/// A key and its position.
#[derive(Clone, Debug)]
pub(super) struct KeySpan {
    /// The path from the root. A list item is named by its index.
    pub(super) path: Vec<String>,
    /// Position of the name, in bytes.
    pub(super) key: Range<usize>,
    /// The value.
    pub(super) value: TomlValueKind,
    /// Position of the value, in bytes.
    pub(super) value_span: Range<usize>,
}

/// A value, as far as checks need it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TomlValueKind {
    Text(String),
    /// An integer; `None` if it exceeds 64 bits.
    Whole(Option<i64>),
    Number(f64),
    Flag(bool),
    Date,
    List {
        /// Whether all items are text.
        only_text: bool,
    },
    Table,
}

impl KeySpans {
    /// Parses a file.
    pub(super) fn parse(name: &str, text: &str) -> Result<KeySpans, ConfigError> {
        let (root, errors) = DeTable::parse_recoverable(text);
        let line =
            |error: &toml::de::Error| error.span().map(|span| line_and_column(text, span.start).0);
        let mut errors = errors;
        // The first error of a line is often the cause of the others.
        errors.dedup_by_key(|error| line(error));
        let errors = errors.iter().map(|error| {
            ConfigDiagnostic::from_toml(name, text, error)
                .with_help("the file is TOML 1.0: `key = value` lines below `[table]` lines")
        });
        ConfigDiagnostic::combine(errors.collect())?;
        let mut spans = Vec::new();
        read_table(root.get_ref(), &[], &mut spans);
        // File order, so that the first error is the first one a reader meets.
        spans.sort_by_key(|span| span.key.start);
        Ok(KeySpans { spans })
    }

    /// The key at exactly this path.
    pub(super) fn find<S: AsRef<str>>(&self, path: &[S]) -> Option<&KeySpan> {
        let is_it = |span: &&KeySpan| {
            span.path.iter().map(String::as_str).eq(path.iter().map(AsRef::as_ref))
        };
        self.spans.iter().find(is_it)
    }

    /// The innermost key or value at a byte.
    pub(super) fn at(&self, byte: usize) -> Option<&KeySpan> {
        let covers = |span: &&KeySpan| {
            (span.key.start..span.value_span.end.max(span.key.end)).contains(&byte)
        };
        self.spans.iter().filter(covers).max_by_key(|span| span.path.len())
    }

    /// The key at this path, or at the nearest enclosing table.
    pub(super) fn nearest(&self, path: &[String]) -> Option<&KeySpan> {
        (1..=path.len()).rev().find_map(|length| self.find(path.get(..length)?))
    }

    /// All keys, in file order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &KeySpan> {
        self.spans.iter()
    }
}

impl KeySpan {
    /// The whole `key = value`; for a table, which may be spread over the file, its name.
    pub(super) fn assignment(&self) -> Range<usize> {
        match self.value {
            TomlValueKind::Table => self.key.clone(),
            _ => self.key.start..self.value_span.end.max(self.key.end),
        }
    }
}

/// Splits a dotted path and removes quotes. A path that is not valid TOML is split at its dots.
pub(super) fn split_path(dotted_path: &str) -> Vec<String> {
    match toml_edit::Key::parse(dotted_path) {
        Ok(keys) => keys.iter().map(|key| key.get().to_owned()).collect(),
        // Engines report keys in their own notation, which need not be valid TOML.
        Err(_) => dotted_path.split('.').map(str::to_owned).collect(),
    }
}

/// Joins a path with dots, quoting names where needed.
pub(super) fn join_path<S: AsRef<str>>(path: &[S]) -> String {
    let names =
        path.iter().map(|name| toml_edit::Key::new(name.as_ref()).display_repr().into_owned());
    names.collect::<Vec<_>>().join(".")
}

/// Line and column of a byte, both from 1, columns in characters.
pub(super) fn line_and_column(text: &str, byte: usize) -> (usize, usize) {
    let before = text.get(..byte).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    // Characters, as editors count, not bytes.
    let column = before.get(line_start..).unwrap_or("").chars().count() + 1;
    (before.matches('\n').count() + 1, column)
}

fn read_table(table: &DeTable<'_>, above: &[String], spans: &mut Vec<KeySpan>) {
    for (key, value) in table.iter() {
        read_value(key.get_ref(), key.span(), value, above, spans);
    }
}

fn read_value(
    name: &str,
    key: Range<usize>,
    value: &Spanned<DeValue<'_>>,
    above: &[String],
    spans: &mut Vec<KeySpan>,
) {
    let path: Vec<String> = above.iter().cloned().chain([name.to_owned()]).collect();
    match value.get_ref() {
        DeValue::Table(table) => read_table(table, &path, spans),
        DeValue::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                read_value(&index.to_string(), item.span(), item, &path, spans);
            }
        }
        _ => {}
    }
    spans.push(KeySpan { path, key, value: value_kind(value.get_ref()), value_span: value.span() });
}

fn value_kind(value: &DeValue<'_>) -> TomlValueKind {
    match value {
        DeValue::String(text) => TomlValueKind::Text(text.to_string()),
        DeValue::Integer(number) => {
            TomlValueKind::Whole(i64::from_str_radix(number.as_str(), number.radix()).ok())
        }
        // TOML floats are a subset of those that Rust parses.
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
