//! Imported settings as TOML: a file of their own, or added to one that is there.

use std::path::Path;

use toml_edit::{DocumentMut, Item, Table, TableLike, Value};

use super::{ImportedSetting, SettingsImport};
use crate::Config;
use crate::edit::{read, replace};
use crate::error::{ConfigDiagnostic, ConfigError};

/// What became of a file that settings were added to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergeSummary {
    /// How many settings were written.
    pub written: usize,
    /// How many stood there already with the same value.
    pub unchanged: usize,
    /// What stands there with another value and stays: our key, what it is, what it would become.
    pub conflicts: Vec<(String, String, String)>,
}

/// The settings as the text of a new file, each with the key it comes from.
pub fn render(import: &SettingsImport) -> String {
    let mut document = DocumentMut::new();
    for setting in &import.settings {
        // Nothing stands in the way of a setting in an empty document.
        let _ = put(document.as_table_mut(), setting);
    }
    document.to_string()
}

/// Adds the settings to a file. What it says already stays as it is; without a file one is made.
///
/// # Errors
///
/// [`ConfigError`]; the file is then unchanged.
pub fn merge(import: &SettingsImport, path: &Path) -> Result<MergeSummary, ConfigError> {
    let text = read(path)?.unwrap_or_default();
    let name = path.display().to_string();
    Config::parse(&name, &text)?;
    let mut document: DocumentMut =
        text.parse().map_err(|error| ConfigDiagnostic::from_edit(&name, &text, &error))?;
    let mut merged = MergeSummary::default();
    for setting in &import.settings {
        let place = put(document.as_table_mut(), setting).map_err(|place| {
            let message = format!("{name} has no table [{place}], but something else of that name");
            Box::new(
                ConfigDiagnostic::new(&name, &text, message).with_help("the file is unchanged"),
            )
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
    let new_text = document.to_string();
    Config::parse(&name, &new_text)?;
    if merged.written > 0 {
        replace(path, &new_text)?;
    }
    Ok(merged)
}

/// What became of one setting.
enum PutOutcome {
    Written,
    /// A value stands there; this is it.
    Exists(String),
}

/// Puts a setting where nothing stands; `Err` names the table that is none.
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

/// A value without the spaces and comments around it.
fn bare_text(value: &Value) -> String {
    value.clone().decorated("", "").to_string()
}
