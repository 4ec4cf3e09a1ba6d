//! Every setting there is: its name, its unit, what it may be, and why its default is what it is.
//!
//! Defaults themselves stand beside the types they belong to; a test holds both against each other,
//! against `docs/configuration.md` and against `examples/ctxhost.toml`.

mod agent;
mod gateway;
mod providers;
mod slot;
mod swap;
mod telemetry;
mod tools;

use std::sync::LazyLock;

use super::places::Written;
use super::windows::MAX_WINDOW_TOKENS;

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its dotted path. `*` stands for a name of the user's: an engine, a model.
    pub key: &'static str,
    /// The unit of a number; empty where there is none.
    pub unit: &'static str,
    /// What it may be.
    pub allowed: Allowed,
    /// What it does, and why its default is what it is.
    pub reason: &'static str,
}

/// What a setting may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Allowed {
    /// `true` or `false`.
    Flag,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Text that is not blank.
    Text,
    /// An address.
    Url,
    /// A SHA-256 in hex.
    Digest,
    /// A list of texts.
    List,
    /// A list of public keys.
    Keys,
    /// A list of rules of a gate.
    Rules,
    /// A whole number of at least this.
    Whole(u64),
    /// A whole number from 1 to [`MAX_WINDOW_TOKENS`].
    Window,
    /// A number between these two, both included.
    Number(f64, f64),
    /// A table of texts under names of the user's.
    Texts,
    /// A table of providers or addresses under names of the user's.
    Upstreams,
    /// A table that is not ours to read.
    Foreign,
    /// The id of an engine, or a list of them; anything else is no mistake and counts as not written.
    Slot,
}

impl Allowed {
    /// Whether a value may stand here.
    pub(super) fn admits(self, value: &Written) -> bool {
        match (self, value) {
            (Allowed::Slot, _) => true,
            (Allowed::Foreign | Allowed::Texts | Allowed::Upstreams, Written::Table) => true,
            (Allowed::Flag, Written::Flag(_)) => true,
            (Allowed::Word(words), Written::Text(text)) => words.contains(&text.as_str()),
            (Allowed::Text, Written::Text(text)) => !text.trim().is_empty(),
            (Allowed::Url, Written::Text(text)) => {
                text.starts_with("http://") || text.starts_with("https://")
            }
            (Allowed::Digest, Written::Text(text)) => {
                text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
            }
            (Allowed::List | Allowed::Keys | Allowed::Rules, Written::List { only_text }) => {
                *only_text
            }
            (Allowed::Whole(least), Written::Whole(Some(number))) => {
                u64::try_from(*number).is_ok_and(|number| number >= least)
            }
            (Allowed::Window, Written::Whole(Some(number))) => {
                u64::try_from(*number).is_ok_and(|it| (1..=MAX_WINDOW_TOKENS).contains(&it))
            }
            (Allowed::Number(least, most), Written::Number(number)) => {
                (least..=most).contains(number)
            }
            (Allowed::Number(least, most), Written::Whole(Some(number))) => {
                (least..=most).contains(&(*number as f64))
            }
            _ => false,
        }
    }

    /// What is expected, to follow "must be".
    pub(super) fn expectation(self, unit: &str) -> String {
        match self {
            Allowed::Flag => "true or false".into(),
            Allowed::Word(words) => format!("one of {}", quoted(words)),
            Allowed::Text => "text that is not blank".into(),
            Allowed::Url => "an address that begins with http:// or https://".into(),
            Allowed::Digest => "a SHA-256 of 64 hex digits, as `sha256sum` prints it".into(),
            Allowed::List => "a list of texts, such as [\"mask\"]".into(),
            Allowed::Keys => "a list of minisign public keys, such as [\"RWQ...\"]".into(),
            Allowed::Rules => "a list of rules, such as [\"paths >= 0.95\"]".into(),
            Allowed::Whole(least) if unit.is_empty() => {
                format!("a whole number of at least {least}")
            }
            Allowed::Whole(least) => format!("a whole number of {unit}, at least {least}"),
            Allowed::Window => {
                format!("a whole number of {unit} from 1 to {MAX_WINDOW_TOKENS}")
            }
            Allowed::Number(least, most) => format!("a number from {least} to {most}"),
            Allowed::Texts => "a table of texts, such as { NAME = \"value\" }".into(),
            Allowed::Upstreams => {
                "a table of providers or addresses, such as { anthropic = \"https://...\" }".into()
            }
            Allowed::Foreign => "a table".into(),
            Allowed::Slot => "the id of an engine, a list of them, or `none`".into(),
        }
    }
}

/// `"append"` or `"rewrite"`, in the way of a sentence.
pub(super) fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

const TOKENS: &str = "provider tokens";
const MS: &str = "ms";
const SHARE: &str = "share";

/// Every setting there is, in the order in which people read about them.
pub static SETTINGS: LazyLock<Vec<Setting>> = LazyLock::new(|| {
    [
        slot::SETTINGS,
        swap::SETTINGS,
        agent::SETTINGS,
        providers::SETTINGS,
        gateway::SETTINGS,
        telemetry::SETTINGS,
        tools::SETTINGS,
    ]
    .concat()
});

const fn setting(
    key: &'static str,
    unit: &'static str,
    allowed: Allowed,
    reason: &'static str,
) -> Setting {
    Setting { key, unit, allowed, reason }
}

impl Setting {
    /// The names of its path.
    pub(super) fn path(&self) -> Vec<&'static str> {
        self.key.split('.').collect()
    }
}

/// What may stand at a path.
pub(super) enum Known {
    /// A setting, or something inside a table that is not ours.
    Setting(&'static Setting),
    /// Inside a table that is not ours to read.
    Foreign,
    /// A table of settings.
    Table,
    /// Nothing.
    Nothing,
}

/// What may stand at a path.
pub(super) fn known(path: &[String]) -> Known {
    let is_at =
        |setting: &&Setting| fits(&setting.path(), path) && setting.path().len() == path.len();
    if let Some(setting) = SETTINGS.iter().find(is_at) {
        return Known::Setting(setting);
    }
    let reaches_into = |setting: &Setting| {
        let inner = path.len() > setting.path().len();
        let is_foreign = matches!(
            setting.allowed,
            Allowed::Foreign
                | Allowed::Texts
                | Allowed::Upstreams
                | Allowed::Slot
                | Allowed::List
                | Allowed::Keys
                | Allowed::Rules
        );
        inner && is_foreign && fits(&setting.path(), path)
    };
    if SETTINGS.iter().any(reaches_into) {
        return Known::Foreign;
    }
    let is_above =
        |setting: &Setting| path.len() < setting.path().len() && fits(&setting.path(), path);
    if SETTINGS.iter().any(is_above) { Known::Table } else { Known::Nothing }
}

/// The names that may stand in a table, without those that are the user's.
pub(super) fn names_in(table: &[String]) -> Vec<&'static str> {
    let mut names = Vec::new();
    for setting in SETTINGS.iter() {
        let path = setting.path();
        let Some(name) = path.get(table.len()) else { continue };
        if fits(&path, table) && *name != "*" && !names.contains(name) {
            names.push(*name);
        }
    }
    names
}

/// Whether a pattern and a path agree as far as both go.
fn fits(pattern: &[&str], path: &[String]) -> bool {
    pattern.iter().zip(path).all(|(pattern, name)| *pattern == "*" || pattern == name)
}
