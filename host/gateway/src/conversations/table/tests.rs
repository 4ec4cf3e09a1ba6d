use std::sync::mpsc;
use std::time::Duration;

use super::*;
use crate::conversations::KnownItems;

/// Far longer than a lookup takes.
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
fn a_lookup_does_not_wait_for_the_state_of_other_conversations() {
    let folder = tempfile::tempdir().unwrap();
    let conversations = ConversationTable::new(folder.path(), 8, ConversationCounts::default());
    let (large, other) = (conversation("large", "a"), conversation("other", "b"));
    conversations.add(large.clone(), 1);
    conversations.add(other, 1);
    let locked = large.state();
    std::thread::scope(|spawned| {
        let (sender, receiver) = mpsc::channel();
        let conversations = &conversations;
        spawned.spawn(move || {
            let items = [r#"{"role":"user","content":"Hello."}"#];
            let mut request = RequestItems::new(7, &items);
            request.set_scope(scope("b"));
            sender.send(conversations.find_by_summary(&mut request, false).is_none()).unwrap();
        });
        assert_eq!(
            receiver.recv_timeout(PATIENCE),
            Ok(true),
            "the lookup waits for another conversation"
        );
        drop(locked);
    });
}

#[test]
fn items_are_readable_while_the_state_is_locked() {
    let large = conversation("large", "a");
    let known_items = large.known_items();
    let state = large.state();
    assert_eq!(known_items.len(), state.known.len());
    assert!(Arc::ptr_eq(&known_items, &state.known), "the items are shared, not copied");
}
