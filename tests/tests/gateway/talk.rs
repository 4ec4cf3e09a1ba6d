//! A client that sends its whole conversation with every request.

use ctxhost_tests::rules::Wire;
use serde_json::Value;

use crate::overflow::{key, path, request, said};
use crate::stage::client;

/// A conversation of plain words.
#[derive(Clone, Debug)]
pub(crate) struct Talk {
    pub(crate) wire: Wire,
    /// By turns of the person and of the model.
    pub(crate) texts: Vec<String>,
    session: Option<&'static str>,
    client: reqwest::Client,
}

impl Talk {
    pub(crate) fn new(wire: Wire) -> Talk {
        Talk { wire, texts: Vec::new(), session: None, client: client() }
    }

    /// One that says whose conversation it is.
    pub(crate) fn of_session(wire: Wire, session: &'static str) -> Talk {
        Talk { session: Some(session), ..Talk::new(wire) }
    }

    /// The person speaks; nothing is sent yet.
    pub(crate) fn say(&mut self, words: String) {
        self.texts.push(words);
    }

    /// The request that is next, to the gateway at this address.
    pub(crate) fn request(&self, url: &str) -> reqwest::RequestBuilder {
        let (name, value) = key(self.wire);
        let request = self.client.post(format!("{url}{}", path(self.wire, false)));
        let request = request.header(name, value).header("anthropic-version", "2023-06-01");
        let request = match self.session {
            Some(session) => request.header("x-ctxhost-session", session),
            None => request,
        };
        let body = request_body(self.wire, &self.texts);
        request.header("content-type", "application/json").body(body)
    }

    /// Asks, and takes in the answer, which must be one.
    pub(crate) async fn ask(&mut self, url: &str) {
        let answer = self.request(url).send().await.unwrap();
        let status = answer.status();
        let text = answer.text().await.unwrap();
        assert_eq!(status, 200, "{:?} {}: {text}", self.wire, self.texts.len());
        let answer: Value = serde_json::from_str(&text).unwrap();
        self.texts.push(said(self.wire, &answer));
    }
}

fn request_body(wire: Wire, texts: &[String]) -> String {
    request(wire, texts, false).to_string()
}
