//! A random agent: calls tools with plausible arguments and ends its turns now and then.

use serde_json::{Map, Value, json};

use super::script::{Ask, Offer, Script, Speaker, Step};

/// After the results of tools it goes on calling with this chance.
const GO_ON: f64 = 0.6;
/// It calls two tools at once with this chance.
const PARALLEL: f64 = 0.25;
/// It thinks before it speaks with this chance.
const THINKS: f64 = 0.3;
/// Schemas inside schemas are followed so deep.
const MAX_DEPTH: usize = 4;

const WORDS: [&str; 16] = [
    "parser", "window", "ledger", "socket", "budget", "engine", "日志", "naïve", "retry",
    "summary", "cursor", "branch", "widget", "schema", "rótulo", "部署",
];

/// The agent. The same seed and the same requests give the same answers.
#[derive(Clone, Debug)]
pub struct Wanderer {
    random: fastrand::Rng,
    paths: Vec<String>,
    commands: Vec<String>,
}

impl Wanderer {
    /// One that knows a few common paths and harmless commands.
    pub fn new(seed: u64) -> Wanderer {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Wanderer {
            random: fastrand::Rng::with_seed(seed),
            paths: owned(&["README.md", "src/main.rs", "src/lib.rs", "notes/plan.md"]),
            commands: owned(&["ls -la", "seq 1 400", "echo done", "printf 'a\\nb\\n'", "false"]),
        }
    }

    /// The files that it reads and writes.
    #[must_use]
    pub fn paths(mut self, paths: impl IntoIterator<Item = String>) -> Wanderer {
        self.paths = paths.into_iter().collect();
        self
    }

    /// The commands that it runs.
    #[must_use]
    pub fn commands(mut self, commands: impl IntoIterator<Item = String>) -> Wanderer {
        self.commands = commands.into_iter().collect();
        self
    }
}

impl Script for Wanderer {
    fn answer(&mut self, ask: &Ask<'_>) -> Vec<Step> {
        let after_result = ask.said.last().is_some_and(|last| last.by == Speaker::Tool);
        let chance = if after_result { GO_ON } else { 0.85 };
        let mut steps = Vec::new();
        if self.random.f64() < THINKS {
            steps.push(Step::Think(self.sentence(12)));
        }
        if ask.tools.is_empty() || self.random.f64() >= chance {
            let words = self.random.usize(8..120);
            steps.push(Step::Say(format!("Answer {}: {}", ask.n, self.sentence(words))));
            return steps;
        }
        if self.random.bool() {
            steps.push(Step::Say(self.sentence(10)));
        }
        let calls = if self.random.f64() < PARALLEL { 2 } else { 1 };
        steps.extend((0..calls).filter_map(|_| self.call(ask.tools)));
        steps
    }
}

impl Wanderer {
    fn call(&mut self, tools: &[Offer]) -> Option<Step> {
        let tool = self.random.choice(tools)?;
        Some(Step::call(&tool.name, self.value("", &tool.schema, 0)))
    }

    fn sentence(&mut self, words: usize) -> String {
        let name = format!("/srv/app/file_{}.rs", self.random.u16(..));
        let mut said: Vec<&str> = (0..words).map(|_| *self.pick(&WORDS)).collect();
        said.push(&name);
        said.join(" ")
    }

    /// A value that a schema allows.
    fn value(&mut self, name: &str, schema: &Value, depth: usize) -> Value {
        if let Some(choice) = schema["enum"].as_array().and_then(|all| self.random.choice(all)) {
            return choice.clone();
        }
        let kind = match &schema["type"] {
            Value::Array(kinds) => kinds.first().and_then(Value::as_str).unwrap_or("string"),
            kind => kind.as_str().unwrap_or(if schema["properties"].is_object() {
                "object"
            } else {
                "string"
            }),
        };
        match kind {
            "object" if depth < MAX_DEPTH => self.object(schema, depth),
            "object" => json!({}),
            "array" if depth < MAX_DEPTH => {
                let count = self.random.usize(1..3);
                (0..count).map(|_| self.value(name, &schema["items"], depth + 1)).collect()
            }
            "array" => json!([]),
            "integer" | "number" => self.number(schema),
            "boolean" => Value::Bool(self.random.bool()),
            "null" => Value::Null,
            _ => Value::String(self.text(name)),
        }
    }

    /// All that is required and half of the rest.
    fn object(&mut self, schema: &Value, depth: usize) -> Value {
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        let mut fields = Map::new();
        for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
            if required.iter().any(|word| word == name.as_str()) || self.random.bool() {
                fields.insert(name.clone(), self.value(name, inner, depth + 1));
            }
        }
        Value::Object(fields)
    }

    fn number(&mut self, schema: &Value) -> Value {
        let least = schema["minimum"].as_i64().unwrap_or(1);
        let most = schema["maximum"].as_i64().unwrap_or(200).max(least);
        Value::from(self.random.i64(least..=most))
    }

    fn text(&mut self, name: &str) -> String {
        let name = name.to_lowercase();
        let says = |word: &str| name.contains(word);
        if says("path") || says("file") || says("folder") || says("dir") {
            return self.random.choice(&self.paths).cloned().unwrap_or_else(|| ".".into());
        }
        if says("command") || says("cmd") {
            return self.random.choice(&self.commands).cloned().unwrap_or_else(|| "true".into());
        }
        if says("pattern") || says("query") || says("glob") {
            return (*self.pick(&WORDS)).to_owned();
        }
        let words = self.random.usize(2..40);
        self.sentence(words)
    }

    fn pick<'a, T>(&mut self, from: &'a [T; 16]) -> &'a T {
        let [first, ..] = from;
        self.random.choice(from).unwrap_or(first)
    }
}
