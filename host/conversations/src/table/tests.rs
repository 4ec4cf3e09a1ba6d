use std::sync::mpsc;
use std::time::Duration;

use super::*;
use crate::KnownItems;

/// Far longer than a lookup takes.
const PATIENCE: Duration = Duration::from_secs(10);

const LIMITS: CacheLimits = CacheLimits { conversations: 8, bytes: 1_000 };

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
    let conversations =
        ConversationTable::new(folder.path(), LIMITS, ConversationCounts::default());
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
            sender.send(conversations.find_aligned(&mut request, None).is_none()).unwrap();
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

#[test]
fn the_oldest_leave_memory_when_all_together_take_too_much() {
    let folder = tempfile::tempdir().unwrap();
    let conversations =
        ConversationTable::new(folder.path(), LIMITS, ConversationCounts::default());
    for (at, id) in ["oldest", "older", "newest"].into_iter().enumerate() {
        let conversation = conversation(id, "a");
        conversations.add(conversation.clone(), 1 + at as i64);
        conversations.table().count_memory(&conversation, 600);
    }
    let candidates = || {
        let leaving = conversations.eviction_candidates(0);
        leaving.iter().map(|(conversation, _)| conversation.id().to_owned()).collect::<Vec<_>>()
    };
    assert!(conversations.is_crowded());
    assert_eq!(candidates(), ["oldest", "older"]);
    let oldest = conversations.table().conversations["oldest"].clone();
    conversations.evict(&oldest, None);
    drop(oldest);
    assert_eq!(conversations.table().memory_bytes, 1_200);
    let older = conversations.table().conversations["older"].clone();
    // An empty one takes nothing.
    conversations.record_memory(&older);
    drop(older);
    assert_eq!(conversations.table().memory_bytes, 600);
    assert!(!conversations.is_crowded());
    assert!(candidates().is_empty());
}
