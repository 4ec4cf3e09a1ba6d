//! How `ctxhost chat` ends when an answer, a session or a disk is not whole: messages and exit codes.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ctxhost_tests::ctxhost;
use ctxhost_tests::rules::Wire;
use ctxhost_tests::workplace::{ConfigText, Workplace};
use serde_json::{Value, json};

/// What a server does with a request.
#[derive(Clone)]
enum Reply {
    /// Status, headers and body.
    Whole(u16, &'static str, String),
    /// The start of a stream, which never ends.
    Unfinished(String),
}

/// A server with a reply for each request; the last one is repeated. Returns its address and the bodies it received.
fn serve(replies: Vec<Reply>) -> (String, Arc<Mutex<Vec<Value>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let bodies: Arc<Mutex<Vec<Value>>> = Arc::default();
    let log = bodies.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let Some(body) = read_body(&mut stream) else { continue };
            let count = {
                let mut log = log.lock().unwrap();
                log.push(body);
                log.len()
            };
            let reply = replies[(count - 1).min(replies.len() - 1)].clone();
            std::thread::spawn(move || answer(&mut stream, &reply));
        }
    });
    (url, bodies)
}

fn read_body(stream: &mut TcpStream) -> Option<Value> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 8_192];
    loop {
        let count = stream.read(&mut buffer).ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        if head.starts_with("GET") {
            return None;
        }
        if let Ok(body) = serde_json::from_str(body) {
            return Some(body);
        }
    }
}

fn answer(stream: &mut TcpStream, reply: &Reply) {
    match reply {
        Reply::Whole(status, headers, body) => {
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n{headers}\r\n"
            );
            let _ = stream.write_all(format!("{head}{body}").as_bytes());
        }
        Reply::Unfinished(body) => {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
            let _ = stream.write_all(format!("{head}{body}").as_bytes());
            std::thread::sleep(Duration::from_secs(60));
        }
    }
}

/// The events of an Anthropic answer with these blocks; without a stop reason it has no end.
fn events(blocks: &[Value], stop: Option<&str>) -> String {
    let mut data = vec![json!({"type": "message_start", "message": {
        "id": "msg_1", "model": "m", "usage": {"input_tokens": 10, "output_tokens": 1}}})];
    for (index, block) in blocks.iter().enumerate() {
        let (start, delta) = match block.get("name") {
            None => (
                json!({"type": "text", "text": ""}),
                json!({"type": "text_delta", "text": block["text"]}),
            ),
            Some(name) => (
                json!({"type": "tool_use", "id": "call_1", "name": name, "input": {}}),
                json!({"type": "input_json_delta",
                    "partial_json": block["arguments"].as_str().unwrap_or("{\"path\": \"a")}),
            ),
        };
        data.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
        data.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
    }
    if let Some(stop) = stop {
        data.push(json!({"type": "message_delta", "delta": {"stop_reason": stop},
            "usage": {"output_tokens": 2000}}));
        data.push(json!({"type": "message_stop"}));
    }
    data.iter()
        .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()))
        .collect()
}

fn stream(blocks: &[Value], stop: &str) -> Reply {
    Reply::Whole(200, "content-type: text/event-stream\r\n", events(blocks, Some(stop)))
}

fn text(text: &str) -> Value {
    json!({ "text": text })
}

fn place(url: &str) -> Workplace {
    ConfigText::new()
        .agent("max_output_tokens = 2000")
        .provider("fake", Wire::Anthropic, url, 32_000)
        .workplace()
}

