//! Writes imported settings as TOML: a new file, or merged into an existing one.

use std::path::Path;

use toml_edit::{DocumentMut, Item, Table, TableLike, Value};

use super::{ImportedSetting, SettingsImport};
use crate::Config;
use crate::edit::{read, replace, text_of};
use crate::error::{ConfigDiagnostic, ConfigError};

/// The result of a merge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergeSummary {
    /// Number of settings written.
    pub written: usize,
    /// Number of settings that already had this value.
    pub unchanged: usize,
    /// Settings that already have another value, which is kept: key, existing value, imported
    /// value.
    pub conflicts: Vec<(String, String, String)>,
}

/// The settings as a new file, each with its original key.
pub fn render(import: &SettingsImport) -> String {
    let mut document = DocumentMut::new();
    for setting in &import.settings {
        // An empty document has no conflicts.
        let _ = put(document.as_table_mut(), setting);
    }
    text_of(&document, None)
}

/// Merges the settings into a file; existing values are kept. Creates the file if needed.
///
/// # Errors
///
/// [`ConfigError`]; the file is then unchanged.
pub fn merge(import: &SettingsImport, path: &Path) -> Result<MergeSummary, ConfigError> {
    let old_text = read(path)?;
    let text = old_text.as_deref().unwrap_or_default();
    let name = path.display().to_string();
    // An invalid file is reported before anything is added to it.
    Config::parse(&name, text)?;
    let mut document: DocumentMut =
        text.parse().map_err(|error| ConfigDiagnostic::from_edit(&name, text, &error))?;
    let mut merged = MergeSummary::default();
    for setting in &import.settings {
        let place = put(document.as_table_mut(), setting).map_err(|place| {
            let message = format!("{place} in {name} is not a table");
            Box::new(ConfigDiagnostic::new(&name, text, message).with_help("the file is unchanged"))
        })?;
        match place {
            PutOutcome::Written => merged.written += 1,
            PutOutcome::Exists(there) if there == bare_text(&setting.value) => {
                merged.unchanged += 1
            }
            PutOutcome::Exists(there) => {
                merged.conflicts.push((setting.path.join("."), there, bare_text(&setting.value)));
            }
        }
    }
    let new_text = text_of(&document, old_text.as_deref());
    // The merged text must be valid too: imported values can conflict with existing ones.
    Config::parse(&name, &new_text)?;
    if merged.written > 0 {
        replace(path, &new_text)?;
    }
    Ok(merged)
}

/// The result for one setting.
enum PutOutcome {
    Written,
    /// The existing value.
    Exists(String),
}

/// Writes a setting unless it exists; `Err` names a parent that is not a table.
fn put(root: &mut Table, setting: &ImportedSetting) -> Result<PutOutcome, String> {
    let Some((key, tables)) = setting.path.split_last() else { return Ok(PutOutcome::Written) };
    let mut table: &mut dyn TableLike = root;
    for (depth, name) in tables.iter().enumerate() {
        let item = table.entry(name).or_insert_with(|| {
            let mut table = Table::new();
            // A table that holds only tables needs no line of its own.
            table.set_implicit(true);
            Item::Table(table)
        });
        let here = || tables.get(..=depth).unwrap_or(tables).join(".");
        table = item.as_table_like_mut().ok_or_else(here)?;
    }
    if let Some(there) = table.get(key) {
        return Ok(PutOutcome::Exists(
            there.as_value().map_or_else(|| "a table".into(), bare_text),
        ));
    }
    table.insert(key, Item::Value(setting.value.clone()));
    if let Some(mut key) = table.key_mut(key) {
        key.leaf_decor_mut().set_prefix(format!("# from {}\n", setting.from));
    }
    Ok(PutOutcome::Written)
}

/// A value without surrounding spaces and comments.
fn bare_text(value: &Value) -> String {
    value.clone().decorated("", "").to_string()
}
