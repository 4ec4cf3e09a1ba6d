//! Who writes the summary: the running notes, a model, or the conversation's own sentences.

use ctxhost_engine_api::transcript::tokens::weighted_chars;
use ctxhost_engine_api::{
    CompactRequest, Completion, EngineError, ErrorKind, Host, Kind, LogLevel, Result, Transcript,
    capability,
};
use ctxhost_engine_kit::chunks::{Group, groups, total_tokens};
use ctxhost_engine_kit::redact::redact;

use crate::layout::Fold;
use crate::notes;
use crate::prompt::Prompt;
use crate::sections::{Sections, missing};
use crate::settings::Settings;

/// Tries after a prompt that was too long, each without the oldest groups. 3, the published figure.
const OVERFLOW_TRIES: u32 = 3;
/// One in so many tokens goes with each of them: a provider seldom says how much too long it was.
const OVERFLOW_PARTS: u64 = 5;
/// Tries after an answer without its sections.
const SECTION_TRIES: u32 = 1;

/// A summary and where it comes from.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    pub(crate) text: String,
    /// `running notes`, `extractive`, or the name of the model.
    pub(crate) writer: String,
    /// What did not go as it should, for people.
    pub(crate) notes: Vec<String>,
}

/// What one summary is written from.
#[derive(Clone, Copy)]
pub(crate) struct Desk<'a> {
    pub(crate) host: &'a Host,
    pub(crate) settings: &'a Settings,
    pub(crate) transcript: &'a Transcript,
    pub(crate) request: &'a CompactRequest,
    pub(crate) fold: &'a Fold,
}

