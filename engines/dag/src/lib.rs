//! The `dag` engine: lossless hierarchical summaries.
//!
//! Entries are grouped into leaves, leaves into nodes, nodes into nodes above. Each node has a short
//! text and links to its sources, so any of them leads back to the original entries. While the
//! history fits, it is sent unchanged. Otherwise the model sees an outline of nodes that is finer
//! where the prompt matches, the entries that the prompt finds, and the newest entries.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod compaction;
mod condense;
mod leaf;
mod node;
mod node_lines;
mod outline;
#[cfg(test)]
mod prompt_note_tests;
mod replaced;
mod selection;
mod session;
mod settings;
mod short_move;
mod shown_requests;
mod stored;
mod tools;
mod tree;
mod writing;

use std::cell::OnceCell;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use ctxhost_engine_api::serde_json::{Value, json};
use ctxhost_engine_api::transcript::tokens::group_thousands;
use ctxhost_engine_api::{
    AssembleRequest, CompactRequest, Compaction, ContextEngine, EngineError, EngineStatus,
    ErrorKind, HistoryEntry, Host, Info, IngestReply, IngestRequest, MaintainReply,
    MaintainRequest, Plan, Result, SessionRef, ToolAnswer, ToolCallRequest, ToolSpec, Transcript,
    capability,
};
use ctxhost_engine_kit::retrieval::{
    EXPAND, LayoutStyle, LayoutUpdate, RequestLayout, SEARCH, layout_from_json, layout_to_json,
    read_history, whole_plan,
};
use ctxhost_engine_kit::session_map::SessionMap;
use ctxhost_engine_kit::store::{has_capability, has_key_value_store, session_key};

use compaction::folded_leaves;
use leaf::LeafDraft;
use node::DagNode;
use session::DagSession;
pub use settings::Settings;

/// Layer name in plan notes.
const LAYER: &str = "dag";

/// Key prefix of stored layouts.
const LAYOUT_KEY: &str = "layout/1/";

/// How inserted texts are labelled. The outline says what was left out.
const STYLE: LayoutStyle =
    LayoutStyle { layer: LAYER, head: "rules, outline and names", leave_out_note: false };

/// The engine.
#[derive(Debug)]
pub struct DagEngine {
    host: Host,
    settings: Settings,
    sessions: SessionMap<DagSession>,
    compactions: AtomicU64,
    /// The session of the newest ingest, for the status.
    newest: Mutex<Option<SessionRef>>,
}

impl ContextEngine for DagEngine {
    const INFO: Info = Info::new("dag", "DAG", env!("CARGO_PKG_VERSION")).owning_compaction();

    fn create(host: Host, config: Value) -> Result<Self> {
        Ok(DagEngine {
            host,
            settings: Settings::parse(&config)?,
            sessions: SessionMap::default(),
            compactions: AtomicU64::default(),
            newest: Mutex::default(),
        })
    }

    async fn ingest(&self, transcript: Transcript, request: IngestRequest) -> Result<IngestReply> {
        self.load(&transcript, &request.session).await;
        let entries = self.sessions.with_session(&request.session, |session| {
            let new = session.follow(&transcript, &self.settings);
            let asked = &request.entries;
            new.end.min(asked.end).saturating_sub(new.start.max(asked.start))
        });
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Some(request.session);
        Ok(IngestReply { entries })
    }

    async fn assemble(&self, transcript: Transcript, request: AssembleRequest) -> Result<Plan> {
        self.load(&transcript, &request.session).await;
        let (plan, layout) = self.sessions.with_session(&request.session, |session| {
            let plan = session.plan(&transcript, &request, &self.settings);
            let is_new = std::mem::take(&mut session.is_layout_new);
            (plan, is_new.then(|| layout_to_json(session.layout.as_ref(), &session.index)))
        });
        if let Some(layout) = layout.filter(|_| has_key_value_store(&self.host)) {
            // A layout that is not stored is computed again after a restart.
            let _ = self.host.kv_put(&session_key(LAYOUT_KEY, &request.session), &layout).await;
        }
        Ok(plan)
    }

