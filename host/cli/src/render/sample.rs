//! Reports for tests: invented, with realistic proportions.

use std::collections::BTreeMap;

use ctxhost_agent::replay::report::*;
use ctxhost_retention::{CategoryShare, Shares};

const BUDGET_TOKENS: u64 = 20_000;

/// A short run with every kind of problem.
pub(crate) fn troubled() -> ReplayReport {
    let layers = |pairs: &[(&str, u64)]| -> BTreeMap<String, u64> {
        pairs.iter().map(|(name, entries)| ((*name).to_owned(), *entries)).collect()
    };
    let turn = |turn, requests, peak_tokens: u64, prompt: &str| TurnRow {
        turn,
        requests,
        prompt: prompt.into(),
        peak_tokens,
        peak_percent: peak_tokens as f64 * 100.0 / BUDGET_TOKENS as f64,
        end_tokens: peak_tokens,
        shaped_by: vec!["mask".into()],
        engine_us: 420 * requests,
        ..TurnRow::default()
    };
    let run = EngineRun {
        engine: engine("mask"),
        turns: vec![
            turn(1, 4, 3_120, "Fix the login that fails after the upgrade"),
            TurnRow {
                layers: layers(&[("guard", 2), ("prune", 5)]),
                shaped_by: vec!["mask".into(), "legacy".into()],
                fallbacks: 3,
                compactions: 1,
                ..turn(
                    2,
                    31,
                    19_420,
                    "Now run the whole suite and tell me which of the tests are flaky, please",
                )
            },
            TurnRow {
                violations: 1,
                repairs: 2,
                ..turn(3, 2, 20_480, "\u{1b}[31mred\u{1b}[0m 日本語のテキスト")
            },
        ],
        compactions: vec![
            CompactionRow {
                turn: 2,
                request: 17,
                trigger: "threshold".into(),
                engine: "mask".into(),
                applied: false,
                reason: "19,420 → 19,398 tokens is no progress; it had to fall below 19,000".into(),
                before_tokens: 19_420,
                after_tokens: 19_420,
                room_used_percent: 97.1,
                is_below_floor: false,
                folded_entries: 0,
                retention: None,
                summary: String::new(),
                engine_us: 3_100,
            },
            CompactionRow {
                turn: 2,
                request: 17,
                trigger: "threshold".into(),
                engine: "legacy".into(),
                applied: true,
                reason: "extractive summary".into(),
                before_tokens: 19_420,
                after_tokens: 5_104,
                room_used_percent: 25.52,
                is_below_floor: true,
                folded_entries: 31,
                retention: Some(shares(24)),
                summary: "## Decisions\n- keep the session cookie\n## Open TODOs\n- flaky tests"
                    .into(),
                engine_us: 41_250,
            },
        ],
        dropped: vec![DroppedRow {
            turn: 2,
            id: "a1b2c3d4".into(),
            role: "tool".into(),
            layer: "prune".into(),
            detail: "12,408 → 3,000 chars".into(),
            before_tokens: 3_102,
            after_tokens: 760,
            excerpt: "running 214 tests".into(),
        }],
        curve: Vec::new(),
        fallback_reasons: BTreeMap::from([(
            "mask failed in assemble: exceeded 5,000 ms (timeouts.assemble_ms)".to_owned(),
            3,
        )]),
        totals: ReplayTotals {
            below_floor: 1,
            requests: 37,
            peak_tokens: 20_480,
            peak_percent: 102.4,
            compactions: 1,
            rejected: 1,
            fallbacks: 3,
            failed: 3,
            repairs: 2,
            violations: 1,
            sent_tokens: 412_904,
            stable_prefix_percent: 91.27,
            identifiers_needed: 48,
            identifiers_kept: 45,
            identifiers_kept_percent: Some(93.75),
            layers: layers(&[("guard", 2), ("prune", 5)]),
            quarantine: "assemble took longer than 5,000 ms".into(),
            engine_us: 15_540,
            engine_p50_us: 402,
            engine_p99_us: 3_100,
        },
    };
    let mut report = ReplayReport { session: session(3, 37), window: window(), runs: vec![run] };
    report.session.problems =
        vec![UnreadableLine { line: 17, message: "expected value at column 1".into() }];
    report
}

/// A session of 300 requests through three engines, with a sawtooth profile.
pub(crate) fn compared() -> ReplayReport {
    let engines = [("legacy", 0.92, 6_000), ("mask", 0.62, 9_000), ("window", 0.99, 14_500)];
    let runs = engines.map(|(id, limit, floor_tokens)| walk(id, limit, floor_tokens));
    ReplayReport { session: session(40, 300), window: window(), runs: runs.into() }
}

/// Requests that grow towards the budget and are then compacted.
fn walk(id: &str, limit: f64, floor_tokens: u64) -> EngineRun {
    let (mut tokens, mut curve, mut compactions, mut dropped) = (2_400, vec![], vec![], vec![]);
    for request in 1..=300_u64 {
        let turn = 1 + request * 39 / 300;
        // Uneven steps without randomness, so that the sample never changes.
        tokens += 40 + (request * request * 7919) % 311;
        let is_full = tokens as f64 > BUDGET_TOKENS as f64 * limit;
        if is_full {
            if request.is_multiple_of(7) {
                compactions.push(compaction(id, turn, request, tokens, None));
            }
            compactions.push(compaction(id, turn, request, tokens, Some(floor_tokens)));
            tokens = floor_tokens;
        }
        if request % 5 == 0 {
            dropped.push(drop_of(id, turn, request));
        }
        curve.push(CurvePoint { request, turn, tokens, compacted: is_full });
    }
    let totals = totals(&curve, &compactions, dropped.len() as u64);
    let turns = turns(id, &curve);
    let fallback_reasons = BTreeMap::new();
    EngineRun { engine: engine(id), turns, compactions, dropped, curve, fallback_reasons, totals }
}

