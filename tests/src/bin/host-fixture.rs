//! One of several hosts on one store: sends numbered messages to one session until its time is over, and prints the
//! results.

#![allow(clippy::print_stdout, clippy::expect_used)]

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use ctxhost_agent::RuntimeBuilder;
use ctxhost_config::Config;
use ctxhost_store::{PostgresStore, SessionStore as _, StoreKind, StoreSettings};

/// A host that talks to itself.
#[derive(Debug, Parser)]
struct Arguments {
    /// Its config, with the model.
    #[arg(long)]
    config: PathBuf,
    /// The address of the database.
    #[arg(long)]
    url: String,
    /// The schema.
    #[arg(long)]
    schema: String,
    /// The session.
    #[arg(long)]
    session: String,
    /// What all its words begin with.
    #[arg(long)]
    name: String,
    /// For how long.
    #[arg(long)]
    seconds: u64,
}

#[tokio::main]
async fn main() {
    let arguments = Arguments::parse();
    let settings = StoreSettings {
        kind: StoreKind::Postgres,
        url: Some(arguments.url.clone()),
        schema: arguments.schema.clone(),
        lease_ms: 2_000,
        wait_ms: 60_000,
        ..StoreSettings::default()
    };
    let store = Arc::new(PostgresStore::open(&settings).expect("a store"));
    let config = Config::load(&arguments.config).expect("a config");
    let runtime =
        RuntimeBuilder::from_config(&config).store(store.clone()).build().await.expect("a runtime");
    let session = store.open(&arguments.session).expect("a session");
    let session = runtime.adopt_session(session).expect("a session of the runtime");
    let until = Instant::now() + Duration::from_secs(arguments.seconds);
    let mut number = 0;
    while Instant::now() < until {
        number += 1;
        // Long enough that windows fill up and both sides compact.
        let padding = " More about the ledger of the harbour.".repeat(40);
        let words = format!("{} {number}", arguments.name);
        tell("said", &words);
        match runtime.send(&session, &format!("{words}.{padding}")).await {
            Ok(_) => tell("answered", &words),
            Err(error) => tell("failed", &format!("{words}: {error}")),
        }
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..40))).await;
    }
    runtime.shutdown().await;
    tell("finished", &arguments.name);
}

/// A line, out before anything else is done: the process may be killed at any moment.
fn tell(what: &str, words: &str) {
    println!("{what}\t{words}");
    let _ = std::io::stdout().flush();
}
