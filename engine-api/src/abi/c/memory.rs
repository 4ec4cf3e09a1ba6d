//! Reads and writes C memory: texts, callbacks, structs of another size.
//!
//! Every `unsafe` block here relies on the rules at the head of `ctxhost_engine.h`.

use std::ffi::c_void;

use super::structs::{CEmbeddings, CHistoryEntry, EmbeddingsSink, HistorySink, Str, TextSink};
use crate::embedding::EmbedRequest;
use crate::error::{EngineError, ErrorKind, Result};

/// The largest `struct_size` accepted: ten times the current tables. A larger value is uninitialised.
const MAX_STRUCT_BYTES: usize = 16 * 1024;

/// An error of kind [`ErrorKind::Protocol`].
pub(super) fn protocol(message: impl Into<String>) -> EngineError {
    EngineError::new(ErrorKind::Protocol, message)
}

impl Str {
    /// A pointer to `text`, valid while `text` is.
    pub(super) fn of(text: &str) -> Str {
        Str::of_bytes(text.as_bytes())
    }

    pub(super) fn of_bytes(bytes: &[u8]) -> Str {
        Str { ptr: bytes.as_ptr().cast(), len: bytes.len() }
    }

    /// The bytes. To be read before the function that received this text returns.
    pub(super) fn bytes(&self) -> Result<&[u8]> {
        match (self.ptr.is_null(), self.len) {
            // C code passes NULL for empty texts.
            (_, 0) => Ok(&[]),
            (true, len) => Err(protocol(format!("a text of {len} bytes is at NULL"))),
            // The limit of `slice::from_raw_parts`.
            (false, len) if len > isize::MAX as usize => {
                Err(protocol(format!("a text of {len} bytes is longer than memory")))
            }
            // SAFETY: rule 2 of the header: a text stays readable until the function it is passed
            // to returns, and no `Str` is kept beyond that.
            (false, len) => Ok(unsafe { std::slice::from_raw_parts(self.ptr.cast(), len) }),
        }
    }

    pub(super) fn text(&self) -> Result<&str> {
        std::str::from_utf8(self.bytes()?).map_err(|error| {
            protocol(format!("a text is not UTF-8 from byte {} on", error.valid_up_to()))
        })
    }

    /// The text with invalid UTF-8 replaced, for callers that cannot return an error.
    pub(super) fn lossy(&self) -> String {
        String::from_utf8_lossy(self.bytes().unwrap_or_default()).into_owned()
    }
}

/// Passes a text to the caller's callback, if there is one.
pub(super) fn give(sink: TextSink, into: *mut c_void, bytes: &[u8]) {
    if let Some(sink) = sink {
        // SAFETY: the engine passed callback and argument together; the text outlives the call.
        unsafe { sink(into, Str::of_bytes(bytes)) }
    }
}

/// Passes an entry of the history to the caller's callback.
pub(super) fn give_entry(sink: HistorySink, into: *mut c_void, entry: &CHistoryEntry) {
    if let Some(sink) = sink {
        // SAFETY: as for `give`.
        unsafe { sink(into, entry) }
    }
}

/// Passes vectors to the caller's callback.
pub(super) fn give_vectors(sink: EmbeddingsSink, into: *mut c_void, vectors: &CEmbeddings) {
    if let Some(sink) = sink {
        // SAFETY: as for `give`.
        unsafe { sink(into, vectors) }
    }
}

/// Copies the texts of a request.
///
/// # Safety
///
/// `list` is NULL or the address of `len` readable texts.
pub(super) unsafe fn read_texts(list: *const Str, len: usize) -> Result<Vec<String>> {
    if len == 0 {
        return Ok(Vec::new());
    }
    let most = EmbedRequest::MAX_TEXTS;
    // An uninitialised length would make the host read unmapped memory.
    if list.is_null() || !list.is_aligned() || len > most {
        let message =
            format!("a list of {len} texts is invalid (NULL, misaligned, or more than {most})");
        return Err(protocol(message));
    }
    // SAFETY: the caller promises `len` readable texts; the pointer is aligned and not NULL.
    let texts = unsafe { std::slice::from_raw_parts(list, len) };
    texts.iter().map(|text| Ok(text.text()?.to_owned())).collect()
}

