//! The table `[plugins]`: which engine fills which slot, and where engines come from.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use ctxhost_engine::{
    Isolation, LEGACY, OnEngineError, QuarantineRules, Quotas, WorkerSettings, joined, stages,
};
use ctxhost_trust::{Demands, Trust};

/// The word that switches a slot off.
const NONE: &str = "none";

/// `[plugins]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Plugins {
    /// Whether any engine but `legacy` may be used.
    pub enabled: bool,
    /// Engines that are welcome beside the slot's own; empty for all. Never disables the slot.
    pub allow: Vec<String>,
    /// Engines that are never used.
    pub deny: Vec<String>,
    /// What a failing engine leads to.
    pub on_engine_error: OnEngineError,
    /// Folders that are searched for installed engines.
    pub engine_dirs: Vec<PathBuf>,
    /// What an engine's file needs to be loaded by its id.
    pub trust: Option<Trust>,
    /// Keys whose signatures count, as the base64 line of a `minisign.pub` file each.
    pub trusted_keys: Vec<String>,
    /// Whether every engine's file must be signed by one of them.
    pub require_signature: bool,
    /// Where `ctxhost install` puts files; a folder of the user's state where it is not said.
    pub install_dir: Option<PathBuf>,
    /// How long an engine is held after its first failure, in milliseconds.
    pub quarantine_ms: u64,
    /// The longest that it is held after further ones, in milliseconds.
    pub quarantine_max_ms: u64,
    /// So many crashes of a host hold an engine until it is released.
    pub crashes_before_quarantine: u32,
    /// Where the code of installed engines runs.
    pub isolation: Isolation,
    /// The limits of their processes.
    pub worker: WorkerSettings,
    /// What each engine may make grow.
    pub quotas: Quotas,
    /// Who fills which slot.
    pub slots: Slots,
    /// One table for each engine that needs one.
    pub entries: BTreeMap<String, Entry>,
}

impl Default for Plugins {
    fn default() -> Self {
        let rules = QuarantineRules::default();
        Plugins {
            enabled: true,
            allow: Vec::new(),
            deny: Vec::new(),
            on_engine_error: OnEngineError::default(),
            engine_dirs: Vec::new(),
            trust: None,
            trusted_keys: Vec::new(),
            require_signature: false,
            install_dir: None,
            quarantine_ms: rules.hold_ms,
            quarantine_max_ms: rules.max_hold_ms,
            crashes_before_quarantine: rules.crashes,
            isolation: Isolation::Process,
            worker: WorkerSettings::default(),
            quotas: Quotas::default(),
            slots: Slots::default(),
            entries: BTreeMap::new(),
        }
    }
}

/// `[plugins.slots]`. Anything may stand in a slot; what is no name counts as not written.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Slots {
    /// Who shapes requests: one engine, or a list of them in a row.
    pub context_engine: Option<toml::Value>,
    /// Who remembers across sessions.
    pub memory: Option<toml::Value>,
    /// Who is asked what it would make of each request, without effect.
    pub shadow: Vec<String>,
}

/// `[plugins.entries.<id>]`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Entry {
    /// Whether the engine may be used.
    pub enabled: bool,
    /// Its library; none for bundled engines and those in `engine_dirs`.
    pub path: Option<PathBuf>,
    /// The digest its library must have, in hex.
    pub sha256: Option<String>,
    /// Where its code runs; unset, bundled engines run inline and others as `plugins.isolation` says.
    pub isolation: Option<Isolation>,
    /// Its own settings, unread.
    pub config: toml::Table,
}

impl Default for Entry {
    fn default() -> Self {
        Entry {
            enabled: true,
            path: None,
            sha256: None,
            isolation: None,
            config: toml::Table::new(),
        }
    }
}

/// The engine that a slot ends at; several in a row as one word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SlotChoice {
    /// What the file says, as written; the default where it says nothing.
    pub configured: String,
    /// The engine to use.
    pub engine: String,
    /// Why it is another than the configured one.
    pub reason: Option<String>,
}

impl Plugins {
    /// The engine of the context-engine slot. There always is one.
    pub(super) fn context_engine(&self) -> SlotChoice {
        let written = match &self.slots.context_engine {
            None => return SlotChoice::as_written(LEGACY),
            Some(toml::Value::String(id)) => id,
            Some(toml::Value::Array(items)) => return self.row(items),
            Some(other) => {
                let reason = format!("the slot holds {}, not the id of an engine", kind(other));
                return SlotChoice::legacy_for(other.to_string(), reason);
            }
        };
        let id = written.trim();
        if id.is_empty() {
            return SlotChoice::legacy_for(written.clone(), "the slot is blank".into());
        }
        if id.eq_ignore_ascii_case(NONE) {
            let reason = format!("`{id}` switches the slot off, and an agent needs some engine");
            return SlotChoice::legacy_for(written.clone(), reason);
        }
        match self.refusal(id) {
            Some(reason) if id != LEGACY => SlotChoice::legacy_for(written.clone(), reason),
            _ => SlotChoice { engine: id.to_owned(), ..SlotChoice::as_written(written) },
        }
    }

