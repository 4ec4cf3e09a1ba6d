use std::sync::mpsc;
use std::time::Duration;

use super::*;
use crate::conversations::KnownItems;

/// Far longer than a look at a conversation takes, and far shorter than for ever.
const PATIENCE: Duration = Duration::from_secs(10);

fn scope(name: &str) -> ConversationScope {
    ConversationScope { name: Some(SeededHash::new(7, name)), is_named: false }
}

fn thread(id: &str, name: &str) -> Arc<Conversation> {
    let place = SessionLocation::File(id.into());
    let thread =
        Conversation::at(SeededHash::new(7, id), id.into(), KnownItems::default(), false, place);
    let thread = Arc::new(thread);
    thread.set_scope(scope(name));
    thread
}

#[test]
fn a_new_conversation_waits_for_no_other_one_s_state() {
    let folder = tempfile::tempdir().unwrap();
    let threads = ConversationTable::new(folder.path(), 8, ConversationCounts::default());
    let (large, other) = (thread("large", "a"), thread("other", "b"));
    threads.add(large.clone(), 1);
    threads.add(other, 1);
    let at_work = large.state();
    std::thread::scope(|spawned| {
        let (tell, told) = mpsc::channel();
        let threads = &threads;
        spawned.spawn(move || {
            let items = [r#"{"role":"user","content":"Hello."}"#];
            let mut asked = RequestItems::new(7, &items);
            asked.set_scope(scope("b"));
            tell.send(threads.find_by_summary(&mut asked, false).is_none()).unwrap();
        });
        assert_eq!(told.recv_timeout(PATIENCE), Ok(true), "it waits");
        drop(at_work);
    });
}

#[test]
fn items_are_read_while_somebody_has_the_state() {
    let large = thread("large", "a");
    let outline = large.known_items();
    let state = large.state();
    assert_eq!(outline.len(), state.known.len());
    assert!(Arc::ptr_eq(&outline, &state.known), "a look copies nothing");
}
