//! The fallback layer: the bundled engine answers where no engine of the chain does.

use std::time::{Duration, Instant};

use ctxhost_engine_api::EngineError;
use ctxhost_engine_api::border::{EngineCall, EngineReply, FailurePolicy};

use super::active::ActiveEngine;
use super::answer::EngineAnswer;
use super::chain::{ChainOutcome, UnansweredCall};
use super::error::{SlotError, is_caller_error};
use super::service::{EngineContext, SlotResult};

impl ActiveEngine {
    /// Calls the chain and, where none of its engines answers or they are closed meanwhile, the bundled engine.
    pub(super) async fn call_with_fallback(
        &self,
        context: EngineContext<'_>,
        call: &EngineCall,
    ) -> SlotResult<EngineReply> {
        self.chain.refuse_while_quarantined(call)?;
        let began = Instant::now();
        let answer = self.chain.retired.run_until_cancelled(self.chain.call(context, call)).await;
        let unanswered = match answer.transpose()? {
            Some(ChainOutcome::Answered(answer)) => return Ok(*answer),
            Some(ChainOutcome::Unanswered(unanswered)) => unanswered,
            None => UnansweredCall::default(),
        };
        match self.bundled.call(context.transcript, call.clone()).await {
            Ok(value) => Ok(self.attribute_to_bundled(unanswered, value, began.elapsed())),
            // Such an error is about the request; the bundled engine is not at fault.
            Err(error)
                if call.on_failure() == FailurePolicy::Fallback && is_caller_error(error.kind) =>
            {
                Err(SlotError::from_answer(error))
            }
            Err(error) => Err(SlotError::from_engine(self.bundled.id(), call.name(), error)),
        }
    }

    fn attribute_to_bundled<T>(
        &self,
        before: UnansweredCall,
        value: T,
        elapsed: Duration,
    ) -> EngineAnswer<T> {
        let answer = self.chain.attribute_to_host(value, elapsed);
        let closed =
            || format!("{} was closed: another engine is in the slot", self.configured_id());
        // An empty chain had no engine that could have been closed.
        let closed = (self.is_retired() && !self.chain.is_empty()).then(closed);
        EngineAnswer {
            engine: self.bundled.id().to_owned(),
            version: self.bundled.info().version.clone(),
            fallback: before.lost_call.or(answer.fallback).or(closed),
            refused_plans: before.refused_plans,
            ..answer
        }
    }

    /// Handles an answer that violates an invariant. Each plan but the last passed the checks, so
    /// the last engine that answered is at fault.
    ///
    /// # Errors
    ///
    /// [`SlotError::Engine`] where `on_engine_error` is `fail`, or where the bundled engine answered.
    pub(super) fn reject_own<T>(
        &self,
        answer: &EngineAnswer<T>,
        operation: &'static str,
        reason: &str,
    ) -> Result<(), SlotError> {
        match answer.serving.and_then(|serving| self.chain.last_link(serving)) {
            Some(link) => self.chain.quarantine_invalid(link, operation, reason).map(drop),
            None => {
                let error = EngineError::failed(reason);
                Err(SlotError::from_engine(&answer.engine, operation, error))
            }
        }
    }
}
