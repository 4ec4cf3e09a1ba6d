//! One engine in the shadow: what it would make of a request.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use ctxhost_engine_api::{AssembleRequest, Plan};

use super::Shown;
use super::ledger::Seen;
use ctxhost_context::EngineProgress;
use ctxhost_engine::{ActiveEngine, AssembleContext, EngineContext, OnRefusal, Served, SlotError};
use ctxhost_law::{self as law, Anchors, Lawful};
use ctxhost_survival as survival;

/// Sessions that are remembered. One that is forgotten begins anew.
const MAX_SESSIONS: usize = 256;

/// A row of engines in the shadow.
pub(super) struct Beside {
    name: String,
    /// Why not, where it did not open.
    active: Result<ActiveEngine, String>,
    sessions: HashMap<String, Known>,
}

/// What it has been told of one session.
#[derive(Default)]
struct Known {
    progress: EngineProgress,
    anchors: Anchors,
    /// Whether it would have compacted at the request before.
    compacts: bool,
}

impl Beside {
    pub(super) fn of(name: String, active: Result<ActiveEngine, SlotError>) -> Beside {
        let active = active.map_err(|error| error.to_string());
        if let Err(reason) = &active {
            tracing::warn!(engine = name, reason, "an engine in the shadow did not open");
        }
        Beside { name, active, sessions: HashMap::new() }
    }

    /// Lets its engines go.
    pub(super) async fn dispose(&self) {
        if let Ok(active) = &self.active {
            active.dispose().await;
        }
    }

    /// What it would make of a request.
    pub(super) async fn look(&mut self, shown: &Shown) -> Seen {
        let name = self.name.clone();
        let active = match &self.active {
            Ok(active) => active,
            Err(reason) => return Seen::failed(name, reason.clone()),
        };
        if self.sessions.len() >= MAX_SESSIONS {
            self.sessions.clear();
        }
        let known = self.sessions.entry(shown.request.session.id.clone()).or_default();
        let began = Instant::now();
        let served = match ask(active, known, shown).await {
            Ok(served) => served,
            // It is told of and asked again: nobody was hurt.
            Err(error @ SlotError::Refused { .. }) => {
                return Seen::illegal(name, error.to_string());
            }
            Err(error) => return Seen::failed(name, error.to_string()),
        };
        let seen = Seen { took_us: microseconds(began.elapsed()), ..Seen::of(name) };
        judged(served, known, shown, seen)
    }
}

/// Tells it what is new and asks for its plan.
async fn ask(
    active: &ActiveEngine,
    known: &mut Known,
    shown: &Shown,
) -> Result<Served<Plan>, SlotError> {
    let (view, session) = (&shown.view, &shown.request.session);
    known.progress.catch_up(active, session, 0, view).await?;
    known.anchors.follow(view);
    let assemble = AssembleContext {
        anchors: &known.anchors,
        budget_tokens: shown.request.budget,
        law: &shown.law,
        on_refusal: OnRefusal::Report,
    };
    let context = EngineContext { transcript: view, assemble: Some(assemble) };
    let budget = known.anchors.request_budget(shown.request.budget);
    active.ask(context, AssembleRequest { budget, ..shown.request.clone() }).await
}

/// Holds its plan against the law and counts what would have come of it.
fn judged(served: Served<Plan>, known: &mut Known, shown: &Shown, seen: Seen) -> Seen {
    let Shown { view, law, request, .. } = shown;
    let is_wanted = served.value.extras.compaction_wanted.is_some();
    let lawful = law::enforce_with(&known.anchors, view, served.value, request.budget, law);
    let lawful = match lawful {
        Ok(lawful) => lawful,
        Err(violation) => return Seen::illegal(seen.engine, violation.to_string()),
    };
    let compacts = is_wanted || lawful.tokens > request.budget;
    // It would have compacted once, and not again at every request until somebody else does.
    let did_before = std::mem::replace(&mut known.compacts, compacts);
    let begins_to = compacts && !did_before;
    let mended = served.repairs.len() as u64;
    let seen = seen.with(shown, &lawful, begins_to);
    Seen { repairs: seen.repairs + mended, ..seen }
}

impl Seen {
    /// What the engine of the slot made of it.
    pub(super) fn of_active(shown: &Shown, has_compacted: bool) -> Seen {
        let seen = Seen { took_us: shown.took_us, ..Seen::of(shown.engine.clone()) };
        let seen = seen.with(shown, &shown.lawful, has_compacted);
        Seen { illegal: seen.illegal + shown.refused, ..seen }
    }

    fn with(self, shown: &Shown, lawful: &Lawful, compacts: bool) -> Seen {
        let items = lawful.items(&shown.view);
        let breaches = law::audit(&shown.view, &items, u64::MAX);
        Seen {
            tokens: lawful.tokens,
            budget_tokens: shown.request.budget,
            compacts,
            survival: survival::survey(&shown.view, &items).shares,
            illegal: breaches.len() as u64,
            repairs: lawful.repairs.len() as u64,
            ..self
        }
    }
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