fn spawn(folder: &Path, arguments: &[&str]) -> Child {
    ctxhost()
        .current_dir(folder)
        .env("CTXHOST_STATE_DIR", folder.join("state"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn send(place: &Workplace, text: &str) -> Output {
    let arguments = ["chat", "--session", "session.jsonl", "-p", text];
    spawn(place.path(), &arguments).wait_with_output().unwrap()
}

/// Runs a command that reads this input.
fn send_with(place: &Workplace, arguments: &[&str], input: &str) -> Output {
    let mut command = ctxhost();
    command.current_dir(place.path()).env("CTXHOST_STATE_DIR", place.path().join("state"));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn an_answer_cut_off_at_the_limit_is_reported_with_its_setting() {
    let call = json!({"name": "write_file"});
    let (url, bodies) = serve(vec![
        stream(&[text("The first half")], "max_tokens"),
        stream(&[text("I write it."), call.clone()], "max_tokens"),
        stream(&[call], "max_tokens"),
        stream(&[text("Done.")], "end_turn"),
    ]);
    let place = place(&url);
    let limit = "cut off at the output limit, 2,000 tokens (agent.max_output_tokens)";
    let output = send(&place, "Tell me");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stdout, b"The first half\n");
    assert!(stderr(&output).contains(limit), "{}", stderr(&output));
    assert!(stderr(&output).contains("send `continue`"), "{}", stderr(&output));

    let output = send(&place, "Write it");
    assert_eq!(output.status.code(), Some(0));
    assert!(stderr(&output).contains("its call of write_file did not run"), "{}", stderr(&output));

    let output = send(&place, "Again");
    assert_eq!(output.status.code(), Some(1), "nothing was answered");
    let report = stderr(&output);
    assert!(
        report.contains(limit) && report.contains("call of write_file did not run"),
        "{report}"
    );

    assert_eq!(send(&place, "Once more").status.code(), Some(0));
    let last = bodies.lock().unwrap().last().unwrap().to_string();
    assert_eq!(last.matches("Its call of write_file did not run").count(), 2, "{last}");
}

#[test]
fn an_answer_that_the_provider_refuses_is_requested_once() {
    let (url, bodies) = serve(vec![stream(&[], "refusal")]);
    let output = send(&place(&url), "Tell me");
    assert_eq!(output.status.code(), Some(1));
    let report = stderr(&output);
    assert!(report.contains("the provider refused to answer (stop reason `refusal`)"), "{report}");
    assert!(!report.contains("the dialect"), "{report}");
    assert_eq!(bodies.lock().unwrap().len(), 1);
}

#[test]
fn an_answer_that_the_provider_ends_after_some_text_is_shown_and_a_failure() {
    let (url, bodies) = serve(vec![stream(&[text("First,")], "refusal")]);
    let place = place(&url);
    let output = send(&place, "Tell me");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stdout, b"First,\n");
    assert!(stderr(&output).contains("(stop reason `refusal`)"), "{}", stderr(&output));
    assert_eq!(bodies.lock().unwrap().len(), 1);
    let output = send_with(&place, &["chat"], "Tell me\n");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
}

#[test]
fn a_call_of_an_illegal_name_comes_back_with_its_result() {
    let call = json!({"name": "functions.write_file", "arguments": "{}"});
    let (url, bodies) =
        serve(vec![stream(&[call], "tool_use"), stream(&[text("Done.")], "end_turn")]);
    let output = send(&place(&url), "Write it");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let messages = bodies.lock().unwrap()[1]["messages"].clone();
    assert_eq!(messages[1]["content"][0]["name"], "functions_write_file", "{messages}");
    assert_eq!(messages[2]["content"][0]["type"], "tool_result", "{messages}");
}

#[test]
fn an_answer_that_cannot_be_written_is_an_error() {
    let Ok(full) = std::fs::OpenOptions::new().write(true).open("/dev/full") else { return };
    let (url, _) = serve(vec![stream(&[text("Done.")], "end_turn")]);
    let place = place(&url);
    let chat = |stdout: Stdio| {
        let mut command = ctxhost();
        command.current_dir(place.path()).env("CTXHOST_STATE_DIR", place.path().join("state"));
        command.args(["chat", "-p", "Tell me"]).stdin(Stdio::null()).stdout(stdout);
        command.stderr(Stdio::piped()).output().unwrap()
    };
    let output = chat(full.into());
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("No space left on device"), "{}", stderr(&output));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = chat(writer.into());
    assert_eq!(output.status.code(), Some(0), "a closed pipe: {}", stderr(&output));
}

#[test]
fn text_on_standard_input_follows_the_message() {
    let (url, bodies) = serve(vec![stream(&[text("Done.")], "end_turn")]);
    let place = place(&url);
    let arguments = ["chat", "--session", "session.jsonl", "-p", "Sum up"];
    let output = send_with(&place, &arguments, "line 1\nline 2\n");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let sent = bodies.lock().unwrap()[0].to_string();
    assert!(sent.contains(r"Sum up\n\n<stdin>\nline 1\nline 2\n</stdin>"), "{sent}");
    assert_eq!(send(&place, "Go on").status.code(), Some(0));
    let sent = bodies.lock().unwrap()[1].to_string();
    assert_eq!(sent.matches("<stdin>").count(), 1, "{sent}");
}

#[test]
fn a_message_may_begin_with_a_path() {
    let (url, bodies) = serve(vec![stream(&[text("Done.")], "end_turn")]);
    let output = send_with(&place(&url), &["chat"], "/etc/hosts what is in this file?\n");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(bodies.lock().unwrap()[0].to_string().contains("/etc/hosts what is in"));
}

#[cfg(unix)]
#[test]
fn ctrl_c_keeps_the_answer_so_far() {
    let (url, bodies) = serve(vec![
        Reply::Unfinished(events(&[text("Once upon a")], None)),
        stream(&[text("time")], "end_turn"),
    ]);
    let place = place(&url);
    let child = spawn(place.path(), &["chat", "--session", "session.jsonl", "-p", "Tell me"]);
    let start = Instant::now();
    while bodies.lock().unwrap().is_empty() && start.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(500));
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(stderr(&output).contains("interrupted; the session keeps"), "{}", stderr(&output));
    assert_eq!(send(&place, "continue").status.code(), Some(0));
    let messages = bodies.lock().unwrap().last().unwrap()["messages"].clone();
    assert_eq!(messages[1]["role"], "assistant", "{messages}");
    assert!(messages[1].to_string().contains("Once upon a"), "{messages}");
    assert!(messages[2].to_string().contains("interrupted your answer"), "{messages}");
}

