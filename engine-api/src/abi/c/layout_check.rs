//! Lists the structs and constants of the header for the test that compares them with the C compiler's.

pub use super::layout::{FieldLayout, StructLayout};
use super::requests::{context_mode, embed_purpose, end, purpose, trigger};
use super::services::NO_TIME;
use super::tables::flag;
use super::validate::C_ROOT_SYMBOL;
use super::{structs, tables};
use crate::abi::metadata::{ABI_MAJOR, EngineMetadata, META_BYTES};
use crate::embedding::{EmbedPurpose, EmbedRequest};
use crate::error::ErrorKind;
use crate::host::{LogLevel, Purpose};
use crate::request::{ContextMode, SubagentEnd, Trigger};
use crate::transcript::{EntryKind, Flags, Role};

/// The structs of the header, in its order.
pub fn structs() -> Vec<StructLayout> {
    structs::LAYOUT.iter().chain(tables::LAYOUT).copied().collect()
}

/// The texts of the header: API version, minor version, symbol name.
pub fn texts() -> Vec<(&'static str, String)> {
    let ours = EngineMetadata::current();
    vec![
        ("CTXHOST_API_VERSION", ours.api),
        ("CTXHOST_API_MINOR", ours.abi_minor.to_string()),
        ("context_engine_c_v1", C_ROOT_SYMBOL.into()),
    ]
}

/// The numbers of the header, by name.
pub fn numbers() -> Vec<(&'static str, u64)> {
    let mut numbers = vec![
        ("CTXHOST_ABI_MAJOR", u64::from(ABI_MAJOR)),
        ("CTXHOST_META_BYTES", META_BYTES as u64),
        ("CTXHOST_OK", 0),
        ("CTXHOST_ABSENT", u64::from(structs::ABSENT)),
        ("CTXHOST_NO_TIME", NO_TIME as u64),
        ("CTXHOST_NO_ENTRY", u64::MAX),
        ("CTXHOST_THREAD_SAFE", u64::from(flag::THREAD_SAFE)),
        ("CTXHOST_OWNS_COMPACTION", u64::from(flag::OWNS_COMPACTION)),
        ("CTXHOST_DELEGATES_COMPACTION", u64::from(flag::DELEGATES_COMPACTION)),
    ];
    numbers.push(("CTXHOST_EMBED_MAX_TEXTS", EmbedRequest::MAX_TEXTS as u64));
    numbers.push(("CTXHOST_EMBED_MAX_BYTES", EmbedRequest::MAX_BYTES as u64));
    let mut add = |name, number: u32| numbers.push((name, u64::from(number)));
    ERRORS.iter().for_each(|(name, kind)| add(name, kind.code()));
    ROLES.iter().for_each(|(name, role)| add(name, u32::from(role.code())));
    KINDS.iter().for_each(|(name, kind)| add(name, u32::from(kind.code())));
    FLAGS.iter().for_each(|(name, flag)| add(name, u32::from(flag.0)));
    TRIGGERS.iter().for_each(|(name, reason)| add(name, trigger(*reason)));
    MODES.iter().for_each(|(name, mode)| add(name, context_mode(*mode)));
    ENDS.iter().for_each(|(name, reason)| add(name, end(*reason)));
    LEVELS.iter().for_each(|(name, level)| add(name, *level as u32));
    PURPOSES.iter().for_each(|(name, wanted)| add(name, number_of(*wanted, purpose)));
    EMBED_PURPOSES.iter().for_each(|(name, wanted)| add(name, number_of(*wanted, embed_purpose)));
    numbers
}

// Written by hand on purpose: a list derived from the Rust enums would not notice a renumbering.
const ERRORS: [(&str, ErrorKind); 21] = [
    ("CTXHOST_E_FAILED", ErrorKind::Failed),
    ("CTXHOST_E_CONFIG", ErrorKind::Config),
    ("CTXHOST_E_WINDOW_TOO_SMALL", ErrorKind::WindowTooSmall),
    ("CTXHOST_E_UNSUPPORTED", ErrorKind::Unsupported),
    ("CTXHOST_E_CANNOT_FIT", ErrorKind::CannotFit),
    ("CTXHOST_E_PANICKED", ErrorKind::Panicked),
    ("CTXHOST_E_CANCELLED", ErrorKind::Cancelled),
    ("CTXHOST_E_DEADLINE", ErrorKind::Deadline),
    ("CTXHOST_E_DEAD", ErrorKind::Dead),
    ("CTXHOST_E_PROTOCOL", ErrorKind::Protocol),
    ("CTXHOST_E_MODEL_MISSING", ErrorKind::ModelMissing),
    ("CTXHOST_E_MODEL_AUTH", ErrorKind::ModelAuth),
    ("CTXHOST_E_MODEL_DENIED", ErrorKind::ModelDenied),
    ("CTXHOST_E_MODEL_TIMEOUT", ErrorKind::ModelTimeout),
    ("CTXHOST_E_MODEL_EMPTY", ErrorKind::ModelEmpty),
    ("CTXHOST_E_MODEL_LENGTH", ErrorKind::ModelLength),
    ("CTXHOST_E_MODEL_RATE_LIMITED", ErrorKind::ModelRateLimited),
    ("CTXHOST_E_MODEL_OVERFLOW", ErrorKind::ModelOverflow),
    ("CTXHOST_E_MODEL_TOOL_CALL", ErrorKind::ModelToolCall),
    ("CTXHOST_E_MODEL_FAILED", ErrorKind::ModelFailed),
    ("CTXHOST_E_STORE", ErrorKind::Store),
];

