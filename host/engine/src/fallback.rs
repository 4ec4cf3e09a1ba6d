//! The fallback of a call: the bundled engine answers where no engine of the chain does.

use std::time::{Duration, Instant};

use ctxhost_engine_api::EngineError;
use ctxhost_engine_api::border::{EngineCall, EngineReply, OnFailure};

use super::active::ActiveEngine;
use super::chain::{Outcome, Unanswered};
use super::error::{SlotError, is_answer};
use super::served::Served;
use super::service::{Answer, EngineContext};

impl ActiveEngine {
    /// Has the chain answer a call and, where none of its engines does, the bundled one.
    pub(super) async fn answer(
        &self,
        context: EngineContext<'_>,
        call: &EngineCall,
    ) -> Answer<EngineReply> {
        let began = Instant::now();
        let unanswered = match self.chain.call(context, call).await? {
            Outcome::Served(served) => return Ok(*served),
            Outcome::Unanswered(unanswered) => unanswered,
        };
        match self.bundled.call(context.transcript, call.clone()).await {
            Ok(value) => Ok(self.served_by_bundled(unanswered, value, began.elapsed())),
            Err(error) if call.on_failure() == OnFailure::Fallback && is_answer(error.kind) => {
                Err(SlotError::answer(error))
            }
            Err(error) => Err(SlotError::engine(self.bundled.id(), call.name(), error)),
        }
    }

    fn served_by_bundled<T>(&self, before: Unanswered, value: T, took: Duration) -> Served<T> {
        let served = self.chain.served_by_none(value, took);
        let let_go = || format!("{} was let go: another engine is in the slot", self.configured());
        let let_go = (self.is_retired() && !self.chain.is_empty()).then(let_go);
        Served {
            engine: self.bundled.id().to_owned(),
            version: self.bundled.info().version.clone(),
            fallback: before.lost.or(served.fallback).or(let_go),
            refused: before.refused,
            ..served
        }
    }

    /// The law refused what these engines answered. Each plan but the last had passed it, so the last of
    /// those that answered is at fault.
    ///
    /// # Errors
    ///
    /// [`SlotError::Engine`] where `on_engine_error` is `fail`, or where the bundled engine answered.
    pub(super) fn refuse_here<T>(
        &self,
        served: &Served<T>,
        operation: &'static str,
        why: &str,
    ) -> Result<(), SlotError> {
        match served.serving.and_then(|serving| self.chain.last_of(serving)) {
            Some(link) => self.chain.leave_out_illegal(link, operation, why).map(drop),
            None => Err(SlotError::engine(&served.engine, operation, EngineError::failed(why))),
        }
    }
}
