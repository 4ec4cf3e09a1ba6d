//! Renders the ledger of what a request drops, in the format of the engines: requests, commands,
//! identifiers.

use std::ops::Range;

use ctxhost_engine_api::Transcript;
use ctxhost_engine_api::transcript::tokens::{self, CHARS_PER_TOKEN};
use ctxhost_engine_kit::budget::RoomSettings;
use ctxhost_engine_kit::ledger::{LedgerLimits, LedgerReader};
use ctxhost_engine_kit::summary::{Provenance, wrap_summary};

/// The writer in the envelope.
const WRITER: &str = "ledger";

/// The number of attempts to render a ledger that came out too long.
const TRIES: u32 = 8;

/// The ledger of ascending ranges, in its envelope, in at most `limit_tokens`, with at most
/// `request_tokens` for requests; empty where there is nothing to list or no room.
pub fn render_ledger(
    view: &Transcript,
    ranges: &[Range<u64>],
    limit_tokens: u64,
    request_tokens: u64,
) -> String {
    let entries = ranges.iter().map(|range| range.end.saturating_sub(range.start)).sum();
    let provenance = Provenance { entries, writer: WRITER };
    let envelope_tokens = tokens::estimate(&wrap_summary("", &provenance));
    let mut room_tokens = limit_tokens.saturating_sub(envelope_tokens);
    if room_tokens == 0 {
        return String::new();
    }
    let ledger = LedgerReader::new(view).read(ranges);
    for _ in 0..TRIES {
        let room_chars = room_tokens.saturating_mul(CHARS_PER_TOKEN);
        let limits = LedgerLimits {
            request_chars: request_tokens.saturating_mul(CHARS_PER_TOKEN),
            long_request_chars: 0,
            ledger_chars: room_chars,
            name_chars: room_chars,
            command_chars: RoomSettings::default().command_chars,
        };
        let text = ledger.render(ledger.fit_limits(limits, room_chars), "");
        if text.trim().is_empty() {
            return String::new();
        }
        let text = wrap_summary(&text, &provenance);
        if tokens::estimate(&text) <= limit_tokens {
            return text;
        }
        // Tags and escapes added to the estimate.
        room_tokens = room_tokens * 3 / 4;
    }
    String::new()
}

#[cfg(test)]
mod tests {
    // A single range of entries, not a list of their numbers.
    #![allow(clippy::single_range_in_vec_init)]

    use ctxhost_engine_api::testing::generate::{Script, transcripts};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_dropped_is_listed_exactly() {
        let script = Script::new().user("look at src/importer/reader.rs, ticket ABC-1234");
        let view = script.assistant("It fails in src/importer/clock.rs.").finish().transcript();
        let all = vec![0..view.len() as u64];
        let text = render_ledger(&view, &all, 1_000, 200);
        for name in ["look at src/importer/reader.rs, ticket ABC-1234", "src/importer/clock.rs"] {
            assert!(text.contains(name), "{name}: {text}");
        }
        assert!(text.starts_with("[ctxhost: summary of 2 earlier entries, ledger."), "{text}");
        assert_eq!(render_ledger(&view, &all, 10, 10), "");
        assert_eq!(render_ledger(&view, &[], 1_000, 200), "");
    }

    proptest! {
        #[test]
        fn a_ledger_keeps_its_limit(generated in transcripts(), limit in 0..600_u64, requests in 0..600_u64) {
            let view = generated.transcript();
            let all = vec![0..view.len() as u64];
            let text = render_ledger(&view, &all, limit, requests);
            prop_assert!(tokens::estimate(&text) <= limit, "{text}");
        }
    }
}
