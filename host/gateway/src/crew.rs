//! The threads that serve connections. A connection stays on one of them, with its requests and with those it
//! sends to upstreams: no step of a request has to wake another thread. Where there are several processors, beside
//! each is one that serves none, for what nobody waits for.

use std::cell::OnceCell;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Threads that serve: more than networks keep busy, and each has files of its own.
const MAX_SERVING: usize = 16;

/// How long the end of a thread may take that reads a large body or waits for a disk.
const PATIENCE: Duration = Duration::from_secs(2);

thread_local! {
    /// Who does what nobody waits for, for the connections of this thread.
    static BESIDE: OnceCell<Handle> = const { OnceCell::new() };
}

/// The threads. They end when this is dropped, and what they do with them.
#[derive(Debug)]
pub(super) struct Crew {
    serving: Vec<Serving>,
    end: DropGuard,
    /// Closed when all threads have ended.
    ended: mpsc::Receiver<Infallible>,
}

/// A thread that serves connections.
#[derive(Debug)]
struct Serving {
    thread: Handle,
    /// Held by each of its connections.
    connection: Arc<()>,
}

impl Crew {
    /// Starts them.
    ///
    /// # Errors
    ///
    /// Where the system gives no threads.
    pub(super) fn start() -> io::Result<Crew> {
        Crew::on(thread::available_parallelism().map_or(1, usize::from))
    }

    fn on(processors: usize) -> io::Result<Crew> {
        let (token, (alive, ended)) = (CancellationToken::new(), mpsc::channel(1));
        let end = token.clone().drop_guard();
        let start = |_| {
            let beside = || started("beside", &token, &alive, None);
            let beside = (processors > 1).then(beside).transpose()?;
            let thread = started("connections", &token, &alive, beside)?;
            Ok(Serving { thread, connection: Arc::default() })
        };
        let serving = (0..processors.min(MAX_SERVING)).map(start).collect::<io::Result<_>>()?;
        Ok(Crew { serving, end, ended })
    }

    /// Has a connection served, by the thread that has the fewest.
    pub(super) fn serve(&self, connection: impl Future<Output = ()> + Send + 'static) {
        let least = self.serving.iter().min_by_key(|it| Arc::strong_count(&it.connection));
        if let Some(Serving { thread, connection: held }) = least {
            let held = held.clone();
            thread.spawn(async move {
                let _held = held;
                connection.await;
            });
        }
    }

    /// Ends them, and waits until they have ended.
    pub(super) async fn end(mut self) {
        drop(self.end);
        if tokio::time::timeout(PATIENCE, self.ended.recv()).await.is_err() {
            tracing::warn!("a connection is busy and does not end");
        }
    }
}

/// The thread beside this one. On this one it would be done later than one thinks: whoever has just been written
/// to is often woken on our processor, and waits there as long as we go on.
pub(super) fn beside() -> Option<Handle> {
    BESIDE.with(|it| it.get().cloned())
}

fn started(
    name: &str,
    end: &CancellationToken,
    alive: &mpsc::Sender<Infallible>,
    beside: Option<Handle>,
) -> io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let (end, alive) = (end.clone(), alive.clone());
    thread::Builder::new().name(name.into()).spawn(move || {
        let _alive = alive;
        if let Some(beside) = beside {
            BESIDE.with(|it| it.set(beside).ok());
        }
        runtime.block_on(end.cancelled());
        runtime.shutdown_timeout(PATIENCE);
    })?;
    Ok(handle)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::future::pending;
    use std::thread::ThreadId;

    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    use super::*;

    /// Connections that stay open, and the threads that serve them.
    async fn threads_of(crew: &Crew, connections: usize) -> Vec<ThreadId> {
        let (sender, mut receiver) = unbounded_channel();
        for _ in 0..connections {
            let sender = sender.clone();
            crew.serve(async move {
                sender.send(thread::current().id()).unwrap();
                pending().await
            });
        }
        let mut threads = Vec::new();
        for _ in 0..connections {
            threads.push(receiver.recv().await.unwrap());
        }
        threads
    }

    #[tokio::test]
    async fn each_serves_as_many_as_the_others() {
        let crew = Crew::on(3).unwrap();
        let mut counts = HashMap::new();
        for thread in threads_of(&crew, 6).await {
            *counts.entry(thread).or_insert(0) += 1;
        }
        assert_eq!(counts.into_values().collect::<Vec<_>>(), [2, 2, 2]);
    }

    #[tokio::test]
    async fn a_client_that_comes_again_meets_the_same_thread() {
        let crew = Crew::on(3).unwrap();
        let mut before = None;
        for _ in 0..10 {
            let (sender, mut receiver) = unbounded_channel();
            crew.serve(async move {
                // What a connection leaves behind is not one.
                tokio::spawn(pending::<()>());
                sender.send(thread::current().id()).unwrap();
            });
            let thread = receiver.recv().await;
            assert!(before.is_none() || before == thread);
            before = thread;
            while crew.serving.iter().any(|it| Arc::strong_count(&it.connection) > 1) {
                tokio::task::yield_now().await;
            }
        }
    }

    #[tokio::test]
    async fn beside_is_another_thread_where_there_are_processors() {
        for (processors, is_one) in [(1, false), (2, true)] {
            let crew = Crew::on(processors).unwrap();
            let (sender, mut receiver) = unbounded_channel();
            crew.serve(async move {
                let Some(thread) = beside() else { return sender.send(None).unwrap() };
                let done = thread.spawn(async { (thread::current().id(), beside().is_none()) });
                let (id, is_last) = done.await.unwrap();
                sender.send(Some(id != thread::current().id() && is_last)).unwrap();
            });
            assert_eq!(receiver.recv().await, Some(is_one.then_some(true)));
        }
    }

    fn held(crew: &Crew) -> UnboundedReceiver<()> {
        let (sender, receiver) = unbounded_channel();
        crew.serve(async move {
            pending::<()>().await;
            drop(sender);
        });
        receiver
    }

    #[tokio::test]
    async fn what_they_do_ends_with_them() {
        let crew = Crew::start().unwrap();
        let mut connection = held(&crew);
        drop(crew);
        assert_eq!(connection.recv().await, None);
        let crew = Crew::start().unwrap();
        let mut connection = held(&crew);
        crew.end().await;
        assert!(connection.try_recv().is_err() && connection.is_closed());
    }
}
