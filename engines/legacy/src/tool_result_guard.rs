//! Layer 2, the tool-result guard: no single result, and not all of them together, crowd out the
//! conversation.
//!
//! Pressure: one log file or one page of JSON is larger than everything that was said. Cost: one
//! look at the size of each result; text is read only where it is really cut. The session keeps
//! every original under its entry id, which the notice names.
//!
//! A cut depends on the entry, the settings and the window alone, so the same bytes go out in every
//! request. A result that the aggregate rule has cut stays cut.

use ctxhost_engine_api::transcript::tokens::weighted_chars;
use ctxhost_engine_api::{Entry, Flags, Transcript};
use ctxhost_engine_kit::text::{Limit, grouped, truncate};

use crate::memory::SessionMemory;
use crate::results::{Shown, ToolResults, ToolRow};
use crate::settings::{CHARS_PER_TOKEN, ToolResultSettings, share_of};

/// The name of the layer in notes.
pub(crate) const LAYER: &str = "tool-result guard";

/// Opens the notice of a result that was cut.
pub(crate) const TRUNCATED: &str = "[truncated: output exceeded context limit]";
/// Stands in place of a result that alone takes too much of the window.
pub(crate) const CLEARED: &str = "[compacted: tool output removed to free context]";

/// Cuts what is too large for a window. Rows that another layer has already replaced stay as they are.
pub(crate) fn reduce(
    results: &mut ToolResults<'_>,
    transcript: &Transcript,
    window_tokens: u64,
    settings: &ToolResultSettings,
    memory: &mut SessionMemory,
) {
    let caps = Caps::of(window_tokens, settings);
    for row in results.rows.iter_mut().filter(|row| row.shown.is_none()) {
        let Some(entry) = transcript.get(row.seq) else { continue };
        let remembered = memory.reduced.get(entry.id()).copied();
        if entry.tokens() > caps.clear_over_tokens || remembered == Some(ELIDED) {
            show(row, cleared(&entry));
        } else if let Some(shown) = cut(&entry, remembered.unwrap_or(caps.single), settings) {
            show(row, shown);
        }
    }
    balance(results, transcript, &caps, settings, memory);
}

/// What one result may cost in a window, in weighted characters.
pub(crate) fn single_cap_chars(window_tokens: u64, settings: &ToolResultSettings) -> u64 {
    Caps::of(window_tokens, settings).single
}

/// A result in at most `cap_chars` weighted characters; `None` where it fits as it is.
pub(crate) fn cut(
    entry: &Entry<'_>,
    cap_chars: u64,
    settings: &ToolResultSettings,
) -> Option<Shown> {
    let text = entry.text();
    // No character weighs more than four times its bytes: most results are settled without a look.
    if (text.len() as u64) * 4 <= cap_chars || weighted_chars(text) <= cap_chars {
        return None;
    }
    let whole = weighted_chars(text);
    let limit = Limit { min_keep_chars: settings.min_keep_chars, ..Limit::chars(cap_chars) };
    let text = truncate(text, limit, |left_out| notice(entry, left_out, whole)).into_owned();
    let detail = format!("{} -> {} chars", grouped(whole), grouped(weighted_chars(&text)));
    Some(Shown { text, layer: LAYER, detail })
}

/// The sizes of a window.
struct Caps {
    single: u64,
    aggregate: u64,
    clear_over_tokens: u64,
}

impl Caps {
    fn of(window_tokens: u64, settings: &ToolResultSettings) -> Caps {
        let by_window = match window_tokens {
            large if large >= settings.large_window_tokens => settings.large_cap_chars,
            medium if medium >= settings.medium_window_tokens => settings.medium_cap_chars,
            _ => settings.small_cap_chars,
        };
        let single = by_window.min(share_of(window_tokens, settings.cap_share) * CHARS_PER_TOKEN);
        let share = share_of(window_tokens * CHARS_PER_TOKEN, settings.aggregate_share);
        Caps {
            single,
            aggregate: share.max(single * settings.aggregate_results),
            clear_over_tokens: share_of(window_tokens, settings.clear_share),
        }
    }
}