fn turns(id: &str, curve: &[CurvePoint]) -> Vec<TurnRow> {
    let of_turn = |turn: u64| {
        let points: Vec<_> = curve.iter().filter(|point| point.turn == turn).collect();
        let peak_tokens = points.iter().map(|point| point.tokens).max().unwrap_or(0);
        TurnRow {
            turn,
            requests: points.len() as u64,
            prompt: "Look at the failing test again, then change the parser and nothing else"
                .into(),
            peak_tokens,
            peak_percent: peak_tokens as f64 * 100.0 / BUDGET_TOKENS as f64,
            end_tokens: peak_tokens,
            shaped_by: vec![id.into()],
            layers: BTreeMap::from([("prune".to_owned(), turn % 3)]),
            compactions: points.iter().filter(|point| point.compacted).count() as u64,
            engine_us: 380 * points.len() as u64,
            ..TurnRow::default()
        }
    };
    (1..=40).map(of_turn).collect()
}

fn compaction(
    id: &str,
    turn: u64,
    request: u64,
    before_tokens: u64,
    after_tokens: Option<u64>,
) -> CompactionRow {
    CompactionRow {
        turn,
        request,
        trigger: "threshold".into(),
        engine: id.into(),
        applied: after_tokens.is_some(),
        reason: match after_tokens {
            Some(_) => "extractive summary, 5 sections".into(),
            None => "no progress: it had to fall below 19,000 tokens".into(),
        },
        before_tokens,
        after_tokens: after_tokens.unwrap_or(before_tokens),
        room_used_percent: after_tokens.unwrap_or(before_tokens) as f64 * 100.0
            / BUDGET_TOKENS as f64,
        is_below_floor: false,
        folded_entries: if after_tokens.is_some() { 31 + request % 9 } else { 0 },
        retention: after_tokens.map(|_| shares(20 + request % 9)),
        summary: match after_tokens {
            Some(_) => "## Decisions\n- keep the session cookie; the header variant breaks old clients\n\n## Open TODOs\n- rerun the flaky tests\n\n## Exact identifiers\n- src/session/store.rs:214".into(),
            None => String::new(),
        },
        engine_us: 41_250,
    }
}

/// A compaction that kept this many paths.
fn shares(paths: u64) -> Shares {
    let share = |kept, total| CategoryShare { kept, total };
    Shares { asks: share(2, 2), paths: share(paths, 31), ids: share(3, 8), ..Shares::default() }
}

fn drop_of(id: &str, turn: u64, request: u64) -> DroppedRow {
    let is_gone = request.is_multiple_of(15);
    let before_tokens = 400 + (request * 7919) % 4_200;
    DroppedRow {
        turn,
        id: format!("{:08x}", request * 2_654_435_761 % 0xffff_ffff),
        role: if request.is_multiple_of(10) { "tool" } else { "assistant" }.into(),
        layer: if is_gone { "compaction" } else { "prune" }.into(),
        detail: if is_gone { format!("folded by {id}") } else { "→ 1,500 + 1,500 chars".into() },
        before_tokens,
        after_tokens: if is_gone { 0 } else { before_tokens / 4 },
        excerpt: "test result: ok. 214 passed; 0 failed; 3 ignored; finished in 4.71s".into(),
    }
}

fn totals(curve: &[CurvePoint], compactions: &[CompactionRow], dropped: u64) -> ReplayTotals {
    let peak_tokens = curve.iter().map(|point| point.tokens).max().unwrap_or(0);
    let applied = compactions.iter().filter(|row| row.applied).count() as u64;
    ReplayTotals {
        requests: curve.len() as u64,
        peak_tokens,
        peak_percent: peak_tokens as f64 * 100.0 / BUDGET_TOKENS as f64,
        compactions: applied,
        rejected: compactions.len() as u64 - applied,
        sent_tokens: curve.iter().map(|point| point.tokens).sum(),
        stable_prefix_percent: 93.4,
        identifiers_needed: 1_250,
        identifiers_kept: 1_104,
        identifiers_kept_percent: Some(88.3),
        layers: BTreeMap::from([("prune".to_owned(), dropped)]),
        engine_us: 381 * curve.len() as u64,
        engine_p50_us: 362,
        engine_p99_us: 2_914,
        ..ReplayTotals::default()
    }
}

fn engine(id: &str) -> ReplayedEngine {
    ReplayedEngine { id: id.into(), version: "0.1.0".into(), source: "bundled".into() }
}

fn session(turns: u64, requests: u64) -> ReplayedSession {
    ReplayedSession {
        name: "login-fix.jsonl".into(),
        format: "pi-v3".into(),
        entries: requests * 2 + turns,
        turns,
        requests,
        model: "anthropic/claude-sonnet-4".into(),
        problems: Vec::new(),
    }
}

fn window() -> ReplayWindow {
    ReplayWindow {
        window_tokens: 32_000,
        source: "--window".into(),
        reserve_tokens: 8_000,
        budget_tokens: BUDGET_TOKENS,
    }
}