impl Desk<'_> {
    /// Tells the fold: from `running` notes where they fit, else by a model, else without one.
    pub(crate) async fn tell(&self, running: Option<Sections>) -> Result<Story> {
        let fits = |notes: &Sections| weighted_chars(&notes.render()) <= self.fold.summary_chars;
        if let Some(notes) = running.as_ref().filter(|notes| fits(notes)) {
            return Ok(self.without_model(notes.clone(), "running notes", Vec::new()));
        }
        let mut said = Vec::new();
        if self.host.info().capabilities.iter().any(|name| name == capability::COMPLETE) {
            match self.by_model().await {
                Ok(story) => return Ok(story),
                Err(error) if is_final(&error) => return Err(error),
                Err(error) => {
                    let note = format!("told without a model: {error}");
                    self.host.log(LogLevel::Warn, &note);
                    said.push(note);
                }
            }
        }
        let extracted = || notes::of(self.transcript, 0..self.fold.tail);
        Ok(self.without_model(running.unwrap_or_else(extracted), "extractive", said))
    }

    fn without_model(&self, mut sections: Sections, writer: &str, notes: Vec<String>) -> Story {
        sections.fit(self.fold.summary_chars);
        Story { text: sections.render(), writer: writer.into(), notes }
    }

    async fn by_model(&self) -> Result<Story> {
        let all = self.told_groups();
        let mut prompt = self.prompt();
        let mut dropped = 0;
        let (mut overflows, mut refusals) = (0, 0);
        loop {
            let rest = all.get(dropped..).unwrap_or(&[]);
            prompt.previous = self.earlier(rest, dropped);
            self.host.progress(self.request.call, 0, "asking for the summary");
            let asked = prompt.request(self.transcript, rest);
            match self.host.complete(self.request.call, asked).await {
                Ok(answer) => {
                    let text = summary_in(&answer.text);
                    prompt.missing = missing(&text);
                    if prompt.missing.is_empty() {
                        return Ok(self.story(&answer, &text, dropped));
                    }
                    refusals += 1;
                    if refusals > SECTION_TRIES {
                        return Err(lacking(&prompt.missing));
                    }
                }
                Err(error) if error.kind == ErrorKind::ModelOverflow => {
                    overflows += 1;
                    let more = oldest(rest);
                    if overflows > OVERFLOW_TRIES || more >= rest.len() {
                        return Err(error);
                    }
                    dropped += more;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The frames before the tail that are no earlier boundary; what stays among them is part of the
    /// story.
    fn told_groups(&self) -> Vec<Group> {
        let history = 0..self.fold.tail;
        let mut groups = groups(self.transcript, std::slice::from_ref(&history));
        let kind = |group: &Group| Some(self.transcript.get(group.range.start)?.kind());
        groups.retain(|group| kind(group) != Some(Kind::CompactionSummary));
        groups
    }

    fn prompt(&self) -> Prompt {
        Prompt {
            model: self.settings.model.clone(),
            max_output_tokens: self.request.reserve_tokens,
            summary_chars: self.fold.summary_chars,
            focus: self.request.custom_instructions.clone().unwrap_or_default(),
            ..Prompt::default()
        }
    }

    /// What the model is not shown: earlier summaries, and notes of the groups that were dropped.
    fn earlier(&self, shown: &[Group], dropped: usize) -> Option<String> {
        let earlier = match (dropped, shown.first()) {
            (0, _) | (_, None) => notes::carried(self.transcript, 0..self.fold.tail),
            (_, Some(first)) => notes::of(self.transcript, 0..first.range.start).render(),
        };
        (!earlier.is_empty()).then_some(earlier)
    }

    fn story(&self, answer: &Completion, text: &str, dropped: usize) -> Story {
        let limit_chars = self.fold.summary_chars;
        let mut text = redact(text).into_owned();
        if weighted_chars(&text) > limit_chars {
            // A plain cut would take the end, which is where the work goes on.
            let mut sections = Sections::parse(&text);
            sections.fit(limit_chars);
            text = sections.render();
        }
        let writer = if answer.model.is_empty() { "model" } else { &answer.model };
        let note =
            || format!("the {dropped} oldest groups did not fit the summariser; their notes did");
        let notes = if dropped > 0 { vec![note()] } else { Vec::new() };
        Story { text, writer: writer.into(), notes }
    }
}

/// How many of the oldest groups go after a prompt that was too long.
fn oldest(groups: &[Group]) -> usize {
    let share_tokens = (total_tokens(groups) / OVERFLOW_PARTS).max(1);
    let mut gone_tokens = 0;
    let is_enough = |group: &Group| {
        gone_tokens += group.tokens;
        gone_tokens >= share_tokens
    };
    groups.iter().position(is_enough).map_or(groups.len(), |at| at + 1)
}

/// The summary in an answer; its hidden analysis goes.
fn summary_in(answer: &str) -> String {
    let mut text = answer;
    let shown;
    if let Some((before, rest)) = answer.split_once("<analysis>") {
        let after = rest.split_once("</analysis>").map_or("", |(_, after)| after);
        shown = format!("{before}{after}");
        text = &shown;
    }
    let inner = text.split_once("<summary>").map_or(text, |(_, rest)| rest);
    let inner = inner.rsplit_once("</summary>").map_or(inner, |(summary, _)| summary);
    inner.trim().to_owned()
}

fn lacking(missing: &[&str]) -> EngineError {
    EngineError::failed(format!("the model's summary lacks its sections: {}", missing.join(", ")))
}

/// An error after which nothing else may be tried.
fn is_final(error: &EngineError) -> bool {
    matches!(error.kind, ErrorKind::Cancelled | ErrorKind::Deadline | ErrorKind::Dead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_analysis_goes_and_the_tags_around_the_summary() {
        for (answer, summary) in [
            (
                "<analysis>\nhm <summary>no</summary>\n</analysis>\n<summary>\n## 1\n</summary>",
                "## 1",
            ),
            ("## 1\nplain", "## 1\nplain"),
            ("<summary>cut off", "cut off"),
            ("<analysis>never ends <summary>x</summary>", ""),
        ] {
            assert_eq!(summary_in(answer), summary, "{answer}");
        }
    }

    #[test]
    fn a_fifth_of_the_tokens_goes_as_whole_groups() {
        let groups: Vec<Group> = [10, 10, 30, 50]
            .iter()
            .zip(0..)
            .map(|(tokens, at)| Group { range: at..at + 1, tokens: *tokens })
            .collect();
        assert_eq!(oldest(&groups), 2);
        assert_eq!(oldest(&groups[3..]), 1);
        assert_eq!(oldest(&[]), 0);
    }
}
