//! An HTTP client of a model. It sends prompts prepared by a context, so the conversation stays inside the window.
//!
//! `http-client http://127.0.0.1:11434/v1/chat/completions qwen3 32768 < questions.txt`

use std::error::Error;
use std::io::stdin;
use std::path::Path;
use std::process::ExitCode;

use ctxhost::{
    Config, Context, RecordBody, Session, StopReason, Target, TokenUsage, open_context,
    slot_engines,
};
use serde_json::{Value, json};

#[tokio::main(flavor = "current_thread")]
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

async fn run() -> Result<(), Box<dyn Error>> {
    // reqwest is built without a TLS provider, so the program installs one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or("usage: http-client URL MODEL WINDOW_TOKENS");
    let (url, model, window_tokens) = (next()?, next()?, next()?.parse()?);
    let config = Config::default();
    let path = Path::new("http-client.jsonl");
    let session =
        if path.exists() { Session::open(path)? } else { Session::create(path, "/", None)? };
    let mut context = open_context(&config, &slot_engines(&config)?, session)?;
    let target = Target { window_tokens, output_tokens: 1_000, ..Target::default() };
    for line in stdin().lines() {
        append(&mut context, json!({ "role": "user", "content": line? }))?;
        let answer = complete(&mut context, &target, &url, &model).await?;
        println!("{answer}");
        append(&mut context, json!({ "role": "assistant", "content": answer }))?;
    }
    Ok(())
}

/// Sends the prompt and returns the model's answer.
async fn complete(
    context: &mut Context,
    target: &Target,
    url: &str,
    model: &str,
) -> Result<String, Box<dyn Error>> {
    let prompt = context.prepare(target).await?;
    let messages = prompt.items().into_iter();
    let messages =
        messages.map(|item| json!({ "role": item.role().name(), "content": item.text() }));
    let body = json!({
        "model": model,
        "messages": messages.collect::<Vec<Value>>(),
        "max_tokens": target.output_tokens,
    });
    let request = reqwest::Client::new().post(url).header("content-type", "application/json");
    let answer = request.body(body.to_string()).send().await?.error_for_status()?.text().await?;
    let answer: Value = serde_json::from_str(&answer)?;
    // The provider's counts calibrate the estimate of the next prompt.
    let counted = |name: &str| answer["usage"][name].as_u64().unwrap_or_default();
    let (input, output) = (counted("prompt_tokens"), counted("completion_tokens"));
    let sent = context.sent_request(target, prompt.checked.tokens);
    let usage = TokenUsage { input, output, ..TokenUsage::default() };
    context.record_usage(target, &sent, &usage, StopReason::Stop);
    Ok(answer["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned())
}

fn append(context: &mut Context, message: Value) -> Result<(), Box<dyn Error>> {
    context.append([RecordBody::from_message(&message)?])?;
    Ok(())
}
