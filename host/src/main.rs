//! The doorbell: parse, run, exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    ctxhost::cli::run()
}
