//! Clients that leave out a part of their history: old tool calls, the oldest messages, or texts of results.

use super::*;

fn answer(agent: &str, turn: usize) -> Value {
    let text = format!("{agent} has read part {turn} and found that it says so: ").repeat(6);
    json!({ "role": "assistant", "content": text })
}

fn question(turn: usize) -> Value {
    user(&format!("Question {turn}: what does part {turn} say?"))
}

/// A turn: a question, one round of calls, the final answer.
fn turn(agent: &str, number: usize) -> Vec<Value> {
    let text = format!("{number}: {}", "line ".repeat(600));
    vec![question(number), call(number), result(number, &text), answer(agent, number)]
}

fn is_tool_use(message: &Value) -> bool {
    message["role"] == "tool" || message.get("tool_calls").is_some()
}

/// The size of all session files in bytes.
fn session_bytes(folder: &Path) -> u64 {
    let mut folders = vec![folder.to_owned()];
    let mut bytes = 0;
    while let Some(folder) = folders.pop() {
        for file in std::fs::read_dir(folder).unwrap().filter_map(Result::ok) {
            let path = file.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "jsonl") {
                bytes += file.metadata().unwrap().len();
            }
        }
    }
    bytes
}

/// The session file with this id.
fn session_text(folder: &Path, id: &str) -> String {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for file in std::fs::read_dir(folder).unwrap().filter_map(Result::ok) {
            let path = file.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().is_some_and(|name| name == &*format!("{id}.jsonl")) {
                return std::fs::read_to_string(path).unwrap();
            }
        }
    }
    panic!("{id} has no file");
}

/// Takes 24 turns of which each request is what `form` makes of the history, with a restart in the middle of a turn.
async fn take_turns(form: impl Fn(&[Vec<Value>]) -> Vec<Value>) -> (BTreeSet<String>, u64, u64) {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = Gateway::open(folder.path(), 200_000).await;
    let (mut turns, mut sessions) = (Vec::<Vec<Value>>::new(), BTreeSet::new());
    for number in 0..24 {
        let new = turn("It", number);
        turns.push(new[..1].to_vec());
        sessions.insert(gateway.ask(&form(&turns)).await.session);
        if number == 12 {
            gateway.close().await;
            gateway = Gateway::open(folder.path(), 200_000).await;
        }
        *turns.last_mut().unwrap() = new[..3].to_vec();
        sessions.insert(gateway.ask(&form(&turns)).await.session);
        *turns.last_mut().unwrap() = new;
    }
    gateway.close().await;
    let sent = turns.iter().flatten().map(|message| message.to_string().len() as u64).sum();
    (sessions, session_bytes(folder.path()), sent)
}

#[tokio::test]
async fn tool_calls_that_are_left_out_after_two_turns_keep_the_session() {
    let form = |turns: &[Vec<Value>]| {
        let old = turns.len().saturating_sub(3);
        let (old, new) = turns.split_at(old);
        let old = old.iter().flatten().filter(|message| !is_tool_use(message));
        old.chain(new.iter().flatten()).cloned().collect()
    };
    let (sessions, bytes, sent) = take_turns(form).await;
    assert_eq!(sessions.len(), 1, "{sessions:?}");
    assert!(bytes < 3 * sent, "{bytes} for {sent}");
}

#[tokio::test]
async fn a_client_that_stores_final_answers_only_has_few_sessions() {
    let form = |turns: &[Vec<Value>]| {
        let (new, old) = turns.split_last().unwrap();
        let old = old.iter().flatten().filter(|message| !is_tool_use(message));
        old.chain(new).cloned().collect()
    };
    let (sessions, ..) = take_turns(form).await;
    // The first requests have too few answers to prove what they belong to.
    assert!(sessions.len() <= 3, "{sessions:?}");
}

#[tokio::test]
async fn a_window_over_the_newest_turns_is_stored_once() {
    for keeps_first in [false, true] {
        let form = |turns: &[Vec<Value>]| {
            let from = turns.len().saturating_sub(5);
            let first = usize::from(keeps_first && from > 0);
            turns[0][..first].iter().chain(turns[from..].iter().flatten()).cloned().collect()
        };
        let (sessions, bytes, sent) = take_turns(form).await;
        assert_eq!(sessions.len(), 1, "{keeps_first}: {sessions:?}");
        assert!(bytes < 3 * sent, "{keeps_first}: {bytes} for {sent}");
    }
}

#[tokio::test]
async fn a_window_in_which_old_tool_calls_are_left_out_keeps_the_session() {
    let form = |turns: &[Vec<Value>]| {
        let turns = &turns[turns.len().saturating_sub(7)..];
        let (old, new) = turns.split_at(turns.len().saturating_sub(2));
        let old = old.iter().flatten().filter(|message| !is_tool_use(message));
        old.chain(new.iter().flatten()).cloned().collect()
    };
    let (sessions, bytes, sent) = take_turns(form).await;
    assert_eq!(sessions.len(), 1, "{sessions:?}");
    assert!(bytes < 3 * sent, "{bytes} for {sent}");
}

