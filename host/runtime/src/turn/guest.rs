//! A turn whose model is asked by somebody else: the host is given a request and gives back its shape.

use std::ops::Range;

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Flags, Role, Transcript, Trigger};

use super::{Turn, TurnError};
use crate::accounting::{Part, Prompt};
use crate::agent::{OpenSession, Shared};
use crate::event::What;
use crate::failover::Walk;
use crate::lane::LaneGuard;
use crate::model_name::ModelName;
use crate::request::{Ask, Compacting, Shaped};
use crate::timing::on_the_way;
use ctxhost_dialects::ProviderError;
use ctxhost_dialects::message::{StopReason, Usage};

/// What a request is shaped for, when the host does not send it itself.
#[derive(Clone, Debug)]
pub struct Guest {
    /// The model that is asked.
    pub model: ModelName,
    /// Its window in provider tokens, as long as the session has learned no smaller one.
    pub window_tokens: u64,
    /// Held free for the answer, in provider tokens; `None` for what `[budget]` says.
    pub reserve_tokens: Option<u64>,
    /// The answer that is asked for, in provider tokens; 0 where it takes no room in the window.
    pub output_tokens: u64,
    /// What system prompt and tools take, as entries count.
    pub overhead_tokens: u64,
    /// What the conversation may take at the most after an overflow, as entries count.
    pub cap_tokens: Option<u64>,
    /// Why a compaction that is needed is wanted.
    pub trigger: Trigger,
    /// Whether tools have run since the person spoke last.
    pub is_mid_turn: bool,
    /// Whether the request is only to be made to fit: somebody else compacts the conversation, or the
    /// provider has it in its cache as it was.
    pub only_fits: bool,
}

impl<'a> Turn<'a> {
    /// A turn of a guest.
    pub(crate) fn of_guest(
        guest: &'a Guest,
        shared: &'a Shared,
        lane: &'a LaneGuard,
        open: &'a mut OpenSession,
    ) -> Turn<'a> {
        let walk = Walk::of_one(guest.model.clone());
        let mut turn = Turn::along(walk, Some(guest), shared, lane, open);
        turn.pressure.cap_tokens = guest.cap_tokens;
        turn
    }

    /// Has the next request shaped.
    pub(crate) async fn shape_for_guest(&mut self, guest: &Guest) -> Result<Shaped, TurnError> {
        let budget = self.budget().await;
        // Nobody can compact the conversation of a guest by hand.
        let compacting = match on_the_way(&self.shared.compaction, guest.is_mid_turn) {
            Compacting::Never => Compacting::WhenNeeded,
            _ if guest.only_fits => Compacting::WhenNeeded,
            compacting => compacting,
        };
        let ask = Ask {
            prompt: self.conversation.prompt(),
            available_tools: Vec::new(),
            now_ms: self.shared.clock.now_ms(),
            trigger: guest.trigger,
            compacting,
        };
        self.shape_for(&ask, budget).await
    }

    /// A guest was answered: what was sent of the conversation took `sent_tokens`, as entries count.
    pub(crate) fn guest_answered(&mut self, guest: &Guest, sent_tokens: u64, usage: &Usage) {
        let view = self.conversation.view();
        let images = view.iter().filter(|entry| entry.has(Flags::IMAGES)).count() as u64;
        let prompt = self.prompt_of(guest, sent_tokens);
        self.learn_count(&prompt, images * tokens::IMAGE_TOKENS, usage, StopReason::Stop);
        self.shared.guest_windows.answered(&guest.model, usage.prompt_tokens());
        self.tell(What::Answered { usage: *usage });
    }

    /// The provider found a guest's request too large.
    pub(crate) fn guest_refused(
        &mut self,
        guest: &Guest,
        sent_tokens: u64,
        failure: &ProviderError,
    ) {
        let prompt = self.prompt_of(guest, sent_tokens);
        let expected_tokens = self.accounting.expected(self.accounting.count(&prompt));
        let of_prompt = without_answer(failure, expected_tokens, guest.output_tokens);
        let refused_tokens = self.refused_tokens(&prompt, &of_prompt);
        self.learn_of_overflow(&prompt, &of_prompt);
        let session = &self.conversation.reference().id;
        let told = (&guest.model, guest.window_tokens);
        if !failure.is_ceiling {
            self.shared.guest_windows.refused(told, session, failure, refused_tokens);
        }
        self.tell(What::recovering(failure, "made smaller"));
    }

    /// A guest's turn has ended, with the entry before `next_id`.
    pub(crate) async fn guest_ended(
        &mut self,
        first_id: &str,
        next_id: &str,
        answered: Option<Answered>,
    ) -> Result<(), TurnError> {
        self.first_id = first_id.to_owned();
        let view = self.conversation.view();
        let entries = between(&view, first_id, next_id);
        let answered = answered.filter(|it| it.ends(&view, &entries));
        self.last_usage = answered.map(|it| it.usage).unwrap_or_default();
        self.settle_with(entries).await?;
        self.tell(What::TurnEnded);
        Ok(())
    }

    /// Only the size as a whole is learned from, so the parts name no messages, and two requests of
    /// one size are one to the account.
    fn prompt_of(&self, guest: &Guest, sent_tokens: u64) -> Prompt {
        let part = |tokens: u64| Part::new(&tokens.to_string(), tokens);
        let parts = [guest.overhead_tokens, sent_tokens].map(part);
        self.accounting.prompt(parts)
    }
}

/// The refusal with the size of the prompt alone. Some providers count prompt and answer together, and a
/// factor that was learned from the sum would make every later request far too small.
fn without_answer(
    failure: &ProviderError,
    expected_tokens: u64,
    output_tokens: u64,
) -> ProviderError {
    let prompt_of = |observed_tokens: u64| {
        let rest_tokens = observed_tokens.saturating_sub(output_tokens);
        let is_nearer =
            rest_tokens.abs_diff(expected_tokens) < observed_tokens.abs_diff(expected_tokens);
        if is_nearer && rest_tokens > 0 { rest_tokens } else { observed_tokens }
    };
    ProviderError { observed_tokens: failure.observed_tokens.map(prompt_of), ..failure.clone() }
}

/// What a guest was answered, and to what.
#[derive(Debug)]
pub(crate) struct Answered {
    /// The last entry of the request.
    asked_id: String,
    usage: Usage,
}

impl Answered {
    /// An answer to a request that is all of `view`.
    pub(crate) fn behind(view: &Transcript, usage: Usage) -> Option<Answered> {
        Some(Answered { asked_id: view.last()?.id().to_owned(), usage })
    }

    /// Whether it is that of the last request of a turn: there is nothing more in the turn but what it says.
    fn ends(&self, view: &Transcript, turn: &Range<u64>) -> bool {
        let of_turn = view.iter().filter(|entry| turn.contains(&entry.seq()));
        let mut asked = of_turn.skip_while(|entry| entry.id() != self.asked_id);
        asked.next().is_some() && asked.all(|entry| entry.role() == Role::Assistant)
    }
}

/// The entries from one to before another; a compaction may have folded the first of them.
fn between(view: &Transcript, first_id: &str, next_id: &str) -> Range<u64> {
    let seq = |id: &str| view.iter().rev().find(|entry| entry.id() == id).map(|it| it.seq());
    let next = seq(next_id).unwrap_or(view.len() as u64);
    seq(first_id).unwrap_or(0).min(next)..next
}
