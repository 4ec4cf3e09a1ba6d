//! The binary: a sandbox process if it was started as one, else the command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    ctxhost::sandbox_main();
    ctxhost::run()
}