#[tokio::test]
async fn a_notice_longer_than_its_result_and_new_fields_keep_the_session() {
    let form = |turns: &[Vec<Value>]| {
        let newest = turns.len().saturating_sub(2);
        let edited = turns.iter().enumerate().flat_map(|(number, turn)| {
            turn.iter().map(move |message| {
                let mut message = message.clone();
                match message["role"].as_str() {
                    Some("tool") if number < newest => {
                        message["content"] = "[The old result is left out. ".repeat(40).into();
                    }
                    Some("assistant") if number < newest => message["refusal"] = Value::Null,
                    _ => {}
                }
                message
            })
        });
        edited.collect()
    };
    let (sessions, ..) = take_turns(form).await;
    assert_eq!(sessions.len(), 1, "{sessions:?}");
}

#[tokio::test]
async fn answers_without_their_calls_keep_the_session() {
    let form = |turns: &[Vec<Value>]| {
        let newest = turns.len().saturating_sub(2);
        let mut sent = Vec::new();
        for (number, turn) in turns.iter().enumerate() {
            for message in turn {
                let mut message = message.clone();
                if message.get("tool_calls").is_some() {
                    message["content"] = format!("Let me look at part {number}.").into();
                }
                if number < newest {
                    message.as_object_mut().unwrap().shift_remove("tool_calls");
                }
                if number >= newest || message["role"] != "tool" {
                    sent.push(message);
                }
            }
        }
        sent
    };
    let (sessions, ..) = take_turns(form).await;
    assert_eq!(sessions.len(), 1, "{sessions:?}");
}

#[tokio::test]
async fn a_note_in_the_place_of_an_image_keeps_the_session() {
    let form = |turns: &[Vec<Value>]| {
        let newest = turns.len().saturating_sub(2);
        let shown = turns.iter().enumerate().flat_map(|(number, turn)| {
            turn.iter().map(move |message| {
                let mut message = message.clone();
                // Conversations whose first message changes are found in memory only.
                if message["role"] == "user" && number > 0 {
                    let url = format!("data:image/png;base64,{}", "A".repeat(400));
                    let image = json!({ "type": "image_url", "image_url": { "url": url } });
                    let note = json!({ "type": "text", "text": "[image data removed]" });
                    let behind = if number < newest { note } else { image };
                    let text = json!({ "type": "text", "text": message["content"] });
                    message["content"] = json!([text, behind]);
                }
                message
            })
        });
        shown.collect()
    };
    let (sessions, ..) = take_turns(form).await;
    assert_eq!(sessions.len(), 1, "{sessions:?}");
}

/// Requests of two conversations with the same questions, one after the other.
async fn interleaved(agents: [&str; 2], ids: [usize; 2], turns: usize) -> Vec<BTreeSet<String>> {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(folder.path(), 200_000).await;
    let mut histories = vec![Vec::<Vec<Value>>::new(); 2];
    let mut sessions = vec![BTreeSet::new(); 2];
    for number in 0..turns {
        for agent in 0..2 {
            let history = &mut histories[agent];
            let mut new = turn(agents[agent], number);
            new[1] = call(ids[agent] + number);
            new[2] = result(ids[agent] + number, &format!("{agent}: {}", "line ".repeat(60)));
            for end in [1, 3] {
                let old = history.len().saturating_sub(2);
                let dropped = history[..old].iter().flatten().filter(|it| !is_tool_use(it));
                let kept = history[old..].iter().flatten();
                let sent: Vec<Value> = dropped.chain(kept).chain(&new[..end]).cloned().collect();
                let session = gateway.ask(&sent).await.session;
                // The first request of the second one is a repetition of the other's.
                if (number, end) != (0, 1) {
                    sessions[agent].insert(session);
                }
            }
            history.push(new);
        }
    }
    gateway.close().await;
    sessions
}

#[tokio::test]
async fn conversations_that_leave_out_their_calls_are_not_mixed() {
    // Other answers; the same answers with other calls.
    for (agents, ids) in [(["One", "Two"], [0, 0]), (["It", "It"], [0, 1_000])] {
        let sessions = interleaved(agents, ids, 12).await;
        assert!(sessions[0].is_disjoint(&sessions[1]), "{agents:?}: {sessions:?}");
        assert!(sessions.iter().all(|sessions| sessions.len() == 1), "{agents:?}: {sessions:?}");
    }
}

