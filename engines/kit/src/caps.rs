//! Caps on tool results and call arguments for the case that even the newest frame does not fit.

use std::ops::Range;

use ctxhost_engine_api::transcript::tokens::{CHARS_PER_TOKEN, group_thousands};
use ctxhost_engine_api::{Entry, Flags, Plan, Role, Transcript};

use crate::calls::shorten_arguments;
use crate::replacement::Replacement;
use ctxhost_text::truncate::{TextLimit, clip, truncate};

/// Lower bound of a result cap, in weighted characters: room for a notice and a line.
pub const LEAST_RESULT_CHARS: u64 = 400;
/// Lower bound of an argument cap, in weighted characters: a path or a command.
const LEAST_ARGUMENT_CHARS: u64 = 160;

/// The caps with which kept entries fit a limit: of results, then of call arguments.
#[derive(Clone, Copy, Debug, Default)]
pub struct EntryCaps {
    results: Option<u64>,
    arguments: Option<u64>,
}

impl EntryCaps {
    /// The caps with which `ranges` take about `limit_tokens`.
    pub fn fit(transcript: &Transcript, ranges: &[Range<u64>], limit_tokens: u64) -> EntryCaps {
        EntryCaps {
            results: result_cap_chars(transcript, ranges.iter().cloned(), limit_tokens),
            arguments: argument_cap_chars(transcript, ranges.iter().cloned(), limit_tokens),
        }
    }

    /// The cut form of an entry in the name of `layer`; `None` if it stays.
    pub fn cut(&self, entry: &Entry<'_>, layer: &'static str) -> Option<Replacement> {
        match entry.role() {
            Role::Tool => cut_result(entry, self.results?, layer),
            _ => cut_arguments(entry, self.arguments?, layer),
        }
    }
}

/// A result cut to `cap_chars` weighted characters, in the name of `layer`; `None` if it fits.
pub fn cut_result(entry: &Entry<'_>, cap_chars: u64, layer: &'static str) -> Option<Replacement> {
    if entry.tokens() * CHARS_PER_TOKEN <= cap_chars {
        return None;
    }
    let limit = TextLimit::with_max_chars(cap_chars).keeping(cap_chars / 4);
    let notice = |count| format!("\n[{} characters left out]", group_thousands(count));
    let text = match entry.text().trim() {
        // The host refuses an empty result.
        "" => "[an image was left out]".into(),
        text => truncate(text, limit, notice),
    };
    Some(Replacement::from_text(text, layer, format!("cut to {cap_chars} chars")))
}

/// The cap for each result in `ranges`, in weighted characters, with which the ranges take at most
/// `limit_tokens`; `None` if they fit.
pub fn result_cap_chars(
    transcript: &Transcript,
    ranges: impl Iterator<Item = Range<u64>>,
    limit_tokens: u64,
) -> Option<u64> {
    let entries: Vec<Entry<'_>> = ranges.flat_map(|range| transcript.range(range)).collect();
    let is_result = |entry: &&Entry<'_>| entry.role() == Role::Tool;
    let results: Vec<u64> = entries.iter().filter(is_result).map(Entry::tokens).collect();
    let all_tokens: u64 = entries.iter().map(Entry::tokens).sum();
    // Only results can be cut; everything else takes its full size.
    let rest_tokens = all_tokens - results.iter().sum::<u64>();
    let level_tokens = fair_cap(results, limit_tokens.saturating_sub(rest_tokens))?;
    Some((level_tokens * CHARS_PER_TOKEN).max(LEAST_RESULT_CHARS))
}

/// The cap for each argument text of the calls in `ranges`, in weighted characters, with which the ranges
/// take about `limit_tokens`; `None` if they fit once every result is cut to its least.
pub fn argument_cap_chars(
    transcript: &Transcript,
    ranges: impl Iterator<Item = Range<u64>>,
    limit_tokens: u64,
) -> Option<u64> {
    let entries: Vec<Entry<'_>> = ranges.flat_map(|range| transcript.range(range)).collect();
    let (calls, others): (Vec<&Entry<'_>>, Vec<&Entry<'_>>) =
        entries.iter().partition(|entry| entry.has(Flags::TOOL_CALLS));
    let least_tokens = |entry: &&Entry<'_>| match entry.role() {
        Role::Tool => entry.tokens().min(LEAST_RESULT_CHARS / CHARS_PER_TOKEN),
        _ => entry.tokens(),
    };
    let others_tokens: u64 = others.iter().map(least_tokens).sum();
    let calls = calls.iter().map(|entry| entry.tokens()).collect();
    let level_tokens = fair_cap(calls, limit_tokens.saturating_sub(others_tokens))?;
    // Half of it: ids and names take their part, and a call may have several texts.
    Some((level_tokens * CHARS_PER_TOKEN / 2).max(LEAST_ARGUMENT_CHARS))
}

