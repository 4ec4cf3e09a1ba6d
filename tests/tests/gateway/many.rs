//! More conversations at once than stay in memory: each keeps its session, behind a restart too.

use ctxhost_tests::many::{Agents, Campaign, many_conversations, provider};

use crate::stage::Gate;

const SMALL: &str = "[gateway]\nconversations = 8\n[models.m]\nwindow_tokens = 100000\n";

/// Ends a gateway and starts another one where it was.
async fn restarted(gate: Gate, upstream: &str) -> Gate {
    gate.end.cancel();
    gate.task.await.unwrap();
    Gate::again(upstream, SMALL, gate.state).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_conversation_keeps_its_session_however_few_stay_in_memory() {
    let upstream = provider().await;
    let mut gate = Gate::before(&upstream, SMALL).await;
    let mut agents = Agents::new(60, 300);
    // Behind the first requests as well: nobody has gone on with any of them then.
    for turns in [1, 3, 2] {
        assert_eq!(agents.ask(&gate.url, turns).await, Vec::<String>::new());
        assert_eq!(agents.split(), Default::default(), "behind {turns} more turns");
        gate = restarted(gate, &upstream).await;
    }
    assert_eq!(agents.ask(&gate.url, 1).await, Vec::<String>::new());
    assert_eq!(agents.split(), Default::default());
    assert_eq!(agents.sessions().len(), 60, "two conversations never share one");
}

/// The campaign of a release: `cargo test -p ctxhost-tests --test gateway -- --ignored a_thousand --nocapture`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "builds the release binary and takes minutes"]
async fn a_thousand_conversations_at_once_keep_one_session_each() {
    let campaign = Campaign {
        conversations: 1_000,
        turns: 20,
        restart_after: 10,
        bytes: 400,
        config: "[models.m]\nwindow_tokens = 100000\n".into(),
    };
    let binary = ctxhost_tests::ctxhost_release();
    let report = many_conversations(&binary, &campaign).await;
    eprintln!("{report:#?}");
    assert_eq!((report.errors, report.split), (Vec::new(), Default::default()));
    assert_eq!(report.sessions, 1_000);
    assert!(report.peak_bytes < 200_000_000, "{} bytes", report.peak_bytes);
}
