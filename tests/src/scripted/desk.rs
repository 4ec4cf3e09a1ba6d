//! Handles a request: check, measure, answer; each step may refuse it.

mod reply;
mod speak;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::{Value, json};

use super::cache::Cache;
use super::fault::{Fault, Faults};
use super::model::{Model, OverflowForm};
use super::script::Script;
use super::seen::{self, Answered, Seen};
use super::speech::{self, Endpoint, Inquiry, Refusal, Speech, Trouble};
use super::wanderer::Wanderer;
use crate::rules::{self, Memory, Wire};

/// The state of a server.
#[derive(Debug)]
pub(super) struct Desk {
    wire: Wire,
    model: Model,
    memory: Memory,
    cache: Cache,
    pub(super) script: Box<dyn Script>,
    pub(super) faults: Faults,
    pub(super) random: fastrand::Rng,
    pub(super) kept_bodies: usize,
    pub(super) seen: Vec<Seen>,
}

/// A request as it arrived.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// What the client gets.
#[derive(Debug)]
pub(super) enum Outcome {
    Now(Response),
    Later(Duration, Response),
    Never,
    Reset,
}

/// The sizes of a request, in tokens.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    prompt: u64,
    output: u64,
    window: u64,
}

type ReportedAnswer = (Answered, Outcome);

impl Desk {
    pub(super) fn new(wire: Wire, model: Model) -> Desk {
        Desk {
            wire,
            memory: Memory::new(model.binds_thinking),
            model,
            cache: Cache::default(),
            script: Box::new(Wanderer::new(1)),
            faults: Faults::none(),
            random: fastrand::Rng::with_seed(1),
            kept_bodies: usize::MAX,
            seen: Vec::new(),
        }
    }

    /// Answers a request and remembers it.
    pub(super) fn answer(&mut self, arrived: Arrived) -> Outcome {
        let parsed = serde_json::from_slice::<Value>(&arrived.body);
        let body = Arc::new(parsed.unwrap_or_default());
        let inquiry = Inquiry { path: &arrived.path, body: &body };
        let plain = arrived.path.split('?').next().unwrap_or_default();
        let endpoint = self.speech().endpoint(plain);
        let mut broken = Vec::new();
        if endpoint.is_some() {
            broken = rules::check(self.wire, &arrived.path, &arrived.headers, &body);
            broken.extend(self.memory.check(self.wire, &body));
        }
        let sizes = self.measure(&body);
        self.seen.push(Seen {
            n: self.seen.len(),
            path: seen::path(&arrived.path),
            headers: seen::headers(&arrived.headers),
            body: body.clone(),
            prompt_tokens: sizes.prompt,
            output_tokens: sizes.output,
            is_stream: endpoint == Some(Endpoint::Answer) && self.speech().streams(&inquiry),
            tool_results: 0,
            broken,
            answered: Answered::NotFound,
        });
        let (answered, outcome) = self.decide(endpoint, &inquiry, sizes);
        if let Some(seen) = self.seen.last_mut() {
            seen.answered = answered;
        }
        self.forget_bodies();
        outcome
    }

    /// What it has seen, for whoever is in another process: numbers, and the rules that were broken.
    pub(super) fn tally(&self) -> axum::Json<Value> {
        let count = |which: &dyn Fn(&Seen) -> bool| self.seen.iter().filter(|it| which(it)).count();
        let calls = |seen: &Seen| match seen.answered {
            Answered::Answer { calls } => calls,
            _ => 0,
        };
        let broken = self.seen.iter().flat_map(|seen| &seen.broken);
        axum::Json(json!({
            "requests": self.seen.len(),
            "answers": count(&|it| matches!(it.answered, Answered::Answer { .. })),
            "streams": count(&|it| it.is_stream),
            "overflows": count(&|it| matches!(it.answered, Answered::Overflow(_))),
            "calls": self.seen.iter().map(calls).sum::<usize>(),
            "with_tool_results": count(&|it| it.tool_results > 0),
            "largest_prompt_tokens": self.seen.iter().map(|it| it.prompt_tokens).max(),
            "broken": broken.map(ToString::to_string).collect::<Vec<_>>(),
        }))
    }

    /// The prompt tokens of a body that nobody has to answer.
    pub(super) fn count(&self, body: &[u8]) -> axum::Json<Value> {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        axum::Json(json!({"tokens": (self.model.count)(&body)}))
    }

    fn decide(
        &mut self,
        endpoint: Option<Endpoint>,
        inquiry: &Inquiry<'_>,
        sizes: Sizes,
    ) -> ReportedAnswer {
        let Some(endpoint) = endpoint else {
            return (Answered::NotFound, self.refuse(&Trouble::NotFound));
        };
        let fault = (endpoint != Endpoint::Count).then(|| self.faults.take(self.seen.len() - 1));
        let fault = fault.flatten();
        if let Some(reported) = fault.and_then(|fault| self.fail_first(fault, inquiry)) {
            return reported;
        }
        let broken = self.seen.last().and_then(|seen| seen.broken.first()).cloned();
        if let Some(broken) = broken.filter(|_| self.model.is_strict) {
            return (Answered::Malformed, self.refuse(&Trouble::Malformed(broken)));
        }
        if endpoint == Endpoint::Count {
            let counted = self.speech().counted(sizes.prompt);
            return (Answered::Counted, Outcome::Now(reply::json(200, &counted)));
        }
        if let Some(reported) = self.limit(endpoint, inquiry, sizes, fault) {
            return reported;
        }
        match endpoint {
            Endpoint::Compact => self.compact(inquiry, sizes),
            Endpoint::Answer | Endpoint::Count => self.speak(inquiry, sizes, fault, None),
        }
    }

