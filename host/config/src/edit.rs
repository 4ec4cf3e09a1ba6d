//! Edits of the config file: the active engine, and ([`entry`]) the paths of installed engines.
//!
//! Comments, order and spacing are kept. The file is replaced atomically, and each edit can be
//! reverted byte for byte.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ctxhost_files::{FileAccess, replace_file};
use toml_edit::{DocumentMut, Item, Table, TableLike, Value};

use super::error::{ConfigDiagnostic, ConfigError};
use super::json_schema::SCHEMA_LINE;
use super::read_text;
use ctxhost_engine::{join_ids, split_ids};

pub(super) mod entry;

/// A change of the slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotEdit {
    /// The file.
    pub path: PathBuf,
    /// The slot's value before; `None` if it was not set.
    pub before: Option<String>,
    /// The slot's value after.
    pub after: String,
    /// The file before the edit; `None` if it did not exist.
    pub old_text: Option<String>,
}

impl SlotEdit {
    /// Reverts the edit byte for byte; a file that did not exist is removed.
    ///
    /// Later changes to the file are reverted as well.
    pub fn restore(&self) -> Result<(), ConfigError> {
        restore_text(&self.path, self.old_text.as_deref())
    }
}

/// Restores a file; one that did not exist is removed.
fn restore_text(path: &Path, old_text: Option<&str>) -> Result<(), ConfigError> {
    match old_text {
        Some(text) => replace(path, text),
        // The file did not exist before, so restoring it means removing it.
        None => fs::remove_file(path)
            .map_err(|cause| ConfigError::Unwritable { path: path.to_owned(), cause }),
    }
}

/// Writes an engine id into the slot. Creates the file and the table if needed.
///
/// # Errors
///
/// [`ConfigError`]; the file is unchanged.
pub fn set_slot(path: impl AsRef<Path>, id: &str) -> Result<SlotEdit, ConfigError> {
    set(path.as_ref(), id, Value::from(id))
}

/// Writes a chain of engines into the slot.
///
/// # Errors
///
/// [`ConfigError`]; the file is unchanged.
pub fn set_slot_chain(path: impl AsRef<Path>, ids: &[&str]) -> Result<SlotEdit, ConfigError> {
    set(path.as_ref(), &join_ids(ids.iter().copied()), ids.iter().copied().collect())
}

/// Writes an engine or a chain: `mask` or `mask+legacy`.
///
/// # Errors
///
/// [`ConfigError`]; the file is unchanged.
pub fn set_slot_spec(path: impl AsRef<Path>, name: &str) -> Result<SlotEdit, ConfigError> {
    match split_ids(name).as_slice() {
        [id] => set_slot(path, id),
        ids => set_slot_chain(path, ids),
    }
}

fn set(path: &Path, written: &str, value: Value) -> Result<SlotEdit, ConfigError> {
    // The whole text is kept for an exact restore; configs are small.
    let old_text = read(path)?;
    let text = old_text.as_deref().unwrap_or_default();
    let name = path.display().to_string();
    let mut document: DocumentMut =
        text.parse().map_err(|error| ConfigDiagnostic::from_edit(&name, text, &error))?;
    let Some(slots) = slots(&mut document) else {
        let message = format!("plugins.slots in {name} is not a table");
        let help = "write it as a table [plugins.slots]; the file is unchanged";
        return Err(Box::new(ConfigDiagnostic::new(&name, text, message).with_help(help)).into());
    };
    let before = set_value(slots, "context_engine", value);
    replace(path, &text_of(&document, old_text.as_deref()))?;
    Ok(SlotEdit { path: path.to_owned(), before, after: written.to_owned(), old_text })
}

pub(super) fn read(path: &Path) -> Result<Option<String>, ConfigError> {
    match read_text(path) {
        Ok(text) => Ok(Some(text)),
        Err(ConfigError::Unreadable { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The table of slots, created if needed.
fn slots(document: &mut DocumentMut) -> Option<&mut dyn TableLike> {
    let plugins = document.entry("plugins").or_insert_with(|| {
        let mut table = Table::new();
        // An implicit table, so that no empty [plugins] line is written above [plugins.slots].
        table.set_implicit(true);
        Item::Table(table)
    });
    let slots = plugins.as_table_like_mut()?.entry("slots");
    slots.or_insert_with(|| Item::Table(Table::new())).as_table_like_mut()
}

/// Sets a value, keeps the comments and spaces around the old one, and returns the old one.
pub(super) fn set_value(
    table: &mut dyn TableLike,
    key: &str,
    value: impl Into<Value>,
) -> Option<String> {
    let mut value = value.into();
    let old = table.get(key).and_then(Item::as_value);
    let before = old.map(|old| match old.as_str() {
        Some(text) => text.to_owned(),
        None => old.clone().decorated("", "").to_string(),
    });
    if let Some(old) = old {
        *value.decor_mut() = old.decor().clone();
    }
    match table.get_mut(key) {
        Some(item) => *item = Item::Value(value),
        None => drop(table.insert(key, Item::Value(value))),
    }
    before
}

/// The text of an edited document. A new file begins with its schema.
pub(super) fn text_of(document: &DocumentMut, old_text: Option<&str>) -> String {
    let head = if old_text.is_none() { SCHEMA_LINE } else { "" };
    format!("{head}{document}")
}

/// Replaces a file atomically.
pub(super) fn replace(path: &Path, text: &str) -> Result<(), ConfigError> {
    // A symbolic link is kept; its target is replaced.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    replace_file(&target, text.as_bytes(), FileAccess::Inherited)
        .map_err(|error| ConfigError::Unwritable { path: path.to_owned(), cause: error.source })
}
