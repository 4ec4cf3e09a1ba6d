//! `ctxhost chat` and `ctxhost sessions` as a person runs them, against every dialect.

use std::io::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Output, Stdio};

use ctxhost_config::Config;
use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Answered, Fault, Model, ScriptedServer, Step, Steps};
use ctxhost_tests::workplace::{ConfigText, Workplace, answers, words};
use ctxhost_tests::{chaos_library, ctxhost};
use serde_json::json;

const WINDOW_TOKENS: u64 = 32_000;

/// A model that reads the notes and then answers.
fn reader(wire: Wire) -> ScriptedServer {
    let read = Step::call("read_file", json!({"path": "notes.txt"}));
    ScriptedServer::start(wire, Model::new(WINDOW_TOKENS)).script(Steps::new([
        vec![Step::say("I look into the notes."), read],
        vec![Step::say("It is 4711.")],
    ]))
}

fn workplace(server: &ScriptedServer, wire: Wire) -> Workplace {
    ConfigText::new().provider("fake", wire, &server.url(), WINDOW_TOKENS).workplace()
}

/// Runs the binary in a folder and gives it `input`.
fn run(folder: &Path, arguments: &[&str], input: &str) -> Output {
    let mut child = ctxhost()
        .current_dir(folder)
        .env("CTXHOST_STATE_DIR", folder.join("state"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Ends with a code and a message that holds all of these.
fn assert_fails(output: &Output, code: i32, says: &[&str]) {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    for part in says {
        assert!(said.contains(part), "{part:?} is missing in: {said}");
    }
}

#[test]
fn one_prompt_with_a_tool_in_every_dialect() {
    for wire in Wire::ALL {
        let server = reader(wire);
        let place = workplace(&server, wire);
        let output = run(
            place.path(),
            &["chat", "-p", "Which number is it?", "--session", "session.jsonl"],
            "",
        );
        assert_eq!(output.status.code(), Some(0), "{wire:?}: {}", stderr(&output));
        assert_eq!(stdout(&output), "I look into the notes.\nIt is 4711.\n", "{wire:?}");
        assert_eq!(
            stderr(&output),
            "config ctxhost.toml\n* read_file {\"path\":\"notes.txt\"}\n",
            "{wire:?}"
        );
        assert_eq!(server.broken(), [], "{wire:?}");
        let requests = server.requests();
        assert_eq!(requests.len(), 2, "{wire:?}");
        assert!(requests[1].body.to_string().contains("The number is 4711."), "{wire:?}");
        let session = place.session();
        assert_eq!(words(&session), ["Which number is it?"]);
        assert_eq!(answers(&session), ["I look into the notes.", "It is 4711."]);
    }
}

#[test]
fn a_second_prompt_goes_on_with_the_session() {
    for wire in Wire::ALL {
        let server = reader(wire);
        let place = workplace(&server, wire);
        for prompt in ["Which number is it?", "Are you sure?"] {
            let output =
                run(place.path(), &["chat", "-p", prompt, "--session", "session.jsonl"], "");
            assert_eq!(output.status.code(), Some(0), "{wire:?}: {}", stderr(&output));
        }
        assert_eq!(server.broken(), [], "{wire:?}");
        let last = server.requests().last().unwrap().body.to_string();
        for said in ["Which number is it?", "It is 4711.", "Are you sure?"] {
            assert!(last.contains(said), "{wire:?}: {last}");
        }
        assert_eq!(words(&place.session()), ["Which number is it?", "Are you sure?"]);
    }
}

#[test]
fn a_conversation_over_a_pipe() {
    let long = "A long answer about files and sockets. ".repeat(80);
    let script = (0..40).map(|n| vec![Step::say(format!("Answer {n}. {long}"))]);
    let server = ScriptedServer::start(Wire::Anthropic, Model::new(WINDOW_TOKENS))
        .script(Steps::new(script));
    let place = workplace(&server, Wire::Anthropic);
    let talk: String = (0..6).map(|n| format!("Question {n}\n")).collect();
    let input = format!(
        "{talk}/context\n/compact the sockets\n/context\n/undo\n/undo\n/engine mask\n\
         /engine nobody\n/nonsense\n\nOne more\n/quit\nNever said\n"
    );
    let output = run(place.path(), &["chat", "--session", "session.jsonl"], &input);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "a script sees that two commands failed: {said}");
    for part in [
        "engine legacy, session",
        "fake/claude-sonnet-4-5, window 32,000 tokens, engine legacy",
        "budget tokens used",
        "~ legacy compacted",
        " attempted\n",
        "the newest compaction is undone",
        "there is no compaction to undo",
        "engine mask from the next turn on (was legacy)",
        "no engine \"nobody\"",
        "unknown command /nonsense; see /help",
    ] {
        assert!(said.contains(part), "{part:?} is missing in: {said}");
    }
    assert_eq!(said.matches("from the next turn on").count(), 1, "it is told once: {said}");
    let received = stdout(&output);
    assert!(received.contains("Answer 0.") && received.contains("Answer 6."), "{received}");
    assert!(!received.contains("Answer 7."), "after /quit nothing is said: {received}");
    assert_eq!(server.broken(), []);
    let session = place.session();
    let expected: Vec<String> =
        (0..6).map(|n| format!("Question {n}")).chain(["One more".into()]).collect();
    assert_eq!(words(&session), expected);
    assert_eq!(answers(&session).len(), 7);
}

#[test]
fn a_script_gets_the_answer_without_the_attempts_before_it() {
    for seed in 0..4 {
        let answer = format!("The number is {}.", "4711, ".repeat(20 + seed));
        let server = ScriptedServer::start(Wire::OpenAiChat, Model::new(WINDOW_TOKENS))
            .script(Steps::new([vec![Step::say(answer.clone())]]));
        server.fail_next(Fault::CutStream);
        let place = workplace(&server, Wire::OpenAiChat);
        let output = run(place.path(), &["chat", "-p", "Which?", "--session", "s.jsonl"], "");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(stdout(&output), format!("{answer}\n"));
    }
}

#[test]
fn a_failed_turn_does_not_end_the_conversation() {
    let server = ScriptedServer::start(Wire::OpenAiChat, Model::new(WINDOW_TOKENS))
        .script(Steps::new([vec![Step::say("Here I am.")]]));
    server.fail_next(Fault::NoCredit);
    let place = workplace(&server, Wire::OpenAiChat);
    let output =
        run(place.path(), &["chat", "--session", "session.jsonl"], "Hello\nAre you there?\n");
    assert_eq!(output.status.code(), Some(1), "a script sees that a turn failed");
    assert!(stderr(&output).contains("add credit with the provider"), "{}", stderr(&output));
    assert_eq!(stdout(&output), "Here I am.\n");
    assert_eq!(words(&place.session()), ["Hello", "Are you there?"]);
    assert_eq!(server.broken(), []);
}

#[test]
fn a_list_without_sessions_names_those_of_the_gateway() {
    let server = reader(Wire::OpenAiChat);
    let place = workplace(&server, Wire::OpenAiChat);
    let folder = place.path().join("state/gateway/sessions");
    std::fs::create_dir_all(folder.join("key")).unwrap();
    for name in ["one.jsonl", "two.jsonl", "register"] {
        std::fs::write(folder.join("key").join(name), "").unwrap();
    }
    let list = stdout(&run(place.path(), &["sessions", "list"], ""));
    let folder = folder.display();
    let expected = format!(
        "no sessions in this folder; start one with `ctxhost chat`\nthe gateway has 2 sessions in {folder}: list them \
         with `ctxhost sessions du {folder}`, show one with `ctxhost sessions show FILE`\n"
    );
    assert_eq!(list, expected);
}

#[test]
fn kept_sessions_are_listed_shown_and_gone_on_with() {
    let server = reader(Wire::OpenAiChat);
    let place = workplace(&server, Wire::OpenAiChat);
    let none = run(place.path(), &["sessions", "list"], "");
    assert_eq!(none.status.code(), Some(0));
    assert_eq!(stdout(&none), "no sessions in this folder; start one with `ctxhost chat`\n");
    run(place.path(), &["chat", "-p", "Which number is it?"], "");
    run(place.path(), &["chat", "-c", "-p", "Are you sure?"], "");
    let list = stdout(&run(place.path(), &["sessions", "list"], ""));
    let lines: Vec<&str> = list.lines().collect();
    assert_eq!(lines.len(), 2, "one session, gone on with: {list}");
    assert!(
        lines[1].contains("6 entries") && lines[1].ends_with(": Which number is it?"),
        "{list}"
    );
    let shown = run(place.path(), &["sessions", "show", lines[0]], "");
    let shown = stdout(&shown);
    for part in ["user Which number is it?", "I look into the notes. [1 tool call]", "4711"] {
        assert!(shown.contains(part), "{part:?} is missing in: {shown}");
    }
    let absent = run(place.path(), &["sessions", "show", "absent.jsonl"], "");
    assert_fails(&absent, 2, &["absent.jsonl"]);
    assert_eq!(server.broken(), []);
}

#[test]
fn what_is_missing_is_named_before_anything_is_asked() {
    let chat = ["chat", "-p", "Hello", "--session", "session.jsonl"];
    let empty = Workplace::new("");
    assert_fails(
        &run(empty.path(), &chat, ""),
        2,
        &["no model is configured", "[agent] in ctxhost.toml"],
    );
    assert!(
        !empty.path().join("session.jsonl.inbox").exists(),
        "words that were refused are not said later"
    );
    let stranger = Workplace::new("[agent]\nmodel = \"nowhere/m\"\n");
    assert_fails(&run(stranger.path(), &chat, ""), 2, &["[providers.nowhere]", "ctxhost.toml"]);
    let bare = Workplace::new("[agent]\nmodel = \"m\"\n");
    assert_fails(&run(bare.path(), &chat, ""), 2, &["\"m\"", "provider/"]);
    let keyless = ConfigText::new()
        .provider_with(
            "fake",
            Wire::OpenAiChat,
            "http://127.0.0.1:1",
            WINDOW_TOKENS,
            "api_key_env = \"CTXHOST_TEST_NO_SUCH_KEY\"",
        )
        .workplace();
    assert_fails(&run(keyless.path(), &chat, ""), 2, &["CTXHOST_TEST_NO_SUCH_KEY"]);
}

#[test]
fn refusals_end_in_a_message_that_says_what_to_do() {
    let cases: [(Fault, &[&str]); 3] = [
        (Fault::Unauthorized, &["the key is not accepted", "check the key"]),
        (Fault::NoCredit, &["no credit", "add credit with the provider"]),
        (Fault::NoModel, &["no such model", "check the name of the model"]),
    ];
    for wire in Wire::ALL {
        for (fault, says) in cases {
            let server = reader(wire);
            server.fail_always(Some(fault));
            let place = workplace(&server, wire);
            let output = run(place.path(), &["chat", "-p", "Hello"], "");
            assert_fails(&output, 1, says);
            assert_eq!(server.requests().len(), 1, "{wire:?} {fault:?}: asked once is enough");
            assert_eq!(server.requests()[0].answered, Answered::Fault(fault));
        }
    }
}

#[test]
fn a_server_that_is_down_is_named_with_its_address() {
    // A port that was free a moment ago.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let place = ConfigText::new()
        .provider("fake", Wire::Ollama, &format!("http://{address}"), WINDOW_TOKENS)
        .workplace();
    let output = run(place.path(), &["chat", "-p", "Hello", "--session", "session.jsonl"], "");
    assert_fails(&output, 1, &["cannot connect", &address.to_string(), "check the base URL"]);
    assert_eq!(words(&place.session()), ["Hello"], "the words are kept");
}

#[test]
fn a_chat_that_compacts_when_idle_ends_without_waiting_for_a_pause() {
    let server = reader(Wire::Gemini);
    let place = ConfigText::new()
        .provider("fake", Wire::Gemini, &server.url(), WINDOW_TOKENS)
        .tables("[compaction]\ntiming = \"idle\"\nidle_ms = 30000")
        .workplace();
    // Builds the binary, where nobody has.
    ctxhost();
    let begun = std::time::Instant::now();
    let output = run(place.path(), &["chat", "-p", "Which number is it?"], "");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(begun.elapsed().as_secs() < 15, "took {:?}", begun.elapsed());
}

#[test]
fn an_engine_that_failed_is_held_in_the_next_chat_until_it_is_released() {
    let answers = (0..3).map(|_| vec![Step::say("Yes.")]);
    let server = ScriptedServer::start(Wire::Ollama, Model::new(WINDOW_TOKENS))
        .script(Steps::new(answers.collect::<Vec<_>>()));
    let place = ConfigText::new()
        .provider("fake", Wire::Ollama, &server.url(), WINDOW_TOKENS)
        .tables(&format!(
            "[plugins.slots]\ncontext_engine = \"chaos\"\n[plugins.entries.chaos]\npath = {:?}\n\
             isolation = \"thread\"\nconfig = {{ mode = \"panic-assemble\" }}",
            chaos_library()
        ))
        .workplace();
    let chat = || {
        let output = run(place.path(), &["chat", "-p", "Are you there?"], "");
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stderr(&output)
    };
    let held =
        "using engine legacy: engine \"chaos\" is in quarantine: 1 failure, last in assemble: ";
    let said = chat();
    assert!(!said.contains(held), "{said}");
    let said = chat();
    assert!(said.contains(held), "{said}");
    assert_eq!(said.matches("1 failure, last in assemble").count(), 1, "once: {said}");
    let released = run(place.path(), &["engines", "release", "chaos"], "");
    assert!(stdout(&released).contains("it had 1 failure"), "{}", stdout(&released));
    let said = chat();
    assert!(!said.contains(held), "{said}");
    assert_eq!(server.broken(), []);
}

#[test]
fn the_config_of_these_tests_is_a_config() {
    let text = ConfigText::new().provider("fake", Wire::Ollama, "http://127.0.0.1:1", 8_000);
    assert!(Config::parse("ctxhost.toml", &text.to_string()).is_ok());
}
