//! Rule retention: generated sessions are compacted repeatedly, then shaped once more.
//!
//! Each compaction opens the session from its file with a new engine, as after a restart, so that
//! state that an engine keeps only in memory is lost.

use std::path::Path;

use ctxhost_agent::{OfflineOptions, compact_session};
use ctxhost_config::Config;
use ctxhost_context::{CompactionVerdict, ContextError};
use ctxhost_engine::{EngineSpec, HostClock};
use ctxhost_session::{RecordBody, Session};
use serde_json::json;

use crate::context::{SeenContext, run_options};
use crate::report::RuleRow;
use crate::rules_generator::{RuleSession, generate};
use crate::{BenchSubject, QualityError};

/// Time of the first generated entry, in milliseconds since 1970.
const FIRST_MS: i64 = 1_767_225_600_000;
/// Budget of the generated sessions: a round fills about half of it.
const BUDGET_TOKENS: u64 = 4_000;
const ROUND_TOKENS: usize = 2_000;

/// Number of generated sessions and compactions.
#[derive(Clone, Copy, Debug)]
pub struct RuleOptions {
    /// Sessions. Default 100.
    pub sessions: u64,
    /// Compactions of each session. Default 5.
    pub compactions: usize,
    /// Seed of the generator. Default 1.
    pub seed: u64,
}

impl Default for RuleOptions {
    fn default() -> Self {
        RuleOptions { sessions: 100, compactions: 5, seed: 1 }
    }
}

/// Measures an engine; `None` for a baseline, which does not compact.
///
/// # Errors
///
/// [`QualityError`] if an engine or the disk fails.
pub async fn measure_rules(
    subject: &BenchSubject,
    options: RuleOptions,
    config: &Config,
    mut on_progress: impl FnMut(u64),
) -> Result<Option<RuleRow>, QualityError> {
    let BenchSubject::Engine { name, specs, .. } = subject else { return Ok(None) };
    let mut row = RuleRow {
        subject: name.clone(),
        sessions: options.sessions,
        compactions: options.compactions as u64,
        ..RuleRow::default()
    };
    let run = run_options(config, subject, BUDGET_TOKENS);
    // Real files: a session in memory could not be closed and opened again.
    let folder = tempfile::tempdir()?;
    for number in 0..options.sessions {
        // Spreads the seeds, so that neighbouring ones do not share sessions.
        let seed = options.seed.wrapping_mul(1_000_003).wrapping_add(number);
        let session = generate(seed, options.compactions, ROUND_TOKENS);
        let path = folder.path().join(format!("{number}.jsonl"));
        let played = play(&session, &path, specs, &run).await;
        let (context, applied) =
            played.map_err(|source| QualityError::Engine { subject: name.clone(), source })?;
        let kept = session.active.iter().filter(|value| context.contains(*value)).count();
        row.applied += applied;
        row.rules += session.active.len() as u64;
        row.rules_kept += kept as u64;
        row.sessions_kept += u64::from(kept == session.active.len());
        let is_shown = |value: &String| context.contains(value);
        for (old, new) in &session.replaced {
            row.replaced += 1;
            row.stale += u64::from(is_shown(old));
            row.stale_only += u64::from(is_shown(old) && !is_shown(new));
        }
        on_progress(1);
    }
    Ok(Some(row))
}

/// Plays a session; returns the texts of its last request and the number of applied compactions.
async fn play(
    session: &RuleSession,
    path: &Path,
    specs: &[EngineSpec],
    options: &OfflineOptions,
) -> Result<(String, u64), ContextError> {
    let (mut now_ms, mut applied) = (FIRST_MS, 0);
    let last = session.rounds.len().saturating_sub(1);
    Session::create(path, "/", None)?;
    for (at, round) in session.rounds.iter().enumerate() {
        let mut file = Session::open(path)?;
        for (is_user, text) in round {
            // Engines look at time gaps (pruning by age), so entries need plausible times.
            now_ms += 1_000;
            file.append_at(body(*is_user, text, now_ms)?, now_ms)?;
        }
        // Closes the session, so that the compaction below opens it from disk as after a restart.
        drop(file);
        if at < last {
            let file = Session::open(path)?;
            let outcomes = compact_session(file, specs, options, None, now_ms).await?;
            applied += outcomes
                .iter()
                .filter(|outcome| outcome.verdict == CompactionVerdict::Applied)
                .count() as u64;
        }
    }
    let prompt = "What is the next step?";
    now_ms += 1_000;
    let mut file = Session::open(path)?;
    file.append_at(body(true, prompt, now_ms)?, now_ms)?;
    let clock = HostClock::recorded();
    clock.set(now_ms);
    let mut context = options.open(file, specs, clock)?;
    let prompt = context.prepare(&options.target).await?;
    Ok((SeenContext::new(&prompt.items()).all, applied))
}

fn body(
    is_user: bool,
    text: &str,
    now_ms: i64,
) -> Result<RecordBody, ctxhost_session::SessionError> {
    let content = json!([{ "type": "text", "text": text }]);
    let message = if is_user {
        json!({ "role": "user", "content": content, "timestamp": now_ms })
    } else {
        json!({ "role": "assistant", "content": content, "stopReason": "stop", "timestamp": now_ms })
    };
    RecordBody::from_message(&message)
}