/// The aggregate rule: oldest first, until all results together fit; first each down to its notice,
/// then to a marker. The trailing batch stays: the model has not read it yet.
fn balance(
    results: &mut ToolResults<'_>,
    transcript: &Transcript,
    caps: &Caps,
    settings: &ToolResultSettings,
    memory: &mut SessionMemory,
) {
    let mut excess = results.result_chars().saturating_sub(caps.aggregate);
    for pass in [Pass::Cut, Pass::Elide] {
        for row in results.rows.iter_mut().filter(|row| row.seq < results.trailing_from) {
            if excess == 0 {
                return;
            }
            let is_foreign = row.shown.as_ref().is_some_and(|shown| shown.layer != LAYER);
            let Some(entry) = transcript.get(row.seq).filter(|_| !is_foreign) else { continue };
            let target = pass.target_chars(&entry, row.chars, excess);
            let Some(shown) = pass.apply(&entry, target, settings) else { continue };
            let before = row.chars;
            if weighted_chars(&shown.text) < before {
                memory.reduced.insert(entry.id().to_owned(), target);
                show(row, shown);
                excess = excess.saturating_sub(before - row.chars);
            }
        }
    }
}

/// The remembered size of a result of which only the marker is left.
const ELIDED: u64 = 0;

#[derive(Clone, Copy)]
enum Pass {
    Cut,
    Elide,
}

impl Pass {
    fn target_chars(self, entry: &Entry<'_>, now_chars: u64, excess_chars: u64) -> u64 {
        match self {
            Pass::Cut => {
                let least = weighted_chars(&notice(entry, now_chars, now_chars));
                now_chars.saturating_sub(excess_chars).max(least)
            }
            Pass::Elide => ELIDED,
        }
    }

    fn apply(
        self,
        entry: &Entry<'_>,
        target_chars: u64,
        settings: &ToolResultSettings,
    ) -> Option<Shown> {
        match self {
            Pass::Cut => cut(entry, target_chars, settings),
            Pass::Elide => Some(cleared(entry)),
        }
    }
}

fn show(row: &mut ToolRow, shown: Shown) {
    row.chars = weighted_chars(&shown.text);
    row.shown = Some(shown);
}

fn cleared(entry: &Entry<'_>) -> Shown {
    let chars = grouped(entry.tokens() * CHARS_PER_TOKEN);
    Shown {
        text: format!(
            "{CLEARED} {chars} characters; the original is entry {} of the session",
            entry.id()
        ),
        layer: LAYER,
        detail: format!("{chars} chars cleared"),
    }
}

