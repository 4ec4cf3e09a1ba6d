use std::sync::mpsc;
use std::time::Duration;

use super::*;
use crate::conversations::KnownItems;

/// Far longer than a look at a conversation takes, and far shorter than for ever.
const PATIENCE: Duration = Duration::from_secs(10);

fn scope(name: &str) -> ConversationScope {
    ConversationScope { name: Some(SeededHash::new(7, name)), is_named: false }
}

fn conversation(id: &str, name: &str) -> Arc<Conversation> {
    let location = SessionLocation::File(id.into());
    let conversation =
        Conversation::at(SeededHash::new(7, id), id.into(), KnownItems::default(), false, location);
    let conversation = Arc::new(conversation);
    conversation.set_scope(scope(name));
    conversation
}

#[test]
fn a_new_conversation_waits_for_no_other_one_s_state() {
    let folder = tempfile::tempdir().unwrap();
    let conversations = ConversationTable::new(folder.path(), 8, ConversationCounts::default());
    let (large, other) = (conversation("large", "a"), conversation("other", "b"));
    conversations.add(large.clone(), 1);
    conversations.add(other, 1);
    let at_work = large.state();
    std::thread::scope(|spawned| {
        let (tell, told) = mpsc::channel();
        let conversations = &conversations;
        spawned.spawn(move || {
            let items = [r#"{"role":"user","content":"Hello."}"#];
            let mut request = RequestItems::new(7, &items);
            request.set_scope(scope("b"));
            tell.send(conversations.find_by_summary(&mut request, false).is_none()).unwrap();
        });
        assert_eq!(told.recv_timeout(PATIENCE), Ok(true), "it waits");
        drop(at_work);
    });
}

#[test]
fn items_are_read_while_somebody_has_the_state() {
    let large = conversation("large", "a");
    let known_items = large.known_items();
    let state = large.state();
    assert_eq!(known_items.len(), state.known.len());
    assert!(Arc::ptr_eq(&known_items, &state.known), "a look copies nothing");
}