/// Reads a struct that begins with its size. Fields beyond that size are zero.
///
/// # Safety
///
/// `from` is NULL or the address of a `size_t` followed by that many readable bytes in all. Every field
/// of `T` is valid when all its bytes are zero.
pub(super) unsafe fn read_sized<T>(what: &str, from: *const T, needed: usize) -> Result<T> {
    if from.is_null() {
        return Err(protocol(format!("{what} is NULL")));
    }
    if !from.is_aligned() {
        return Err(protocol(format!("{what} is misaligned")));
    }
    // SAFETY: the caller promises a readable size at the beginning, and it is aligned.
    let size = unsafe { from.cast::<usize>().read() };
    if size < needed || size > MAX_STRUCT_BYTES {
        let message = format!("{what} has struct_size {size}; at least {needed} are required");
        return Err(protocol(message));
    }
    let mut value = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: reads at most the size that the other side states and writes at most the size of `T`;
    // the caller promises that a zeroed `T` is valid.
    unsafe {
        let bytes = size.min(size_of::<T>());
        std::ptr::copy_nonoverlapping(from.cast::<u8>(), value.as_mut_ptr().cast(), bytes);
        Ok(value.assume_init())
    }
}

/// Writes a struct into `size` bytes of the caller, truncated or filled up with zeros.
pub(super) fn write_sized<T: Copy>(out: *mut T, size: usize, value: &T) -> Result<()> {
    if out.is_null() || size > MAX_STRUCT_BYTES {
        return Err(protocol(format!("the output buffer of {size} bytes is NULL or too large")));
    }
    // An engine built with a later header has larger structs: the rest must be zero, not garbage.
    let known = size.min(size_of::<T>());
    // SAFETY: the engine promises `size` writable bytes at `out`; the first `known` are copied from
    // `value`, which has at least that many, the rest is zeroed.
    unsafe {
        std::ptr::copy_nonoverlapping(std::ptr::from_ref(value).cast::<u8>(), out.cast(), known);
        out.cast::<u8>().add(known).write_bytes(0, size - known);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::structs::{CBootstrap, CSession};
    use super::*;

    #[test]
    fn texts_are_checked() {
        assert_eq!(Str::of("ä").text().unwrap(), "ä");
        let empty = Str { ptr: std::ptr::null(), len: 0 };
        assert_eq!(empty.text().unwrap(), "");
        let nowhere = Str { ptr: std::ptr::null(), len: 3 };
        assert!(nowhere.text().unwrap_err().message.contains("is at NULL"));
        let endless = Str { ptr: c"x".as_ptr(), len: usize::MAX };
        assert!(endless.text().unwrap_err().message.contains("longer than memory"));
        let torn = Str::of_bytes(b"ok\xff");
        assert!(torn.text().unwrap_err().message.contains("not UTF-8 from byte 2"));
        assert_eq!(torn.lossy(), "ok\u{fffd}");
    }

    fn bootstrap(struct_size: usize) -> CBootstrap {
        let session = CSession { id: Str::of("s"), key: Str::of("k") };
        CBootstrap { struct_size, call: 7, session }
    }

    #[test]
    fn a_shorter_struct_has_zeros_at_its_end() {
        // SAFETY: the struct has at least the stated bytes, and a zeroed one is valid.
        let read =
            |struct_size, needed| unsafe { read_sized("it", &bootstrap(struct_size), needed) };
        let short = read(16, 16).unwrap();
        assert_eq!((short.call, short.session.id.len), (7, 0));
        assert_eq!(read(size_of::<CBootstrap>(), 16).unwrap().session.id.len, 1);
        let message = |size| read(size, 16).err().map(|error| error.message).unwrap_or_default();
        assert_eq!(message(8), "it has struct_size 8; at least 16 are required");
        assert!(message(usize::MAX).contains("struct_size"));
        // SAFETY: NULL is allowed.
        let null = unsafe { read_sized::<CBootstrap>("it", std::ptr::null(), 16) };
        assert_eq!(null.err().map(|error| error.message).as_deref(), Some("it is NULL"));
    }

    #[test]
    fn a_caller_gets_no_more_than_it_has_room_for() {
        let value = CSession { id: Str::of("abc"), key: Str::of("d") };
        let mut room = [0xAA_u8; size_of::<CSession>() + 8];
        write_sized(room.as_mut_ptr().cast(), 16, &value).unwrap();
        assert!(room[16..].iter().all(|byte| *byte == 0xAA));
        write_sized(room.as_mut_ptr().cast(), room.len(), &value).unwrap();
        assert!(room[size_of::<CSession>()..].iter().all(|byte| *byte == 0));
        assert!(write_sized(std::ptr::null_mut(), 16, &value).is_err());
    }
}
