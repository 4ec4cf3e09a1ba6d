//! The loss of a whole session: every compaction counts, and only once.

use serde_json::json;

use super::*;
use crate::{LineNumbers, SessionLoss, diff_compaction, history_before, measure_loss};

#[test]
fn what_the_first_compaction_lost_is_still_lost_after_the_second() {
    let mut session = memory();
    turn(&mut session, 1, "one");
    assert!(measure_loss(&session, LineNumbers::OfFile).unwrap().is_none());
    turn(&mut session, 2, "two");
    fold(&mut session, 4, "the first summary");
    turn(&mut session, 3, "three");
    let newest = fold(&mut session, 4, "the second summary");
    let loss = measure_loss(&session, LineNumbers::OfFile).unwrap().unwrap();
    assert_eq!((loss.count, loss.compactions.len(), loss.newest.as_str()), (2, 2, newest.as_str()));
    assert_eq!((loss.retention.asks.kept, loss.retention.asks.total), (1, 3));
    assert_eq!((loss.retention.paths.kept, loss.retention.paths.total), (1, 3));
    let lost: Vec<&str> = loss.lost.iter().map(|lost| lost.text.as_str()).collect();
    assert_eq!(lost, ["question 1", "question 2", "src/file_1.rs", "src/file_2.rs"]);
    assert_eq!(loss.compactions[0].time, "", "its records are dated a second after 1970");
    // One by one, each lost one of the two requests before it.
    let asks = loss.compactions.iter().map(|compaction| compaction.retention.asks);
    assert_eq!(asks.map(|share| (share.kept, share.total)).collect::<Vec<_>>(), [(1, 2), (1, 2)]);
    assert_eq!(history_before(&session, &newest).unwrap().len(), 12, "without the summaries");
}

#[test]
fn the_request_after_a_compaction_pays_for_its_new_prefix() {
    let mut session = memory();
    turn(&mut session, 1, "one");
    turn(&mut session, 2, "two");
    fold(&mut session, 2, "a summary");
    let cost = |session: &Session| {
        measure_loss(session, LineNumbers::OfFile).unwrap().unwrap().compactions[0].rebilled_tokens
    };
    assert_eq!(cost(&session), None);
    // The first of them was cancelled, and the second states a usage that no window holds.
    for (input, read, write) in [(0, 0, 0), (u64::MAX, 0, 9), (70, 5, 30), (1, 900, 30)] {
        let usage = json!({ "input": input, "cacheRead": read, "cacheWrite": write });
        say(&mut session, json!({ "role": "assistant", "content": [], "usage": usage }));
    }
    assert_eq!(cost(&session), Some(100));
}

#[test]
fn a_request_after_two_compactions_is_counted_once() {
    let mut session = memory();
    turn(&mut session, 1, "one");
    turn(&mut session, 2, "two");
    fold(&mut session, 4, "the first summary");
    fold(&mut session, 2, "the second summary");
    let usage = json!({ "input": 10, "cacheRead": 0, "cacheWrite": 5_000 });
    say(&mut session, json!({ "role": "assistant", "content": [], "usage": usage }));
    let loss = measure_loss(&session, LineNumbers::OfFile).unwrap().unwrap();
    let rebilled = loss.compactions.iter().map(|compaction| compaction.rebilled_tokens);
    assert_eq!(rebilled.collect::<Vec<_>>(), [None, Some(5_010)]);
}