#[test]
fn a_long_wait_for_a_rate_limit_is_shown() {
    let body = r#"{"type":"error","error":{"type":"rate_limit_error","message":"slow"}}"#;
    let (url, _) = serve(vec![
        Reply::Whole(429, "retry-after: 3\r\n", body.into()),
        stream(&[text("Done.")], "end_turn"),
    ]);
    let output = send(&place(&url), "Tell me");
    assert_eq!(output.status.code(), Some(0));
    let expected = "waiting 3 s for fake/claude-sonnet-4-5: rate limit (retry 1 of 4)";
    assert!(stderr(&output).contains(expected), "{}", stderr(&output));
}

#[test]
fn a_damaged_session_is_named_before_it_is_continued() {
    let (url, _) = serve(vec![stream(&[text("Done.")], "end_turn")]);
    let place = place(&url);
    for number in 0..3 {
        send(&place, &format!("fact {number}"));
    }
    let path = place.session_path();
    let whole = std::fs::read_to_string(&path).unwrap();
    let mut lines: Vec<&str> = whole.lines().collect();
    lines[3] = &lines[3][..40];
    std::fs::write(&path, lines.join("\n") + "\n").unwrap();
    let output = send(&place, "fact 3");
    let report = stderr(&output);
    for part in ["the session is damaged in lines 4", "; line 4: skipped", "run `ctxhost fsck "] {
        assert!(report.contains(part), "{part:?} is missing in: {report}");
    }
}

#[cfg(unix)]
#[test]
fn a_message_that_cannot_be_recorded_stays_queued() {
    let (url, bodies) = serve(vec![stream(&[text(&"words ".repeat(3_000))], "end_turn")]);
    let place = place(&url);
    assert_eq!(send(&place, "Tell me").status.code(), Some(0));
    let program = ctxhost().get_program().to_owned();
    // Files may grow to a few kB only, as on a full disk; the session has more.
    let line = "trap '' XFSZ; ulimit -f 8; exec \"$0\" chat --session session.jsonl -p 'Not lost'";
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(line).arg(program).current_dir(place.path());
    shell.env("CTXHOST_STATE_DIR", place.path().join("state")).stdin(Stdio::null());
    let output = shell.output().unwrap();
    let report = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{report}");
    assert!(report.contains("stays queued"), "{report}");
    assert_eq!(send(&place, "Next").status.code(), Some(0));
    let last = bodies.lock().unwrap().last().unwrap().to_string();
    assert!(last.contains("Not lost"), "{last}");
}