    async fn compact(&self, transcript: Transcript, request: CompactRequest) -> Result<Compaction> {
        self.load(&transcript, &request.session).await;
        let answer = self.sessions.with_session(&request.session, |session| {
            session.compact(&transcript, &request, &self.settings)
        });
        if matches!(answer, Compaction::Plan(_)) {
            self.compactions.fetch_add(1, Ordering::Relaxed);
            // Before the answer: the nodes of folded entries cannot be rebuilt from the next
            // transcript.
            self.store_nodes(&request.session).await;
        }
        Ok(answer)
    }

    async fn maintain(
        &self,
        transcript: Transcript,
        request: MaintainRequest,
    ) -> Result<MaintainReply> {
        self.load(&transcript, &request.session).await;
        let follow = |session: &mut DagSession| session.follow(&transcript, &self.settings);
        self.sessions.with_session(&request.session, follow);
        let call = (request.call, &request.session, self.host.now_ms());
        let written =
            writing::write_nodes(&self.host, &self.sessions, &transcript, call, &self.settings)
                .await;
        // What was written before a failure is stored as well.
        let pages = self.store_nodes(&request.session).await;
        written?;
        Ok(MaintainReply { changed: pages > 0, ..MaintainReply::default() })
    }

    fn tools(&self, _session: SessionRef) -> Vec<ToolSpec> {
        if self.settings.tools { tools::tool_specs() } else { Vec::new() }
    }

    async fn call_tool(
        &self,
        transcript: Transcript,
        request: ToolCallRequest,
    ) -> Result<ToolAnswer> {
        self.load(&transcript, &request.session).await;
        let id = request.arguments.get("id").and_then(Value::as_str).unwrap_or_default().trim();
        match request.name.as_str() {
            SEARCH => Ok(self.sessions.with_session(&request.session, |session| {
                session.follow(&transcript, &self.settings);
                session.search(&transcript, &request.arguments)
            })),
            EXPAND => {
                let sources = self.sessions.with_session(&request.session, |session| {
                    session.follow(&transcript, &self.settings);
                    session.sources_of(id, &self.settings)
                });
                Ok(tools::expand(&self.host, &transcript, &request, sources).await)
            }
            other => Err(EngineError::new(
                ErrorKind::Unsupported,
                format!("engine dag has no tool {other:?}"),
            )),
        }
    }

    fn status(&self) -> EngineStatus {
        // Counted here: the sum takes a pass over the index, an ingest must not.
        let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let counted = newest.map(|newest| {
            self.sessions.with_session(&newest, |session| {
                let nodes: usize = session.tree.levels().iter().map(Vec::len).sum();
                (nodes, session.index.size_bytes())
            })
        });
        let (nodes, bytes) = counted.unwrap_or_default();
        EngineStatus {
            summary: format!(
                "newest session: {} nodes, index of {} kB",
                group_thousands(nodes as u64),
                bytes / 1_000
            ),
            compactions: self.compactions.load(Ordering::Relaxed),
            details: json!({ "nodes": nodes, "index_bytes": bytes }),
        }
    }

    async fn dispose(&self) {
        self.sessions.clear();
    }
}

impl DagEngine {
    /// Loads stored nodes and the layout once per session, and folded leaves that are lost from the
    /// history.
    async fn load(&self, transcript: &Transcript, session: &SessionRef) {
        // Marked as loaded before the store answers, so that a failing store is asked only once.
        let is_new = self
            .sessions
            .with_session(session, |state| !std::mem::replace(&mut state.is_loaded, true));
        if is_new && has_key_value_store(&self.host) {
            let nodes = stored::load_nodes(&self.host, session, &self.settings).await;
            let key = session_key(LAYOUT_KEY, session);
            let layout = self.host.kv_get(&key).await.ok().flatten();
            self.sessions.with_session(session, |state| {
                state.add_known(nodes);
                state.stored_layout = layout;
            });
        }
        let has_lost = |state: &mut DagSession| {
            state.is_epoch_new(transcript) && state.has_lost_leaves(transcript, &self.settings)
        };
        if self.sessions.with_session(session, has_lost)
            && has_capability(&self.host, capability::HISTORY)
        {
            let leaves = self.leaves_of_history(transcript, session).await;
            self.sessions
                .with_session(session, |state| state.restore_folded(leaves, &self.settings));
        }
    }

