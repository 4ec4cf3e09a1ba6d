//! Conversations that leave memory, and those that stay.

use super::*;

#[tokio::test]
async fn conversations_in_flight_or_without_answer_stay_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::small(folder.path(), 200_000, 2).await;
    let task = |number: usize| user(&format!("Task {number}."));
    let mut out = Vec::new();
    for number in 0..10 {
        out.push(gateway.forward(None, &[task(number)]).await);
    }
    let proxy = &gateway.proxy;
    assert_eq!(proxy.conversations.eviction_candidates(i64::MIN).len(), 0, "all are in flight");
    // Half of the responses break off.
    let broken: Vec<String> = out.drain(5..).map(|forward| forward.report.session).collect();
    assert_eq!(proxy.conversations.eviction_candidates(i64::MIN).len(), 0);
    for (number, session) in (5..10).zip(&broken) {
        // A changed request after a broken response is the same conversation.
        let other = [task(number), user("Another end.")];
        assert_eq!(gateway.ask(&other).await.session, *session);
    }
    for forward in out {
        gateway.proxy.record_answer(forward.in_flight, AnswerReport::default());
    }
    gateway.settle().await;
    assert!(gateway.runtime.open_sessions() <= 2);
    gateway.close().await;
}

#[tokio::test]
async fn evicted_conversations_with_the_same_beginning_are_distinguished() {
    const AGENTS: usize = 70;
    let folder = tempfile::tempdir().unwrap();
    let mut agents: Vec<Vec<Value>> = vec![vec![user("Read all files.")]; AGENTS];
    let mut sessions = vec![BTreeSet::new(); AGENTS];
    for round in 0..4 {
        // A new process each time, with more files of one key than are read at once.
        let gateway = Gateway::small(folder.path(), 200_000, 4).await;
        for (agent, messages) in agents.iter_mut().enumerate() {
            let text = format!("agent {agent}: {}", "line ".repeat(20));
            messages.extend([call(round), result(round, &text)]);
            if round == 3 {
                // Cleared while the conversation is not in memory.
                messages[2] = result(0, &format!("agent {agent}"));
            }
            sessions[agent].insert(gateway.ask(messages).await.session);
        }
        gateway.settle().await;
        gateway.close().await;
    }
    let several = sessions.iter().filter(|names| names.len() > 1).count();
    assert_eq!(several, 0, "{sessions:?}");
    let all: BTreeSet<&String> = sessions.iter().flatten().collect();
    assert_eq!(all.len(), AGENTS);
}
