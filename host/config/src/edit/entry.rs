//! Writes and removes the `path` of an engine's entry.

use std::path::{Path, PathBuf};

use toml_edit::{DocumentMut, Item, Table, TableLike};

use super::{read, replace, restore_text, set_value, text_of};
use crate::error::{ConfigDiagnostic, ConfigError};

/// A change of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryEdit {
    /// The file.
    pub path: PathBuf,
    /// Whether the text changed.
    pub changed: bool,
    /// The file before the edit; `None` if it did not exist.
    old_text: Option<String>,
}

impl EntryEdit {
    /// Reverts the edit byte for byte; a file that did not exist is removed.
    pub fn restore(&self) -> Result<(), ConfigError> {
        if self.changed { restore_text(&self.path, self.old_text.as_deref()) } else { Ok(()) }
    }
}

/// Writes the path of an engine into its entry. Creates the file and the table if needed, and
/// updates an existing digest. Comments, order and spacing are kept.
pub fn set_entry_path(
    path: impl AsRef<Path>,
    id: &str,
    file: &str,
    sha256: &str,
) -> Result<EntryEdit, ConfigError> {
    edit(path.as_ref(), id, |entries| {
        let entry = entries.entry(id).or_insert_with(|| Item::Table(Table::new()));
        let Some(entry) = entry.as_table_like_mut() else { return false };
        set_value(entry, "path", file);
        // A stale digest would refuse the new file; none is added where the user had none.
        if entry.contains_key("sha256") {
            set_value(entry, "sha256", sha256);
        }
        true
    })
}

/// Removes path and digest from an engine's entry, and the entry if it has no other setting:
/// settings stay for the next build.
pub fn remove_entry_path(path: impl AsRef<Path>, id: &str) -> Result<EntryEdit, ConfigError> {
    edit(path.as_ref(), id, |entries| {
        let Some(item) = entries.get_mut(id) else { return true };
        let Some(entry) = item.as_table_like_mut() else { return false };
        entry.remove("path");
        entry.remove("sha256");
        // A comment above the table may explain the whole file, so it is never removed.
        if entry.is_empty() && !is_commented(item) {
            entries.remove(id);
        }
        true
    })
}

/// Changes the table of entries; `false` if something else than a table is there.
fn edit(
    path: &Path,
    id: &str,
    change: impl FnOnce(&mut dyn TableLike) -> bool,
) -> Result<EntryEdit, ConfigError> {
    let old_text = read(path)?;
    let text = old_text.as_deref().unwrap_or_default();
    let name = path.display().to_string();
    let mut document: DocumentMut =
        text.parse().map_err(|error| ConfigDiagnostic::from_edit(&name, text, &error))?;
    if !entries(&mut document).is_some_and(change) {
        let message = format!("plugins.entries.{id} in {name} is not a table");
        let help = "write it as a table [plugins.entries.{id}]; the file is unchanged";
        return Err(Box::new(ConfigDiagnostic::new(&name, text, message).with_help(help)).into());
    }
    let new_text = text_of(&document, old_text.as_deref());
    // An unchanged file is not touched, so its modification time does not trigger a reload.
    let changed = old_text.as_deref() != Some(&*new_text);
    if changed {
        replace(path, &new_text)?;
    }
    Ok(EntryEdit { path: path.to_owned(), changed, old_text })
}

/// The table of entries, created if needed, without empty lines for parent tables.
fn entries(document: &mut DocumentMut) -> Option<&mut dyn TableLike> {
    let implicit = || {
        let mut table = Table::new();
        table.set_implicit(true);
        Item::Table(table)
    };
    let plugins = document.entry("plugins").or_insert_with(implicit);
    let entries = plugins.as_table_like_mut()?.entry("entries");
    entries.or_insert_with(implicit).as_table_like_mut()
}

/// Whether a comment precedes a table; it may belong to the whole file.
fn is_commented(item: &Item) -> bool {
    let prefix = item.as_table().and_then(|table| table.decor().prefix()?.as_str());
    // The schema of a new file goes with its only table.
    let mut lines = prefix.into_iter().flat_map(str::lines);
    lines.any(|line| line.contains('#') && !line.starts_with("#:schema"))
}
