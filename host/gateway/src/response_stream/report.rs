//! Reads the token usage and the id of a response as it streams by.

use axum::body::Bytes;
use ctxhost_dialects::DialectName;
use ctxhost_dialects::dialect::FrameFormat;
use ctxhost_dialects::frames::FrameReader;
use ctxhost_dialects::sse::SseReader;
use ctxhost_dialects::usage::{AnswerReport, ReportScanner, read_document_report};

use crate::body_budget::BodyReservation;

/// The largest event or document that is read, in bytes.
const LOOKED_AT_MAX_BYTES: usize = 64 * 1024 * 1024;

/// Reads a response. Nothing is parsed before the end: a stream keeps its last two candidate events, a document its
/// chunks.
#[derive(Debug)]
pub(crate) struct ReportReader {
    dialect: DialectName,
    read: ReportSource,
    /// Held data counts against the body budget; without budget nothing is reported.
    reservation: BodyReservation,
}

#[derive(Debug)]
enum ReportSource {
    Events(Box<(SseReader, ReportScanner)>),
    Lines(Box<(FrameReader, ReportScanner)>),
    Document {
        pieces: Vec<Bytes>,
        bytes: usize,
    },
    /// Too large: a part of it reports nothing.
    TooLarge,
}

impl ReportReader {
    /// A reader for a stream of frames, or for one document.
    pub(crate) fn new(
        dialect: DialectName,
        framing: Option<FrameFormat>,
        reservation: BodyReservation,
    ) -> ReportReader {
        let scanner = || ReportScanner::new(dialect);
        let read = match framing {
            Some(FrameFormat::Sse) => {
                ReportSource::Events(Box::new((SseReader::new(LOOKED_AT_MAX_BYTES), scanner())))
            }
            Some(FrameFormat::JsonLines) => {
                let reader = FrameReader::new(FrameFormat::JsonLines, LOOKED_AT_MAX_BYTES);
                ReportSource::Lines(Box::new((reader, scanner())))
            }
            None => ReportSource::Document { pieces: Vec::new(), bytes: 0 },
        };
        ReportReader { dialect, read, reservation }
    }

    /// Reads the next bytes.
    pub(crate) fn push(&mut self, data: &Bytes) {
        let is_held = match &mut self.read {
            ReportSource::Events(read) => scan_events(read, data, &mut self.reservation),
            ReportSource::Lines(read) => scan_lines(read, data, &mut self.reservation),
            ReportSource::Document { pieces, bytes } => {
                pieces.push(data.clone());
                *bytes += data.len();
                *bytes <= LOOKED_AT_MAX_BYTES && self.reservation.try_reserve(data.len())
            }
            ReportSource::TooLarge => return,
        };
        if !is_held {
            self.read = ReportSource::TooLarge;
        }
    }

    /// What the response has reported.
    pub(crate) fn report(self) -> AnswerReport {
        match self.read {
            ReportSource::Events(mut read) => {
                let (reader, scanner) = &mut *read;
                reader.last_event().into_iter().for_each(|event| scanner.scan(event.data));
                scanner.report()
            }
            ReportSource::Lines(mut read) => {
                let (reader, scanner) = &mut *read;
                if reader.finish() {
                    scan_frames(reader, scanner);
                }
                scanner.report()
            }
            ReportSource::Document { pieces, .. } => match pieces.as_slice() {
                [one] => read_document_report(self.dialect, one),
                many => read_document_report(self.dialect, &many.concat()),
            },
            ReportSource::TooLarge => AnswerReport::default(),
        }
    }
}

/// Reads lines; `false` if one is too large or exceeds the budget.
fn scan_lines(
    (reader, scanner): &mut (FrameReader, ReportScanner),
    data: &[u8],
    reservation: &mut BodyReservation,
) -> bool {
    let held_before = reader.buffered_bytes();
    reader.push(data);
    scan_frames(reader, scanner)
        && change_reservation(reservation, held_before, reader.buffered_bytes())
}

