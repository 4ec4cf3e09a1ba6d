//! Evidence recall: the share of a question's labelled turns that is in the context, verbatim.
//!
//! A turn that is sent whole counts fully. Of one that is sent in part, or quoted by an engine,
//! each sentence that appears verbatim counts. Recall weighs sentences by tokens; a turn counts as
//! whole only if no sentence is missing.

use std::collections::{BTreeMap, HashMap, HashSet};

use ctxhost_config::Config;
use ctxhost_context::LiveSession;
use ctxhost_engine::HostClock;
use ctxhost_engine_api::transcript::tokens::{estimate, weighted_chars};
use ctxhost_session::Session;
use serde_json::json;

use crate::baselines::{Baseline, BaselineEntry, Bm25Index};
use crate::context::{CachePrices, RunMeter, SeenContext, percent, run_options};
use crate::dataset::{LabelledQuestion, parse_time};
use crate::report::{EvidenceRow, MeasuredBudgets};
use crate::{BenchSubject, QualityError};

/// Conversations to search for evidence, as in recall at 5.
const TOP_CONVERSATIONS: usize = 5;

/// Questions of a file that are asked twice, to see whether the same input gives the same request.
const REPEATED_QUESTIONS: usize = 4;

/// Shown share of the tokens of each turn.
type EvidenceShares = BTreeMap<usize, f64>;

/// Sums over questions.
#[derive(Default)]
struct EvidenceSums {
    questions: f64,
    recall: f64,
    turns: f64,
    whole_turns: f64,
    all: f64,
    /// Questions of which something is left out, and the sum of their shares.
    ranked: f64,
    top5: f64,
    /// Questions with a replaced answer, and those that show nothing but it.
    updated: f64,
    stale_only: f64,
    categories: BTreeMap<String, (f64, f64)>,
}

/// Measures one subject on questions at each budget.
///
/// # Errors
///
/// [`QualityError`] if an engine fails.
pub async fn measure_evidence(
    file: &str,
    questions: &[LabelledQuestion],
    subject: &BenchSubject,
    budgets: &[u64],
    config: &Config,
    mut on_progress: impl FnMut(u64),
) -> Result<MeasuredBudgets<EvidenceRow>, QualityError> {
    let mut measured = MeasuredBudgets::new();
    let indexes = ranked_indexes(questions, subject);
    let history_tokens = questions.iter().map(history_size).max().unwrap_or(0);
    for budget_tokens in budgets {
        // Each question is a session of its own, so nothing is read from a cache.
        let prices = CachePrices { read: 1.0, write: 1.0 };
        let row = async {
            let (mut sums, mut meter) = (EvidenceSums::default(), RunMeter::new(prices));
            for (at, question) in questions.iter().enumerate() {
                let index = indexes.get(at);
                let seen =
                    ask(question, subject, index, *budget_tokens, config, &mut meter).await?;
                sums.add(question, &kept_in(question, &seen));
                if at < REPEATED_QUESTIONS {
                    let mut again = RunMeter::new(prices);
                    ask(question, subject, index, *budget_tokens, config, &mut again).await?;
                    meter.compare_repeated(at, &again);
                }
                on_progress(1);
            }
            Ok(EvidenceRow {
                file: file.to_owned(),
                subject: subject.name().to_owned(),
                is_baseline: subject.is_baseline(),
                budget_tokens: *budget_tokens,
                run: meter.totals(history_tokens),
                ..sums.row()
            })
        };
        measured.add(file, *budget_tokens, row.await)?;
    }
    Ok(measured)
}

/// The size of a question and its history, in tokens.
fn history_size(question: &LabelledQuestion) -> u64 {
    question.turns.iter().map(|turn| estimate(&turn.text)).sum::<u64>() + estimate(&question.query)
}

/// The words of each question's turns, if the subject ranks them. Indexes do not depend on the budget,
/// so they are computed once.
fn ranked_indexes(questions: &[LabelledQuestion], subject: &BenchSubject) -> Vec<Bm25Index> {
    match subject {
        BenchSubject::Baseline(baseline) if baseline.is_ranked() => {
            questions.iter().map(index_of).collect()
        }
        _ => Vec::new(),
    }
}

fn index_of(question: &LabelledQuestion) -> Bm25Index {
    let mut index = Bm25Index::default();
    question.turns.iter().for_each(|turn| index.push(&turn.text));
    index
}

