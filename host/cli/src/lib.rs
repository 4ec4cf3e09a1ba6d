//! The command line: one module for each command, errors as exit codes with hints.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod agent_folders;
mod bench;
mod bisect;
mod branch;
mod chat;
mod check;
mod clock;
mod command_groups;
mod compact;
mod completions;
mod config;
mod context;
mod dev;
mod diff;
mod doctor;
mod duration;
mod engine_open;
mod engines;
mod error;
mod examples;
mod export;
mod fetch;
mod fsck;
mod gc;
mod install;
mod json_path;
mod locked;
mod log;
mod migration;
mod new;
mod output;
mod output_file;
mod render;
mod replay;
mod restore;
mod run;
mod run_setup;
mod serve;
mod session_arg;
mod session_file;
mod sessions;
mod shadow;
mod slot;
mod statusline;
mod store;
mod sync;
mod ui;
mod undo;
mod use_engine;
mod window;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::error::{ContextKind, ContextValue};
use clap::{ColorChoice, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use ctxhost_config::ignored_variables;
use ctxhost_engine_api::border::EngineMetadata;

use self::error::CliError;
use self::output::{Output, name_stdout};

/// Version of the program and of the engine ABI. Any engine of the same ABI major can be loaded.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let EngineMetadata { abi_major, abi_minor, .. } = EngineMetadata::current();
    format!("{} (engine ABI {abi_major}.{abi_minor})", env!("CARGO_PKG_VERSION"))
});

/// Context engines for LLM agents: compare, run and write them.
#[derive(Debug, Parser)]
#[command(name = "ctxhost", version = VERSION.as_str(), max_term_width = 100)]
struct CliArgs {
    /// Config file. By default the nearest ctxhost.toml, from the current folder upwards.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Load no engine file that ctxhost.lock does not pin, and fail instead of using another engine.
    #[arg(long, global = true)]
    locked: bool,
    /// When to use colours.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    color: ColorChoice,
    /// `ctxhost` without a command shows what compactions lost: see `doctor`.
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Doctor(doctor::DoctorArgs),
    Replay(replay::ReplayArgs),
    Chat(chat::ChatArgs),
    Run(run::RunArgs),
    Serve(serve::ServeArgs),
    Ui(ui::UiArgs),
    /// List, show and measure chat sessions.
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
    Engines(engines::EnginesArgs),
    Install(install::InstallArgs),
    Uninstall(install::UninstallArgs),
    Sync(sync::SyncArgs),
    /// Check, explain or import the config file.
    #[command(subcommand)]
    Config(config::ConfigCommand),
    Use(use_engine::UseArgs),
    /// Show or change the active engine and its canary.
    #[command(subcommand)]
    Slot(slot::SlotCommand),
    New(new::NewArgs),
    Dev(dev::DevArgs),
    Check(check::CheckArgs),
    /// Compare shadow engines with the active engine.
    #[command(subcommand)]
    Shadow(shadow::ShadowCommand),
    /// Manage the session database of [store].
    #[command(subcommand)]
    Store(store::StoreCommand),
    Completions(completions::CompletionsArgs),
    Man(completions::ManArgs),
}

/// Runs the command of this process.
pub fn run() -> ExitCode {
    // Where it fails, a write beyond the limit ends the process, as it does everywhere else.
    let _ = ctxhost_platform::signals::survive_file_limit();
    // Parsed by hand instead of CliArgs::parse, because the overview of commands and the examples
    // are added to the generated help.
    let command = command_groups::with_groups(examples::with_examples(CliArgs::command()));
    let parsed = command.try_get_matches();
    let arguments = match parsed.and_then(|matches| CliArgs::from_arg_matches(&matches)) {
        Ok(arguments) => arguments,
        Err(error) => return report_usage(&error),
    };
    let command = arguments.command.unwrap_or_else(|| Command::Doctor(Default::default()));
    if !command.starts_log() {
        log::start();
    }
    if arguments.locked {
        locked::request();
    }
    let output = &mut Output::new(arguments.color);
    for (old, new) in ignored_variables(|name| std::env::var_os(name).is_some()) {
        output.note(&format!("{old} is ignored: it was renamed to {new}; set that one"));
    }
    if let Command::Chat(_) = command
        && let Err(error) = ctxhost_platform::signals::end_groups_on_signals()
    {
        output.note(&format!("a signal that ends ctxhost will leave running tools: {error}"));
    }
    let config = arguments.config.as_deref();
    let outcome = match command {
        Command::Doctor(command) => command.run(config, output),
        Command::Replay(command) => command.run(config, output),
        Command::Chat(command) => command.run(config, output),
        Command::Run(command) => command.run(config, output),
        Command::Serve(command) => command.run(config, output),
        Command::Ui(command) => command.run(output),
        Command::Sessions(command) => command.run(config, output),
        Command::Compact(command) => command.run(config, output),
        Command::Diff(command) => command.run(config, output),
        Command::Context(command) => command.run(config, output),
        Command::Statusline(command) => command.run(config, output),
        Command::Fetch(command) => command.run(config, output),
        Command::Fsck(command) => command.run(output),
        Command::Undo(command) => command.run(config, output),
        Command::Restore(command) => command.run(config, output),
        Command::Branch(command) => command.run(config, output),
        Command::Bisect(command) => command.run(config, output),
        Command::Bench(command) => command.run(config, output),
        Command::Export(command) => command.run(config, output),
        Command::Gc(command) => command.run(config, output),
        Command::Engines(command) => command.run(config, output),
        Command::Install(command) => command.run(config, output),
        Command::Uninstall(command) => command.run(config, output),
        Command::Sync(command) => command.run(config, output),
        Command::Config(command) => command.run(config, output),
        Command::Use(command) => command.run(config, output),
        Command::Slot(command) => command.run(config, output),
        Command::New(command) => command.run(output),
        Command::Dev(command) => command.run(config, output),
        Command::Check(command) => command.run(config, output),
        Command::Shadow(command) => command.run(config, output),
        Command::Store(command) => command.run(config, output),
        Command::Completions(command) => command.run(output),
        Command::Man(command) => command.run(output),
    };
    outcome.unwrap_or_else(|error| error.report(output))
}

/// Prints help, or an error of the arguments; clap wraps help only.
fn report_usage(error: &clap::Error) -> ExitCode {
    let mut output = Output::new(ColorChoice::Auto);
    if !error.use_stderr() {
        let printed = error.print().and_then(|()| std::io::stdout().flush());
        return match printed {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                CliError::from(name_stdout(error)).report(&mut output)
            }
            _ => ExitCode::SUCCESS,
        };
    }
    output.note(error.render().to_string().trim_end());
    if let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand)
        && name == "report"
    {
        output.note("`ctxhost replay SESSION --report FILE` writes a report");
    }
    ExitCode::from(2)
}

impl Command {
    /// Commands that start the log themselves, with the settings of the config.
    fn starts_log(&self) -> bool {
        matches!(self, Command::Run(_) | Command::Serve(_))
    }
}
