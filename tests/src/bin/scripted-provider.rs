//! A scripted provider to point a client at: it prints its address and serves until it is stopped.

#![allow(clippy::print_stdout)]

use clap::{Parser, ValueEnum};
use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Fault, Faults, Model, ScriptedServer, Wanderer, Worker};

/// A fake model provider on this machine.
#[derive(Debug, Parser)]
struct Arguments {
    /// The dialect.
    #[arg(long, value_enum)]
    wire: Dialect,
    /// The port; 0 for a free one.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// The context window, in tokens: 32000 or 32k.
    #[arg(long, default_value = "32k", value_parser = tokens)]
    window: u64,
    /// The longest answer, in tokens; a quarter of the window where it is not said.
    #[arg(long, value_parser = tokens)]
    max_output: Option<u64>,
    /// The same number gives the same answers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run so many commands with the client's own tool, and then be done; else it wanders.
    #[arg(long)]
    commands: Option<u64>,
    /// The chance of a fault, between 0 and 1.
    #[arg(long, default_value_t = 0.0)]
    faults: f64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Dialect {
    #[value(name = "openai-chat")]
    OpenAiChat,
    Responses,
    Anthropic,
    Gemini,
    Ollama,
}

/// What goes wrong by chance; nothing of it outlasts a retry.
const CHANCES: [Fault; 6] = [
    Fault::Overloaded,
    Fault::ServerError,
    Fault::RateLimited { retry_after_s: 1 },
    Fault::CutStream,
    Fault::WrongJson,
    Fault::Reset,
];

fn main() {
    let arguments = Arguments::parse();
    let mut model = Model::new(arguments.window);
    model.max_output_tokens = arguments.max_output.unwrap_or(model.max_output_tokens);
    let server = ScriptedServer::start_at(wire(arguments.wire), model, arguments.port)
        .seed(arguments.seed)
        .faults(Faults::random(arguments.seed, arguments.faults, CHANCES));
    let server = match arguments.commands {
        Some(commands) => server.script(Worker::new(commands)),
        None => server.script(Wanderer::new(arguments.seed)),
    };
    println!("{}", server.url());
    loop {
        std::thread::park();
    }
}

fn wire(dialect: Dialect) -> Wire {
    match dialect {
        Dialect::OpenAiChat => Wire::OpenAiChat,
        Dialect::Responses => Wire::Responses,
        Dialect::Anthropic => Wire::Anthropic,
        Dialect::Gemini => Wire::Gemini,
        Dialect::Ollama => Wire::Ollama,
    }
}

fn tokens(text: &str) -> Result<u64, String> {
    let (number, unit) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1_000),
        None => (text, 1),
    };
    let number: u64 = number.parse().map_err(|error| format!("{error}; write 32000 or 32k"))?;
    Ok(number * unit)
}
