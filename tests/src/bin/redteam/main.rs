//! Attacks on a real `ctxhost`: hostile engines, clients, upstreams and files, and kills at bad moments.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::indexing_slicing
)]

mod bodies;
mod clients;
mod engines;
mod files;
mod gateway;
mod http;
mod kills;
mod origin;
mod report;
mod run;
mod stand;
mod upstreams;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};

use crate::run::{Attack, Campaign};

/// Attack ctxhost and count what broke. Everything happens in temporary folders and on the loopback; no attack outlives its time.
#[derive(Debug, Parser)]
struct Arguments {
    /// Which attacks.
    #[arg(value_enum)]
    group: Group,
    /// The small form: all groups in one and a half minutes on two cores.
    #[arg(long, conflicts_with = "long")]
    short: bool,
    /// The large form: more of each, for a release.
    #[arg(long)]
    long: bool,
    /// What chance begins with.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The program to attack; by default the ctxhost beside this one.
    #[arg(long, value_name = "PATH")]
    bin: Option<PathBuf>,
    /// Try those alone whose name contains this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// How many attacks run at once.
    #[arg(long, value_name = "N", default_value_t = 4)]
    at_once: usize,
    /// Print the table as JSON.
    #[arg(long)]
    json: bool,
    /// Keep the folders of the attacks below this one, which has to exist.
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Group {
    /// Libraries that harm, lie or never answer.
    Engines,
    /// Requests that no decent client sends.
    Clients,
    /// Answers that no decent provider sends.
    Upstreams,
    /// Sessions, configs and folders that are damaged or something else.
    Files,
    /// SIGKILL in the middle of the work.
    Kills,
    /// All of them.
    All,
}

impl Group {
    fn attacks(self) -> Vec<Attack> {
        let all = [
            (Group::Engines, engines::attacks()),
            (Group::Clients, clients::attacks()),
            (Group::Upstreams, upstreams::attacks()),
            (Group::Files, files::attacks()),
            (Group::Kills, kills::attacks()),
        ];
        let chosen = all.into_iter().filter(|(group, _)| self == Group::All || self == *group);
        chosen.flat_map(|(_, attacks)| attacks).collect()
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // What stops an attack stands in its row.
    std::panic::set_hook(Box::new(|_| {}));
    let beside = || {
        let own = std::env::current_exe().expect("a program has a path");
        own.with_file_name("ctxhost")
    };
    let binary = arguments.bin.clone().unwrap_or_else(beside);
    let Ok(binary) = binary.canonicalize() else {
        eprintln!("error: {} is not there; build it, or name one with --bin", binary.display());
        return ExitCode::from(2);
    };
    let mut attacks = arguments.group.attacks();
    if let Some(only) = &arguments.only {
        attacks.retain(|attack| attack.name.contains(only.as_str()));
    }
    if attacks.is_empty() {
        eprintln!("error: no attack has such a name; leave --only out to see all of them");
        return ExitCode::from(2);
    }
    let campaign = Campaign {
        binary,
        is_short: arguments.short,
        is_long: arguments.long,
        seed: arguments.seed,
        at_once: arguments.at_once.max(1),
        keep: arguments.keep,
    };
    let rows = campaign.run(&attacks, !arguments.json);
    if arguments.json {
        report::print_json(&rows)
    } else {
        report::print_table(&rows)
    }
    ExitCode::from(u8::from(report::is_broken(&rows)))
}
