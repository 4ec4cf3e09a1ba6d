//! `[plugins]`: engines, slots and where engines come from.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use ctxhost_engine::{
    Isolation, LEGACY, OnEngineError, QuarantineRules, Quotas, SandboxSettings, join_ids, split_ids,
};
use ctxhost_trust::{TrustLevel, TrustSettings};

/// Disables a slot.
const NONE: &str = "none";

ctxhost_engine_api::settings! {
    /// `[plugins]`.
    #[derive(Clone, Debug, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct PluginSettings {
        /// False uses `legacy` for every request, without a warning: one switch to exclude engines
        /// as a cause.
        pub enabled: bool = true, Flag;
        /// Engines that may be used beside the one in the slot; empty allows all.
        pub allow: Vec<String> = Vec::new(), List;
        /// Engines that are never used; a slot that names one falls back to `legacy`.
        pub deny: Vec<String> = Vec::new(), List;
        /// `fallback` shapes the request with `legacy` and reports it, because a working agent is
        /// worth more than a strict one; `fail` ends the request.
        pub on_engine_error: OnEngineError = OnEngineError::default(), Word(&["fallback", "fail"]);
        /// Folders to search for installed engines, relative to this file; none, because loading an engine
        /// runs its code.
        pub engine_dirs: Vec<PathBuf> = Vec::new(), List;
        /// Where installed engines run. `process`: sandboxed, so a crash, a leak or an attempt to
        /// read your files does not reach the host, for a fraction of a millisecond per request.
        /// `thread`: in the host's process with its rights; an engine in C only if its own entry
        /// says so.
        pub isolation: Isolation = Isolation::Process, Word(&["process", "thread"]);
        /// `pinned` refuses an engine file whose bytes neither ctxhost.lock nor its entry pins;
        /// `locked` one that ctxhost.lock does not pin, also if the command line names it; `any`
        /// loads it. Unset: `pinned` if there is a ctxhost.lock beside this file.
        pub trust: Option<TrustLevel> = None, Word(&["locked", "pinned", "any"]);
        /// Public keys whose signatures (`FILE.so.minisig` beside the file) are accepted; none,
        /// because whom to trust is your decision.
        pub trusted_keys: Vec<String> = Vec::new(), Keys;
        /// True refuses every engine file that none of these keys signed, also if the command line
        /// names it; false, because most engines are your own.
        pub require_signature: bool = false, Flag;
        /// Folder for `ctxhost install` and `ctxhost sync`, relative to this file; unset, .ctxhost/engines,
        /// which git ignores.
        pub install_dir: Option<PathBuf> = None, Text;
        /// How long a failed engine is quarantined, in every process; doubles after each further
        /// failure. 0 limits it to the process it failed in.
        pub quarantine_ms: u64 = QuarantineRules::default().hold_ms, Whole(0), "ms";
        /// Longest quarantine after failures, and how long failures are remembered; someone has
        /// usually looked at the cause by then.
        pub quarantine_max_ms: u64 = QuarantineRules::default().max_hold_ms, Whole(0), "ms";
        /// Crashes of host processes inside an engine that quarantine it until it is released; the
        /// second is no accident.
        pub crashes_before_quarantine: u32 = QuarantineRules::default().crashes, Whole(1), "crashes";
        /// Which engine fills which slot.
        pub slots: SlotSettings = SlotSettings::default(), Table(SlotSettings::SETTINGS);
        /// One table for each engine that needs one.
        pub entries: BTreeMap<String, EngineEntry> = BTreeMap::new(), Tables(EngineEntry::SETTINGS);
        /// The limits of their processes.
        pub sandbox: SandboxSettings = SandboxSettings::default(), Table(SandboxSettings::SETTINGS);
        /// What each engine may store and log.
        pub quotas: Quotas = Quotas::default(), Table(Quotas::SETTINGS);
    }
}

