//! Clients that edit old messages: cut, joined, flattened and summarized histories stay one session, and conversations with a
//! common beginning stay two.

use std::collections::HashMap;

use super::*;

/// Words of which texts are made.
const WORDS: [&str; 16] = [
    "ledger", "parser", "window", "column", "engine", "branch", "record", "folder", "header",
    "socket", "buffer", "cursor", "thread", "signal", "vector", "matrix",
];

/// A text of so many words that depends on the seed.
fn words(seed: u64, count: usize) -> String {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let word = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        format!("{}{}", WORDS[(state % 16) as usize], (state >> 8) % 100)
    };
    (0..count).map(word).collect::<Vec<_>>().join(" ")
}

/// What a client does with its old messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edit {
    None,
    /// Texts of more characters are cut.
    Cut(usize),
    /// Texts of answers are replaced by a note.
    Omit,
    /// Neighbours of one role become one message.
    Join,
    /// Calls and results become text.
    Flatten,
    /// One message of this role takes the place of the oldest ones whenever there are so many; without a role, they are gone.
    Summarize(Option<&'static str>, usize),
}

/// A client with its history.
struct Client {
    seed: u64,
    edit: Edit,
    /// The newest messages, which stay as they are.
    newest: usize,
    has_calls: bool,
    has_random_ids: bool,
    history: Vec<Value>,
    /// The messages of the history that a summary has replaced, and the summary.
    summarized: (usize, Option<Value>),
    turn: usize,
}

impl Client {
    fn new(seed: u64, edit: Edit, newest: usize, has_calls: bool) -> Client {
        let (history, summarized) = (Vec::new(), (0, None));
        Client {
            seed,
            edit,
            newest,
            has_calls,
            has_random_ids: false,
            history,
            summarized,
            turn: 0,
        }
    }

    fn text(&self, part: u64, count: usize) -> String {
        words(self.seed.wrapping_mul(1_000_003) + self.turn as u64 * 10 + part, count)
    }

    /// The requests of the next turn.
    fn take_turn(&mut self) -> Vec<Vec<Value>> {
        let mut requests = Vec::new();
        self.history.push(user(&format!("Question {}: {}", self.turn, self.text(1, 30))));
        if self.turn % 3 == 1 {
            self.history.push(user(&format!("Mind that: {}", self.text(2, 20))));
        }
        if self.has_calls {
            requests.push(self.request());
            if self.turn.is_multiple_of(2) {
                let text = self.text(3, 12);
                self.history.push(json!({ "role": "assistant", "content": text }));
            }
            let id = if self.has_random_ids {
                format!("call_{:024x}", self.seed.wrapping_mul(77) + self.turn as u64)
            } else {
                format!("call_{}", self.turn)
            };
            let function = json!({ "name": "read", "arguments": json!({ "path": self.text(4, 2) }).to_string() });
            self.history.push(json!({ "role": "assistant", "content": null,
                "tool_calls": [{ "id": id, "type": "function", "function": function }] }));
            self.history
                .push(json!({ "role": "tool", "tool_call_id": id, "content": self.text(5, 60) }));
        }
        requests.push(self.request());
        let answer = self.text(6, 40);
        self.history.push(json!({ "role": "assistant", "content": answer }));
        self.turn += 1;
        requests
    }

    /// The history as the client sends it.
    fn request(&mut self) -> Vec<Value> {
        let mut from = self.history.len().saturating_sub(self.newest);
        // A call and its result are not separated.
        while from > 0 && self.history[from]["role"] == "tool" {
            from -= 1;
        }
        let (old, new) = self.history.split_at(from);
        let old: Vec<Value> = match self.edit {
            Edit::None => old.to_vec(),
            Edit::Cut(length) => {
                old.iter().map(|it| with_text(it, |text| cut(text, length))).collect()
            }
            Edit::Omit => old
                .iter()
                .map(|it| {
                    if it["role"] == "assistant" {
                        with_text(it, |_| "[omitted]".to_owned())
                    } else {
                        it.clone()
                    }
                })
                .collect(),
            Edit::Join => join(old),
            Edit::Flatten => old.iter().map(flatten).collect(),
            Edit::Summarize(role, most) => {
                if from - self.summarized.0 > most {
                    let text = format!("What was done so far: {}", self.text(7, 50));
                    let summary = role.map(|role| json!({ "role": role, "content": text }));
                    self.summarized = (from, summary);
                }
                let (end, summary) = &self.summarized;
                summary.iter().cloned().chain(old[*end..].iter().cloned()).collect()
            }
        };
        [&old[..], new].concat()
    }
}

fn with_text(message: &Value, change: impl Fn(&str) -> String) -> Value {
    let mut message = message.clone();
    if let Some(text) = message["content"].as_str().map(change) {
        message["content"] = text.into();
    }
    message
}

