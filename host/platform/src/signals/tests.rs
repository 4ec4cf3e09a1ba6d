//! Signals, sent to this test program as a child that runs one test.

use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::*;
use crate::processes::{RUNNING_GROUPS, is_alive, lead_group};

/// Names what the child does; only the tests below set it.
const ROLE: &str = "CTXHOST_TEST_ROLE";

/// Not a test by itself: what the child of the tests below does.
#[test]
fn child() {
    match std::env::var(ROLE).as_deref() {
        Ok("server") => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let mut signals = ShutdownSignals::listen().unwrap();
                print_line("ready");
                print_line(signals.next().await);
            });
        }
        Ok("tools") => {
            end_groups_on_signals().unwrap();
            let mut command = Command::new("sh");
            command.args(["-c", "sleep 60 & echo $!; wait"]).stdout(Stdio::piped());
            lead_group(&mut command);
            let mut tool = command.spawn().unwrap();
            RUNNING_GROUPS.add(tool.id());
            print_line(read_line(&mut BufReader::new(tool.stdout.as_mut().unwrap())).as_str());
            // A wait alone would end with the tool, before the signal ends this process.
            sleep(Duration::from_secs(20));
            tool.wait().unwrap();
        }
        _ => {}
    }
}

fn print_line(line: &str) {
    // Not `println`, which the test program captures.
    let mut output = io::stdout();
    writeln!(output, "> {line}").unwrap();
}

/// The next line that the child prints; the test program prints others.
fn read_line(output: &mut impl BufRead) -> String {
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    line.trim().to_owned()
}

fn next_line(output: &mut BufReader<ChildStdout>) -> String {
    loop {
        let line = read_line(output);
        assert!(!line.is_empty() || !output.fill_buf().unwrap().is_empty(), "the child has ended");
        if let Some((_, line)) = line.split_once("> ") {
            return line.to_owned();
        }
    }
}

/// With the usual effect of a hang-up, also where `nohup` has started the tests. A shell cannot undo that.
const USUAL: &str = "exec env --default-signal=HUP";
const IGNORED: &str = "trap '' HUP; exec";

/// Starts the child from a shell, in one of these ways.
fn start(role: &str, way: &str) -> (Child, BufReader<ChildStdout>) {
    let mut command = Command::new("sh");
    let script = format!("{way} \"$0\" --exact --nocapture signals::tests::child");
    command.arg("-c").arg(script).arg(std::env::current_exe().unwrap());
    let mut child = command.env(ROLE, role).stdout(Stdio::piped()).spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    (child, output)
}

fn send(child: &Child, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
}

#[test]
fn a_server_names_its_signal_and_leaves_an_ignored_hang_up_ignored() {
    let (mut child, mut output) = start("server", USUAL);
    assert_eq!(next_line(&mut output), "ready");
    send(&child, Signal::SIGHUP);
    assert_eq!(next_line(&mut output), "SIGHUP");
    child.wait().unwrap();
    let (mut child, mut output) = start("server", IGNORED);
    assert_eq!(next_line(&mut output), "ready");
    send(&child, Signal::SIGHUP);
    sleep(Duration::from_millis(200));
    send(&child, Signal::SIGTERM);
    assert_eq!(next_line(&mut output), "SIGTERM");
    child.wait().unwrap();
}

#[test]
fn a_signal_that_ends_the_process_ends_its_groups() {
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGHUP, 129)] {
        let (mut child, mut output) = start("tools", USUAL);
        let tool: u32 = next_line(&mut output).parse().unwrap();
        assert!(is_alive(tool));
        send(&child, signal);
        assert_eq!(child.wait().unwrap().code(), Some(code));
        let ends = (0..100).any(|_| {
            sleep(Duration::from_millis(30));
            has_ended(tool)
        });
        assert!(ends, "{signal}: the tool still runs");
    }
}

/// Whether a process has ended, or only waits to be collected.
fn has_ended(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_none_or(|rest| rest.is_empty() || rest.starts_with('Z'))
}
