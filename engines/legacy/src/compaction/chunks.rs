//! Divides a history into parts that are merged, and each part into consecutive chunks.

use ctxhost_engine_api::{EntryKind, Transcript};
use ctxhost_engine_kit::chunks::{
    MessageGroup, count_entries, message_groups, split_parts, total_tokens,
};

use super::summary_task::SummaryTask;
use crate::settings::CompactionSettings;

/// The groups of a history without earlier summaries, which are carried over separately.
pub(crate) fn unsummarised_groups(
    transcript: &Transcript,
    task: &SummaryTask,
) -> Vec<MessageGroup> {
    let mut frames = message_groups(transcript, task.history.gaps());
    frames.retain(|group| {
        let mut entries = transcript.range(group.range.clone());
        !entries.all(|entry| entry.kind() == EntryKind::CompactionSummary)
    });
    frames
}

/// Splits groups into parts, and parts into chunks.
pub(crate) fn divide_into_parts<'a>(
    frames: &'a [MessageGroup],
    window_tokens: u64,
    settings: &CompactionSettings,
) -> Vec<Vec<&'a [MessageGroup]>> {
    let limits = settings.chunk_limits();
    let max_chunk_tokens = limits.max_chunk_tokens(frames, window_tokens);
    let least = settings.min_messages_to_split.max(2);
    // Two parts and a merge cost three requests, so a history that fits one is not divided.
    let is_split = count_entries(frames) >= least && total_tokens(frames) > max_chunk_tokens;
    let parts = split_parts(frames, if is_split { settings.parts } else { 1 });
    parts.into_iter().map(|part| limits.chunks(part, max_chunk_tokens)).collect()
}

/// Splits off oversized groups and returns the rest and a note for each.
pub(crate) fn split_off_oversized(
    transcript: &Transcript,
    frames: &[MessageGroup],
    window_tokens: u64,
    settings: &CompactionSettings,
) -> (Vec<MessageGroup>, Vec<String>) {
    let limits = settings.chunk_limits();
    let (large, fine): (Vec<MessageGroup>, Vec<MessageGroup>) =
        frames.iter().cloned().partition(|group| limits.is_oversized(group, window_tokens));
    let notes = large.iter().map(|group| omitted(transcript, group)).collect();
    (fine, notes)
}

fn omitted(transcript: &Transcript, group: &MessageGroup) -> String {
    // The note names the largest entry of the group, which is why it was omitted.
    let largest = transcript.range(group.range.clone()).max_by_key(|entry| entry.tokens());
    let role = largest.map_or("message", |entry| entry.role().name());
    let thousands = (group.tokens + 500) / 1_000;
    format!("[Large {role} (~{thousands}K tokens) omitted from summary]")
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::TranscriptBuilder;

    use super::*;

    fn frames_of(sizes: &[usize]) -> Vec<MessageGroup> {
        let mut talk = TranscriptBuilder::new();
        for size in sizes {
            talk.user(&"u".repeat(*size));
        }
        message_groups(&talk.transcript(), &[0..sizes.len() as u64])
    }

    /// Case 29: three messages are never divided, and neither is a history of one chunk.
    #[test]
    fn what_fits_is_one_part() {
        let settings = CompactionSettings { chunk_overhead_tokens: 0, ..Default::default() };
        for (sizes, window_tokens, parts) in
            [(vec![40_000; 3], 20_000, 1), (vec![40_000; 4], 20_000, 2), (vec![40; 4], 20_000, 1)]
        {
            let frames = frames_of(&sizes);
            assert_eq!(
                divide_into_parts(&frames, window_tokens, &settings).len(),
                parts,
                "{sizes:?}"
            );
        }
    }

    /// Case 30: an oversized message is named; a call goes with its result.
    #[test]
    fn oversized_frames_are_noted() {
        let mut talk = TranscriptBuilder::new();
        talk.user(&"u".repeat(400_000)).user("small");
        talk.calls(&[("1", "exec", "{}")]).result("1", "exec", &"r".repeat(400_000));
        let transcript = talk.transcript();
        let frames = message_groups(&transcript, &[0..4]);
        let settings = CompactionSettings::default();
        let (fine, notes) = split_off_oversized(&transcript, &frames, 100_000, &settings);
        assert_eq!(fine.len(), 1);
        assert_eq!(
            notes,
            [
                "[Large user (~100K tokens) omitted from summary]",
                "[Large tool (~100K tokens) omitted from summary]"
            ]
        );
    }
}
