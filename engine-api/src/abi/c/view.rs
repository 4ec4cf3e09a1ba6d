//! Implements the transcript functions of the C API.

use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};

use super::fault::{SuccessStatus, status, value};
use super::memory::{protocol, write_sized};
use super::structs::{CEntry, CStatus, CToolCall, CToolResult, Str};
use crate::error::Result;
use crate::transcript::{Entry, Transcript};

/// The snapshot of one call and the texts created for it.
pub(crate) struct CTranscript {
    view: Transcript,
    /// Texts that no entry contains literally, such as unescaped ids. They live as long as the call.
    owned_texts: Mutex<Vec<Box<str>>>,
}

impl CTranscript {
    pub(super) fn new(view: Transcript) -> Self {
        CTranscript { view, owned_texts: Mutex::default() }
    }

    /// Lends a text to the engine until its call ends.
    fn lend(&self, text: Cow<'_, str>) -> Str {
        match text {
            Cow::Borrowed(text) => Str::of(text),
            // Ids and arguments with JSON escapes need an unescaped copy that outlives this
            // function.
            Cow::Owned(text) => {
                let text = text.into_boxed_str();
                let lent = Str::of(&text);
                self.owned_texts.lock().unwrap_or_else(PoisonError::into_inner).push(text);
                lent
            }
        }
    }
}

fn view(transcript: Option<&CTranscript>) -> Result<&CTranscript> {
    transcript.ok_or_else(|| protocol("the transcript is NULL"))
}

fn number(transcript: Option<&CTranscript>, read: impl FnOnce(&Transcript) -> u64) -> u64 {
    value(0, || Ok(read(&view(transcript)?.view)))
}

/// Writes the value that `make` returns for an entry; absent if there is none.
fn write<T: Copy>(
    transcript: Option<&CTranscript>,
    seq: u64,
    out: *mut T,
    size: usize,
    make: impl FnOnce(&CTranscript, Entry<'_>) -> Option<T>,
) -> CStatus {
    status(|| {
        let transcript = view(transcript)?;
        let made = transcript.view.get(seq).and_then(|entry| make(transcript, entry));
        match made {
            Some(made) => write_sized(out, size, &made).map(|()| SuccessStatus::Ok),
            None => Ok(SuccessStatus::Absent),
        }
    })
}

pub(super) extern "C" fn len(t: Option<&CTranscript>) -> u64 {
    number(t, |view| view.len() as u64)
}

pub(super) extern "C" fn epoch(t: Option<&CTranscript>) -> u64 {
    number(t, Transcript::epoch)
}

pub(super) extern "C" fn entry(
    t: Option<&CTranscript>,
    seq: u64,
    out: *mut CEntry,
    size: usize,
) -> CStatus {
    write(t, seq, out, size, |_, entry| {
        Some(CEntry {
            seq: entry.seq(),
            timestamp_ms: entry.timestamp_ms(),
            frame: entry.frame(),
            tokens_before: entry.tokens_before(),
            tokens: u32::try_from(entry.tokens()).unwrap_or(u32::MAX),
            flags: entry.flags().0,
            role: entry.role().code(),
            kind: entry.kind().code(),
            id: Str::of(entry.id()),
            parent_id: Str::of(entry.parent_id()),
            text: Str::of(entry.text()),
            raw: Str::of(entry.raw()),
        })
    })
}

pub(super) extern "C" fn tokens(t: Option<&CTranscript>, from: u64, to: u64) -> u64 {
    number(t, |view| view.tokens(from..to))
}

pub(super) extern "C" fn cut_at_or_before(t: Option<&CTranscript>, seq: u64) -> u64 {
    number(t, |view| view.cut_at_or_before(seq))
}

pub(super) extern "C" fn cut_at_or_after(t: Option<&CTranscript>, seq: u64) -> u64 {
    number(t, |view| view.cut_at_or_after(seq))
}

pub(super) extern "C" fn tail_within(t: Option<&CTranscript>, budget: u64) -> u64 {
    number(t, |view| view.tail_within(budget))
}

pub(super) extern "C" fn newest_user_message(t: Option<&CTranscript>) -> u64 {
    let newest = |view: &Transcript| view.newest_user_message().map(|entry| entry.seq());
    value(u64::MAX, || Ok(newest(&view(t)?.view).unwrap_or(u64::MAX)))
}

pub(super) extern "C" fn tool_call(
    t: Option<&CTranscript>,
    seq: u64,
    index: usize,
    out: *mut CToolCall,
    size: usize,
) -> CStatus {
    write(t, seq, out, size, |transcript, entry| {
        // Parses the entry for each call. Entries have few calls, and caching would need a lock.
        let call = entry.tool_calls().into_iter().nth(index)?;
        Some(CToolCall {
            id: transcript.lend(call.id),
            name: transcript.lend(call.name),
            arguments_json: transcript.lend(call.arguments),
        })
    })
}

pub(super) extern "C" fn tool_result(
    t: Option<&CTranscript>,
    seq: u64,
    out: *mut CToolResult,
    size: usize,
) -> CStatus {
    write(t, seq, out, size, |transcript, entry| {
        let result = entry.tool_result()?;
        Some(CToolResult {
            call_id: transcript.lend(result.call_id),
            tool: transcript.lend(result.tool),
            is_error: u32::from(result.is_error),
            reserved: 0,
        })
    })
}
