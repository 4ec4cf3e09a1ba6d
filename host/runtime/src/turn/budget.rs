//! What a request may cost, by what the provider has counted so far.

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{ModelRef, ToolSpec};
use serde::Serialize;

use super::{Draft, Turn};
use crate::accounting::{LearnedWindow, Part, Prompt};
use crate::compaction::{CompactionOutcome, Verdict};
use crate::event::What;
use ctxhost_dialects::message::{StopReason, Usage};
use ctxhost_dialects::{AssistantMessage, ModelRequest, ProviderError};
use ctxhost_provider::truncation::{Certainty, Sent, SilentTruncation};

/// What a request may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    /// What the conversation may take, as entries count.
    pub(crate) tokens: u64,
    /// What is held free for the answer, in provider tokens.
    pub(crate) reserve_tokens: u64,
    /// What the conversation may take more where nothing is held free, as entries count.
    pub(crate) spare_tokens: u64,
}

impl Turn<'_> {
    /// What the next request may cost.
    pub(crate) async fn budget(&mut self) -> Budget {
        if let Some(guest) = self.guest {
            return self.budget_beside(guest.overhead_tokens);
        }
        let tools = self.tools().await;
        self.budget_beside(self.overhead_tokens(&tools))
    }

    /// What the conversation may cost beside system prompt and tools, as entries count.
    pub(super) fn budget_beside(&self, overhead_tokens: u64) -> Budget {
        let window_tokens = self.window_tokens().min(self.refused_window_tokens());
        let own_tokens = || self.shared.budget.budget(window_tokens, 0).0;
        let reserve_tokens = self.guest.and_then(|it| it.reserve_tokens).unwrap_or_else(own_tokens);
        let cap_tokens = self.pressure.cap_tokens.unwrap_or(u64::MAX);
        let beside = |reserve_tokens| {
            let free_tokens = window_tokens.saturating_sub(reserve_tokens);
            self.room_tokens(free_tokens).saturating_sub(overhead_tokens).min(cap_tokens)
        };
        let tokens = beside(reserve_tokens);
        // A turn of our own asks for no answer longer than its reserve, so it keeps one.
        let spare_tokens = self.guest.map_or(0, |_| beside(0).saturating_sub(tokens));
        Budget { tokens, reserve_tokens, spare_tokens }
    }

    /// What fits into so many provider tokens, as entries count; a sub-agent may have a share of it.
    pub(crate) fn room_tokens(&self, free_tokens: u64) -> u64 {
        (self.fitting_tokens(free_tokens) as f64 * self.children.budget_share()) as u64
    }

    /// So many provider tokens, as entries count.
    pub(crate) fn fitting_tokens(&self, provider_tokens: u64) -> u64 {
        self.accounting.fitting_estimate(provider_tokens)
    }

    /// What system prompt and tools take, as entries count.
    pub(super) fn overhead_tokens(&self, tools: &[ToolSpec]) -> u64 {
        let tools = if tools.is_empty() { String::new() } else { json_of(tools) };
        tokens::estimate(&self.system_prompt()) + tokens::estimate(&tools)
    }

    /// What every request of the session begins with: what the agent is told, what earlier sessions
    /// left, and which of its sub-agents live. No engine sees it, so none can leave it out.
    pub(crate) fn system_prompt(&self) -> String {
        let sub_agents = self.children.note(&self.shared.running);
        let agent = self.shared.settings.system_prompt.as_str();
        let mut parts = vec![agent, self.memory.recalled(), &sub_agents];
        parts.retain(|part| !part.is_empty());
        parts.join("\n\n")
    }

    /// The window of the model that answers now, in provider tokens.
    pub(crate) fn window_tokens(&self) -> u64 {
        let model = self.walk.model();
        let Some(guest) = self.guest else { return self.shared.window_tokens(model) };
        let learned = self.accounting.learned_window(model).filter(|window| window.is_said);
        guest.window_tokens.min(learned.map_or(u64::MAX, |window| window.tokens))
    }

    /// The size that the model refused last in this session without naming its limit. It bounds a request, not
    /// the window that engines are told: those refuse to work in a small one, and this is an estimate.
    fn refused_window_tokens(&self) -> u64 {
        let learned = self.accounting.learned_window(self.walk.model());
        learned.map_or(u64::MAX, |window| window.tokens)
    }

    /// The model that answers now, as engines know it.
    pub(crate) fn model_ref(&self) -> ModelRef {
        let model = self.walk.model().clone();
        ModelRef { provider: model.provider, id: model.id, window_tokens: self.window_tokens() }
    }

    /// The longest answer: what is asked for, what is held free, what the provider gives.
    pub(super) fn max_output_tokens(&self, reserve_tokens: u64) -> u64 {
        let given_tokens = self.pressure.max_output_tokens.unwrap_or(u64::MAX);
        self.shared.settings.max_output_tokens.min(reserve_tokens).min(given_tokens).max(1)
    }

    /// A request as far as its size goes.
    pub(super) fn sized(&self, request: &ModelRequest, sizes: &[u64]) -> Prompt {
        let head = [Part::of_text(&request.system), Part::of_text(&json_of(&request.tools))];
        let messages = request.messages.iter().zip(sizes);
        let messages = messages.map(|(message, tokens)| Part::new(&json_of(message), *tokens));
        self.accounting.prompt(head.into_iter().chain(messages))
    }

    /// What a request probably costs, in provider tokens.
    pub(crate) fn expected_tokens(&self, draft: &Draft) -> u64 {
        self.accounting.expected(self.accounting.count(&draft.prompt))
    }

    /// What an answer teaches about sizes; says so where the provider has not read all it was sent.
    pub(super) fn learn(&mut self, draft: &Draft, reply: &AssistantMessage) {
        let stop = reply.stop_reason;
        self.learn_count(&draft.prompt, draft.image_tokens(), &reply.usage, stop);
    }

    /// What a count of the provider teaches about sizes.
    pub(super) fn learn_count(
        &mut self,
        prompt: &Prompt,
        image_tokens: u64,
        usage: &Usage,
        stop: StopReason,
    ) {
        let count = self.accounting.count(prompt);
        let is_anchored = count.counted_tokens > 0;
        let sent = Sent {
            prompt_tokens: self.accounting.expected(count),
            image_tokens,
            certainty: if is_anchored { Certainty::Anchored } else { Certainty::Guessed },
            window_tokens: self.window_tokens(),
        };
        let verdict = SilentTruncation::judge(&sent, *self.counts, usage, stop);
        let Some(verdict) = verdict else {
            *self.counts = self.counts.after(&sent, usage, is_anchored);
            self.accounting.answered(self.walk.model(), prompt, usage, stop);
            return;
        };
        *self.counts = self.counts.rebuilt();
        self.learn_window(LearnedWindow { tokens: verdict.window_tokens, is_said: false });
        self.tell(What::SilentTruncation { message: verdict.to_string() });
    }

    /// What a refusal teaches: the provider may have named the size and the limit. Where it named no limit,
    /// the size that it refused is one, as far as we can estimate it; that is learned for the model where a
    /// code says that the size was why, else for a guest's session alone.
    pub(crate) fn learn_of_overflow(&mut self, prompt: &Prompt, failure: &ProviderError) {
        if let Some(prompt_tokens) = failure.prompt_tokens {
            self.accounting.counted(self.walk.model(), prompt, prompt_tokens);
        }
        if failure.is_ceiling {
            // What a key may use in a minute is no window.
            return;
        }
        if let Some(tokens) = failure.limit_tokens.filter(|tokens| *tokens > 0) {
            return self.learn_window(LearnedWindow { tokens, is_said: true });
        }
        let tokens = self.refused_tokens(prompt, failure);
        let window = LearnedWindow { tokens, is_said: false };
        if self.guest.is_some() {
            self.learn_window(window);
        } else if failure.has_overflow_code() && tokens >= self.shared.guest_windows.least_tokens()
        {
            let known_tokens = self.refused_window_tokens();
            let window = LearnedWindow { tokens: tokens.min(known_tokens), ..window };
            self.accounting.learn_window(&self.walk.model().clone(), window);
        }
    }

    /// The size of a refused request, in provider tokens, less one: the prompt as its provider counted it, or
    /// as it is estimated, and the answer that a guest asked for, which shares its window.
    pub(super) fn refused_tokens(&self, prompt: &Prompt, failure: &ProviderError) -> u64 {
        let estimated = || self.accounting.expected(self.accounting.count(prompt));
        let prompt_tokens = failure.observed_tokens.unwrap_or_else(estimated);
        let output_tokens = self.guest.map_or(0, |guest| guest.output_tokens);
        prompt_tokens.saturating_add(output_tokens).saturating_sub(1)
    }

    /// The provider knows its window; the config may not. Only a smaller one is believed; of a guest in
    /// this session alone, see [`GuestWindows`](crate::guest_windows::GuestWindows).
    fn learn_window(&mut self, window: LearnedWindow) {
        let least_tokens = self.guest.map_or(1, |_| self.shared.guest_windows.least_tokens());
        if !(least_tokens..self.window_tokens()).contains(&window.tokens) {
            return;
        }
        let model = self.walk.model().clone();
        match self.guest {
            Some(_) => self.accounting.learn_window(&model, window),
            None => _ = self.shared.windows().insert(model.clone(), window.tokens),
        }
        self.accounting.use_model(model, window.tokens);
    }

    /// Compactions were tried: sizes counted before one that was applied say nothing any more.
    pub(super) fn compacted(&mut self, outcomes: &[CompactionOutcome]) {
        self.count_compacted(outcomes);
        for outcome in outcomes {
            if outcome.verdict == Verdict::Applied {
                self.accounting.compacted();
                self.shared.prefixes.forget(&self.conversation.reference().id);
                *self.counts = self.counts.rebuilt();
            }
            self.tell(What::Compaction(outcome.clone().into()));
        }
    }
}

fn json_of(sent: &(impl Serialize + ?Sized)) -> String {
    serde_json::to_string(sent).unwrap_or_default()
}