    /// Faults for which nobody looks at the request.
    fn fail_first(&mut self, fault: Fault, inquiry: &Inquiry<'_>) -> Option<ReportedAnswer> {
        let outcome = match fault {
            Fault::Reset => Outcome::Reset,
            Fault::Hang => Outcome::Never,
            Fault::HtmlPage => Outcome::Now(reply::html()),
            Fault::EmptyBody => Outcome::Now(reply::text(200, self.speech().content_type(), "")),
            Fault::RateLimited { retry_after_s } => {
                self.refuse(&Trouble::RateLimited { retry_after_s })
            }
            Fault::Overloaded => self.refuse(&Trouble::Overloaded),
            Fault::ServerError => self.refuse(&Trouble::ServerError),
            Fault::Unauthorized => self.refuse(&Trouble::Unauthorized),
            Fault::NoCredit => self.refuse(&Trouble::NoCredit),
            Fault::NoModel => self.refuse(&Trouble::NoModel(self.speech().model(inquiry))),
            Fault::Says { status, body } => {
                Outcome::Now(reply::text(status, "application/json", body))
            }
            _ => return None,
        };
        Some((Answered::Fault(fault), outcome))
    }

    /// Requests that are too large, or are said to be.
    fn limit(
        &mut self,
        endpoint: Endpoint,
        inquiry: &Inquiry<'_>,
        sizes: Sizes,
        fault: Option<Fault>,
    ) -> Option<ReportedAnswer> {
        let most = self.model.max_output_tokens;
        if sizes.output > most {
            let trouble = Trouble::OutputLimit { asked: sizes.output, most };
            return Some((Answered::OutputLimit, self.refuse(&trouble)));
        }
        let form = match fault {
            Some(Fault::OverflowMidStream { after_text }) => OverflowForm::MidStream { after_text },
            // Told to say so, it says so: silence would be no fault.
            Some(Fault::Overflow) if self.form() == OverflowForm::Silent => OverflowForm::Other,
            Some(Fault::Overflow) => self.form(),
            _ if sizes.prompt + sizes.output > sizes.window => self.form(),
            _ => return None,
        };
        let Sizes { prompt, output, window } = sizes.larger(fault);
        let trouble = Trouble::Overflow { prompt, output, window, form };
        let streams = endpoint == Endpoint::Answer && self.speech().streams(inquiry);
        let outcome = match form {
            OverflowForm::Silent => self.forget(inquiry, sizes, fault).1,
            OverflowForm::MidStream { after_text } if streams => {
                self.speak(inquiry, sizes, fault, Some((trouble, after_text))).1
            }
            _ => self.refuse(&trouble),
        };
        let answered = match fault {
            Some(fault @ (Fault::Overflow | Fault::OverflowMidStream { .. })) => {
                Answered::Fault(fault)
            }
            _ => Answered::Overflow(form),
        };
        Some((answered, outcome))
    }

    /// Ollama forgets the beginning and counts what is left; others count what they cannot hold.
    fn forget(
        &mut self,
        inquiry: &Inquiry<'_>,
        sizes: Sizes,
        fault: Option<Fault>,
    ) -> ReportedAnswer {
        let mut body = inquiry.body.clone();
        while (self.model.count)(&body) > sizes.window {
            let Some(shorter) = self.speech().forget(&body) else { break };
            body = shorter;
        }
        let prompt = if self.wire == Wire::Ollama { sizes.window } else { sizes.prompt };
        let inquiry = Inquiry { path: inquiry.path, body: &body };
        // Whoever forgets has room for an answer.
        let window = prompt + self.model.max_output_tokens;
        self.speak(&inquiry, Sizes { prompt, window, ..sizes }, fault, None)
    }

    fn refuse(&self, trouble: &Trouble) -> Outcome {
        let Refusal { status, body, retry_after_s } = self.speech().refuse(trouble);
        let response = reply::json(status, &body);
        Outcome::Now(match retry_after_s {
            Some(seconds) => reply::with_retry_after(response, seconds),
            None => response,
        })
    }

    fn measure(&self, body: &Value) -> Sizes {
        let speech = self.speech();
        let asked = speech.window_tokens(body).unwrap_or(u64::MAX);
        Sizes {
            prompt: (self.model.count)(body),
            output: speech.output_tokens(body).unwrap_or(0),
            window: self.model.window_tokens.min(asked),
        }
    }

    fn form(&self) -> OverflowForm {
        self.model.overflow.of(self.wire)
    }

    fn speech(&self) -> &'static dyn Speech {
        speech::of(self.wire)
    }

    fn forget_bodies(&mut self) {
        let Some(old) = self.seen.len().checked_sub(self.kept_bodies.saturating_add(1)) else {
            return;
        };
        if let Some(seen) = self.seen.get_mut(old).filter(|seen| seen.broken.is_empty()) {
            seen.body = Arc::default();
        }
    }
}

impl Sizes {
    /// A provider that is told to refuse names a size that it would refuse.
    fn larger(self, fault: Option<Fault>) -> Sizes {
        let reported = matches!(fault, Some(Fault::Overflow | Fault::OverflowMidStream { .. }));
        if !reported || self.prompt > self.window {
            return self;
        }
        Sizes { prompt: self.window + self.prompt.max(1), ..self }
    }
}
