//! Imports settings of other agents.
//!
//! A file is flattened into leaves with dotted keys (`source`), each leaf is looked up in its
//! agent's table (`openclaw`, `hermes`), and the result is written as TOML (`document`). Settings
//! without a counterpart are reported with a reason; only a syntax error is an error.

mod document;
mod hermes;
mod openclaw;
mod source;
mod value_shape;

use std::path::Path;

use toml_edit::Value;

use super::all_settings::{PathKind, classify_path, is_allowed};
use super::error::ConfigError;
use super::spans::{self, KeySpans};
use ctxhost_engine::EngineTimeouts;
use ctxhost_engine_api::settings::SettingKind;
use ctxhost_retention::redact;

pub use document::{MergeSummary, merge, render};

use source::SettingLeaf;
use value_shape::ValueShape;

/// The agent whose config is imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceAgent {
    /// `openclaw.json`: JSON, with comments and trailing commas.
    OpenClaw,
    /// `config.yaml` of Hermes Agent.
    Hermes,
}

/// The settings of a file.
#[derive(Clone, Debug)]
pub struct SettingsImport {
    /// The agent.
    pub agent: SourceAgent,
    /// Settings with a counterpart, in the order of the mapping table.
    pub settings: Vec<ImportedSetting>,
    /// Settings without one, in the order of the file.
    pub skipped: Vec<SkippedSetting>,
}

/// A setting with its original key.
#[derive(Clone, Debug)]
pub struct ImportedSetting {
    /// Path of our setting.
    pub path: Vec<String>,
    /// Value.
    pub value: Value,
    /// Original key.
    pub from: String,
    /// Its row in the mapping table: if two keys map to one setting, the later row wins.
    rank: usize,
}

/// A setting that was not imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedSetting {
    /// Its key in the file.
    pub key: String,
    /// The reason, as a fragment.
    pub reason: String,
}

/// A row of a mapping table.
struct MappingRow {
    /// Dotted; `*` matches any one name, `**` at the end any rest.
    key: &'static str,
    mapping: KeyMapping,
}

/// What a key maps to.
enum KeyMapping {
    /// A setting at this dotted path, which takes the names that `*` matched, in order.
    To(&'static str, ValueShape),
    /// Nothing, for this reason.
    None(&'static str),
}

const fn to(key: &'static str, path: &'static str, shape: ValueShape) -> MappingRow {
    MappingRow { key, mapping: KeyMapping::To(path, shape) }
}

const fn none(key: &'static str, reason: &'static str) -> MappingRow {
    MappingRow { key, mapping: KeyMapping::None(reason) }
}

/// The mapping of an agent's config.
struct MappingTable {
    rows: &'static [MappingRow],
    /// The paths of relevant settings. Everything else is reported in one line.
    scopes: &'static [&'static str],
}

impl SourceAgent {
    /// Detects the agent by file extension.
    pub fn detect(path: &Path) -> Option<SourceAgent> {
        let ending = path.extension()?.to_str()?.to_ascii_lowercase();
        match ending.as_str() {
            "json" | "json5" | "jsonc" => Some(SourceAgent::OpenClaw),
            "yaml" | "yml" => Some(SourceAgent::Hermes),
            _ => None,
        }
    }

    fn table(self) -> MappingTable {
        match self {
            SourceAgent::OpenClaw => openclaw::TABLE,
            SourceAgent::Hermes => hermes::TABLE,
        }
    }
}

/// Reads the text of a file.
///
/// # Errors
///
/// [`ConfigError::Invalid`] at its position, for a syntax error or a file that is not a table of
/// settings.
pub fn import(agent: SourceAgent, name: &str, text: &str) -> Result<SettingsImport, ConfigError> {
    let document = match agent {
        SourceAgent::OpenClaw => source::json(name, text)?,
        SourceAgent::Hermes => source::yaml(name, text)?,
    };
    let mut import = SettingsImport { agent, settings: Vec::new(), skipped: Vec::new() };
    let table = agent.table();
    for leaf in source::leaves(&document) {
        import.map_leaf(&table, &leaf);
    }
    if agent == SourceAgent::Hermes {
        hermes::choose_engine(&mut import);
    }
    // Otherwise the imported file would be rejected: the cap must not be below compact_ms.
    import.raise_cap();
    import.settings.sort_by_key(|setting| setting.rank);
    import.skip_invalid();
    Ok(import)
}

impl SettingsImport {
    fn map_leaf(&mut self, table: &MappingTable, leaf: &SettingLeaf) {
        let rows = table.rows.iter().enumerate();
        let mut fitting =
            rows.filter_map(|(rank, row)| Some((rank, row, KeyMatch::of(row.key, &leaf.path)?)));
        // The first row wins: specific keys are listed before patterns.
        let Some((rank, row, fit)) = fitting.next() else {
            return match outside_scopes(table.scopes, &leaf.path) {
                Some(key) => self.skip(key, "not a context setting"),
                None => self.skip(leaf.key(), "unknown key"),
            };
        };
        match &row.mapping {
            KeyMapping::None(reason) => self.skip(fit.key, reason),
            KeyMapping::To(path, shape) => match shape.convert(&leaf.value) {
                Err(reason) => self.skip(fit.key, &reason),
                Ok(value) => {
                    let path = fill_wildcards(path, fit.names);
                    let from = one_line(&fit.key);
                    self.add_setting(ImportedSetting { path, value, from, rank }, *shape);
                }
            },
        }
    }

