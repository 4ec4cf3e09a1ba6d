//! Commands: their output, their exit, and that no process outlives them.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::{sleep, timeout};

use super::stage::{Stage, context};
use crate::ToolSettings;

#[tokio::test]
async fn stdout_and_stderr_are_in_order_with_the_exit_code() {
    let stage = Stage::new();
    let script = "echo one; echo two >&2; echo three; pwd";
    let text = stage.call_ok("shell", json!({"command": script})).await;
    let folder = stage.folder.path().canonicalize().unwrap();
    assert_eq!(text, format!("one\ntwo\nthree\n{}\n", folder.display()));
    let text = stage.call_error("shell", json!({"command": "printf broken; exit 3"})).await;
    assert_eq!(text, "broken\n[exit code 3]");
    let text = stage.call_error("shell", json!({"command": "kill -9 $$"})).await;
    assert_eq!(text, "[killed by signal 9]");
    assert_eq!(stage.call_ok("shell", json!({"command": "true"})).await, "(no output)");
    let text = stage.call_ok("shell", json!({"command": "cat"})).await;
    assert_eq!(text, "(no output)", "standard input is empty");
}

#[tokio::test]
async fn a_missing_folder_is_named() {
    let stage = Stage::new();
    let nowhere = stage.path("nowhere");
    let output =
        stage.registry.call("shell", &json!({"command": "true"}), &context(&nowhere)).await;
    assert!(output.is_error);
    assert!(output.joined_text().contains("cannot start a shell in"), "{output:?}");
}

#[tokio::test]
async fn five_megabytes_are_kept_and_their_end_is_shown() {
    let stage = Stage::new();
    let script = "i=0; head -c 5242880 /dev/zero | tr '\\0' 'x' | fold -w 99; echo; echo the end";
    let text = stage.call_ok("shell", json!({"command": script})).await;
    assert!(text.len() < 52_000, "{}", text.len());
    assert!(text.ends_with("\nthe end\n"));
    let (notice, shown) = text.split_once('\n').unwrap();
    assert_eq!(shown.lines().next().unwrap().len(), 99, "a line was cut in two");
    let saved = notice.split("all of it is in ").nth(1).unwrap().trim_end_matches(']');
    let whole = std::fs::read_to_string(saved).unwrap();
    assert!(notice.contains(&format!("of {} bytes", whole.len())), "{notice}");
    assert!(whole.len() > 5_242_880 && whole.ends_with(shown));
    std::fs::remove_file(saved).unwrap();
}

#[tokio::test]
async fn a_hanging_command_is_ended_and_its_output_kept() {
    let stage = Stage::new();
    let started = Instant::now();
    let arguments = json!({"command": "echo begun; sleep 60 & sleep 60", "timeout_ms": 300});
    let text = stage.call_error("shell", arguments).await;
    assert_eq!(text, "begun\n[ended after 300 ms, with all that it had started]");
    assert!(started.elapsed() < Duration::from_secs(5));
    // Endless output does not delay the timeout.
    let text = stage.call_error("shell", json!({"command": "yes", "timeout_ms": 300})).await;
    assert!(text.ends_with("[ended after 300 ms, with all that it had started]"));
    let saved = text.split(" in ").nth(1).unwrap().split(']').next().unwrap();
    std::fs::remove_file(saved).unwrap();
}

#[tokio::test]
async fn the_process_group_is_killed_with_the_future() {
    let stage = Stage::new();
    // A grandchild that writes for ever, and a shell that waits for it.
    let script = "echo $$ > pid; (while :; do date >> ticks; sleep 0.05; done) & wait";
    let arguments = json!({"command": script});
    let call = stage.call("shell", arguments);
    assert!(timeout(Duration::from_millis(600), call).await.is_err());
    assert!(!stage.text_of("ticks").is_empty());
    assert!(dies(&stage.text_of("pid")).await, "the shell lives on");
    let then = stage.text_of("ticks");
    sleep(Duration::from_millis(300)).await;
    assert_eq!(stage.text_of("ticks"), then, "the grandchild lives on");
}

#[tokio::test]
async fn background_processes_end_with_the_command() {
    let stage = Stage::new();
    let started = Instant::now();
    let text =
        stage.call_ok("shell", json!({"command": "sleep 60 & echo $! > pid; echo done"})).await;
    assert_eq!(text, "done\n");
    assert!(started.elapsed() < Duration::from_secs(5), "the pipe was waited for");
    assert!(dies(&stage.text_of("pid")).await);
}

#[tokio::test]
async fn api_keys_are_hidden() {
    // Tests share the environment, so this uses a variable that cargo sets.
    let settings = ToolSettings {
        shell_hidden_env: vec!["CARGO_PKG_N*".to_owned().try_into().unwrap()],
        ..ToolSettings::default()
    };
    let script = "echo \"$CARGO_PKG_NAME|$CARGO_PKG_VERSION\"";
    let hidden = Stage::with(settings).call_ok("shell", json!({"command": script})).await;
    assert_eq!(hidden, format!("|{}\n", env!("CARGO_PKG_VERSION")));
    let shown = Stage::new().call_ok("shell", json!({"command": script})).await;
    let package = concat!(env!("CARGO_PKG_NAME"), "|", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(shown, package);
}

#[tokio::test]
async fn variables_that_a_program_names_are_hidden_too() {
    let settings = ToolSettings::default().hiding_variables(["CARGO_PKG_NAME", "NOT_SET[A-"]);
    assert_eq!(settings.shell_hidden_env.len(), 3);
    let script = "echo \"$CARGO_PKG_NAME|$CARGO_PKG_VERSION\"";
    let hidden = Stage::with(settings).call_ok("shell", json!({"command": script})).await;
    assert_eq!(hidden, format!("|{}\n", env!("CARGO_PKG_VERSION")));
}

/// Whether a process has exited (or is a zombie) within a few seconds.
async fn dies(pid: &str) -> bool {
    let stat = Path::new("/proc").join(pid.trim()).join("stat");
    for _ in 0..100 {
        match std::fs::read_to_string(&stat) {
            Err(_) => return true,
            Ok(stat) if stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')) => {
                return true;
            }
            Ok(_) => sleep(Duration::from_millis(30)).await,
        }
    }
    false
}