/// What the model sees when the question is asked after its history.
async fn ask(
    question: &LabelledQuestion,
    subject: &BenchSubject,
    index: Option<&Bm25Index>,
    budget_tokens: u64,
    config: &Config,
    meter: &mut RunMeter,
) -> Result<SeenContext, QualityError> {
    // Each question is a session of its own; prefixes must not be compared across them.
    meter.next_session();
    let session = session_of(question)?;
    let (name, specs) = match subject {
        BenchSubject::Engine { name, specs, .. } => (name, specs),
        BenchSubject::Baseline(baseline) => {
            return Ok(select(question, session, *baseline, index, budget_tokens, meter));
        }
    };
    let broken = |source| QualityError::Engine { subject: name.clone(), source };
    let options = run_options(config, subject, budget_tokens);
    let clock = HostClock::recorded();
    clock.set(session.leaf().map_or(0, |record| record.timestamp_ms()));
    let mut context = options.open(session, specs, clock).map_err(broken)?;
    let history_tokens = context.view().total_tokens();
    let prompt = context.prepare(&options.target).await.map_err(broken)?;
    Ok(meter.request(&prompt, history_tokens, budget_tokens))
}

/// What a baseline shows of the question's history.
fn select(
    question: &LabelledQuestion,
    session: Session,
    baseline: Baseline,
    index: Option<&Bm25Index>,
    budget_tokens: u64,
    meter: &mut RunMeter,
) -> SeenContext {
    let live = LiveSession::new(session);
    let view = live.view();
    let conversation = |at: usize| question.turns.get(at).map(|turn| turn.conversation.clone());
    let history: Vec<BaselineEntry> = view
        .iter()
        .enumerate()
        .map(|(at, entry)| BaselineEntry {
            conversation: conversation(at).unwrap_or_default(),
            tokens: entry.tokens(),
        })
        .collect();
    let scores = index.map(|index| index.scores(&question.query)).unwrap_or_default();
    let chosen = baseline.choose(&history, Some(question.turns.len()), &scores, budget_tokens);
    let seen = SeenContext::of_entries(&view, &chosen);
    meter.observe(&seen, view.total_tokens(), budget_tokens);
    seen
}

/// The entry id of a turn.
fn turn_id(turn: usize) -> String {
    format!("{turn:08x}")
}

/// The history as a session, followed by the question.
fn session_of(question: &LabelledQuestion) -> Result<Session, ctxhost_session::SessionError> {
    let header = json!({ "type": "session", "version": 3, "id": question.id, "timestamp": "2023-01-01T00:00:00.000Z", "cwd": "/" });
    let mut lines = vec![header.to_string()];
    let asked = (question.query_date.as_str(), "user", question.query.as_str());
    let turns = question
        .turns
        .iter()
        .map(|turn| (turn.time.as_str(), turn.role.as_str(), turn.text.as_str()));
    let mut parent = serde_json::Value::Null;
    let mut now_ms = 0;
    for (at, (time, role, text)) in turns.chain([asked]).enumerate() {
        now_ms = parse_time(time).unwrap_or(now_ms).max(0);
        let id = turn_id(at);
        let content = json!([{ "type": "text", "text": text }]);
        let message = match role {
            "assistant" => {
                json!({ "role": role, "content": content, "stopReason": "stop", "timestamp": now_ms })
            }
            _ => json!({ "role": "user", "content": content, "timestamp": now_ms }),
        };
        // The data set's times have minutes; turns of one conversation are a second apart.
        let record = json!({ "type": "message", "id": id, "parentId": parent, "timestamp": now_ms + at as i64, "message": message });
        lines.push(record.to_string());
        parent = id.into();
    }
    Session::parse(&question.id, lines.join("\n").as_bytes())
}

