//! A compaction that a person asked for.

use futures_util::future::LocalBoxFuture;
use std::sync::Arc;

use ctxhost_engine_api::Trigger;

use super::compaction::{self, CompactionOutcome, Wanted};
use super::conversation::Conversation;
use super::known_session::KnownSession;
use super::request::RuntimeError;
use super::setup::Setup;
use ctxhost_engine::{Clock, EngineSpec};
use ctxhost_session::Session;

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct ByHand {
    /// What the summary should look after.
    pub focus: Option<String>,
    /// Now, in milliseconds since 1970.
    pub now_ms: i64,
}

/// Compacts a session, in up to three tries that grow bolder. The last outcome says how it ended;
/// where none was applied, the session is as it was.
///
/// A compaction that a kill cut short is finished first, where it can be: see
/// [`Session::recover_compaction`].
///
/// # Errors
///
/// [`RuntimeError`]: the engine could not be opened or the session not be written.
pub fn compact_by_hand<'a>(
    mut session: Session,
    engines: &'a (impl AsRef<[EngineSpec]> + ?Sized),
    setup: &'a Setup,
    wish: &'a ByHand,
) -> LocalBoxFuture<'a, Result<Vec<CompactionOutcome>, RuntimeError>> {
    let engines = engines.as_ref();
    Box::pin(async move {
        session.recover_compaction();
        let known = Arc::new(KnownSession::of(&session, &setup.media));
        let mut conversation = Conversation::new(session, &setup.law);
        // One moment for all of it, so that a run can be repeated.
        let clock = Clock::recorded();
        clock.set(wish.now_ms);
        let slot = setup.open_slot(engines, &clock, known)?;
        let shaper = setup.shaper(&slot);
        shaper.bootstrap(&mut conversation).await?;
        let wanted = Wanted {
            trigger: Trigger::Manual,
            focus: wish.focus.clone(),
            now_ms: wish.now_ms,
            ..Wanted::default()
        };
        compaction::insist(&shaper, &mut conversation, wanted).await
    })
}