    fn add_setting(&mut self, setting: ImportedSetting, shape: ValueShape) {
        match self.settings.iter_mut().find(|known| known.path == setting.path) {
            Some(known) if shape.prefers_existing(&known.value, &setting.value) => {}
            // OpenClaw has two keys for the reserve and uses the larger one.
            Some(known) if shape.is_largest() || known.rank < setting.rank => *known = setting,
            Some(_) => {}
            None => self.settings.push(setting),
        }
    }

    /// Raises compact_cap_ms if an imported compaction timeout exceeds it.
    fn raise_cap(&mut self) {
        let cap_ms = i64::try_from(EngineTimeouts::default().compact_cap_ms).unwrap_or(i64::MAX);
        let is_over = |setting: &&ImportedSetting| {
            setting.path == ["timeouts", "compact_ms"]
                && setting.value.as_integer().is_some_and(|ms| ms > cap_ms)
        };
        let over = self.settings.iter().find(is_over).cloned();
        let path = vec!["timeouts".to_owned(), "compact_cap_ms".to_owned()];
        self.settings.extend(over.map(|over| ImportedSetting { path, ..over }));
    }

    /// Skips values that our own settings do not allow.
    fn skip_invalid(&mut self) {
        for setting in std::mem::take(&mut self.settings) {
            match refusal(&setting) {
                Some(reason) => self.skip(setting.from, &reason),
                None => self.settings.push(setting),
            }
        }
    }

    fn skip(&mut self, key: String, reason: &str) {
        let left_out = SkippedSetting { key: one_line(&key), reason: reason.to_owned() };
        // A list of plugins would repeat the same reason for each of its keys.
        if !self.skipped.contains(&left_out) {
            self.skipped.push(left_out);
        }
    }
}

/// Why a value is not allowed here; `None` if it is, or if an engine decides.
fn refusal(imported: &ImportedSetting) -> Option<String> {
    let PathKind::Setting(setting) = classify_path(&imported.path) else { return None };
    let spans = KeySpans::parse("", &format!("value = {}", imported.value)).ok()?;
    let value = &spans.find(&["value"])?.value;
    (!is_allowed(setting.kind, value)).then(|| {
        let key = spans::join_path(&imported.path);
        // What stands where the name of a variable should be may be a key.
        let found = match setting.kind {
            SettingKind::Variable => "is another text".to_owned(),
            _ => format!("is {}", redact(&imported.value.to_string())),
        };
        format!("{found}; {key} must be {}", setting.expectation())
    })
}

/// A key of the file for a comment of the new one: names of the file may have line ends, behind which anything would be a setting.
fn one_line(key: &str) -> String {
    let printable = |char: char| if char.is_control() { char::REPLACEMENT_CHARACTER } else { char };
    key.chars().map(printable).collect()
}

/// A match of a table key with a leaf.
struct KeyMatch {
    /// The path as far as the table names it.
    key: String,
    /// The names that `*` matched.
    names: Vec<String>,
}

impl KeyMatch {
    fn of(key: &str, path: &[String]) -> Option<KeyMatch> {
        let (key, has_rest) = key.strip_suffix(".**").map_or((key, false), |key| (key, true));
        let segments: Vec<&str> = key.split('.').collect();
        let head = path.get(..segments.len())?;
        let fits = |(segment, name): (&&str, &String)| *segment == "*" || **segment == **name;
        let is_whole = has_rest || head.len() == path.len();
        let stars = segments.iter().zip(head).filter(|(segment, _)| **segment == "*");
        let names = stars.map(|(_, name)| name.clone()).collect();
        (is_whole && segments.iter().zip(head).all(fits))
            .then(|| KeyMatch { key: head.join("."), names })
    }
}

/// Fills names into a path of ours. `*` takes the next name; `*/*` joins the next two with a slash.
fn fill_wildcards(path: &str, names: Vec<String>) -> Vec<String> {
    let mut names = names.into_iter();
    let mut next = || names.next().unwrap_or_default();
    let segment = |segment: &str| match segment {
        "*" => next(),
        "*/*" => format!("{}/{}", next(), next()),
        name => name.to_owned(),
    };
    path.split('.').map(segment).collect()
}

/// Where a path leaves all scopes; `None` for a path inside of one.
fn outside_scopes(territory: &[&str], path: &[String]) -> Option<String> {
    let mut shared = 0;
    for place in territory {
        let segments: Vec<&str> = place.split('.').collect();
        let common = segments.iter().zip(path).take_while(|(a, b)| **a == **b).count();
        if common == segments.len() {
            return None;
        }
        shared = shared.max(common);
    }
    Some(path.get(..=shared).unwrap_or(path).join("."))
}

#[cfg(test)]
mod tests;
