//! Settings of other agents, carried over: what they call compaction, pruning and slots, in our words.
//!
//! A file becomes leaves with dotted keys (`source`), each leaf is looked up in the table of its agent
//! (`openclaw`, `hermes`), and what was found becomes TOML (`document`). What has no counterpart is
//! told with its reason; nothing of a file is an error but its syntax.

mod document;
mod hermes;
mod openclaw;
mod shape;
mod source;

use std::path::Path;

use toml_edit::Value;

use super::error::ConfigError;
use ctxhost_engine::Timeouts;

pub use document::{Merged, merge, render};

use shape::Shape;
use source::Leaf;

/// Whose configuration it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agent {
    /// `openclaw.json`: JSON, with comments and trailing commas where people wrote them.
    OpenClaw,
    /// `config.yaml` of Hermes Agent.
    Hermes,
}

/// What was found in a file.
#[derive(Clone, Debug)]
pub struct Import {
    /// Whose file it was.
    pub agent: Agent,
    /// What has a counterpart, in the order of the table.
    pub settings: Vec<Imported>,
    /// What has none, in the order of the file.
    pub left_out: Vec<LeftOut>,
}

/// A setting of ours and where it comes from.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The path of our setting.
    pub path: Vec<String>,
    /// Its value.
    pub value: Value,
    /// The key it had.
    pub from: String,
    /// The row it came by: of two keys that end at one setting, the later row counts.
    rank: usize,
}

/// A setting that was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Its key in the file.
    pub key: String,
    /// Why, as a fragment.
    pub reason: String,
}

/// One row of an agent's table: a key of theirs and what becomes of it.
struct Row {
    /// Dotted; `*` stands for any one name, `**` at the end for all that lies below.
    key: &'static str,
    turn: Turn,
}

/// What becomes of a key.
enum Turn {
    /// Ours at this dotted path, which takes up the names that `*` stood for in their order.
    To(&'static str, Shape),
    /// None of ours, and why.
    None(&'static str),
}

/// What is to know of an agent's file.
struct Table {
    rows: &'static [Row],
    /// Where the settings that concern us stand. What lies elsewhere is told in one line.
    territory: &'static [&'static str],
}

impl Agent {
    /// By the ending of a file's name.
    pub fn of(path: &Path) -> Option<Agent> {
        let ending = path.extension()?.to_str()?.to_ascii_lowercase();
        match ending.as_str() {
            "json" | "json5" | "jsonc" => Some(Agent::OpenClaw),
            "yaml" | "yml" => Some(Agent::Hermes),
            _ => None,
        }
    }

    fn table(self) -> Table {
        match self {
            Agent::OpenClaw => openclaw::TABLE,
            Agent::Hermes => hermes::TABLE,
        }
    }
}

/// Reads the text of a file.
///
/// # Errors
///
/// [`ConfigError::Mistake`] at its place, where the text is no JSON or YAML or no table of settings.
pub fn import(agent: Agent, name: &str, text: &str) -> Result<Import, ConfigError> {
    let document = match agent {
        Agent::OpenClaw => source::json(name, text)?,
        Agent::Hermes => source::yaml(name, text)?,
    };
    let mut import = Import { agent, settings: Vec::new(), left_out: Vec::new() };
    let table = agent.table();
    for leaf in source::leaves(&document) {
        import.take(&table, &leaf);
    }
    if agent == Agent::Hermes {
        hermes::choose_engine(&mut import);
    }
    import.raise_cap();
    import.settings.sort_by_key(|setting| setting.rank);
    Ok(import)
}

impl Import {
    fn take(&mut self, table: &Table, leaf: &Leaf) {
        let rows = table.rows.iter().enumerate();
        let mut fitting =
            rows.filter_map(|(rank, row)| Some((rank, row, Fit::of(row.key, &leaf.path)?)));
        let Some((rank, row, fit)) = fitting.next() else {
            return match foreign(table.territory, &leaf.path) {
                Some(key) => self.leave_out(key, "not about context"),
                None => self.leave_out(leaf.key(), "unknown here"),
            };
        };
        match &row.turn {
            Turn::None(reason) => self.leave_out(fit.key, reason),
            Turn::To(path, shape) => match shape.of(&leaf.value) {
                Err(reason) => self.leave_out(fit.key, &reason),
                Ok(value) => {
                    let path = filled(path, fit.names);
                    self.put(Imported { path, value, from: fit.key, rank }, *shape);
                }
            },
        }
    }

    fn put(&mut self, setting: Imported, shape: Shape) {
        match self.settings.iter_mut().find(|known| known.path == setting.path) {
            Some(known) if shape.keeps(&known.value, &setting.value) => {}
            Some(known) if shape.is_largest() || known.rank < setting.rank => *known = setting,
            Some(_) => {}
            None => self.settings.push(setting),
        }
    }

    /// A compaction that may take longer than our cap for all of it raises the cap as well.
    fn raise_cap(&mut self) {
        let cap_ms = i64::try_from(Timeouts::default().compact_cap_ms).unwrap_or(i64::MAX);
        let is_over = |setting: &&Imported| {
            setting.path == ["timeouts", "compact_ms"]
                && setting.value.as_integer().is_some_and(|ms| ms > cap_ms)
        };
        let over = self.settings.iter().find(is_over).cloned();
        let path = vec!["timeouts".to_owned(), "compact_cap_ms".to_owned()];
        self.settings.extend(over.map(|over| Imported { path, ..over }));
    }

    fn leave_out(&mut self, key: String, reason: &str) {
        let left_out = LeftOut { key, reason: reason.to_owned() };
        if !self.left_out.contains(&left_out) {
            self.left_out.push(left_out);
        }
    }
}

/// How a key of a table fits the path of a leaf.
struct Fit {
    /// The path as far as the table names it.
    key: String,
    /// What `*` stands for.
    names: Vec<String>,
}

impl Fit {
    fn of(key: &str, path: &[String]) -> Option<Fit> {
        let (key, has_rest) = key.strip_suffix(".**").map_or((key, false), |key| (key, true));
        let segments: Vec<&str> = key.split('.').collect();
        let head = path.get(..segments.len())?;
        let fits = |(segment, name): (&&str, &String)| *segment == "*" || **segment == **name;
        let is_whole = has_rest || head.len() == path.len();
        let stars = segments.iter().zip(head).filter(|(segment, _)| **segment == "*");
        let names = stars.map(|(_, name)| name.clone()).collect();
        (is_whole && segments.iter().zip(head).all(fits))
            .then(|| Fit { key: head.join("."), names })
    }
}

/// A path of ours with names in it. `*` takes the next name; `*/*` joins the next two with a slash.
fn filled(path: &str, names: Vec<String>) -> Vec<String> {
    let mut names = names.into_iter();
    let mut next = || names.next().unwrap_or_default();
    let segment = |segment: &str| match segment {
        "*" => next(),
        "*/*" => format!("{}/{}", next(), next()),
        name => name.to_owned(),
    };
    path.split('.').map(segment).collect()
}

/// Where a path leaves the ways that lead to a territory; `None` inside one.
fn foreign(territory: &[&str], path: &[String]) -> Option<String> {
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
