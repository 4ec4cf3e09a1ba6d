//! Splits a line in which a damaged line break joined records, or that has stray bytes before them.

use std::io::Cursor;

use serde::de::IgnoredAny;

use crate::header::SessionHeader;
use crate::record;

/// The byte order mark of some editors, and the zero bytes that file systems leave after a crash.
const BEFORE_A_LINE: [&[u8]; 2] = [b"\xEF\xBB\xBF", b"\0"];

/// The header and records on a line, if there is at most one stray byte between them: the damaged line
/// break.
pub(super) fn split_joined_line(line: &[u8]) -> Option<Vec<&str>> {
    let mut rest = line;
    while let Some(shorter) = BEFORE_A_LINE.iter().find_map(|mark| rest.strip_prefix(*mark)) {
        rest = shorter;
    }
    let mut strays_left = 1;
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        if let Some((piece, behind)) = first_piece(rest) {
            pieces.push(piece);
            rest = behind;
        } else if strays_left > 0 && !pieces.is_empty() {
            strays_left -= 1;
            rest = rest.get(1..)?;
        } else {
            return None;
        }
    }
    (!pieces.is_empty()).then_some(pieces)
}

/// The record at the start of the bytes, and the rest.
fn first_piece(bytes: &[u8]) -> Option<(&str, &[u8])> {
    if !bytes.starts_with(b"{") {
        return None;
    }
    let mut values =
        serde_json::Deserializer::from_reader(Cursor::new(bytes)).into_iter::<IgnoredAny>();
    values.next()?.ok()?;
    let (piece, behind) = bytes.split_at_checked(values.byte_offset())?;
    let piece = std::str::from_utf8(piece).ok()?;
    (record::is_session_record(piece) || SessionHeader::parse(piece).is_ok())
        .then_some((piece, behind))
}
