//! The state of a session by the budget it was made for, so that one small request costs later large ones nothing.

use ctxhost_engine_api::serde_json::{self, Map, Value};
use serde::de::{DeserializeOwned, Deserializer, Error};
use serde::{Deserialize, Serialize};

/// State does not count for a budget that is at least this many times the one it was made for.
// The host's rule for compactions: such state keeps so little that what it hides is worth more than the
// cached prefix. Between two budgets of nearly one size the prefix is worth more.
const MIN_RATIO: u64 = 2;
/// Budgets whose state is kept: more than the models that one session alternates between.
const MAX_STATES: usize = 4;

/// The states of one session. The one in use is that of the present budget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BudgetStates<T> {
    // Flat, so that state stored without a budget can be read, and has no other form.
    #[serde(flatten)]
    used: BudgetState<T>,
    /// The others, the one used last first.
    #[serde(rename = "otherBudgets", skip_serializing_if = "Vec::is_empty")]
    others: Vec<BudgetState<T>>,
    #[serde(skip)]
    present: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct BudgetState<T> {
    #[serde(flatten)]
    state: T,
    /// The smallest budget that decided anything in it, in tokens; `None` if it is empty or was stored
    /// without a budget, and counts for the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    budget: Option<u64>,
}

// By hand: a flattened field cannot be read if it has a map with numbers as keys, which JSON writes as texts.
impl<'de, T: DeserializeOwned> Deserialize<'de> for BudgetStates<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut fields = Map::<String, Value>::deserialize(from)?;
        let others: Vec<Map<String, Value>> = fields
            .remove("otherBudgets")
            .map_or(Ok(Vec::new()), serde_json::from_value)
            .map_err(D::Error::custom)?;
        let used = BudgetState::from_fields(fields).map_err(D::Error::custom)?;
        let others = others.into_iter().map(BudgetState::from_fields).collect::<Result<_, _>>();
        Ok(BudgetStates { used, others: others.map_err(D::Error::custom)?, present: None })
    }
}

impl<T: DeserializeOwned> BudgetState<T> {
    fn from_fields(mut fields: Map<String, Value>) -> serde_json::Result<BudgetState<T>> {
        let budget = fields.remove("budget").map_or(Ok(None), serde_json::from_value)?;
        Ok(BudgetState { state: serde_json::from_value(Value::Object(fields))?, budget })
    }
}

impl<T> BudgetState<T> {
    fn counts_for(&self, budget_tokens: u64) -> bool {
        self.budget.is_none_or(|made_for| budget_tokens / MIN_RATIO < made_for)
    }

    /// Whether what a request of this budget decides may be added.
    fn is_open_to(&self, budget_tokens: u64) -> bool {
        let is_near = |made_for: u64| made_for / MIN_RATIO < budget_tokens;
        self.counts_for(budget_tokens) && self.budget.is_none_or(is_near)
    }
}

impl<T: Clone + Default> BudgetStates<T> {
    /// Makes the state of a budget the one in use: the one made for the nearest budget, else a copy of one made for a
    /// larger budget, else an empty one.
    pub fn select(&mut self, budget_tokens: u64) {
        self.present = Some(budget_tokens);
        let distance =
            |state: &BudgetState<T>| state.budget.map_or(u64::MAX, |of| of.abs_diff(budget_tokens));
        let open = |state: &BudgetState<T>| state.is_open_to(budget_tokens);
        let nearest = self.others.iter().enumerate().filter(|(_, state)| open(state));
        let nearest = nearest.min_by_key(|(_, state)| distance(state));
        let nearest = nearest.map(|(at, state)| (at, distance(state)));
        let used = open(&self.used).then(|| distance(&self.used));
        match nearest {
            Some((_, other)) if used.is_some_and(|used| used <= other) => {}
            Some((at, _)) => {
                let next = self.others.remove(at);
                self.replace_used(next);
            }
            None if used.is_some() => {}
            None => {
                let next = self.copy_of_larger(budget_tokens).unwrap_or_default();
                self.replace_used(next);
            }
        }
    }