fn cut(text: &str, length: usize) -> String {
    if text.len() > length + 40 {
        format!("{}... [{} characters cut]", &text[..length], text.len() - length)
    } else {
        text.to_owned()
    }
}

fn join(messages: &[Value]) -> Vec<Value> {
    let mut joined: Vec<Value> = Vec::new();
    for message in messages {
        let is_text = |message: &Value| message["content"].is_string() && message["role"] != "tool";
        match joined.last_mut() {
            Some(last)
                if last["role"] == message["role"]
                    && is_text(last)
                    && message["role"] != "tool" =>
            {
                let texts = [&*last, message]
                    .map(|it| it["content"].as_str().unwrap_or_default().to_owned());
                let mut new = message.clone();
                new["content"] = texts.join("\n\n").trim_end().into();
                *last = new;
            }
            _ => joined.push(message.clone()),
        }
    }
    joined
}

fn flatten(message: &Value) -> Value {
    if message["role"] == "tool" {
        return user(&format!("[Result of read]\n{}", message["content"].as_str().unwrap()));
    }
    match message.pointer("/tool_calls/0/function") {
        Some(function) => {
            let text = format!("[Called {} with {}]", function["name"], function["arguments"]);
            json!({ "role": "assistant", "content": text })
        }
        None => message.clone(),
    }
}

/// Panics unless each result follows its call, and each call has its result.
fn check_pairs(messages: &[Value]) {
    let mut open: HashMap<String, usize> = HashMap::new();
    for message in messages {
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            *open.entry(call["id"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        if let Some(id) = message["tool_call_id"].as_str() {
            let count = open.get_mut(id).unwrap_or_else(|| panic!("{id} has no call"));
            *count -= 1;
        }
    }
    assert!(open.values().all(|count| *count == 0), "{open:?}");
}

fn edits() -> impl Strategy<Value = Edit> {
    prop_oneof![
        (50usize..160).prop_map(Edit::Cut),
        Just(Edit::Omit),
        Just(Edit::Join),
        Just(Edit::Flatten),
        (
            prop::sample::select(vec![Some("user"), Some("assistant"), Some("system"), None]),
            1usize..8
        )
            .prop_map(|(role, most)| Edit::Summarize(role, most)),
    ]
}

fn any_edit() -> impl Strategy<Value = Edit> {
    prop_oneof![1 => Just(Edit::None), 4 => edits()]
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 64, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn an_edited_history_stays_one_session(
        edit in edits(),
        newest in 8usize..14,
        has_calls in any::<bool>(),
        has_random_ids in any::<bool>(),
        is_small in any::<bool>(),
        seed in 1u64..1_000_000,
    ) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let window_tokens = if is_small { 4_000 } else { 200_000 };
            let gateway = Gateway::open(folder.path(), window_tokens).await;
            let mut client = Client::new(seed, edit, newest, has_calls);
            client.has_random_ids = has_random_ids;
            let mut sessions = BTreeSet::new();
            for turn in 0..16 {
                for request in client.take_turn() {
                    let sent = gateway.forward(None, &request).await;
                    sessions.insert(sent.report.session.clone());
                    let body: Value = serde_json::from_slice(&sent.body).unwrap();
                    let messages = body["messages"].as_array().unwrap();
                    if window_tokens > 100_000 {
                        assert_eq!(*messages, request, "turn {turn}");
                    }
                    check_pairs(messages);
                    assert_eq!(messages.last(), request.last());
                    gateway.proxy.record_answer(sent.in_flight, AnswerReport::default());
                }
            }
            gateway.close().await;
            assert_eq!(sessions.len(), 1, "{edit:?}: {sessions:?}");
        });
    }

    /// Samples of one prefix, and runs of one task: the first messages are equal, the rest is not.
    #[test]
    fn conversations_with_a_common_beginning_are_not_merged(
        edits in [any_edit(), any_edit()],
        newest in [2usize..12, 2usize..12],
        has_calls in any::<bool>(),
        common in 1usize..8,
        order in prop::collection::vec(any::<bool>(), 20),
        seed in 1u64..1_000_000,
    ) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let gateway = Gateway::open(folder.path(), 200_000).await;
            let mut first = Client::new(seed, edits[0], newest[0], has_calls);
            for _ in 0..common {
                for request in first.take_turn() {
                    gateway.ask(&request).await;
                }
            }
            let mut second = Client::new(seed + 1, edits[1], newest[1], has_calls);
            (second.history, second.turn) = (first.history.clone(), first.turn);
            let mut clients = [first, second];
            let mut sessions = [BTreeSet::new(), BTreeSet::new()];
            for is_second in order {
                let at = usize::from(is_second);
                for request in clients[at].take_turn() {
                    sessions[at].insert(gateway.ask(&request).await.session);
                }
            }
            gateway.close().await;
            let shared: Vec<_> = sessions[0].intersection(&sessions[1]).collect();
            assert!(shared.is_empty(), "{edits:?}: {sessions:?}");
        });
    }
}