fn kept_in(question: &LabelledQuestion, seen: &SeenContext) -> EvidenceShares {
    let mut shares = BTreeMap::new();
    for (at, turn) in question.turns.iter().enumerate() {
        let id = turn_id(at);
        if seen.whole.contains(&id) {
            shares.insert(at, 1.0);
            continue;
        }
        let is_evidence = question.evidence.contains(&at) || question.stale.contains(&at);
        let part = seen.by_entry.get(&id);
        // Only evidence is looked for in the engine's own texts; looking for all of a long history would take minutes.
        if part.is_none() && !is_evidence {
            continue;
        }
        let is_shown =
            |piece: &str| part.is_some_and(|part| part.contains(piece)) || seen.own.contains(piece);
        let (mut all, mut shown) = (0, 0);
        // By sentences: an engine may show the part of a long turn that matters.
        for piece in pieces(&turn.text) {
            let chars = weighted_chars(piece);
            all += chars;
            shown += if is_shown(piece) { chars } else { 0 };
        }
        if shown > 0 {
            shares.insert(at, shown as f64 / all.max(1) as f64);
        }
    }
    shares
}

/// The trimmed sentences of a text.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let sentences = text.lines().flat_map(|line| line.split_inclusive(". "));
    sentences.map(str::trim).filter(|piece| !piece.is_empty())
}

impl EvidenceSums {
    fn add(&mut self, question: &LabelledQuestion, kept: &EvidenceShares) {
        let share = |turn: &usize| kept.get(turn).copied().unwrap_or(0.0);
        // Weighted by size, as the published figures that these are compared with.
        let cost =
            |turn: &usize| question.turns.get(*turn).map_or(0, |turn| estimate(&turn.text)) as f64;
        let evidence: HashSet<usize> = question.evidence.iter().copied().collect();
        let all: f64 = evidence.iter().map(cost).sum();
        let shown: f64 = evidence.iter().map(|turn| cost(turn) * share(turn)).sum();
        // The shares of the pieces may miss 1 by rounding.
        let whole = evidence.iter().filter(|turn| share(turn) > 0.999).count();
        let recall = shown / all.max(1.0);
        self.questions += 1.0;
        self.recall += recall;
        self.turns += evidence.len() as f64;
        self.whole_turns += whole as f64;
        self.all += if whole == evidence.len() { 1.0 } else { 0.0 };
        // A prompt with everything ranks nothing.
        if (0..question.turns.len()).any(|turn| share(&turn) < 0.999) {
            self.ranked += 1.0;
            self.top5 += top_conversations(question, kept);
        }
        let (stale, current) = question.split_evidence();
        let is_shown = |turns: &[usize]| turns.iter().any(|turn| share(turn) > 0.0);
        if !stale.is_empty() {
            self.updated += 1.0;
            self.stale_only += if is_shown(&stale) && !is_shown(&current) { 1.0 } else { 0.0 };
        }
        let category = self.categories.entry(question.category.clone()).or_default();
        category.0 += recall;
        category.1 += 1.0;
    }

    fn row(self) -> EvidenceRow {
        let by_category = self.categories.into_iter();
        let by_category = by_category.map(|(name, (recall, count))| (name, percent(recall, count)));
        EvidenceRow {
            questions: self.questions as u64,
            recall_percent: percent(self.recall, self.questions),
            turn_percent: percent(self.whole_turns, self.turns),
            all_percent: percent(self.all, self.questions),
            top5_percent: (self.ranked > 0.0).then(|| percent(self.top5, self.ranked)),
            stale_only_percent: (self.updated > 0.0)
                .then(|| percent(self.stale_only, self.updated)),
            by_category: by_category.collect(),
            ..EvidenceRow::default()
        }
    }
}

/// The share of the conversations with evidence among the most shown ones.
fn top_conversations(question: &LabelledQuestion, kept: &EvidenceShares) -> f64 {
    let mut held: HashMap<&str, f64> = HashMap::new();
    for (turn, share) in kept {
        let Some(turn) = question.turns.get(*turn) else { continue };
        *held.entry(turn.conversation.as_str()).or_default() += estimate(&turn.text) as f64 * share;
    }
    let mut order: Vec<(&str, f64)> = held.into_iter().collect();
    // By name where shares are equal, because the order of a map changes with each run.
    order.sort_by(|left, right| right.1.total_cmp(&left.1).then(left.0.cmp(right.0)));
    let top: HashSet<&str> =
        order.into_iter().take(TOP_CONVERSATIONS).map(|(name, _)| name).collect();
    let turns = question.evidence.iter().filter_map(|turn| question.turns.get(*turn));
    let wanted: HashSet<&str> = turns.map(|turn| turn.conversation.as_str()).collect();
    let found = wanted.iter().filter(|name| top.contains(**name)).count();
    found as f64 / wanted.len().max(1) as f64
}
