//! The table `[plugins]`: which engine fills which slot, and where engines come from.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use ctxhost_engine::{
    Isolation, LEGACY, OnEngineError, QuarantineRules, Quotas, SandboxSettings, join_ids, split_ids,
};
use ctxhost_trust::{TrustLevel, TrustSettings};

/// The word that switches a slot off.
const NONE: &str = "none";

ctxhost_engine_api::settings! {
    /// `[plugins]`.
    #[derive(Clone, Debug, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct PluginSettings {
        /// False sends every request through `legacy`, quietly: one switch to rule engines out as a
        /// cause.
        pub enabled: bool = true, Flag;
        /// Engines welcome beside the slot's own; empty welcomes all. Never disables the slot:
        /// naming an engine there is permission enough.
        pub allow: Vec<String> = Vec::new(), List;
        /// Engines that are never used; a slot that names one ends at `legacy`.
        pub deny: Vec<String> = Vec::new(), List;
        /// Fallback lets `legacy` shape the request and says so everywhere; fail ends the request.
        /// An agent that goes on is worth more than a strict one, so fallback.
        pub on_engine_error: OnEngineError = OnEngineError::default(), Word(&["fallback", "fail"]);
        /// Folders in which installed engines are looked for, relative to this file; none, because
        /// loading an engine is running code.
        pub engine_dirs: Vec<PathBuf> = Vec::new(), List;
        /// Where installed engines run. In a process of their own a crash, a leak or a look at your
        /// files costs the host nothing, and a request a fraction of a millisecond; on a lane,
        /// threads of this one, they are trusted. An engine in C sits on a lane only where its own
        /// entry says so.
        pub isolation: Isolation = Isolation::Process, Word(&["process", "thread"]);
        /// Pinned refuses an engine's file whose bytes stand neither in ctxhost.lock nor in its
        /// entry; any loads what is named. Unset, pinned where there is a ctxhost.lock beside this
        /// file: who installs engines wants them pinned, who writes a path by hand has named what
        /// to load.
        pub trust: Option<TrustLevel> = None, Word(&["pinned", "any"]);
        /// Authors whose signatures count (`FILE.so.minisig` beside the file); none, because whom
        /// to trust is yours to say.
        pub trusted_keys: Vec<String> = Vec::new(), Keys;
        /// True refuses every engine's file that none of these keys signed, one named on the
        /// command line too; false, because most engines are your own.
        pub require_signature: bool = false, Flag;
        /// Where `ctxhost install` puts files, relative to this file; unset, a private folder of
        /// this config below your state folder.
        pub install_dir: Option<PathBuf> = None, Text;
        /// An engine that failed is held this long by every process, and twice as long after each
        /// further failure; ten minutes outlast what heals by itself. 0 holds nobody beyond the
        /// process it failed in.
        pub quarantine_ms: u64 = QuarantineRules::default().hold_ms, Whole(0), "ms";
        /// The longest that failures hold an engine, and how long they are remembered; after a day
        /// somebody has looked.
        pub quarantine_max_ms: u64 = QuarantineRules::default().max_hold_ms, Whole(0), "ms";
        /// So many processes that died inside an engine hold it until it is released; the second is
        /// no accident.
        pub crashes_before_quarantine: u32 = QuarantineRules::default().crashes, Whole(1), "crashes";
        /// Who fills which slot.
        pub slots: SlotSettings = SlotSettings::default(), Table(SlotSettings::SETTINGS);
        /// One table for each engine that needs one.
        pub entries: BTreeMap<String, EngineEntry> = BTreeMap::new(), Tables(EngineEntry::SETTINGS);
        /// The limits of their processes.
        pub worker: SandboxSettings = SandboxSettings::default(), Table(SandboxSettings::SETTINGS);
        /// What each engine may make grow.
        pub quotas: Quotas = Quotas::default(), Table(Quotas::SETTINGS);
    }
}

ctxhost_engine_api::settings! {
    /// `[plugins.slots]`. Anything may stand in a slot; what is no name counts as not written.
    #[derive(Clone, Debug, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct SlotSettings {
        /// Who shapes requests: one engine, or a list of them, each going on from what the one
        /// before it shows. `legacy` holds the four layers; what is blank, no text or "none" ends
        /// there too.
        pub context_engine: Option<toml::Value> = Some(LEGACY.into()), Slot;
        /// Who is asked what it would make of each request, after the slot's own has answered and
        /// without effect: `ctxhost shadow report` compares them. Nobody, because each reads every
        /// request again.
        pub shadow: Vec<String> = Vec::new(), List;
        /// Who remembers across sessions: `notes` keeps dated notes for each working folder;
        /// "none", because nobody should remember unasked.
        pub memory: Option<toml::Value> = Some(NONE.into()), Slot;
    }
}