/// Reads the frames that are whole; `false` if one is too large.
fn scan_frames(reader: &mut FrameReader, scanner: &mut ReportScanner) -> bool {
    loop {
        match reader.next_frame() {
            Ok(Some(frame)) => scanner.scan(frame.data.as_bytes()),
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

fn change_reservation(reservation: &mut BodyReservation, before: usize, after: usize) -> bool {
    reservation.release(before.saturating_sub(after));
    reservation.try_reserve(after.saturating_sub(before))
}

/// Reads events; `false` if one is too large or exceeds the budget.
fn scan_events(
    (reader, scanner): &mut (SseReader, ReportScanner),
    data: &[u8],
    reservation: &mut BodyReservation,
) -> bool {
    let held_before = reader.buffered_bytes();
    reader.push(data);
    loop {
        match reader.next_event() {
            Ok(Some(event)) => scanner.scan(event.data),
            Ok(None) => break,
            Err(_) => return false,
        }
    }
    change_reservation(reservation, held_before, reader.buffered_bytes())
}

#[cfg(test)]
mod tests {
    use ctxhost_dialects::message::TokenUsage;
    use proptest::prelude::*;

    use super::*;

    /// The usage of a response that arrives in pieces of this size.
    fn counted(
        dialect: DialectName,
        framing: Option<FrameFormat>,
        text: &str,
        piece: usize,
    ) -> Option<TokenUsage> {
        let reservation =
            crate::body_budget::BodyBudget::new(u64::MAX, Default::default()).reservation();
        let mut reader = ReportReader::new(dialect, framing, reservation);
        for piece in text.as_bytes().chunks(piece) {
            reader.push(&Bytes::copy_from_slice(piece));
        }
        reader.report().usage
    }

    fn usage(input: u64, cache_read: u64, output: u64) -> Option<TokenUsage> {
        Some(TokenUsage { input, cache_read, output, ..TokenUsage::default() }.with_total())
    }

    const ANTHROPIC: &str = "event: message_start\n\
        data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":7,\"cache_read_input_tokens\":3,\"output_tokens\":1}}}\n\n\
        data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"\\\"usage\\\": {\\\"output_tokens\\\": 900}\"}}\n\n\
        data: {\"type\":\"message_delta\",\"delta\":{},\"usage\":{\"output_tokens\":40}}\n\n\
        data: {\"type\":\"message_stop\"}\n\n";
    const CHAT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":null}\n\n\
        data: {\"choices\":[],\"usage\": null}\n\n\
        data: {\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":40,\"prompt_tokens_details\":{\"cached_tokens\":3}}}\n\n\
        data: [DONE]\n\n";
    const RESPONSES: &str = "data: {\"type\":\"response.created\",\"response\":{\"usage\":null}}\n\n\
        data: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":10,\"input_tokens_details\":{\"cached_tokens\":3},\"output_tokens\":40}}}\n\n";
    const GEMINI: &str = "data: {\"candidates\":[],\"usageMetadata\":{\"promptTokenCount\":10}}\r\n\r\n\
        data: {\"usageMetadata\":{\"promptTokenCount\":10,\"candidatesTokenCount\":30,\"thoughtsTokenCount\":10,\"cachedContentTokenCount\":3}}\r\n\r\n";

    const OLLAMA: &str = "{\"message\":{\"content\":\"\\\"eval_count\\\":9\"},\"done\":false}\n\
        {\"message\":{\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"eval_count\":9}}}]},\"done\":false}\n\
        {\"done\":true,\"prompt_eval_count\":10,\"prompt_eval_cached_count\":3,\"eval_count\":40}";

    fn framing_of(dialect: DialectName) -> FrameFormat {
        if dialect == DialectName::Ollama { FrameFormat::JsonLines } else { FrameFormat::Sse }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_usage_does_not_depend_on_the_chunks(piece in 1usize..300) {
            let streams = [
                (DialectName::AnthropicMessages, ANTHROPIC),
                (DialectName::OpenAiCompletions, CHAT),
                (DialectName::OpenAiResponses, RESPONSES),
                (DialectName::GoogleGenerativeAi, GEMINI),
                (DialectName::Ollama, OLLAMA),
            ];
            for (dialect, stream) in streams {
                prop_assert_eq!(counted(dialect, Some(framing_of(dialect)), stream, piece), usage(7, 3, 40), "{:?}", dialect);
            }
        }
    }

    #[test]
    fn documents_and_lists_are_read() {
        let whole = "{\"content\":[],\"usage\":{\"input_tokens\":7,\"cache_read_input_tokens\":3,\"output_tokens\":40}}";
        assert_eq!(counted(DialectName::AnthropicMessages, None, whole, 9), usage(7, 3, 40));
        let list = "[{\"usageMetadata\":{\"promptTokenCount\":10}},\n{\"usageMetadata\":{\"promptTokenCount\":10,\"cachedContentTokenCount\":3,\"candidatesTokenCount\":40}}]";
        assert_eq!(counted(DialectName::GoogleGenerativeAi, None, list, 9), usage(7, 3, 40));
    }

    #[test]
    fn deep_nesting_is_read_without_overflow() {
        let lists = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
        assert_eq!(counted(DialectName::OpenAiCompletions, None, &lists, 9_000), None);
        let inner = "{\"usage\":{\"output_tokens\":4}}";
        let opened = "{\"message\":".repeat(20_000);
        let deep = format!("data: {opened}{inner}{}\n\n", "}".repeat(20_000));
        assert_eq!(
            counted(DialectName::AnthropicMessages, Some(FrameFormat::Sse), &deep, 9_000),
            None
        );
    }

    #[test]
    fn a_response_without_usage_has_none() {
        for text in ["", "data: {}\n\n", "<html>\"usage\"</html>\n", "data: {\"usage\":7}\n\n"] {
            assert_eq!(
                counted(DialectName::OpenAiCompletions, Some(FrameFormat::Sse), text, 5),
                None,
                "{text}"
            );
            assert_eq!(counted(DialectName::OpenAiCompletions, None, text, 5), None, "{text}");
        }
    }
}
