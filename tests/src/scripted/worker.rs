//! An agent with one task: it runs commands of its client's, each with another long output, and ends when it has
//! run enough of them.

use serde_json::{Map, Value, json};

use super::script::{Ask, Offer, Script, Step};

/// What tools that run commands are called, by different clients.
const NAMES: [&str; 6] =
    ["bash", "exec_command", "shell_command", "shell", "local_shell", "run_shell_command"];
/// Lines that a command prints, of seven characters with their end: clients cut outputs of some ten
/// thousand characters.
const LINES: u64 = 1_000;

/// The agent.
#[derive(Clone, Debug)]
pub struct Worker {
    left: u64,
}

impl Worker {
    /// What it says when it is done.
    pub const DONE: &str = "All commands have run.";

    /// One that runs so many commands.
    pub fn new(commands: u64) -> Worker {
        Worker { left: commands }
    }
}

impl Script for Worker {
    fn answer(&mut self, ask: &Ask<'_>) -> Vec<Step> {
        let is_one = |offer: &&Offer| NAMES.contains(&offer.name.to_lowercase().as_str());
        // A client's side question, a title for instance, offers no tools and is none of the task.
        let Some(tool) = ask.tools.iter().find(is_one) else {
            return vec![Step::say("A task of commands.")];
        };
        if self.left == 0 {
            return vec![Step::say(Worker::DONE)];
        }
        self.left -= 1;
        let first = 100_000 + self.left * LINES;
        let command = format!("seq {first} {}", first + LINES - 1);
        vec![Step::call(&tool.name, arguments(&tool.schema, &command))]
    }

    fn missed(&mut self, steps: Vec<Step>) {
        self.left += u64::from(steps.iter().any(|step| matches!(step, Step::Call { .. })));
    }
}

/// What the schema asks for, with the command where it belongs.
fn arguments(schema: &Value, command: &str) -> Value {
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let fields = required.map(|name| {
        let field = &schema["properties"][name];
        let value = match (name, field["type"].as_str()) {
            ("command" | "cmd", Some("array")) => json!(["bash", "-lc", command]),
            ("command" | "cmd", _) => json!(command),
            (_, Some("integer" | "number")) => json!(1),
            (_, Some("boolean")) => json!(false),
            _ => json!("a step of the task"),
        };
        (name.to_owned(), value)
    });
    Value::Object(fields.collect::<Map<_, _>>())
}
