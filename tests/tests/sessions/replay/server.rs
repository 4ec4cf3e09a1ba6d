//! A scripted model on the loopback that records its requests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// What the server does with every request.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// Status 200 with this text as the model's.
    Says(String),
    /// Status 500.
    Fails,
    /// Nothing; the connection stays open.
    Silent,
}

/// One request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The first line: `POST /v1/chat/completions HTTP/1.1`.
    pub(crate) line: String,
    /// The header `authorization`; empty without one.
    pub(crate) authorization: String,
    pub(crate) body: Value,
}

/// A running server. It ends with the process.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) base_url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    pub(crate) fn start(answer: Answer) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = asked.clone();
        std::thread::spawn(move || {
            // Connections that get no answer must not be closed, which would be an answer.
            let mut kept = Vec::new();
            for stream in listener.incoming().map(Result::unwrap) {
                let request = read(&stream);
                log.lock().unwrap().push(request);
                match reply(&answer) {
                    Some(reply) => (&stream).write_all(reply.as_bytes()).unwrap_or_default(),
                    None => kept.push(stream),
                }
            }
        });
        Server { base_url, asked }
    }

    /// The requests so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn read(stream: &TcpStream) -> Asked {
    let mut reader = BufReader::new(stream);
    let mut next = || {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    };
    let line = next();
    let (mut authorization, mut length) = (String::new(), 0);
    loop {
        let header = next();
        let Some((name, value)) = header.split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "authorization" => authorization = value.trim().to_owned(),
            "content-length" => length = value.trim().parse().unwrap(),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    Asked { line, authorization, body: serde_json::from_slice(&body).unwrap() }
}

fn reply(answer: &Answer) -> Option<String> {
    let (status, body) = match answer {
        Answer::Says(text) => ("200 OK", completion(text)),
        Answer::Fails => ("500 Internal Server Error", json!({"error": {"message": "on fire"}})),
        Answer::Silent => return None,
    };
    let body = body.to_string();
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\n");
    Some(format!("{head}content-length: {length}\r\nconnection: close\r\n\r\n{body}"))
}

fn completion(text: &str) -> Value {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion", "model": "scripted-1",
        "choices": [{"index": 0, "finish_reason": "stop",
            "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": 900, "completion_tokens": 120, "total_tokens": 1020},
    })
}
