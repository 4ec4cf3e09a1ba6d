//! The host's token count of a plan, and the limit of text that an engine inserts.

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Action, Entry, Plan, PlanItem, Transcript};

use super::{InvariantSettings, PlanViolation, Repair, pairing};

/// The smallest budget that inserted text is measured against, in tokens. Below it a notice of one line is half of the
/// budget, and of a budget of 0, which a large system prompt leaves, any text is too much.
pub const FAIR_BUDGET_TOKENS: u64 = 1_000;

/// The cost of a plan's items and of its addition to the system prompt, and the repairs that the conversation needed.
pub(super) fn count_tokens(view: &Transcript, plan: &Plan) -> (u64, Vec<Repair>) {
    let settled = pairing::pair_results(plan.project(view));
    let items: u64 = settled.items.iter().map(PlanItem::tokens).sum();
    (items.saturating_add(system_addition_tokens(plan)), settled.repairs)
}

/// The cost of what a plan adds to the system prompt.
pub fn system_addition_tokens(plan: &Plan) -> u64 {
    plan.extras.system_prompt_addition.as_deref().map_or(0, tokens::estimate)
}

/// Refuses a plan with too much inserted text.
pub(super) fn check_inserted_text(
    view: &Transcript,
    plan: &Plan,
    budget_tokens: u64,
    settings: &InvariantSettings,
) -> Result<(), PlanViolation> {
    let limit_tokens =
        settings.inserted_text_max_share.of_tokens(budget_tokens.max(FAIR_BUDGET_TOKENS));
    let inserted: u64 = plan.ops.iter().map(|op| added_text_tokens(view, &op.action)).sum();
    let tokens = inserted.saturating_add(system_addition_tokens(plan));
    if tokens > limit_tokens {
        return Err(PlanViolation::InsertTooLarge { tokens, limit_tokens });
    }
    Ok(())
}

/// The text that an operation adds: a whole insert, or the growth of a replacement.
fn added_text_tokens(view: &Transcript, action: &Action) -> u64 {
    let growth = |item: fn(Entry<'_>, &str) -> u64, seq: u64, content: &str| {
        view.get(seq).map_or(0, |entry| item(entry, content).saturating_sub(entry.tokens()))
    };
    match action {
        Action::Insert { text, .. } => tokens::estimate(text),
        Action::ReplaceText { seq, text } => {
            growth(|entry, text| PlanItem::ReplacedText { entry, text }.tokens(), *seq, text)
        }
        Action::ReplaceRaw { seq, raw } => {
            growth(|entry, raw| PlanItem::ReplacedRaw { entry, raw }.tokens(), *seq, raw)
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::Role;
    use ctxhost_engine_api::testing::generate::Script;

    use super::*;

    #[test]
    fn an_addition_to_the_system_prompt_is_counted() {
        let view = Script::new().user("task").assistant("yes").finish().transcript();
        let mut plan = Plan::keep_all(view.len());
        plan.extras.system_prompt_addition = Some("x".repeat(400));
        let checked = crate::enforce(&view, plan, 1_000, &InvariantSettings::default()).unwrap();
        assert_eq!(checked.tokens, view.total_tokens() + 100);
        assert!(checked.plan.extras.system_prompt_addition.is_some());
    }

    #[test]
    fn inserted_text_is_limited_in_every_operation() {
        let view = Script::new().user("task").assistant("yes").finish().transcript();
        let check = |build: &dyn Fn(&mut Plan)| {
            let mut plan = Plan::default();
            build(&mut plan);
            check_inserted_text(&view, &plan, 0, &InvariantSettings::default())
        };
        let text = "x".repeat(2_000);
        assert_eq!(check(&|plan| _ = plan.insert(Role::User, text.clone(), 0..1)), Ok(()));
        let too_large = |tokens| Err(PlanViolation::InsertTooLarge { tokens, limit_tokens: 500 });
        let twice = |plan: &mut Plan| {
            plan.insert(Role::User, text.clone(), 0..1).replace_text(1, "12345678");
        };
        assert_eq!(check(&twice), too_large(501));
        let in_system = |plan: &mut Plan| {
            plan.keep(0..2).extras.system_prompt_addition = Some("x".repeat(2_004));
        };
        assert_eq!(check(&in_system), too_large(501));
    }
}