ctxhost_engine_api::settings! {
    /// `[plugins.entries.<id>]`.
    #[derive(Clone, Debug, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct EngineEntry {
        /// False rules this one engine out and keeps its settings.
        pub enabled: bool = true, Flag;
        /// Its library, relative to this file; bundled engines have none. Loading it is running its
        /// code.
        pub path: Option<PathBuf> = None, Text;
        /// The digest its library must have, checked on the very bytes that are loaded; unset, any
        /// library at that path is taken.
        pub sha256: Option<String> = None, Digest;
        /// Process: one of its own, for engines from a file; lane: threads of its own, so that one
        /// that hangs does not stop the host; inline saves the hop, for bundled engines only, and
        /// is theirs where nothing is set.
        pub isolation: Option<Isolation> = None, Word(&["inline", "thread", "process"]);
        /// The engine's own settings, handed over unread.
        pub config: toml::Table = toml::Table::new(), Foreign;
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

impl PluginSettings {
    /// The engine of the context-engine slot. There always is one.
    pub(super) fn context_engine(&self) -> SlotChoice {
        let written = match &self.slots.context_engine {
            None => return SlotChoice::from_config(LEGACY),
            Some(toml::Value::String(id)) => id,
            Some(toml::Value::Array(items)) => return self.chain_choice(items),
            Some(other) => {
                let reason =
                    format!("the slot holds {}, not the id of an engine", describe_kind(other));
                return SlotChoice::fallback_to_legacy(other.to_string(), reason);
            }
        };
        let id = written.trim();
        if id.is_empty() {
            return SlotChoice::fallback_to_legacy(written.clone(), "the slot is blank".into());
        }
        if id.eq_ignore_ascii_case(NONE) {
            let reason = format!("`{id}` switches the slot off, and an agent needs some engine");
            return SlotChoice::fallback_to_legacy(written.clone(), reason);
        }
        match self.disabled_reason(id) {
            Some(reason) if id != LEGACY => SlotChoice::fallback_to_legacy(written.clone(), reason),
            _ => SlotChoice { engine: id.to_owned(), ..SlotChoice::from_config(written) },
        }
    }

    /// Engines in a row. Those that may not be used are left out.
    fn chain_choice(&self, items: &[toml::Value]) -> SlotChoice {
        let names: Option<Vec<&str>> =
            items.iter().map(|item| Some(item.as_str()?.trim())).collect();
        let Some(names) = names else {
            let written = toml::Value::Array(items.to_vec()).to_string();
            let reason = "the slot's list holds something that is no id of an engine";
            return SlotChoice::fallback_to_legacy(written, reason.into());
        };
        let configured = join_ids(names.iter().copied());
        let mut reasons = Vec::new();
        let serves = |id: &&str| match self.disabled_reason(id).filter(|_| *id != LEGACY) {
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
            return SlotChoice::fallback_to_legacy(configured, reason);
        }
        let reason = (!reasons.is_empty()).then(|| reasons.join(", and "));
        SlotChoice { configured, engine: join_ids(row), reason }
    }

    /// The engines that run beside the slot's own, without effect; a row of them is one of these. Those
    /// that may not be used are left out.
    pub(super) fn shadows(&self) -> Vec<String> {
        let may_run = |name: &&String| self.shadow_disabled_reason(name).is_none();
        self.slots.shadow.iter().filter(may_run).cloned().collect()
    }

    /// Why an engine, or one of a row, may not run in the shadow; `None` where all may.
    pub fn shadow_disabled_reason(&self, name: &str) -> Option<String> {
        split_ids(name)
            .into_iter()
            .filter(|id| *id != LEGACY)
            .find_map(|id| self.disabled_reason(id))
    }

    /// The engine of the memory slot. Nothing remembers unless somebody asks for it.
    pub(super) fn memory(&self) -> Option<String> {
        let id = self.slots.memory.as_ref()?.as_str()?.trim();
        let is_named = !id.is_empty() && !id.eq_ignore_ascii_case(NONE);
        (is_named && self.disabled_reason(id).is_none()).then(|| id.to_owned())
    }

    /// Why an engine may not be used; `None` when it may.
    ///
    /// `allow` is not asked: naming an engine in the slot is permission enough.
    pub fn disabled_reason(&self, id: &str) -> Option<String> {
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
    pub fn allows(&self, id: &str) -> bool {
        let is_allowed = self.allow.is_empty() || self.allow.iter().any(|allowed| allowed == id);
        is_allowed && self.disabled_reason(id).is_none()
    }

    /// What is demanded of engine files.
    pub fn trust_demands(&self) -> TrustSettings {
        TrustSettings {
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
    pub(super) fn with_paths_from(mut self, folder: &Path) -> PluginSettings {
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
