//! The command line: arguments as types, one command a file, errors as exit codes and hints.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod bench;
mod bisect;
mod branch;
mod chat;
mod check;
mod clock;
mod compact;
mod config;
mod context;
mod dev;
mod diff;
mod engine_open;
mod engines;
mod error;
mod export;
mod fetch;
mod fsck;
mod gc;
mod install;
mod log;
mod new;
mod output;
mod render;
mod replay;
mod restore;
mod run;
mod run_setup;
mod serve;
mod session_arg;
mod sessions;
mod shadow;
mod slot;
mod statusline;
mod store;
mod undo;
mod use_engine;
mod window;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::{ColorChoice, Parser, Subcommand};
use ctxhost_engine_api::border::EngineMetadata;

use self::output::Output;

/// Of this program, and of what it speaks with engines: any engine of the same major fits.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let EngineMetadata { abi_major, abi_minor, .. } = EngineMetadata::current();
    format!("{} (engine ABI {abi_major}.{abi_minor})", env!("CARGO_PKG_VERSION"))
});

/// The safe place to change how an agent remembers.
#[derive(Debug, Parser)]
#[command(name = "ctxhost", version = VERSION.as_str(), about, max_term_width = 100)]
struct CliArgs {
    /// The config file. Without it, most commands take the nearest ctxhost.toml of this folder and those
    /// above; those that read a session then take the one nearest to that.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// When to colour.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    color: ColorChoice,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Replay(replay::ReplayArgs),
    Chat(chat::ChatArgs),
    Run(run::RunArgs),
    Serve(serve::ServeArgs),
    /// The sessions that `chat` keeps.
    #[command(subcommand)]
    Sessions(sessions::SessionsCommand),
    Compact(compact::CompactArgs),
    Diff(diff::DiffArgs),
    Context(context::ContextArgs),
    Statusline(statusline::StatuslineArgs),
    Fetch(fetch::FetchArgs),
    Fsck(fsck::FsckArgs),
    Undo(undo::UndoArgs),
    Restore(restore::RestoreArgs),
    Branch(branch::BranchArgs),
    Bisect(bisect::BisectArgs),
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    Export(export::ExportArgs),
    Gc(gc::GcArgs),
    /// The engines that can fill the slot.
    #[command(subcommand)]
    Engines(engines::EnginesCommand),
    Install(install::InstallArgs),
    Uninstall(install::UninstallArgs),
    /// The config file: checked, explained, imported.
    #[command(subcommand)]
    Config(config::ConfigCommand),
    Use(use_engine::UseArgs),
    /// The engine of the slot, and a canary beside it.
    #[command(subcommand)]
    Slot(slot::SlotCommand),
    New(new::NewArgs),
    Dev(dev::DevArgs),
    Check(check::CheckArgs),
    /// The engines in the shadow of the slot's own.
    #[command(subcommand)]
    Shadow(shadow::ShadowCommand),
    /// The database that sessions are kept in, where [store] names one.
    #[command(subcommand)]
    Store(store::StoreCommand),
}

/// Runs the command that the process was started with.
pub fn run() -> ExitCode {
    let arguments = CliArgs::parse();
    if !arguments.command.starts_log() {
        log::start();
    }
    let mut output = Output::new(arguments.color);
    let outcome = match arguments.command {
        Command::Replay(command) => command.run(arguments.config.as_deref(), &mut output),
        Command::Chat(command) => command.run(arguments.config.as_deref(), &mut output),
        Command::Run(command) => command.run(arguments.config.as_deref(), &mut output),
        Command::Serve(command) => command.run(arguments.config.as_deref(), &mut output),
        Command::Sessions(command) => command.run(arguments.config.as_deref(), &mut output),
        Command::Compact(command) => command.run(arguments.config.as_deref(), &mut output),
        Command::Diff(command) => command.run(&mut output),
        Command::Context(command) => command.run(arguments.config.as_deref(), &mut output),
        Command::Statusline(command) => command.run(arguments.config.as_deref(), &mut output),
        Command::Fetch(command) => command.run(&mut output),
        Command::Fsck(command) => command.run(&mut output),
        Command::Undo(command) => command.run(&mut output),
        Command::Restore(command) => command.run(&mut output),
        Command::Branch(command) => command.run(&mut output),
        Command::Bisect(command) => command.run(&mut output),
        Command::Bench(command) => command.run(arguments.config.as_deref(), &mut output),
        Command::Export(command) => command.run(&mut output),
        Command::Gc(command) => command.run(arguments.config.as_deref(), &mut output),
        Command::Engines(command) => command.run(arguments.config.as_deref(), &mut output),
        Command::Install(command) => command.run(arguments.config.as_deref(), &mut output),
        Command::Uninstall(command) => command.run(arguments.config.as_deref(), &mut output),
        Command::Config(command) => command.run(arguments.config.as_deref(), &mut output),
        Command::Use(command) => command.run(arguments.config.as_deref(), &mut output),
        Command::Slot(command) => command.run(arguments.config.as_deref(), &mut output),
        Command::New(command) => command.run(&mut output),
        Command::Dev(command) => command.run(arguments.config.as_deref(), &mut output),
        Command::Check(command) => command.run(arguments.config.as_deref(), &mut output),
        Command::Shadow(command) => command.run(arguments.config.as_deref(), &mut output),
        Command::Store(command) => command.run(arguments.config.as_deref(), &mut output),
    };
    match outcome {
        Ok(code) => code,
        Err(failure) => failure.report(&mut output),
    }
}

impl Command {
    /// Whether it starts the log by itself, because the config says what is traced.
    fn starts_log(&self) -> bool {
        matches!(self, Command::Run(_) | Command::Serve(_))
    }
}
