//! The doorbell: a worker of an engine, or else parse, run, exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    ctxhost::sandbox_main();
    ctxhost::run()
}
