//! Fixtures: an engine on a scripted host, and conversations that fill a window.

use std::sync::Arc;

use ctxhost_engine_api::border::{EngineFactory, EngineHandle};
use ctxhost_engine_api::serde_json::Value;
use ctxhost_engine_api::testing::{ScriptedHost, TranscriptBuilder, block_on};
use ctxhost_engine_api::{
    AssembleRequest, CompactRequest, Compaction, IngestRequest, ModelRef, Plan, Result, SessionRef,
    Transcript,
};
use ctxhost_engine_boundary::BoundaryEngine;

/// The headings of a summary.
pub(crate) const HEADINGS: [&str; 9] = [
    "Primary request and intent",
    "Key technical concepts",
    "Files and code",
    "Errors and fixes",
    "Problem solving",
    "All user messages",
    "Pending tasks",
    "Current work",
    "Next step",
];

pub(crate) struct EngineHarness {
    pub(crate) engine: EngineHandle,
    pub(crate) host: ScriptedHost,
}

impl EngineHarness {
    pub(crate) fn new(config: Value) -> EngineHarness {
        let host = ScriptedHost::new();
        let engine = EngineFactory::linked::<BoundaryEngine>()
            .create(Arc::new(host.clone()), &config)
            .unwrap();
        EngineHarness { engine, host }
    }

    pub(crate) fn session(&self) -> SessionRef {
        SessionRef { id: "s".into(), key: String::new() }
    }

    pub(crate) fn ingest(&self, talk: &TranscriptBuilder) {
        let (session, entries) = (self.session(), 0..talk.len());
        let request = IngestRequest { session, entries, ..IngestRequest::default() };
        block_on(self.engine.ingest(talk.transcript(), request)).unwrap();
    }

    pub(crate) fn assemble(&self, talk: &TranscriptBuilder, budget: u64) -> Plan {
        self.assembled(&talk.transcript(), budget)
    }

    pub(crate) fn assembled(&self, transcript: &Transcript, budget: u64) -> Plan {
        let request = AssembleRequest {
            session: self.session(),
            budget,
            reserve_tokens: 20_000,
            model: model(),
            ..AssembleRequest::default()
        };
        block_on(self.engine.assemble(transcript.clone(), request)).unwrap()
    }

    pub(crate) fn compact_request(&self, talk: &TranscriptBuilder, budget: u64) -> CompactRequest {
        self.request(&talk.transcript(), budget)
    }

    pub(crate) fn request(&self, transcript: &Transcript, budget: u64) -> CompactRequest {
        CompactRequest {
            session: self.session(),
            budget,
            reserve_tokens: 20_000,
            current_tokens: transcript.total_tokens(),
            model: model(),
            attempt: 1,
            ..CompactRequest::default()
        }
    }

    pub(crate) fn compact(
        &self,
        talk: &TranscriptBuilder,
        request: CompactRequest,
    ) -> Result<Compaction> {
        block_on(self.engine.compact(talk.transcript(), request))
    }

    /// The plan of a compaction that must succeed.
    pub(crate) fn plan(&self, talk: &TranscriptBuilder, budget: u64) -> Plan {
        match self.compact(talk, self.compact_request(talk, budget)).unwrap() {
            Compaction::Plan(plan) => plan,
            other => panic!("no plan: {other:?}"),
        }
    }

    /// What the model sees after a compaction.
    pub(crate) fn seen(&self, talk: &TranscriptBuilder, budget: u64) -> Vec<String> {
        let plan = self.plan(talk, budget);
        let transcript = talk.transcript();
        plan.project(&transcript).iter().map(|item| item.text().into_owned()).collect()
    }
}

fn model() -> ModelRef {
    ModelRef { window_tokens: 200_000, ..ModelRef::default() }
}

/// Reads file after file, `from..to`.
pub(crate) fn reads(talk: &mut TranscriptBuilder, from: usize, to: usize) {
    for number in from..to {
        let (call, path) = (format!("c{number}"), format!(r#"{{"path":"src/{number}.rs"}}"#));
        talk.calls(&[(&call, "read", &path)]);
        talk.result(&call, "read", &format!("// file {number}\n{}", "let it = be;\n".repeat(100)));
    }
}

/// A session that reads this many files.
pub(crate) fn reading(files: usize) -> TranscriptBuilder {
    let mut talk = TranscriptBuilder::new();
    talk.user("read everything");
    reads(&mut talk, 0, files);
    talk
}

/// A session after a compaction, with this many files read since.
pub(crate) fn after(epoch: u64, files: usize) -> TranscriptBuilder {
    let mut talk = TranscriptBuilder::with_epoch(epoch);
    talk.user("read everything").summary("<summary>\nso far\n</summary>").user("go on");
    reads(&mut talk, 100, 100 + files);
    talk
}

/// A model's summary with all nine sections.
pub(crate) fn nine_sections(request: &str) -> String {
    let section = |(at, heading): (usize, &&str)| format!("## {}. {heading}\n- {request}", at + 1);
    let sections: Vec<String> = HEADINGS.iter().enumerate().map(section).collect();
    format!(
        "<analysis>\nlet me think\n</analysis>\n<summary>\n{}\n</summary>",
        sections.join("\n\n")
    )
}

/// A turn with `rounds` of reads whose results have this many words.
pub(crate) fn read_words(talk: &mut TranscriptBuilder, turn: usize, rounds: usize, words: usize) {
    talk.user(&format!("Go on with part {turn}."));
    for round in 0..rounds {
        let (call, path) = (format!("t{turn}-{round}"), format!(r#"{{"path":"src/{turn}.rs"}}"#));
        talk.calls(&[(&call, "read", &path)]).result(&call, "read", &"let it = be; ".repeat(words));
    }
    talk.assistant(&format!("Part {turn} is done."));
}
