//! Caps on tool results for the case that even the newest frame does not fit.

use std::ops::Range;

use ctxhost_engine_api::transcript::tokens::CHARS_PER_TOKEN;
use ctxhost_engine_api::{Entry, Plan, Role, Transcript};

use crate::replacement::Replacement;

/// Lower bound of a result cap, in weighted characters: room for a notice and a line.
pub const LEAST_RESULT_CHARS: u64 = 400;

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

/// Keeps a range; a result for which `cut` returns a replacement is replaced.
pub fn keep_with_cut_results(
    plan: &mut Plan,
    transcript: &Transcript,
    range: Range<u64>,
    cut: impl Fn(&Entry<'_>) -> Option<Replacement>,
) {
    for entry in transcript.range(range) {
        let is_result = entry.role() == Role::Tool;
        match is_result.then(|| cut(&entry)).flatten() {
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
        keep_with_cut_results(&mut plan, &transcript, 0..talk.len(), |entry| {
            let text = crate::text::clip(entry.text(), cap_chars);
            (text != entry.text()).then(|| Replacement::from_text(text, "test", ""))
        });
        assert!(plan_tokens(&plan, &transcript) <= 500);
        assert_eq!(plan.project(&transcript)[3].text(), "small");
        assert_eq!(result_cap_chars(&transcript, whole(), 0), Some(LEAST_RESULT_CHARS));
    }
}
