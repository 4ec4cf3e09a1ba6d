//! What is left to do about a request that is on its way already: its words are written down, and the
//! engine hears of a turn that has ended.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tokio::task::yield_now;

use super::Incoming;
use super::apart::{apart, is_large};
use super::desk::Desk;
use super::hearing::Heard;
use crate::aside;
use crate::crew::beside;
use ctxhost_runtime::{Guest, Passage, Runtime};

/// What is left to do. It is begun when the request is on its way; what nobody has begun when this is dropped is
/// left to the connection.
#[derive(Default)]
pub(super) struct Afterwards(Option<(Runtime, BoxFuture<'static, ()>)>);

impl Afterwards {
    /// Waits for `answer` and has this done meanwhile: beside, where there is a thread for that, else here.
    pub(super) async fn until<T>(&mut self, answer: impl Future<Output = T>) -> T {
        let mut answer = pin!(answer);
        tokio::select! {
            biased;
            answer = &mut answer => return answer,
            // The task of a connection to the upstream that is there writes the request first.
            () = yield_now() => {}
        }
        if let Some(thread) = beside()
            && let Some((runtime, work)) = self.0.take()
        {
            runtime.in_background_on(&thread, work);
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
        if let Some((runtime, work)) = self.0.take() {
            aside::leave(&runtime, work);
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
    pub(super) fn leave(
        self: &Arc<Self>,
        incoming: &Incoming,
        heard: Heard,
        guest: Guest,
    ) -> Afterwards {
        let (desk, is_large) = (self.clone(), is_large(incoming));
        self.afterwards(async move {
            let work = async move {
                if desk.write_out(&heard).await {
                    desk.end_turn(&heard.passage, &guest, heard.ended.as_ref()).await;
                }
            };
            // What is left of others is done on the same thread, and their next requests wait for it.
            if is_large { apart(work).await } else { work.await }
        })
    }

    /// Writes down what was heard; whether the conversation can be gone on with.
    pub(super) async fn write_out(&self, heard: &Heard) -> bool {
        let Err(error) = heard.passage.write_out().await else { return true };
        tracing::warn!(session = heard.session, %error, "words of a client are not written down");
        // What stands in the file is not known: whoever opens that again knows what to make of it.
        self.lost(&heard.thread);
        false
    }

    /// Tells the engine of the turn that has ended, where one has.
    pub(super) async fn end_turn(
        &self,
        passage: &Passage,
        guest: &Guest,
        ended: Option<&(String, String)>,
    ) {
        let Some((first_id, next_id)) = ended else { return };
        if let Err(error) = passage.ended(guest, first_id, next_id).await {
            tracing::warn!(%error, "the engine was not told that a turn has ended");
        }
    }

    /// Something that is done afterwards.
    pub(super) fn afterwards(&self, work: impl Future<Output = ()> + Send + 'static) -> Afterwards {
        Afterwards(Some((self.runtime.clone(), Box::pin(work))))
    }
}