ctxhost_engine_api::settings! {
    /// `[plugins.slots]`. Any value is accepted; one that is not a name counts as unset.
    #[derive(Clone, Debug, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct SlotSettings {
        /// The active engine, or a chain in which each reads the result of the one before it. A
        /// blank value, "none" or a value that is not text selects `legacy`.
        pub context_engine: Option<toml::Value> = Some(LEGACY.into()), Slot;
        /// Engines that receive each request after the active one, without effect; `ctxhost shadow
        /// report` compares them. None, because each costs the work again.
        pub shadow: Vec<String> = Vec::new(), List;
        /// Engine that remembers across sessions: `notes` keeps dated notes for each working folder;
        /// "none", because memory should be opted into.
        pub memory: Option<toml::Value> = Some(NONE.into()), Slot;
    }
}

ctxhost_engine_api::settings! {
    /// `[plugins.entries.<id>]`.
    #[derive(Clone, Debug, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct EngineEntry {
        /// False disables this engine and keeps its settings.
        pub enabled: bool = true, Flag;
        /// Library file, relative to this file; bundled engines have none. Loading it runs its code.
        pub path: Option<PathBuf> = None, Text;
        /// Digest of the library's bytes; unset, any library at that path is loaded.
        pub sha256: Option<String> = None, Digest;
        /// `process`: sandboxed, for engines from a file; `thread`: own threads in the host, so
        /// that a hanging engine does not block it; `inline`: no thread switch, for bundled engines
        /// only, and their default.
        pub isolation: Option<Isolation> = None, Word(&["inline", "thread", "process"]);
        /// The engine's own settings, passed to it unchanged.
        pub config: toml::Table = toml::Table::new(), Foreign;
    }
}

/// The engine that a slot selects; a chain as `mask+legacy`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SlotChoice {
    /// The configured value, or the default.
    pub configured: String,
    /// The engine to use.
    pub engine: String,
    /// Why it differs from the configured engine.
    pub reason: Option<String>,
}

impl PluginSettings {
    /// The active engine. There is always one.
    pub(super) fn context_engine(&self) -> SlotChoice {
        let written = match &self.slots.context_engine {
            None => return SlotChoice::from_config(LEGACY),
            Some(toml::Value::String(id)) => id,
            Some(toml::Value::Array(items)) => return self.chain_choice(items),
            Some(other) => {
                let reason = format!("the slot holds {}, not an engine id", describe_kind(other));
                return SlotChoice::fallback_to_legacy(other.to_string(), reason);
            }
        };
        let id = written.trim();
        if id.is_empty() {
            // Not an error: the slot always selects some engine.
            return SlotChoice::fallback_to_legacy(written.clone(), "the slot is blank".into());
        }
        if id.eq_ignore_ascii_case(NONE) {
            let reason = format!("`{id}` disables the slot, and a host needs an engine");
            return SlotChoice::fallback_to_legacy(written.clone(), reason);
        }
        match self.disabled_reason(id) {
            // `legacy` cannot be disabled, since every fallback ends there.
            Some(reason) if id != LEGACY => SlotChoice::fallback_to_legacy(written.clone(), reason),
            _ => SlotChoice { engine: id.to_owned(), ..SlotChoice::from_config(written) },
        }
    }

