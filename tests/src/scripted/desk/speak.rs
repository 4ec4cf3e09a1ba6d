//! Renders the scripted answer in the request's dialect and applies faults.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Desk, Outcome, ReportedAnswer, Sizes, reply};
use crate::rules::{Issued, Part};
use crate::scripted::answer::{Answer, Mint, Stop, Usage};
use crate::scripted::fault::Fault;
use crate::scripted::script::{Ask, Speaker, Step};
use crate::scripted::seen::Answered;
use crate::scripted::speech::{Broke, Caching, Inquiry, Pieces, Trouble};
use crate::scripted::stream::End;
use crate::scripted::summary;

impl Desk {
    /// The script speaks, or a summary is written.
    pub(super) fn speak(
        &mut self,
        inquiry: &Inquiry<'_>,
        sizes: Sizes,
        fault: Option<Fault>,
        trouble: Option<(Trouble, bool)>,
    ) -> ReportedAnswer {
        let speech = self.speech();
        let (said, tools) = (speech.said(inquiry.body), speech.tools(inquiry.body));
        if let Some(seen) = self.seen.last_mut() {
            seen.tool_results = said.iter().filter(|it| it.by == Speaker::Tool).count();
        }
        let is_summary = summary::is_asked(&said, &tools);
        let steps = match (fault, is_summary) {
            (Some(Fault::NothingSaid), _) => Vec::new(),
            (_, true) => vec![Step::Say(summary::write(&said))],
            _ => {
                let n = self.seen.len() - 1;
                self.script.answer(&Ask { n, tools: &tools, said: &said })
            }
        };
        let mut answer = self.compose(inquiry, &steps, sizes);
        let text = match &trouble {
            None => self.frames(&answer, inquiry),
            Some((trouble, after_text)) => {
                self.broken_off(&mut answer, inquiry, trouble, *after_text)
            }
        };
        let arrives = trouble.is_none() && !fault.is_some_and(spoils);
        // What was cut may have been read in part, and then it may come back.
        // `store` is on unless it is switched off.
        let issued = answer.issued(inquiry.body["store"] != false);
        self.memory.issue(self.wire, inquiry.body, &issued);
        if !arrives && !is_summary {
            self.script.missed(steps);
        }
        let answered = match fault {
            Some(fault) => Answered::Fault(fault),
            None if is_summary => Answered::Summary,
            None => Answered::Answer { calls: answer.calls() },
        };
        (answered, self.send(text, inquiry, fault))
    }

    fn compose(&mut self, inquiry: &Inquiry<'_>, steps: &[Step], sizes: Sizes) -> Answer {
        let speech = self.speech();
        let model = speech.model(inquiry);
        let (answer_prefix, call_prefix) = speech.prefixes();
        let signs_calls = speech.signs_calls(&model);
        let mut mint = Mint { random: &mut self.random, call_prefix, signs_calls };
        let (id, blocks) = (mint.id(answer_prefix, 24), mint.blocks(steps));
        let calls = steps.iter().any(|step| matches!(step, Step::Call { .. }));
        let stop = if calls { Stop::Calls } else { Stop::Done };
        let usage = self.usage(inquiry.body, sizes.prompt);
        let mut answer = Answer { id, model, blocks, stop, usage };
        let room = sizes.window.saturating_sub(sizes.prompt);
        let most = match sizes.output {
            0 => self.model.max_output_tokens.min(room.max(1)),
            asked => asked,
        };
        answer.limit(most);
        answer
    }

    fn usage(&mut self, body: &Value, prompt: u64) -> Usage {
        /// What stands behind the last mark of the cache, in tokens.
        const TAIL_TOKENS: u64 = 4;
        let caching = self.speech().caching(body);
        if caching == Caching::Off {
            return Usage { prompt, ..Usage::default() };
        }
        let cached = self.cache.read(&prompt_of(body), prompt);
        let written = match caching {
            Caching::Marked => (prompt - cached).saturating_sub(TAIL_TOKENS),
            _ => 0,
        };
        Usage { prompt, cached, written, ..Usage::default() }
    }

