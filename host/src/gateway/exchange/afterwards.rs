//! What is left to do about a request that is on its way already: its words are written down, and the
//! engine hears of a turn that has ended.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;

use super::desk::Desk;
use super::hearing::Heard;
use crate::runtime::{Guest, Runtime};

/// How long an answer is waited for and nothing else. No model begins sooner; who does is in a hurry.
const PAUSE: Duration = Duration::from_millis(2);

/// What is left to do. Whoever waits for an upstream does it meanwhile; what is not done when this is
/// dropped is done in the background.
#[derive(Default)]
pub(super) struct Afterwards(Option<(Runtime, BoxFuture<'static, ()>)>);

impl Afterwards {
    /// Waits for `answer` and, where that takes its time, does this meanwhile.
    ///
    /// A task of its own would be woken on another thread, which takes longer than most of what is left.
    pub(super) async fn until<T>(&mut self, answer: impl Future<Output = T>) -> T {
        let mut answer = pin!(answer);
        if let Ok(answer) = tokio::time::timeout(PAUSE, &mut answer).await {
            return answer;
        }
        tokio::select! {
            biased;
            answer = &mut answer => answer,
            () = &mut *self => answer.await,
        }
    }
}

impl Future for Afterwards {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some((_, work)) = &mut self.0 else { return Poll::Ready(()) };
        let polled = work.as_mut().poll(context);
        if polled.is_ready() {
            self.0 = None;
        }
        polled
    }
}

impl Drop for Afterwards {
    fn drop(&mut self) {
        // A program that has ended does no more.
        if let (Some((runtime, work)), Ok(_)) = (self.0.take(), Handle::try_current()) {
            runtime.in_background(work);
        }
    }
}

impl std::fmt::Debug for Afterwards {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Afterwards").field(&self.0.is_some()).finish()
    }
}

impl Desk {
    /// Leaves a conversation that was heard for a request of `guest`.
    pub(super) fn leave(self: &Arc<Self>, heard: Heard, guest: Guest) -> Afterwards {
        let desk = self.clone();
        let work = async move {
            if let Err(error) = heard.passage.write_out().await {
                tracing::warn!(session = heard.session, %error, "words of a client are not written down");
                // What stands in the file is not known: whoever opens that again knows what to make of it.
                desk.close(desk.threads.lost(&heard.thread));
                return;
            }
            let Some((first_id, next_id)) = &heard.ended else { return };
            if let Err(error) = heard.passage.ended(&guest, first_id, next_id).await {
                tracing::warn!(%error, "the engine was not told that a turn has ended");
            }
        };
        Afterwards(Some((self.runtime.clone(), Box::pin(work))))
    }
}