/// A chat of Gemini CLI, whose second request was cancelled and taken back.
fn imported(is_cancelled: bool) -> Session {
    let message = |id: &str, kind: &str, text: &str| {
        json!({ "id": id, "timestamp": "2026-11-20T12:00:00Z", "type": kind,
            "content": [{ "text": text }] })
    };
    let first = [message("1", "user", "say hi to a.rs"), message("2", "gemini", "hello")];
    let mut lines = vec![json!({ "sessionId": "s", "projectHash": "h",
        "startTime": "2026-11-20T12:00:00Z", "lastUpdated": "2026-11-20T12:00:00Z" })];
    lines.extend(first.clone());
    if is_cancelled {
        lines.push(message("3", "user", "delete b.rs"));
        lines.push(json!({ "$set": { "messages": first } }));
    }
    lines.extend([message("4", "user", "mend c.rs"), message("5", "gemini", "mended c.rs")]);
    let summary = "<state_snapshot>mend c.rs, say hi to a.rs</state_snapshot>";
    let context = [message("6", "user", summary), message("7", "gemini", "Got it.")];
    lines.push(json!({ "$set": { "messages": context } }));
    lines.extend([message("8", "user", "and d.rs"), message("9", "gemini", "ok")]);
    let text = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    ctxhost_import::open_bytes("s.jsonl", text.as_bytes()).unwrap().session
}

#[test]
fn a_request_that_the_user_took_back_is_not_lost() {
    let [whole, cancelled] =
        [false, true].map(|is| measure_loss(&imported(is), LineNumbers::None).unwrap().unwrap());
    assert_eq!(cancelled.count, 1, "{cancelled:?}");
    let asks = |loss: &SessionLoss| (loss.retention.asks.kept, loss.retention.asks.total);
    assert_eq!((asks(&whole), asks(&cancelled)), ((2, 2), (2, 2)), "{cancelled:?}");
    assert_eq!(cancelled.retention, whole.retention);
}

#[test]
fn text_of_clients_is_not_part_of_a_request() {
    let mut session = memory();
    let opened = "<ide_opened_file>The user opened the file /srv/a.ts.</ide_opened_file>";
    let blocks = [opened, "fix the parser bug"].map(|text| json!({ "type": "text", "text": text }));
    say(&mut session, json!({ "role": "user", "content": blocks }));
    turn(&mut session, 2, "two");
    fold(&mut session, 3, "The user asked to fix the parser bug.");
    let difference = diff_compaction(&session, None, LineNumbers::OfFile).unwrap();
    let asks = difference.retention.asks;
    assert_eq!((asks.kept, asks.total), (1, 2), "{:?}", difference.lost);
    assert_eq!(difference.lost[0].text, "question 2");
}

#[test]
fn an_imported_session_has_no_line_numbers() {
    let session = imported(false);
    let lines_of = |lines| {
        let loss = measure_loss(&session, lines).unwrap().unwrap();
        let difference = diff_compaction(&session, None, lines).unwrap();
        let found = crate::bisect(&session, "mend c.rs", lines).unwrap();
        let places = loss.lost.iter().map(|lost| &lost.at);
        let dropped = difference.dropped.iter().map(|dropped| &dropped.at);
        let places: Vec<_> = places.chain(dropped).chain([&difference.at]).collect();
        // The order of records is known all the same.
        assert!(places.len() > 2 && places.iter().all(|at| at.place > 0), "{places:?}");
        let lines = places.into_iter().map(|at| at.line);
        lines.chain([found.first.unwrap().line]).collect::<Vec<_>>()
    };
    assert!(lines_of(LineNumbers::None).into_iter().all(|line| line.is_none()));
    assert!(lines_of(LineNumbers::OfFile).into_iter().all(|line| line.is_some()));
}

#[test]
fn a_diff_shows_no_value_of_a_secret_field() {
    let mut session = memory();
    let arguments = json!({ "env": { "API_TOKEN": "zzTop99887766" } });
    let call = json!({ "type": "toolCall", "id": "a", "name": "deploy", "arguments": arguments });
    user(&mut session, "deploy it");
    say(&mut session, json!({ "role": "assistant", "content": [call] }));
    user(&mut session, "zzTop99887766 is the one");
    turn(&mut session, 1, "one");
    fold(&mut session, 3, "about zzTop99887766");
    let difference = diff_compaction(&session, None, LineNumbers::OfFile).unwrap();
    assert!(!difference.dropped.is_empty() && !difference.inserted.is_empty());
    let shown = serde_json::to_string(&difference).unwrap();
    assert!(!shown.contains("zzTop99887766"), "{shown}");
}