const ROLES: [(&str, Role); 5] = [
    ("CTXHOST_ROLE_UNKNOWN", Role::Unknown),
    ("CTXHOST_ROLE_SYSTEM", Role::System),
    ("CTXHOST_ROLE_USER", Role::User),
    ("CTXHOST_ROLE_ASSISTANT", Role::Assistant),
    ("CTXHOST_ROLE_TOOL", Role::Tool),
];

const KINDS: [(&str, EntryKind); 6] = [
    ("CTXHOST_KIND_UNKNOWN", EntryKind::Unknown),
    ("CTXHOST_KIND_MESSAGE", EntryKind::Message),
    ("CTXHOST_KIND_COMPACTION_SUMMARY", EntryKind::CompactionSummary),
    ("CTXHOST_KIND_BRANCH_SUMMARY", EntryKind::BranchSummary),
    ("CTXHOST_KIND_CUSTOM", EntryKind::Custom),
    ("CTXHOST_KIND_BASH", EntryKind::Bash),
];

const FLAGS: [(&str, Flags); 12] = [
    ("CTXHOST_FLAG_TOOL_CALLS", Flags::TOOL_CALLS),
    ("CTXHOST_FLAG_IMAGES", Flags::IMAGES),
    ("CTXHOST_FLAG_ERROR", Flags::ERROR),
    ("CTXHOST_FLAG_ABORTED", Flags::ABORTED),
    ("CTXHOST_FLAG_THINKING", Flags::THINKING),
    ("CTXHOST_FLAG_ORPHAN", Flags::ORPHAN),
    ("CTXHOST_FLAG_SYNTHETIC", Flags::SYNTHETIC),
    ("CTXHOST_FLAG_REPLACED", Flags::REPLACED),
    ("CTXHOST_FLAG_PINNED", Flags::PINNED),
    ("CTXHOST_FLAG_HEARTBEAT", Flags::HEARTBEAT),
    ("CTXHOST_FLAG_UNANSWERED", Flags::UNANSWERED),
    ("CTXHOST_FLAG_DISPLACED", Flags::DISPLACED),
];

const TRIGGERS: [(&str, Trigger); 6] = [
    ("CTXHOST_TRIGGER_UNKNOWN", Trigger::Unknown),
    ("CTXHOST_TRIGGER_THRESHOLD", Trigger::Threshold),
    ("CTXHOST_TRIGGER_OVERFLOW", Trigger::Overflow),
    ("CTXHOST_TRIGGER_MANUAL", Trigger::Manual),
    ("CTXHOST_TRIGGER_TIMEOUT", Trigger::Timeout),
    ("CTXHOST_TRIGGER_BYTES", Trigger::Bytes),
];

const MODES: [(&str, ContextMode); 2] = [
    ("CTXHOST_CONTEXT_ISOLATED", ContextMode::Isolated),
    ("CTXHOST_CONTEXT_FORK", ContextMode::Fork),
];

const ENDS: [(&str, SubagentEnd); 5] = [
    ("CTXHOST_END_UNKNOWN", SubagentEnd::Unknown),
    ("CTXHOST_END_COMPLETED", SubagentEnd::Completed),
    ("CTXHOST_END_DELETED", SubagentEnd::Deleted),
    ("CTXHOST_END_SWEPT", SubagentEnd::Swept),
    ("CTXHOST_END_RELEASED", SubagentEnd::Released),
];

const LEVELS: [(&str, LogLevel); 5] = [
    ("CTXHOST_LOG_ERROR", LogLevel::Error),
    ("CTXHOST_LOG_WARN", LogLevel::Warn),
    ("CTXHOST_LOG_INFO", LogLevel::Info),
    ("CTXHOST_LOG_DEBUG", LogLevel::Debug),
    ("CTXHOST_LOG_TRACE", LogLevel::Trace),
];

const PURPOSES: [(&str, Purpose); 4] = [
    ("CTXHOST_PURPOSE_OTHER", Purpose::Other),
    ("CTXHOST_PURPOSE_SUMMARY", Purpose::Summary),
    ("CTXHOST_PURPOSE_MEMORY_FLUSH", Purpose::MemoryFlush),
    ("CTXHOST_PURPOSE_QUALITY", Purpose::Quality),
];

const EMBED_PURPOSES: [(&str, EmbedPurpose); 3] = [
    ("CTXHOST_EMBED_OTHER", EmbedPurpose::Other),
    ("CTXHOST_EMBED_QUERY", EmbedPurpose::Query),
    ("CTXHOST_EMBED_DOCUMENT", EmbedPurpose::Document),
];

/// The number of a purpose: the first one that converts to it, as the crate converts in that direction only.
fn number_of<P: PartialEq>(wanted: P, convert: fn(u32) -> P) -> u32 {
    (0..).find(|number| convert(*number) == wanted).unwrap_or(u32::MAX)
}
