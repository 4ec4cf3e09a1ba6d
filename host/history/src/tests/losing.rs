//! The loss of a whole session: every compaction counts, and only once.

use serde_json::json;

use super::*;
use crate::{history_before, measure_loss};

#[test]
fn what_the_first_compaction_lost_is_still_lost_after_the_second() {
    let mut session = memory();
    turn(&mut session, 1, "one");
    assert!(measure_loss(&session).unwrap().is_none());
    turn(&mut session, 2, "two");
    fold(&mut session, 4, "the first summary");
    turn(&mut session, 3, "three");
    let newest = fold(&mut session, 4, "the second summary");
    let loss = measure_loss(&session).unwrap().unwrap();
    assert_eq!((loss.count, loss.compactions.len(), loss.newest.as_str()), (2, 2, newest.as_str()));
    assert_eq!((loss.retention.asks.kept, loss.retention.asks.total), (1, 3));
    assert_eq!((loss.retention.paths.kept, loss.retention.paths.total), (1, 3));
    let lost: Vec<&str> = loss.lost.iter().map(|lost| lost.text.as_str()).collect();
    assert_eq!(lost, ["question 1", "question 2", "src/file_1.rs", "src/file_2.rs"]);
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
    let cost =
        |session: &Session| measure_loss(session).unwrap().unwrap().compactions[0].rebilled_tokens;
    assert_eq!(cost(&session), None);
    // The first of them was cancelled.
    for (input, read, write) in [(0, 0, 0), (70, 5, 30), (1, 900, 30)] {
        let usage = json!({ "input": input, "cacheRead": read, "cacheWrite": write });
        say(&mut session, json!({ "role": "assistant", "content": [], "usage": usage }));
    }
    assert_eq!(cost(&session), Some(100));
}
