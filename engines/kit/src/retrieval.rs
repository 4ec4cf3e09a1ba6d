//! Retrieval: an index of a session, and requests that show found entries beside the newest ones.
//!
//! ```text
//!  pinned │ head │ found entries │ excerpt │ newest entries, older results as lines │ note · prompt
//!  ────────── computed when the window moves ──────┘                                └ per prompt, dropped first
//! ```
//!
//! An engine writes the head, such as rules or an outline; everything else is the same for all.

mod entry_masks;
mod file_reads;
mod history;
mod history_index;
mod layout;
mod newest_plan;
mod prompt_note;
mod query;
mod ranked_slices;
mod ranking;
mod selection;
mod short_move;
mod stored_layout;
mod tail;
mod text_names;
mod tools;

pub use history::read_history;
pub use history_index::{EntryRow, HistoryIndex, NO_ENTRY, TextSlice};
pub use layout::{LayoutStyle, RequestLayout, covering_plan, whole_plan};
pub(crate) use newest_plan::is_plan_tool;
pub use prompt_note::{LayoutUpdate, NoteShares};
pub use query::SearchQuery;
pub use ranked_slices::RankedSlices;
pub use ranking::PromptRanking;
pub use selection::SliceFinder;
pub use short_move::NEWER_SHARE;
pub use stored_layout::{layout_from_json, layout_to_json};
pub use text_names::TextNames;
pub use tools::{
    EXPAND, HIT_CHARS, SEARCH, failure, number_argument, render_entry, search_limit, search_tool,
    text_argument,
};
