//! Runs a tool and reads its standard output, up to a limit.

use std::io::Read as _;
use std::process::{Command, ExitStatus, Stdio};

use super::DevError;

/// The largest output: cargo's messages and a report of a long session have megabytes, but an engine may print.
const MAX_OUTPUT_BYTES: u64 = 64 << 20;

/// Runs a command to its end; returns its status and its standard output.
///
/// # Errors
///
/// [`DevError::NoTool`], and [`DevError::TooMuchOutput`] after the process was killed.
pub(crate) fn read_output(
    command: &mut Command,
    program: &str,
) -> Result<(ExitStatus, Vec<u8>), DevError> {
    read_output_within(command, program, MAX_OUTPUT_BYTES)
}

fn read_output_within(
    command: &mut Command,
    program: &str,
    limit: u64,
) -> Result<(ExitStatus, Vec<u8>), DevError> {
    let failed = |source| DevError::NoTool { program: program.to_owned(), source };
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = command.spawn().map_err(failed)?;
    let mut output = Vec::new();
    let read = match child.stdout.take() {
        Some(stdout) => stdout.take(limit + 1).read_to_end(&mut output),
        None => Ok(0),
    };
    let is_complete = read.as_ref().is_ok_and(|bytes| *bytes as u64 <= limit);
    if !is_complete {
        // It has ended already, or it would wait for a reader.
        let _ = child.kill();
    }
    let status = child.wait().map_err(failed)?;
    read.map_err(failed)?;
    if is_complete {
        Ok((status, output))
    } else {
        Err(DevError::TooMuchOutput { program: program.to_owned(), limit_mib: limit >> 20 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_output_ends_the_process() {
        let limit = 1 << 20;
        let error = read_output_within(&mut Command::new("yes"), "yes", limit).unwrap_err();
        assert_eq!(
            error.to_string(),
            "yes wrote more than 1 MiB to its standard output and was killed"
        );
        let (status, output) =
            read_output_within(Command::new("echo").arg("all"), "echo", limit).unwrap();
        assert_eq!((status.success(), output.as_slice()), (true, b"all\n".as_slice()));
    }
}
