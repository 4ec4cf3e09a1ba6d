//! A plain HTTP client of a model. It sends what a context prepares, so its conversation never outgrows the window.
//!
//! `http-client http://127.0.0.1:11434/v1/chat/completions qwen3 32768 < questions.txt`

use std::error::Error;
use std::io::stdin;
use std::path::Path;

use ctxhost::{
    Config, Context, RecordBody, Session, StopReason, Target, TokenUsage, open_context,
    slot_engines,
};
use serde_json::{Value, json};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    // reqwest is built here without cryptography of its own.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or("usage: http-client URL MODEL WINDOW_TOKENS");
    let (url, model, window_tokens) = (next()?, next()?, next()?.parse()?);
    let config = Config::default();
    let path = Path::new("http-client.jsonl");
    let session = match path.exists() {
        true => Session::open(path)?,
        false => Session::create(path, "/", None)?,
    };
    let mut context = open_context(&config, &slot_engines(&config)?, session)?;
    let target = Target { window_tokens, output_tokens: 1_000, ..Target::default() };
    for line in stdin().lines() {
        append(&mut context, json!({ "role": "user", "content": line? }))?;
        let answer = ask(&mut context, &target, &url, &model).await?;
        println!("{answer}");
        append(&mut context, json!({ "role": "assistant", "content": answer }))?;
    }
    Ok(())
}

/// Sends what fits and answers the model's text.
async fn ask(
    context: &mut Context,
    target: &Target,
    url: &str,
    model: &str,
) -> Result<String, Box<dyn Error>> {
    let prompt = context.prepare(target).await?;
    let messages = prompt.items().into_iter();
    let messages = messages.map(|it| json!({ "role": it.role().name(), "content": it.text() }));
    let body = json!({
        "model": model,
        "messages": messages.collect::<Vec<Value>>(),
        "max_tokens": target.output_tokens,
    });
    let request = reqwest::Client::new().post(url).header("content-type", "application/json");
    let answer = request.body(body.to_string()).send().await?.error_for_status()?.text().await?;
    let answer: Value = serde_json::from_str(&answer)?;
    // What the provider counted makes the next prompt fit better.
    let counted = |name: &str| answer["usage"][name].as_u64().unwrap_or_default();
    let (input, output) = (counted("prompt_tokens"), counted("completion_tokens"));
    let sent = context.sent_request(target, prompt.checked.tokens);
    let usage = TokenUsage { input, output, ..TokenUsage::default() };
    context.record_usage(target, &sent, &usage, StopReason::Stop);
    Ok(answer["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned())
}

fn append(context: &mut Context, message: Value) -> Result<(), Box<dyn Error>> {
    context.append([RecordBody::message(&message.to_string())?])?;
    Ok(())
}