    /// Engines in a row. Those that may not be used are left out.
    fn row(&self, items: &[toml::Value]) -> SlotChoice {
        let names: Option<Vec<&str>> =
            items.iter().map(|item| Some(item.as_str()?.trim())).collect();
        let Some(names) = names else {
            let written = toml::Value::Array(items.to_vec()).to_string();
            let reason = "the slot's list holds something that is no id of an engine";
            return SlotChoice::legacy_for(written, reason.into());
        };
        let configured = joined(names.iter().copied());
        let mut reasons = Vec::new();
        let serves = |id: &&str| match self.refusal(id).filter(|_| *id != LEGACY) {
            _ if id.is_empty() || id.eq_ignore_ascii_case(NONE) => {
                reasons.push(format!("{id:?} in the slot's list names no engine"));
                false
            }
            Some(reason) => {
                reasons.push(reason);
                false
            }
            None => true,
        };
        let row: Vec<&str> = names.into_iter().filter(serves).collect();
        if row.is_empty() {
            let reason = reasons.into_iter().next();
            let reason = reason.unwrap_or_else(|| "the slot's list is empty".into());
            return SlotChoice::legacy_for(configured, reason);
        }
        let reason = (!reasons.is_empty()).then(|| reasons.join(", and "));
        SlotChoice { configured, engine: joined(row), reason }
    }

    /// The engines that run beside the slot's own, without effect; a row of them is one of these. Those
    /// that may not be used are left out.
    pub(super) fn shadows(&self) -> Vec<String> {
        let may_run = |name: &&String| self.shadow_refusal(name).is_none();
        self.slots.shadow.iter().filter(may_run).cloned().collect()
    }

    /// Why an engine, or one of a row, may not run in the shadow; `None` where all may.
    pub fn shadow_refusal(&self, name: &str) -> Option<String> {
        stages(name).into_iter().filter(|id| *id != LEGACY).find_map(|id| self.refusal(id))
    }

    /// The engine of the memory slot. Nothing remembers unless somebody asks for it.
    pub(super) fn memory(&self) -> Option<String> {
        let id = self.slots.memory.as_ref()?.as_str()?.trim();
        let is_named = !id.is_empty() && !id.eq_ignore_ascii_case(NONE);
        (is_named && self.refusal(id).is_none()).then(|| id.to_owned())
    }

    /// Why an engine may not be used; `None` when it may.
    ///
    /// `allow` is not asked: naming an engine in the slot is permission enough.
    pub fn refusal(&self, id: &str) -> Option<String> {
        if !self.enabled {
            return Some("plugins.enabled is false".into());
        }
        if self.deny.iter().any(|denied| denied == id) {
            return Some(format!("plugins.deny names `{id}`"));
        }
        let is_enabled = self.entries.get(id).is_none_or(|entry| entry.enabled);
        (!is_enabled).then(|| format!("plugins.entries.{id}.enabled is false"))
    }

    /// Whether an engine is welcome beside the slot's own, for comparison and for a swap.
    pub fn welcomes(&self, id: &str) -> bool {
        let is_allowed = self.allow.is_empty() || self.allow.iter().any(|allowed| allowed == id);
        is_allowed && self.refusal(id).is_none()
    }

    /// What is demanded of engine files.
    pub fn demands(&self) -> Demands {
        Demands {
            trust: self.trust,
            trusted_keys: self.trusted_keys.clone(),
            require_signature: self.require_signature,
        }
    }

    /// How long failures are remembered.
    pub fn quarantine_rules(&self) -> QuarantineRules {
        QuarantineRules {
            hold_ms: self.quarantine_ms,
            max_hold_ms: self.quarantine_max_ms,
            crashes: self.crashes_before_quarantine,
        }
    }

    /// The same table with every path taken from `folder`.
    pub(super) fn with_paths_from(mut self, folder: &Path) -> Plugins {
        for path in self.engine_dirs.iter_mut().chain(&mut self.install_dir) {
            *path = folder.join(&*path);
        }
        for path in self.entries.values_mut().filter_map(|entry| entry.path.as_mut()) {
            *path = folder.join(&*path);
        }
        self.worker = self.worker.with_paths_from(folder);
        self
    }
}

impl SlotChoice {
    fn as_written(id: &str) -> Self {
        SlotChoice { configured: id.to_owned(), engine: id.to_owned(), reason: None }
    }

    fn legacy_for(configured: String, reason: String) -> Self {
        SlotChoice { configured, engine: LEGACY.to_owned(), reason: Some(reason) }
    }
}

impl Entry {
    /// The engine's own table as JSON.
    pub(super) fn config_json(&self) -> Value {
        Value::Object(table_json(&self.config))
    }
}

fn table_json(table: &toml::Table) -> Map<String, Value> {
    table.iter().map(|(key, value)| (key.clone(), json(value))).collect()
}

/// TOML as JSON. Dates, which JSON has not, become their text; infinities become null.
pub(super) fn json(value: &toml::Value) -> Value {
    match value {
        toml::Value::String(text) => Value::from(text.as_str()),
        toml::Value::Integer(number) => Value::from(*number),
        toml::Value::Float(number) => Value::from(*number),
        toml::Value::Boolean(flag) => Value::from(*flag),
        toml::Value::Datetime(date) => Value::from(date.to_string()),
        toml::Value::Array(items) => items.iter().map(json).collect(),
        toml::Value::Table(table) => Value::Object(table_json(table)),
    }
}

fn kind(value: &toml::Value) -> &'static str {
    match value {
        toml::Value::String(_) => "a text",
        toml::Value::Integer(_) | toml::Value::Float(_) => "a number",
        toml::Value::Boolean(_) => "true or false",
        toml::Value::Datetime(_) => "a date",
        toml::Value::Array(_) => "a list",
        toml::Value::Table(_) => "a table",
    }
}