    /// The leaves of all entries that are not live, which the summaries fold.
    async fn leaves_of_history(
        &self,
        transcript: &Transcript,
        session: &SessionRef,
    ) -> Vec<DagNode> {
        let live: HashSet<&str> = transcript.iter().map(|entry| entry.id()).collect();
        // Earlier summaries are in the history, too, but not what they fold.
        let is_folded = |entry: &HistoryEntry| {
            let is_summary = folded_leaves(&entry.text, self.settings.fanout).is_some();
            !is_summary && !live.contains(entry.id.as_str())
        };
        // What a failing host answered before is still of use.
        let (entries, _) = read_history(&self.host, session, is_folded).await;
        let mut leaves = Vec::new();
        let mut draft = LeafDraft::default();
        for entry in &entries {
            let is_request = entry.role == "user";
            // The history does not tell frames, but results follow their calls.
            let may_end = entry.role != "tool";
            if may_end && draft.ends_before(is_request, entry.timestamp_ms, &self.settings) {
                leaves.push(std::mem::take(&mut draft).finish(&self.settings));
            }
            draft.push_history(entry);
        }
        if !draft.is_empty() {
            leaves.push(draft.finish(&self.settings));
        }
        leaves
    }

    /// Stores changed nodes; returns the number of pages.
    async fn store_nodes(&self, session: &SessionRef) -> usize {
        if !has_key_value_store(&self.host) {
            return 0;
        }
        let take = |state: &mut DagSession| state.take_changed_pages(session, &self.settings);
        let pages = self.sessions.with_session(session, take);
        let count = pages.len();
        stored::store_pages(&self.host, pages).await;
        count
    }
}

impl DagSession {
    /// The whole history if it fits; else the current layout or a new one.
    fn plan(
        &mut self,
        transcript: &Transcript,
        request: &AssembleRequest,
        settings: &Settings,
    ) -> Plan {
        self.follow(transcript, settings);
        let stored = self.stored_layout.take();
        let stored = stored.and_then(|json| layout_from_json(&json, &self.index));
        let kept = self.layout.take().or(stored);
        let budget_tokens = request.budget;
        // With folded entries the outline says more than the summary.
        if self.folded == 0 && transcript.total_tokens() <= budget_tokens {
            // Everything fits again, for example after an undo: a layout from before would only leave things out.
            self.is_layout_new |= kept.is_some();
            return whole_plan(transcript);
        }
        let replaced = self.rules.replaced_count();
        let is_valid = |layout: &RequestLayout| {
            layout.is_valid_for(transcript, budget_tokens, replaced, settings.slack_share)
        };
        let kept = kept.filter(is_valid);
        // At most one search per request, and none if nothing moves and no prompt is new.
        let cell = OnceCell::new();
        let rank = || self.index.rank(&self.index.build_query(transcript, &request.prompt));
        let ranking = || cell.get_or_init(rank);
        let move_window = |last: Option<&RequestLayout>| {
            let moved = |last| self.moved_layout(transcript, budget_tokens, last, settings);
            let moved = last.and_then(moved);
            moved.unwrap_or_else(|| self.new_layout(transcript, budget_tokens, ranking(), settings))
        };
        let add_note = |newest: u64, layout: &mut RequestLayout| {
            self.add_note(transcript, newest, budget_tokens, ranking(), settings, layout);
        };
        let update = LayoutUpdate::new(
            &self.index,
            transcript,
            request,
            kept,
            &STYLE,
            &move_window,
            add_note,
        );
        self.is_layout_new = update.is_new;
        self.layout = update.layout;
        update.plan
    }
}
