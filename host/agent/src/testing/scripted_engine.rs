//! Engines that do as their config tells them, and remember what they heard.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use ctxhost_engine_api::*;
use serde_json::{Value, json};

use ctxhost_engine::EngineSpec;

/// What engines heard, by the test they heard it in.
static HEARD: LazyLock<Mutex<HashMap<String, Vec<String>>>> = LazyLock::new(Mutex::default);

/// What the engines of a test heard, in order.
pub(crate) fn heard(test: &str) -> Vec<String> {
    HEARD.lock().unwrap().remove(test).unwrap_or_default()
}

/// What an engine of these tests does; `test` in its config says where it is heard.
pub(crate) struct Puppet<const NUMBER: usize> {
    test: String,
    does: String,
}

const IDS: [&str; 3] = ["first", "second", "third"];

/// An engine of a test, by its number from 0.
pub(crate) fn puppet<const NUMBER: usize>(test: &str, does: &str) -> EngineSpec {
    EngineSpec::linked::<Puppet<NUMBER>>(json!({ "test": test, "does": does }))
}

impl<const NUMBER: usize> Puppet<NUMBER> {
    fn hear(&self, what: &str, view: &Transcript) {
        let texts: Vec<&str> = view.iter().map(|entry| entry.text()).collect();
        let line = format!("{} {what}: {}", IDS[NUMBER], texts.join(" | "));
        HEARD.lock().unwrap().entry(self.test.clone()).or_default().push(line);
    }

    fn fails(&self, call: &str) -> Result<()> {
        match self.does == format!("fails in {call}") {
            true => Err(EngineError::failed("as it was told to")),
            false => Ok(()),
        }
    }
}

impl<const NUMBER: usize> ContextEngine for Puppet<NUMBER> {
    const INFO: Info = Info::new(IDS[NUMBER], "Puppet", "1.0.0");

    fn create(_: Host, config: Value) -> Result<Self> {
        let text = |key: &str| config[key].as_str().unwrap_or_default().to_owned();
        let puppet = Puppet { test: text("test"), does: text("does") };
        puppet.fails("create")?;
        Ok(puppet)
    }

    async fn bootstrap(&self, view: Transcript, _: BootstrapRequest) -> Result<BootstrapReply> {
        self.hear("begins", &view);
        Ok(BootstrapReply::default())
    }

    async fn ingest(&self, view: Transcript, request: IngestRequest) -> Result<IngestReply> {
        self.fails("ingest")?;
        self.hear(&format!("hears {:?}", request.entries), &view);
        Ok(IngestReply { entries: request.entries.end - request.entries.start })
    }

    async fn assemble(&self, view: Transcript, request: AssembleRequest) -> Result<Plan> {
        self.fails("assemble")?;
        self.hear(&format!("shapes within {}", request.budget), &view);
        let (mut plan, len) = (Plan::default(), view.len() as u64);
        match self.does.as_str() {
            "lies" => _ = plan.keep(0..len + 7),
            "hangs in assemble" => std::future::pending().await,
            "cannot fit" => return Err(EngineError::new(ErrorKind::CannotFit, "too much")),
            "finds the window small" => {
                return Err(EngineError::new(ErrorKind::WindowTooSmall, "too small"));
            }
            // Everything long is told in one word; the second entry goes.
            "shortens" => {
                for entry in view.iter() {
                    match entry.text().len() {
                        20.. => plan.replace_text(entry.seq(), "short").note("shortener", "cut"),
                        _ => plan.keep(entry.seq()..entry.seq() + 1),
                    };
                }
            }
            "drops the second" => _ = plan.keep(0..1).keep(2..len),
            "sums up" => _ = plan.keep(0..1).insert(Role::User, "sum", 1..3).keep(3..len),
            _ => _ = plan.keep(0..len),
        }
        Ok(plan)
    }

    async fn compact(&self, view: Transcript, _: CompactRequest) -> Result<Compaction> {
        self.fails("compact")?;
        self.hear("compacts", &view);
        match self.does.as_str() {
            "compacts" => {
                let (mut plan, len) = (Plan::default(), view.len() as u64);
                plan.keep(0..1).insert(Role::User, "sum", 1..len - 1).keep(len - 1..len);
                Ok(Compaction::Plan(plan))
            }
            "breaks in compact" => Err(EngineError::new(ErrorKind::Protocol, "broken")),
            _ => Ok(Compaction::Delegate),
        }
    }

    async fn after_turn(&self, view: Transcript, request: AfterTurnRequest) -> Result<()> {
        let counted = match request.provider_tokens {
            0 => String::new(),
            tokens => format!(" of {tokens}"),
        };
        self.hear(&format!("after {:?}{counted}", request.entries), &view);
        Ok(())
    }

    async fn commit_turn(
        &self,
        view: Transcript,
        request: CommitTurnRequest,
    ) -> Result<CommitTurnReply> {
        self.hear(&format!("commits {:?}", request.entries), &view);
        Ok(CommitTurnReply::Committed)
    }

    fn tools(&self, _: SessionRef) -> Vec<ToolSpec> {
        let spec = |name: &str| ToolSpec { name: name.into(), ..ToolSpec::default() };
        vec![spec("shared"), spec(IDS[NUMBER])]
    }

    async fn call_tool(&self, view: Transcript, request: ToolCallRequest) -> Result<ToolAnswer> {
        self.hear(&format!("is called as {}", request.name), &view);
        Ok(ToolAnswer::default())
    }
}