    /// What a larger budget decided is decided for a smaller one too.
    fn copy_of_larger(&self, budget_tokens: u64) -> Option<BudgetState<T>> {
        let all = std::iter::once(&self.used).chain(&self.others);
        let larger = all.filter(|state| state.counts_for(budget_tokens));
        let nearest = larger.min_by_key(|state| state.budget)?;
        Some(BudgetState { state: nearest.state.clone(), budget: Some(budget_tokens) })
    }

    fn replace_used(&mut self, next: BudgetState<T>) {
        self.others.insert(0, std::mem::replace(&mut self.used, next));
        self.others.truncate(MAX_STATES - 1);
    }
}

impl<T> BudgetStates<T> {
    /// The state in use.
    pub fn state(&self) -> &T {
        &self.used.state
    }

    /// The state in use, to follow a transcript without a decision.
    pub fn state_mut(&mut self) -> &mut T {
        &mut self.used.state
    }

    /// The state in use, to decide something for the present budget.
    pub fn decide(&mut self) -> &mut T {
        let made_for = self.used.budget.into_iter().chain(self.present);
        self.used.budget = made_for.min();
        &mut self.used.state
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    struct Cuts {
        #[serde(default)]
        cuts: Vec<String>,
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        chars: BTreeMap<u64, u64>,
    }

    fn decide(states: &mut BudgetStates<Cuts>, budget: u64, cut: &str) {
        states.select(budget);
        states.decide().cuts.push(cut.to_owned());
    }

    fn cuts(states: &mut BudgetStates<Cuts>, budget: u64) -> String {
        states.select(budget);
        states.state().cuts.join(" ")
    }

    #[test]
    fn what_a_small_budget_decides_costs_a_large_one_nothing() {
        let mut states = BudgetStates::default();
        decide(&mut states, 100_000, "large");
        decide(&mut states, 10_000, "small");
        assert_eq!(cuts(&mut states, 100_000), "large");
        assert_eq!(cuts(&mut states, 10_000), "large small", "and comes back");
        decide(&mut states, 150_000, "more");
        assert_eq!(cuts(&mut states, 100_000), "large more");
        assert_eq!(cuts(&mut states, 10_500), "large small");
    }

    #[test]
    fn budgets_of_about_one_size_share_a_state() {
        let mut states = BudgetStates::default();
        decide(&mut states, 10_000, "first");
        for budget in [10_000, 5_001, 19_999] {
            assert_eq!(cuts(&mut states, budget), "first", "{budget}");
        }
        assert_eq!(cuts(&mut states, 20_000), "");
        // The smallest budget that decided counts, not the last one.
        decide(&mut states, 6_000, "second");
        assert_eq!(cuts(&mut states, 11_999), "first second");
        assert_eq!(cuts(&mut states, 12_000), "");
    }

    #[test]
    fn state_stored_without_a_budget_counts_for_the_next_one() {
        let mut states: BudgetStates<Cuts> = serde_json::from_str(r#"{"cuts":["old"]}"#).unwrap();
        assert_eq!(serde_json::to_string(&states).unwrap(), r#"{"cuts":["old"]}"#);
        assert_eq!(cuts(&mut states, 200_000), "old");
        decide(&mut states, 10_000, "new");
        assert_eq!(cuts(&mut states, 200_000), "");
        let json = serde_json::to_string(&states).unwrap();
        let mut again: BudgetStates<Cuts> = serde_json::from_str(&json).unwrap();
        assert_eq!(cuts(&mut again, 10_000), "old new");
        assert_eq!(cuts(&mut again, 200_000), "");
    }

    #[test]
    fn maps_with_numbers_as_keys_are_read_back() {
        let mut states = BudgetStates::default();
        decide(&mut states, 10_000, "small");
        states.decide().chars.insert(62, 12_720);
        decide(&mut states, 100_000, "large");
        let json = serde_json::to_string(&states).unwrap();
        let mut again: BudgetStates<Cuts> = serde_json::from_str(&json).unwrap();
        again.select(10_000);
        assert_eq!(again.state().chars.get(&62), Some(&12_720));
    }

    #[test]
    fn few_states_are_kept() {
        let mut states = BudgetStates::default();
        (0..20).for_each(|power| decide(&mut states, 1_000 << power, "cut"));
        assert_eq!(states.others.len() + 1, MAX_STATES);
        assert_eq!(cuts(&mut states, 1_000 << 17), "cut");
    }
}
