//! The server as a program: it prints its address and answers there.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use ctxhost_tests::rules::Wire;

use super::client::{client, hear, request};

/// Ends the program with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn the_program_prints_its_address_and_answers() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scripted-provider"));
    command.args(["--wire", "gemini", "--port", "0", "--window", "32k", "--seed", "1"]);
    let mut running = Running(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut url = String::new();
    BufReader::new(running.0.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let (path, body) = request(Wire::Gemini, "hello", false);
    let answer = client().post(format!("{}{path}", url.trim())).json(&body).send().await.unwrap();
    let received = hear(Wire::Gemini, &answer.text().await.unwrap());
    assert!(received.text.starts_with("Answer 0: "), "{received:?}");
}