fn notice(entry: &Entry<'_>, left_out_chars: u64, whole_chars: u64) -> String {
    let images = if entry.has(Flags::IMAGES) { " and its images" } else { "" };
    format!(
        "\n{TRUNCATED} {} of {} characters{images} left out; the original is entry {} of the session",
        grouped(left_out_chars),
        grouped(whole_chars),
        entry.id()
    )
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::{Action, Plan};

    use super::*;
    use crate::testbench::Bench;

    fn assembled(bench: &Bench, window_tokens: u64, memory: &mut SessionMemory) -> Plan {
        let settings = ToolResultSettings::default();
        let transcript = bench.transcript();
        let cap_chars = single_cap_chars(window_tokens, &settings);
        let mut results = ToolResults::of(&transcript, cap_chars);
        reduce(&mut results, &transcript, window_tokens, &settings, memory);
        results.into_plan()
    }

    fn replaced(plan: &Plan) -> Vec<(u64, &str)> {
        let text = |op: &'_ ctxhost_engine_api::Op| match &op.action {
            Action::ReplaceText { seq, .. } => Some(*seq),
            _ => None,
        };
        let ops = plan.ops.iter().filter_map(|op| Some((text(op)?, op)));
        ops.map(|(seq, op)| match &op.action {
            Action::ReplaceText { text, .. } => (seq, text.as_str()),
            _ => (seq, ""),
        })
        .collect()
    }

    fn rounds(sizes: &[usize]) -> Bench {
        let mut bench = Bench::default();
        bench.user("go");
        for size in sizes {
            bench.call("1", "exec", "{}").result("1", "exec", &"x".repeat(*size));
        }
        bench
    }

    /// The table of facts 3.1; windows below the block limit never get here.
    #[test]
    fn caps_by_window() {
        let settings = ToolResultSettings::default();
        for (window, single, aggregate) in [
            (1_000, 1_200, 4_800),
            (8_192, 9_828, 39_312),
            (64_000, 16_000, 128_000),
            (128_000, 32_000, 256_000),
            (200_000, 64_000, 400_000),
            (1_000_000, 64_000, 2_000_000),
        ] {
            let caps = Caps::of(window, &settings);
            assert_eq!((caps.single, caps.aggregate), (single, aggregate), "window {window}");
        }
    }

    /// Case 23, with the design's notice in place of V's.
    #[test]
    fn case_23_one_large_result_is_cut_and_names_its_original() {
        let bench = rounds(&[40_000]);
        let mut memory = SessionMemory::default();
        let plan = assembled(&bench, 64_000, &mut memory);
        let [(2, text)] = replaced(&plan)[..] else { panic!("{:?}", plan.ops) };
        assert_eq!(weighted_chars(text), 16_000);
        assert!(text.contains(&format!("{TRUNCATED} 24,1")), "{}", &text[15_880..]);
        assert!(
            text.ends_with(
                "of 40,000 characters left out; the original is entry e002 of the session"
            )
        );
        let note = plan.ops[1].note.as_ref().unwrap();
        assert_eq!((note.layer.as_str(), note.detail.as_str()), (LAYER, "40,000 -> 16,000 chars"));
        assert_eq!(plan, assembled(&bench, 64_000, &mut memory), "the same bytes each time");
    }

    /// Case 22: the design has the per-result cap of 3.1 in place of V's separate guard cap.
    #[test]
    fn case_22_a_result_that_fits_stays() {
        let plan = assembled(&rounds(&[5_000]), 20_000, &mut SessionMemory::default());
        assert!(replaced(&plan).is_empty());
        let plan = assembled(&rounds(&[30_000]), 20_000, &mut SessionMemory::default());
        assert_eq!(weighted_chars(replaced(&plan)[0].1), 16_000);
    }

    #[test]
    fn over_half_of_the_window_is_cleared() {
        let plan = assembled(&rounds(&[140_000]), 64_000, &mut SessionMemory::default());
        let text = replaced(&plan)[0].1;
        assert!(text.starts_with(CLEARED) && text.contains("entry e002"), "{text}");
    }

    #[test]
    fn case_24_all_together_give_way_from_the_oldest_on() {
        let mut bench = rounds(&[9_000; 6]);
        bench.assistant("done");
        let mut memory = SessionMemory::default();
        let plan = assembled(&bench, 10_000, &mut memory);
        let [(2, text)] = replaced(&plan)[..] else { panic!("{:?}", plan.ops) };
        assert_eq!(weighted_chars(text), 3_000);
    }

    #[test]
    fn what_the_aggregate_rule_has_cut_stays_cut() {
        let mut bench = rounds(&[9_000; 6]);
        bench.assistant("done");
        let mut memory = SessionMemory::default();
        let first = assembled(&bench, 10_000, &mut memory);
        let before = replaced(&first)[0].1;
        assert_eq!(replaced(&assembled(&bench, 10_000, &mut memory))[0].1, before);
        // In a larger window the rule would leave it whole; the bytes stay.
        assert_eq!(replaced(&assembled(&bench, 20_000, &mut memory))[0].1, before);
    }

    #[test]
    fn the_trailing_batch_is_not_touched_by_the_aggregate_rule() {
        let bench = rounds(&[9_000, 9_000, 9_000, 9_000, 9_000, 9_000, 9_000, 9_000]);
        let plan = assembled(&bench, 10_000, &mut SessionMemory::default());
        let cut: Vec<u64> = replaced(&plan).into_iter().map(|(seq, _)| seq).collect();
        assert_eq!(cut, [2, 4, 6]);
        let sum: u64 = plan.project(&bench.transcript()).iter().map(|item| item.tokens()).sum();
        assert!(sum * CHARS_PER_TOKEN < 48_000 + 400, "{sum}");
    }
}
