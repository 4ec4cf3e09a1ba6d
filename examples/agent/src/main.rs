//! A program with an agent and its own linked engine.

use std::error::Error;
use std::process::ExitCode;

use ctxhost::{Config, EngineSpec, EventKind, RuntimeBuilder};
use ctxhost_engine_api::serde_json::{Value, json};
use ctxhost_engine_api::{
    AssembleRequest, CompactRequest, Compaction, ContextEngine, Host, Info, Plan, Result,
    Transcript,
};

/// Keeps the newest messages that fit and delegates compactions to the bundled engine.
struct Newest;

impl ContextEngine for Newest {
    const INFO: Info = Info::new("newest", "The newest that fit", "0.1.0");

    fn create(_host: Host, _config: Value) -> Result<Self> {
        Ok(Newest)
    }

    async fn assemble(&self, transcript: Transcript, request: AssembleRequest) -> Result<Plan> {
        let mut plan = Plan::default();
        plan.keep(transcript.tail_within(request.budget)..transcript.len() as u64);
        Ok(plan)
    }

    async fn compact(
        &self,
        _transcript: Transcript,
        _request: CompactRequest,
    ) -> Result<Compaction> {
        Ok(Compaction::Delegate)
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        // An error returned by `main` would be printed with its Rust types.
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> std::result::Result<(), Box<dyn Error>> {
    let message = std::env::args().nth(1).unwrap_or("What is in this folder?".into());
    let config = Config::load("ctxhost.toml")?;
    let engine = EngineSpec::linked::<Newest>(json!({}));
    let runtime = RuntimeBuilder::from_config(&config).engine_spec(engine).build().await?;

    let mut events = runtime.subscribe();
    tokio::spawn(async move {
        while let Ok(event) = events.recv().await {
            if let EventKind::Text(text) = event.kind {
                print!("{text}");
            }
        }
    });

    let session = runtime.create_session("agent.jsonl".as_ref(), ".".as_ref())?;
    let reply = runtime.send(&session, &message).await?;
    runtime.shutdown().await;
    println!("\n[{} shaped {} requests]", reply.engine, reply.requests);
    Ok(())
}
