//! The fallback of a call: the bundled engine answers where no engine of the chain does.

use std::time::{Duration, Instant};

use ctxhost_engine_api::EngineError;
use ctxhost_engine_api::border::{EngineCall, EngineReply, FailurePolicy};

use super::active::ActiveEngine;
use super::answer::EngineAnswer;
use super::chain::{ChainOutcome, UnansweredCall};
use super::error::{SlotError, is_caller_error};
use super::service::{EngineContext, SlotResult};

impl ActiveEngine {
    /// Has the chain answer a call and, where none of its engines does, the bundled one.
    pub(super) async fn call_with_fallback(
        &self,
        context: EngineContext<'_>,
        call: &EngineCall,
    ) -> SlotResult<EngineReply> {
        let began = Instant::now();
        let unanswered = match self.chain.call(context, call).await? {
            ChainOutcome::Answered(served) => return Ok(*served),
            ChainOutcome::Unanswered(unanswered) => unanswered,
        };
        match self.bundled.call(context.transcript, call.clone()).await {
            Ok(value) => Ok(self.attribute_to_bundled(unanswered, value, began.elapsed())),
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
        took: Duration,
    ) -> EngineAnswer<T> {
        let served = self.chain.attribute_to_host(value, took);
        let let_go =
            || format!("{} was let go: another engine is in the slot", self.configured_id());
        let let_go = (self.is_retired() && !self.chain.is_empty()).then(let_go);
        EngineAnswer {
            engine: self.bundled.id().to_owned(),
            version: self.bundled.info().version.clone(),
            fallback: before.lost_call.or(served.fallback).or(let_go),
            refused_plans: before.refused_plans,
            ..served
        }
    }

    /// The law refused what these engines answered. Each plan but the last had passed it, so the last of
    /// those that answered is at fault.
    ///
    /// # Errors
    ///
    /// [`SlotError::Engine`] where `on_engine_error` is `fail`, or where the bundled engine answered.
    pub(super) fn reject_own<T>(
        &self,
        served: &EngineAnswer<T>,
        operation: &'static str,
        why: &str,
    ) -> Result<(), SlotError> {
        match served.serving.and_then(|serving| self.chain.last_link(serving)) {
            Some(link) => self.chain.quarantine_invalid(link, operation, why).map(drop),
            None => {
                Err(SlotError::from_engine(&served.engine, operation, EngineError::failed(why)))
            }
        }
    }
}
