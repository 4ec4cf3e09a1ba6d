//! Context utility: how well a model predicts what the agent really said next, given each context.
//!
//! The figure is the negative log-probability of a token of the recorded answer, in nats. The answer
//! after nothing and after the whole history are the two ends of the scale.

use std::collections::BTreeMap;

use ctxhost_config::Config;
use ctxhost_engine_api::{Entry, PlanItem};
use ctxhost_provider::{LogprobClient, LogprobError, TextScore};
use ctxhost_retention::texts_of;
use ctxhost_session::Session;

use crate::context::RunMeter;
use crate::recording::RecordingReplay;
use crate::report::{MeasuredBudgets, UtilityRow};
use crate::{Baseline, BenchSubject, QualityError};

/// Longer answers are cut, in characters: one file that an agent wrote must not outweigh all else.
const ANSWER_CHARS: usize = 4_000;

/// The name of an empty context in errors.
const NOTHING: &str = "nothing";

/// A model and what it is asked.
#[derive(Debug)]
pub struct UtilityProbe {
    /// The model.
    pub client: LogprobClient,
    /// Answers of each recording, evenly spaced.
    pub answers: usize,
    /// Limit of the whole history, in tokens as the host counts them; older entries are left out.
    pub whole_tokens: Option<u64>,
}

/// A recorded answer with both ends of its scale.
#[derive(Clone, Debug)]
pub struct ProbedAnswer {
    /// Its number among the recording's answers, from 0.
    index: usize,
    text: String,
    nothing: TextScore,
    whole: TextScore,
}

/// Sums of scores.
#[derive(Default)]
struct ScoreSum {
    tokens: u64,
    nats: f64,
}

impl UtilityProbe {
    /// Scores evenly spaced answers of a recording after nothing and after the whole history.
    ///
    /// # Errors
    ///
    /// [`QualityError::Probe`].
    pub async fn probe_answers(
        &self,
        recorded: &Session,
        config: &Config,
        mut on_progress: impl FnMut(u64),
    ) -> Result<Vec<ProbedAnswer>, QualityError> {
        let limit = self.whole_tokens;
        // With a limit, the newest entries that fit stand for the whole history.
        let baseline = if limit.is_some() { Baseline::Tail } else { Baseline::Whole };
        let subject = BenchSubject::Baseline(baseline);
        let budget_tokens = limit.unwrap_or(u64::MAX);
        let replay = RecordingReplay { recorded, subject: &subject, budget_tokens, config };
        let mut texts = BTreeMap::new();
        each_answer(&replay, |index, text, _| _ = texts.insert(index, text)).await?;
        texts.retain(|_, text| !text.trim().is_empty());
        let wanted = evenly_spaced(texts, self.answers);
        let mut contexts = BTreeMap::new();
        each_answer(&replay, |index, _, context| {
            if wanted.contains_key(&index) {
                contexts.insert(index, context.to_owned());
            }
        })
        .await?;
        let mut answers = Vec::new();
        for (index, text) in wanted {
            let context = contexts.remove(&index).unwrap_or_default();
            let nothing = self.score(NOTHING, 0, index, "", &text).await?;
            let whole = self.score(subject.name(), budget_tokens, index, &context, &text).await?;
            answers.push(ProbedAnswer { index, text, nothing, whole });
            on_progress(1);
        }
        Ok(answers)
    }