#[tokio::test]
async fn regenerated_and_edited_turns_fork_after_calls_were_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(folder.path(), 200_000).await;
    let turns: Vec<Vec<Value>> = (0..8).map(|number| turn("It", number)).collect();
    let full: Vec<Value> = turns.iter().flatten().cloned().collect();
    let session = gateway.ask(&[&full[..], &[question(8)]].concat()).await.session;
    let plain: Vec<Value> = full.iter().filter(|message| !is_tool_use(message)).cloned().collect();
    let with = |messages: &[Value], last: &str| [messages, &[user(last)]].concat();
    // The newest answer again.
    let again = gateway.ask(&plain[..plain.len() - 1]).await.session;
    assert_ne!(again, session);
    let mut edited = plain.clone();
    edited[4] = user("Another question.");
    assert_ne!(gateway.ask(&with(&edited, "Next.")).await.session, session);
    let mut edited = plain.clone();
    edited[5] = answer("Another", 2);
    assert_ne!(gateway.ask(&with(&edited, "Next.")).await.session, session);
    // A turn whose calls are made again has another end.
    let mut other = full.clone();
    other.truncate(full.len() - 3);
    other.extend([call(100), result(100, "other")]);
    assert_ne!(gateway.ask(&other).await.session, session);
    // The answer is in: this continues the first request above.
    assert_eq!(gateway.ask(&with(&plain, "And then?")).await.session, again);
    gateway.close().await;
}

#[tokio::test]
async fn a_named_session_that_goes_back_after_calls_were_left_out_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(folder.path(), 200_000).await;
    let turns: Vec<Vec<Value>> = (0..8).map(|number| turn("It", number)).collect();
    let full: Vec<Value> = turns.iter().flatten().cloned().collect();
    let plain: Vec<Value> = full.iter().filter(|message| !is_tool_use(message)).cloned().collect();
    let mine = Some("mine");
    let first = gateway.ask_as(mine, &[&full[..], &[question(8)]].concat()).await;
    let left_out = gateway.ask_as(mine, &[&plain[..], &[question(8)]].concat()).await;
    assert!(left_out.before_tokens < first.before_tokens, "{left_out:?}");
    // Back to an earlier question, where the edits that left out the calls come later in the file.
    let back = [&plain[..7], &[answer("Another", 3), user("And then?")]].concat();
    let report = gateway.ask_as(mine, &back).await;
    gateway.close().await;
    let gateway = Gateway::open(folder.path(), 200_000).await;
    let next = [&back[..], &[answer("It", 20), user("Last.")]].concat();
    let after = gateway.ask_as(mine, &next).await;
    assert_eq!(after.session, report.session);
    assert!(after.before_tokens.unwrap() < left_out.before_tokens.unwrap(), "{after:?}");
    gateway.close().await;
}

#[tokio::test]
async fn a_failed_step_without_its_answer_keeps_the_session() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(folder.path(), 200_000).await;
    let error = "Error:\nno such file\nNow let's retry: take care not to repeat previous errors! If you have retried \
                 several times, try a completely different approach.\n";
    let (answer, task) = (answer("It", 1), "Observation:\ndone\nNew task:\nRead part 2.");
    let start = [user("New task:\nRead part 1."), answer];
    let with = |text: &str| [&start[..], &[user(text)]].concat();
    let session = gateway.ask(&with(task)).await.session;
    let failed = gateway.ask(&with(&format!("{task}\n{error}"))).await.session;
    assert_eq!(failed, session);
    // A longer request of the user is another branch of the conversation.
    let longer = with(&format!("{task}\n{error}\nAnd part 3."));
    assert_ne!(gateway.ask(&longer).await.session, session);
    gateway.close().await;
}

#[tokio::test]
async fn a_fork_at_an_edited_question_records_the_edit() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(folder.path(), 200_000).await;
    let turns: Vec<Vec<Value>> = (0..4).map(|number| turn("It", number)).collect();
    let full: Vec<Value> = turns.iter().flatten().cloned().collect();
    let session = gateway.ask(&[&full[..], &[question(4)]].concat()).await.session;
    // Shorter than the question, but not a part of it.
    let mut edited = full.clone();
    edited[12] = user("Why?");
    let fork = [&edited[..], &[question(4)]].concat();
    let forked = gateway.ask(&fork).await.session;
    assert_ne!(forked, session);
    let next = [&fork[..], &[answer("It", 4), question(5)]].concat();
    assert_eq!(gateway.ask(&next).await.session, forked);
    gateway.close().await;
    let text = session_text(folder.path(), &forked);
    assert!(text.contains("Why?"), "{text}");
}

#[tokio::test]
async fn another_run_of_the_task_gets_no_summary_of_this_one() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(folder.path(), 8_000).await;
    let mut full = Vec::new();
    let mut is_compacted = false;
    for number in 0..12 {
        let mut new = turn("It", number);
        let secret = format!("/srv/secret/4711_{number}.rs ").repeat(200);
        new[2] = result(number, &secret);
        full.extend(new);
        let report = gateway.ask(&[&full[..], &[question(number + 1)]].concat()).await;
        is_compacted |= report.compaction == "applied";
    }
    assert!(is_compacted, "the window is too large for this test");
    // The same questions and answers, without a call.
    let mut other: Vec<Value> = full.iter().filter(|it| !is_tool_use(it)).cloned().collect();
    other.push(question(12));
    let sent = gateway.forward(None, &other).await;
    let body = String::from_utf8_lossy(&sent.body).into_owned();
    assert!(!body.contains("4711"), "{body}");
    gateway.proxy.record_answer(sent.in_flight, AnswerReport::default());
    gateway.close().await;
}
