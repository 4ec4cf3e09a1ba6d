//! A request that goes on at once: the engine has said that it has nothing to do for a conversation of that
//! size, so it is heard while its upstream works, and the engine is asked about it then, or behind its answer.

use std::ops::Range;
use std::sync::Arc;

use tokio::task::yield_now;

use super::apart::{apart, is_large};
use super::desk::Desk;
use super::hearing::{HearError, Heard, Words, client_compacts};
use super::journey::{forward, is_mid_turn};
use super::news::News;
use super::shaping::{Came, Sent, note};
use super::{Afterwards, Incoming, Taken, Truth};
use crate::speech::offset;
use crate::thread::{Asked, Digest, Fit, Names, Thread};
use ctxhost_runtime::{Guest, Passage};

/// A request that is on its way, as far as it has been read.
struct Unheard {
    incoming: Incoming,
    /// Where its items stand in its body.
    items: Vec<Range<usize>>,
    names: Names,
    key: Digest,
    news: News,
}

impl Unheard {
    /// Takes the names of its items with it.
    fn of(incoming: &Incoming, json: &str, asked: &mut Asked<'_>, key: Digest, news: News) -> Self {
        let place = |item: &&str| {
            let begin = offset(json, item);
            begin..begin + item.len()
        };
        let items = asked.items().iter().map(place).collect();
        Unheard { incoming: incoming.clone(), items, names: asked.take_names(), key, news }
    }
}

impl Desk {
    /// Sends a request on whose conversation is at rest; `None` where the engine has to be asked first.
    pub(super) async fn at_rest(
        self: &Arc<Self>,
        incoming: &Incoming,
        came: Came<'_>,
        words: &Words<'_>,
        asked: &mut Asked<'_>,
    ) -> Option<Taken> {
        let thread = self.threads.find(words.key, asked, self.runtime.now_ms()).await?;
        thread.state().rest.as_ref()?;
        let passage = self.enter(&thread).await?;
        let (rest, outline) = {
            let state = thread.state();
            let Fit::GoesOn { new: 1.. } = state.fit(asked) else { return None };
            if state.is_compacted {
                return None;
            }
            (state.rest.clone()?, state.outline.clone())
        };
        if client_compacts(&outline, words, asked) {
            return None;
        }
        let news = News::behind(&outline, words.speech, asked.items()).ok()?;
        let tokens = outline.said_tokens().saturating_add(news.plain_tokens()?);
        // Whoever takes the news in changes it in its place.
        drop(outline);
        let session = passage.session_id().to_owned();
        let (guest, window) = self.guest(incoming, came.body, &passage, false).await;
        let room = passage.room(&guest).await?;
        let is_same = guest.model == rest.model && room.window_tokens == rest.window_tokens;
        if !is_same || tokens > rest.within_tokens.min(room.budget_tokens) {
            return None;
        }
        let truth = Truth {
            engine: rest.engine,
            tokens: Some(tokens),
            before_tokens: Some(tokens),
            compaction: "none",
            session,
            max_tokens: None,
        };
        let unheard = Unheard::of(incoming, came.json, asked, words.key, news);
        let journey = self.journey(incoming, came, &thread, guest.clone(), window);
        let sent = Sent { body: incoming.body.clone(), lowered: None, truth, tokens };
        let sent = self.lower_output(sent, came, &passage, &journey).await;
        Some(forward(sent, journey).leaving(self.catch_up(unheard, thread, passage, guest)))
    }

    /// Hears a request that is on its way.
    fn catch_up(
        self: &Arc<Self>,
        unheard: Unheard,
        thread: Arc<Thread>,
        passage: Passage,
        guest: Guest,
    ) -> Afterwards {
        let desk = self.clone();
        self.afterwards(async move {
            let is_large = is_large(&unheard.incoming);
            let work = async move { desk.caught_up(unheard, thread, passage, guest).await };
            let heard = if is_large { apart(work).await } else { work.await };
            if let Err(error) = heard {
                tracing::warn!(%error, "a request went on unheard");
            }
        })
    }

    async fn caught_up(
        self: &Arc<Self>,
        unheard: Unheard,
        thread: Arc<Thread>,
        passage: Passage,
        guest: Guest,
    ) -> Result<(), HearError> {
        let Unheard { incoming, items, names, key, news } = unheard;
        let Ok(json) = std::str::from_utf8(&incoming.body) else { return Ok(()) };
        let items: Vec<&str> = items.into_iter().filter_map(|place| json.get(place)).collect();
        let mut asked = Asked::named(&items, names);
        let words = Words { speech: incoming.door.speech(), headers: &incoming.headers, key };
        let heard = self.go_on_with(news, thread, passage, &words, &mut asked).await?;
        if !self.write_out(&heard).await {
            return Ok(());
        }
        // Where the answer has come meanwhile, its client comes first.
        yield_now().await;
        let guest = Guest { is_mid_turn: is_mid_turn(&heard.passage).await, ..guest };
        self.think_over(&heard, &guest).await;
        self.end_turn(&heard.passage, &guest, heard.ended.as_ref()).await;
        Ok(())
    }

    /// Has the engine say what it thinks of a request that went on without it. That is for the next one.
    async fn think_over(&self, heard: &Heard, guest: &Guest) {
        let session = &heard.session;
        match heard.passage.shape(guest).await {
            Ok(passed) if note(&heard.thread, &passed, guest) => {}
            Ok(_) => tracing::warn!(session, "an engine had to do more than it has promised"),
            Err(error) => {
                heard.thread.state().rest = None;
                tracing::warn!(session, %error, "a request went on without the engine");
            }
        }
    }
}

#[cfg(test)]
mod tests;