    /// A chain without its disabled engines.
    fn chain_choice(&self, items: &[toml::Value]) -> SlotChoice {
        let names: Option<Vec<&str>> =
            items.iter().map(|item| Some(item.as_str()?.trim())).collect();
        // A non-text item disables the whole list: guessing its meaning could activate the wrong
        // engine.
        let Some(names) = names else {
            let written = toml::Value::Array(items.to_vec()).to_string();
            let reason = "the slot's list holds a value that is not an engine id";
            return SlotChoice::fallback_to_legacy(written, reason.into());
        };
        let configured = join_ids(names.iter().copied());
        let mut reasons = Vec::new();
        let serves = |id: &&str| match self.disabled_reason(id).filter(|_| *id != LEGACY) {
            _ if id.is_empty() || id.eq_ignore_ascii_case(NONE) => {
                reasons.push(format!("{id:?} in the slot's list is not an engine"));
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
            return SlotChoice::fallback_to_legacy(configured, reason);
        }
        let reason = (!reasons.is_empty()).then(|| reasons.join(", and "));
        SlotChoice { configured, engine: join_ids(row), reason }
    }

    /// The shadow engines or chains, without disabled ones.
    pub(super) fn shadows(&self) -> Vec<String> {
        let may_run = |name: &&String| self.shadow_disabled_reason(name).is_none();
        self.slots.shadow.iter().filter(may_run).cloned().collect()
    }

    /// Why an engine, or one of a chain, may not run as a shadow; `None` if all may.
    pub fn shadow_disabled_reason(&self, name: &str) -> Option<String> {
        split_ids(name)
            .into_iter()
            .filter(|id| *id != LEGACY)
            .find_map(|id| self.disabled_reason(id))
    }

    /// The engine of the memory slot, which is off by default.
    pub(super) fn memory(&self) -> Option<String> {
        let id = self.slots.memory.as_ref()?.as_str()?.trim();
        let is_named = !id.is_empty() && !id.eq_ignore_ascii_case(NONE);
        (is_named && self.disabled_reason(id).is_none()).then(|| id.to_owned())
    }

    /// Why an engine may not be used; `None` if it may.
    ///
    /// Ignores `allow`, which the engine in the slot does not need.
    pub fn disabled_reason(&self, id: &str) -> Option<String> {
        if !self.enabled {
            return Some("plugins.enabled is false".into());
        }
        if self.deny.iter().any(|denied| denied == id) {
            return Some(format!("plugins.deny lists `{id}`"));
        }
        let is_enabled = self.entries.get(id).is_none_or(|entry| entry.enabled);
        (!is_enabled).then(|| format!("plugins.entries.{id}.enabled is false"))
    }

    /// Whether an engine may be used beside the active one.
    pub fn allows(&self, id: &str) -> bool {
        let is_allowed = self.allow.is_empty() || self.allow.iter().any(|allowed| allowed == id);
        is_allowed && self.disabled_reason(id).is_none()
    }

    /// The trust policy for engine files.
    pub fn trust_demands(&self) -> TrustSettings {
        TrustSettings {
            trust: self.trust,
            trusted_keys: self.trusted_keys.clone(),
            require_signature: self.require_signature,
        }
    }

    /// The quarantine rules.
    pub fn quarantine_rules(&self) -> QuarantineRules {
        QuarantineRules {
            hold_ms: self.quarantine_ms,
            max_hold_ms: self.quarantine_max_ms,
            crashes: self.crashes_before_quarantine,
        }
    }

    /// The same table with every path relative to `folder`.
    pub(super) fn with_paths_from(mut self, folder: &Path) -> PluginSettings {
        // `join` keeps absolute paths as they are.
        for path in self.engine_dirs.iter_mut().chain(&mut self.install_dir) {
            *path = folder.join(&*path);
        }
        for path in self.entries.values_mut().filter_map(|entry| entry.path.as_mut()) {
            *path = folder.join(&*path);
        }
        self.sandbox = self.sandbox.with_paths_from(folder);
        self
    }
}

impl SlotChoice {
    fn from_config(id: &str) -> Self {
        SlotChoice { configured: id.to_owned(), engine: id.to_owned(), reason: None }
    }

    fn fallback_to_legacy(configured: String, reason: String) -> Self {
        SlotChoice { configured, engine: LEGACY.to_owned(), reason: Some(reason) }
    }
}

impl EngineEntry {
    /// The engine's own table as JSON.
    pub(super) fn config_json(&self) -> Value {
        Value::Object(table_json(&self.config))
    }
}

fn table_json(table: &toml::Table) -> Map<String, Value> {
    table.iter().map(|(key, value)| (key.clone(), json(value))).collect()
}

/// TOML as JSON. Dates become text; infinities become null.
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

fn describe_kind(value: &toml::Value) -> &'static str {
    match value {
        toml::Value::String(_) => "a text",
        toml::Value::Integer(_) | toml::Value::Float(_) => "a number",
        toml::Value::Boolean(_) => "true or false",
        toml::Value::Datetime(_) => "a date",
        toml::Value::Array(_) => "a list",
        toml::Value::Table(_) => "a table",
    }
}