    /// Scores the answers of a recording after the contexts of a subject, at each budget.
    ///
    /// # Errors
    ///
    /// [`QualityError`].
    pub async fn measure(
        &self,
        (file, recorded): (&str, &Session),
        answers: &[ProbedAnswer],
        subject: &BenchSubject,
        budgets: &[u64],
        config: &Config,
        mut on_progress: impl FnMut(u64),
    ) -> Result<MeasuredBudgets<UtilityRow>, QualityError> {
        let mut measured = MeasuredBudgets::new();
        for budget_tokens in budgets {
            let replay =
                RecordingReplay { recorded, subject, budget_tokens: *budget_tokens, config };
            let row = async {
                let mut contexts = BTreeMap::new();
                each_answer(&replay, |index, _, context| {
                    if answers.iter().any(|answer| answer.index == index) {
                        contexts.insert(index, context.to_owned());
                    }
                })
                .await?;
                let [mut nothing, mut seen, mut whole] =
                    std::array::from_fn(|_| ScoreSum::default());
                for answer in answers {
                    let context = contexts.get(&answer.index).map_or("", String::as_str);
                    let name = subject.name();
                    let score = self
                        .score(name, *budget_tokens, answer.index, context, &answer.text)
                        .await?;
                    seen.add(score);
                    nothing.add(answer.nothing);
                    whole.add(answer.whole);
                    on_progress(1);
                }
                Ok(UtilityRow {
                    file: file.to_owned(),
                    subject: subject.name().to_owned(),
                    budget_tokens: *budget_tokens,
                    answers: answers.len() as u64,
                    tokens: seen.tokens,
                    nats: round(seen.per_token()),
                    nats_without: round(nothing.per_token()),
                    nats_with_all: round(whole.per_token()),
                    utility: scale(nothing.per_token(), seen.per_token(), whole.per_token()),
                })
            };
            measured.add(file, *budget_tokens, row.await)?;
        }
        Ok(measured)
    }

    async fn score(
        &self,
        subject: &str,
        budget_tokens: u64,
        index: usize,
        context: &str,
        text: &str,
    ) -> Result<TextScore, QualityError> {
        // Every context ends in the same line, so that the tokens of the answer begin alike.
        let context = format!("{context}assistant:\n");
        self.client.score(&context, text).await.map_err(|source: LogprobError| {
            QualityError::Probe {
                subject: subject.to_owned(),
                budget_tokens,
                answer: index + 1,
                source,
            }
        })
    }
}

/// Calls `found` with the number, the text and the context of each answer.
async fn each_answer(
    replay: &RecordingReplay<'_>,
    mut found: impl FnMut(usize, String, &str),
) -> Result<(), QualityError> {
    let mut index = 0;
    let on_entry = |entry: &Entry<'_>, seen: Option<&crate::context::SeenContext>| {
        if let Some(seen) = seen {
            let text = texts_of(&PlanItem::Kept(*entry)).join("\n");
            found(index, text.chars().take(ANSWER_CHARS).collect(), &seen.all);
            index += 1;
        }
    };
    replay.run(&mut RunMeter::default(), on_entry).await
}

/// At most `count` of the texts, the last one among them.
fn evenly_spaced(texts: BTreeMap<usize, String>, count: usize) -> BTreeMap<usize, String> {
    let all = texts.len();
    let count = count.min(all);
    let chosen: Vec<usize> = (1..=count).map(|nth| nth * all / count - 1).collect();
    let texts = texts.into_iter().enumerate();
    texts.filter(|(at, _)| chosen.binary_search(at).is_ok()).map(|(_, text)| text).collect()
}

impl ScoreSum {
    fn add(&mut self, score: TextScore) {
        self.tokens += score.tokens;
        self.nats += score.nats;
    }

    fn per_token(&self) -> f64 {
        self.nats / (self.tokens as f64).max(1.0)
    }
}

/// The place of a context between nothing and the whole history, from 0 to 1.
fn scale(nothing: f64, seen: f64, whole: f64) -> Option<f64> {
    let range = nothing - whole;
    // A context may help more than the whole history, which distracts; the scale ends at 1.
    (range > 0.0).then(|| round(((nothing - seen) / range).clamp(0.0, 1.0)))
}

fn round(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_ends_at_nothing_and_the_whole_history() {
        assert_eq!(scale(4.0, 3.0, 2.0), Some(0.5));
        assert_eq!(scale(4.0, 1.0, 2.0), Some(1.0));
        assert_eq!(scale(4.0, 5.0, 2.0), Some(0.0));
        assert_eq!(scale(2.0, 2.0, 2.0), None);
    }

    #[test]
    fn answers_are_evenly_spaced() {
        let texts = |count: usize| (0..count).map(|at| (at, at.to_string())).collect();
        let chosen = |all, count| evenly_spaced(texts(all), count).into_keys().collect::<Vec<_>>();
        assert_eq!(chosen(10, 4), [1, 4, 6, 9]);
        assert_eq!(chosen(2, 4), [0, 1]);
        assert_eq!(chosen(0, 4), [] as [usize; 0]);
    }
}
