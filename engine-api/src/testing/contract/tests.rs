//! Tests of the suite with a correct engine and with engines that have one fault each.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::*;

/// Runs the suite and returns the names of the failed checks.
fn failed<E: ContextEngine>() -> Vec<String> {
    let report = contract(EngineFactory::linked::<E>(), &ContractOptions::default());
    report.failures().into_iter().map(|check| check.name.clone()).collect()
}

fn newest(transcript: &Transcript, budget: u64) -> Plan {
    let mut plan = Plan::default();
    plan.keep(transcript.tail_within(budget)..transcript.len() as u64);
    plan
}

/// Defines an engine with the given `assemble` and `compact`.
macro_rules! engine {
    ($name:ident, $id:literal, $assemble:expr, $compact:expr) => {
        struct $name;

        impl ContextEngine for $name {
            const INFO: Info = Info::new($id, "Test", "0.1.0");

            fn create(_host: Host, config: Value) -> Result<Self> {
                match config.as_object() {
                    Some(settings) if settings.is_empty() => Ok($name),
                    _ => Err(EngineError::config("", "the engine has no settings")),
                }
            }

            async fn assemble(
                &self,
                transcript: Transcript,
                request: AssembleRequest,
            ) -> Result<Plan> {
                let assemble: fn(&Transcript, u64) -> Result<Plan> = $assemble;
                assemble(&transcript, request.budget)
            }

            async fn compact(
                &self,
                transcript: Transcript,
                _: CompactRequest,
            ) -> Result<Compaction> {
                let compact: fn(&Transcript) -> Compaction = $compact;
                Ok(compact(&transcript))
            }
        }
    };
}

engine!(Sound, "sound", |t, budget| Ok(newest(t, budget)), |_| Compaction::Delegate);
engine!(Capitals, "Capitals", |t, budget| Ok(newest(t, budget)), |_| Compaction::Delegate);
engine!(
    Unordered,
    "unordered",
    |t, _| {
        let mut plan = Plan::default();
        let middle = t.len() as u64 / 2;
        plan.keep(middle..t.len() as u64).keep(0..middle);
        Ok(plan)
    },
    |_| Compaction::Delegate
);
engine!(OutOfRange, "out-of-range", |t, _| Ok(Plan::keep_all(t.len() + 1)), |_| {
    Compaction::Delegate
});
engine!(
    Panics,
    "panics",
    |t, _| if t.len() < 3_000 { Ok(newest(t, 9)) } else { panic!("too many") },
    |_| Compaction::Delegate
);
engine!(
    Fickle,
    "fickle",
    |t, budget| {
        static CALLS: AtomicU64 = AtomicU64::new(0);
        let mut plan = newest(t, budget);
        plan.estimated_tokens = CALLS.fetch_add(1, Ordering::Relaxed);
        Ok(plan)
    },
    |_| Compaction::Delegate
);
engine!(Fails, "fails", |_, _| Err(EngineError::failed("no idea")), |_| Compaction::Delegate);
engine!(Grows, "grows", |t, budget| Ok(newest(t, budget)), |t| {
    let mut plan = Plan::default();
    plan.insert(Role::User, "in other words …", 0..0).keep(0..t.len() as u64);
    Compaction::Plan(plan)
});
engine!(
    Speaks,
    "speaks",
    |_, _| {
        let mut plan = Plan::default();
        plan.insert(Role::System, "obey", 0..0);
        Ok(plan)
    },
    |_| Compaction::Delegate
);

#[test]
fn a_sound_engine_passes() {
    let report = contract(EngineFactory::linked::<Sound>(), &ContractOptions::default());
    assert!(report.passed(), "{report}");
    assert!(report.checks.len() > 40);
    assert!(report.to_string().ends_with("checks, 0 failed"));
}

#[test]
fn capitals_in_an_id_are_caught() {
    assert_eq!(failed::<Capitals>(), ["info: id"]);
}

#[test]
fn plans_out_of_order_out_of_range_or_by_system_are_caught() {
    for failed in [failed::<Unordered>(), failed::<OutOfRange>(), failed::<Speaks>()] {
        assert!(failed.contains(&"assemble: fifty entries".into()), "{failed:?}");
        assert!(!failed.iter().any(|name| name.starts_with("compact")), "{failed:?}");
    }
}

#[test]
fn a_panic_in_one_case_is_one_failed_check() {
    assert_eq!(failed::<Panics>(), ["assemble: three thousand entries"]);
}

#[test]
fn a_plan_that_changes_by_itself_is_caught() {
    let failed = failed::<Fickle>();
    assert!(failed.contains(&"assemble: the same again".into()), "{failed:?}");
    assert!(!failed.contains(&"assemble: fifty entries".into()), "{failed:?}");
}

#[test]
fn an_error_where_the_budget_is_ample_is_caught() {
    assert!(failed::<Fails>().contains(&"assemble: one entry".into()));
}

#[test]
fn a_compaction_that_grows_is_caught() {
    let failed = failed::<Grows>();
    assert!(failed.iter().all(|name| name.starts_with("compact: ")), "{failed:?}");
    assert!(failed.contains(&"compact: fifty entries".into()), "{failed:?}");
}

/// Mixes up sessions, panics outside `assemble`, and never returns from `maintain`.
struct Careless {
    longest: std::sync::Mutex<u64>,
}

impl ContextEngine for Careless {
    const INFO: Info = Info::new("careless", "Careless", "0.1");

    fn create(_host: Host, config: Value) -> Result<Self> {
        assert!(config.is_object(), "no table");
        Ok(Careless { longest: std::sync::Mutex::default() })
    }

    async fn assemble(&self, transcript: Transcript, _: AssembleRequest) -> Result<Plan> {
        let mut longest = self.longest.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *longest = (*longest).max(transcript.len() as u64);
        let mut plan = Plan::default();
        if let Some(newest) = longest.checked_sub(1) {
            plan.replace_text(newest, "…");
        }
        Ok(plan)
    }

    async fn compact(&self, _: Transcript, _: CompactRequest) -> Result<Compaction> {
        Ok(Compaction::Delegate)
    }

    async fn maintain(&self, _: Transcript, _: MaintainRequest) -> Result<MaintainReply> {
        std::future::pending().await
    }

    fn tools(&self, _: SessionRef) -> Vec<ToolSpec> {
        vec![ToolSpec { name: "look up".into(), ..ToolSpec::default() }]
    }

    fn status(&self) -> EngineStatus {
        panic!("status failed")
    }
}

#[test]
fn carelessness_is_caught_call_by_call() {
    let limit = Duration::from_millis(300);
    let options = ContractOptions { call_limit: limit, ..ContractOptions::default() };
    let report = contract(EngineFactory::linked::<Careless>(), &options);
    let failed: Vec<&str> = report.failures().iter().map(|check| check.name.as_str()).collect();
    for name in [
        "info: version",
        "create: wrong config",
        "assemble: a new epoch",
        "assemble: two sessions",
        "maintain: every reason",
        "tools: specs and calls",
        "status: any time",
        "dispose: calls after it",
    ] {
        assert!(failed.contains(&name), "{name} is not among {failed:?}");
    }
}
