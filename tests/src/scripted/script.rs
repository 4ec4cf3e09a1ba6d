//! The answers of the simulated model.

use std::collections::VecDeque;

use serde_json::Value;

/// The brain of the fake model.
pub trait Script: Send {
    /// What it says to a request that is no summariser's. Nothing at all is an empty answer.
    fn answer(&mut self, ask: &Ask<'_>) -> Vec<Step>;

    /// What it said did not arrive, because of a fault: the same request comes again.
    fn missed(&mut self, _steps: Vec<Step>) {}
}

impl std::fmt::Debug for dyn Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Script")
    }
}

impl<F: FnMut(&Ask<'_>) -> Vec<Step> + Send> Script for F {
    fn answer(&mut self, ask: &Ask<'_>) -> Vec<Step> {
        self(ask)
    }
}

/// One part of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Text.
    Say(String),
    /// Thinking, with a signature where the dialect has one.
    Think(String),
    /// A call; several in one answer are parallel.
    Call {
        /// The tool.
        tool: String,
        /// Its arguments, an object.
        args: Value,
    },
}

impl Step {
    /// Text.
    pub fn say(text: impl Into<String>) -> Step {
        Step::Say(text.into())
    }

    /// Thinking.
    pub fn think(text: impl Into<String>) -> Step {
        Step::Think(text.into())
    }

    /// A call.
    pub fn call(tool: impl Into<String>, args: Value) -> Step {
        Step::Call { tool: tool.into(), args }
    }
}

/// A request as the model understands it.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Its number, from 0.
    pub n: usize,
    /// The tools offered.
    pub tools: &'a [Offer],
    /// The conversation, of which a silent provider may have forgotten the beginning.
    pub said: &'a [Said],
}

/// A tool offered.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// Its name.
    pub name: String,
    /// The schema of its arguments.
    pub schema: Value,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Who speaks.
    pub by: Speaker,
    /// Its texts, joined by newlines.
    pub text: String,
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaker {
    /// The system prompt.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// A tool.
    Tool,
}

/// Answers in a fixed order, one for each request.
#[derive(Clone, Debug)]
pub struct Steps(VecDeque<Vec<Step>>);

impl Steps {
    /// These answers, and then the same short text for ever.
    pub fn new(answers: impl IntoIterator<Item = Vec<Step>>) -> Steps {
        Steps(answers.into_iter().collect())
    }
}

impl Script for Steps {
    fn answer(&mut self, _ask: &Ask<'_>) -> Vec<Step> {
        self.0.pop_front().unwrap_or_else(|| vec![Step::say("The script is over.")])
    }

    fn missed(&mut self, steps: Vec<Step>) {
        self.0.push_front(steps);
    }
}