    /// The compaction of OpenAI: what the person said, and an item that only the server can read.
    pub(super) fn compact(&mut self, inquiry: &Inquiry<'_>, sizes: Sizes) -> ReportedAnswer {
        let mut mint = Mint { random: &mut self.random, call_prefix: "", signs_calls: false };
        let (id, item, encrypted) = (mint.id("resp_", 24), mint.id("cmp_", 24), mint.signature());
        let issued = Issued {
            parts: vec![Part::Compaction { encrypted: encrypted.clone() }],
            ..Issued::default()
        };
        self.memory.issue(self.wire, inquiry.body, &issued);
        let input = inquiry.body["input"].as_array().cloned().unwrap_or_default();
        let mut output: Vec<Value> =
            input.into_iter().filter(|item| item["role"] == "user").collect();
        output.push(json!({"id": item, "type": "compaction", "encrypted_content": encrypted}));
        let compacted = json!({
            "id": id, "object": "response.compaction", "created_at": 1_790_000_000, "output": output,
            "usage": {"input_tokens": sizes.prompt, "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": 300, "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": sizes.prompt + 300},
        });
        (Answered::Compacted, Outcome::Now(reply::json(200, &compacted)))
    }

    fn frames(&mut self, answer: &Answer, inquiry: &Inquiry<'_>) -> Vec<String> {
        let speech = self.speech();
        if !speech.streams(inquiry) {
            return vec![speech.whole(answer, inquiry).to_string()];
        }
        let frames = speech.frames(answer, inquiry, &mut Pieces(&mut self.random));
        frames.into_iter().map(|frame| frame.text).collect()
    }

    /// An answer that ends in an error, before or after its first text.
    fn broken_off(
        &mut self,
        answer: &mut Answer,
        inquiry: &Inquiry<'_>,
        trouble: &Trouble,
        after_text: bool,
    ) -> Vec<String> {
        let speech = self.speech();
        let Broke::Frame(last) = speech.break_off(answer, trouble) else {
            answer.break_off(after_text);
            return self.frames(answer, inquiry);
        };
        let frames = speech.frames(answer, inquiry, &mut Pieces(&mut self.random));
        let said = frames.iter().position(|frame| frame.is_said);
        let opening = said.unwrap_or_else(|| frames.len().min(1));
        let kept = if after_text { said.map_or(opening, |at| at + 1) } else { opening };
        let before = frames.into_iter().take(kept);
        before.chain([last]).map(|frame| frame.text).collect()
    }

    fn send(
        &mut self,
        mut frames: Vec<String>,
        inquiry: &Inquiry<'_>,
        fault: Option<Fault>,
    ) -> Outcome {
        if fault == Some(Fault::WrongJson) {
            reply::spoil(&mut frames);
        }
        let end = match fault {
            Some(Fault::CutStream) => End::Cut,
            Some(Fault::EndEarly) => End::Early,
            Some(Fault::HangMidStream) => End::Hang,
            _ => End::Whole,
        };
        let streams = self.speech().streams(inquiry);
        let kind = if streams { self.speech().content_type() } else { "application/json" };
        let response = reply::stream(kind, &frames, end, &mut self.random);
        match fault {
            Some(Fault::SlowFirstByte { delay_ms }) => {
                Outcome::Later(Duration::from_millis(delay_ms), response)
            }
            _ => Outcome::Now(response),
        }
    }
}

/// Whether an answer does not arrive as it was meant.
fn spoils(fault: Fault) -> bool {
    !matches!(fault, Fault::SlowFirstByte { .. } | Fault::NothingSaid)
}

/// What a cache reads of a body, in the order in which it does.
fn prompt_of(body: &Value) -> Value {
    let parts =
        ["tools", "system", "instructions", "systemInstruction", "messages", "input", "contents"];
    parts.iter().filter_map(|part| body.get(*part).cloned()).collect()
}