/// A message with the argument texts of its calls cut to `cap_chars` weighted characters, in the name of
/// `layer`; `None` if nothing is saved. A pinned entry is never cut.
pub fn cut_arguments(
    entry: &Entry<'_>,
    cap_chars: u64,
    layer: &'static str,
) -> Option<Replacement> {
    if entry.has(Flags::PINNED) || entry.tokens() * CHARS_PER_TOKEN <= cap_chars {
        return None;
    }
    let (raw, count) = shorten_arguments(entry, cap_chars, |text| clip(text, cap_chars))?;
    let detail = format!("{count} arguments cut to {} chars", group_thousands(cap_chars));
    let shown = Replacement::from_raw(raw, layer, detail);
    (shown.tokens() < entry.tokens()).then_some(shown)
}

/// Keeps a range; an entry for which `cut` returns a replacement is replaced.
pub fn keep_with_cuts(
    plan: &mut Plan,
    transcript: &Transcript,
    range: Range<u64>,
    cut: impl Fn(&Entry<'_>) -> Option<Replacement>,
) {
    for entry in transcript.range(range) {
        match cut(&entry) {
            Some(shown) => shown.add_to_plan(plan, entry.seq()),
            None => _ = plan.keep(entry.seq()..entry.seq() + 1),
        }
    }
}

/// The largest cap with which all sizes together take at most `room`; `None` if they fit uncapped.
pub fn fair_cap(mut sizes: Vec<u64>, room: u64) -> Option<u64> {
    // Smallest first: what a small size does not use is shared by the larger ones.
    sizes.sort_unstable();
    let mut room = room;
    let mut left = sizes.len() as u64;
    for size in sizes {
        let share = room / left;
        if size > share {
            return Some(share);
        }
        room -= size;
        left -= 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::TranscriptBuilder;

    use super::*;
    use crate::history_fold::plan_tokens;

    #[test]
    fn water_finds_its_level() {
        for (sizes, room, expected) in [
            (vec![], 0, None),
            (vec![10, 20], 30, None),
            (vec![100, 10], 60, Some(50)),
            (vec![100, 100, 10], 110, Some(50)),
            (vec![5], 0, Some(0)),
        ] {
            assert_eq!(fair_cap(sizes.clone(), room), expected, "{sizes:?} in {room}");
        }
    }

    #[test]
    fn results_are_cut_until_everything_fits() {
        let mut talk = TranscriptBuilder::new();
        talk.user("go").calls(&[("a", "bash", "{}"), ("b", "ls", "{}")]);
        talk.result("a", "bash", &"log ".repeat(4_000)).result("b", "ls", "small");
        let transcript = talk.transcript();
        let whole = || std::iter::once(0..talk.len());
        assert_eq!(result_cap_chars(&transcript, whole(), 10_000), None);
        let cap_chars = result_cap_chars(&transcript, whole(), 500).unwrap();
        let mut plan = Plan::default();
        keep_with_cuts(&mut plan, &transcript, 0..talk.len(), |entry| {
            let text = ctxhost_text::truncate::clip(entry.text(), cap_chars);
            (text != entry.text()).then(|| Replacement::from_text(text, "test", ""))
        });
        assert!(plan_tokens(&plan, &transcript) <= 500);
        assert_eq!(plan.project(&transcript)[3].text(), "small");
        assert_eq!(result_cap_chars(&transcript, whole(), 0), Some(LEAST_RESULT_CHARS));
    }
    #[test]
    fn arguments_are_cut_where_cut_results_are_not_enough() {
        let write = format!(r#"{{"path":"a.rs","content":"{}"}}"#, "text ".repeat(4_000));
        let mut talk = TranscriptBuilder::new();
        talk.user("go").calls(&[("a", "write", &write), ("b", "ls", r#"{"path":"src"}"#)]);
        talk.result("a", "write", "done").result("b", "ls", &"file.rs ".repeat(400));
        let transcript = talk.transcript();
        let cap_in = |limit_tokens| {
            argument_cap_chars(&transcript, std::iter::once(0..talk.len()), limit_tokens)
        };
        assert_eq!(cap_in(6_000), None, "cutting the result is enough");
        assert_eq!(cap_in(0), Some(LEAST_ARGUMENT_CHARS));
        let cap_chars = cap_in(1_000).unwrap();
        let mut plan = Plan::default();
        let cut = |entry: &Entry<'_>| match entry.role() {
            Role::Tool => Some(Replacement::from_text(clip(entry.text(), 400), "test", "")),
            _ => cut_arguments(entry, cap_chars, "test"),
        };
        keep_with_cuts(&mut plan, &transcript, 0..talk.len(), cut);
        assert!(plan_tokens(&plan, &transcript) <= 1_000);
        let calls = format!("{:?}", cut_arguments(&transcript.get(1).unwrap(), cap_chars, "test"));
        assert!(calls.contains("a.rs") && calls.contains("src"), "{calls}");
    }
}
