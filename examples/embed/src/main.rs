//! Keeps a conversation inside a window with its own linked engine.

use std::error::Error;

use ctxhost::{Config, EngineSpec, RecordBody, Session, Target, open_context};
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

    async fn compact(&self, _: Transcript, _: CompactRequest) -> Result<Compaction> {
        Ok(Compaction::Delegate)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::result::Result<(), Box<dyn Error>> {
    let session = Session::create("embed.jsonl".as_ref(), "/", None)?;
    let engine = EngineSpec::linked::<Newest>(json!({}));
    let mut context = open_context(&Config::default(), &engine, session)?;
    let target = Target { window_tokens: 8_000, ..Target::default() };
    for number in 1..=500 {
        let content = format!("The number is {number}. ").repeat(10);
        let message = json!({ "role": "user", "content": content });
        context.append([RecordBody::from_message(&message)?])?;
        // A request to the model every hundred messages; after the first they no longer fit.
        if number % 100 == 0 {
            let prompt = context.prepare(&target).await?;
            let (sent, tokens) = (prompt.items().len(), prompt.checked.tokens);
            println!("{} sends {sent} messages of {number}: {tokens} tokens", prompt.engine);
        }
    }
    Ok(())
}
