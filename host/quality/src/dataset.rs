//! Labelled questions over long histories: JSON lines, plain or compressed with zstd.

use std::io::Read as _;

use ctxhost_files::{ZstdReader, is_zstd};
use serde::Deserialize;

/// Limit of an unpacked data set, in bytes.
const UNPACKED_BYTES: u64 = 4 << 30;

/// LongMemEval's category of facts that changed.
const UPDATED_FACTS: &str = "knowledge-update";

/// A question with its history.
#[derive(Clone, Debug, Deserialize)]
pub struct LabelledQuestion {
    /// Id.
    pub id: String,
    /// Category, as the data set names it.
    #[serde(default)]
    pub category: String,
    /// The question, asked after the history.
    pub query: String,
    /// Time of the question, as the data set writes it.
    #[serde(default)]
    pub query_date: String,
    /// Indexes of the turns that contain the answer.
    pub evidence: Vec<usize>,
    /// Indexes of the turns that contain an answer which a later turn replaced.
    #[serde(default)]
    pub stale: Vec<usize>,
    /// The history, oldest first.
    pub turns: Vec<HistoryTurn>,
}

impl LabelledQuestion {
    /// The turns with a replaced answer, and the other evidence. In LongMemEval's category of updated
    /// facts the evidence before the newest conversation is replaced.
    pub(crate) fn split_evidence(&self) -> (Vec<usize>, Vec<usize>) {
        let conversation = |turn: &usize| self.turns.get(*turn).map(|turn| &turn.conversation);
        let newest = self.evidence.iter().max().and_then(conversation);
        let is_stale = |turn: &usize| {
            self.stale.contains(turn)
                || (self.category == UPDATED_FACTS && conversation(turn) != newest)
        };
        let (mut stale, current): (Vec<usize>, Vec<usize>) =
            self.evidence.iter().copied().partition(is_stale);
        stale.extend(self.stale.iter().filter(|turn| !self.evidence.contains(turn)));
        (stale, current)
    }
}

/// A turn of a history.
#[derive(Clone, Debug, Deserialize)]
pub struct HistoryTurn {
    /// Conversation of the turn.
    #[serde(rename = "s", default)]
    pub conversation: String,
    /// Time, as the data set writes it: `2023/05/20 (Sat) 09:04`.
    #[serde(rename = "t", default)]
    pub time: String,
    /// `user` or `assistant`.
    pub role: String,
    /// Text.
    pub text: String,
}

/// Why a data set cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    /// The zstd data is invalid.
    #[error("{0}")]
    Unpack(String),
    /// It is too large when decompressed.
    #[error(
        "it has more than 4,294,967,296 bytes when decompressed, the limit for data sets; split it"
    )]
    TooLarge,
    /// A line is not a question.
    #[error("line {line}: {reason}")]
    Line {
        /// Line number, from 1.
        line: usize,
        /// The cause.
        reason: String,
    },
    /// There are no questions.
    #[error("no questions; each line must be {{\"id\", \"query\", \"evidence\", \"turns\"}}")]
    Empty,
}

/// Parses the questions of a file. Questions without evidence are skipped, since nothing of them
/// can be kept.
///
/// # Errors
///
/// [`DatasetError`].
pub fn parse_questions(bytes: &[u8]) -> Result<Vec<LabelledQuestion>, DatasetError> {
    let unpacked = if is_zstd(bytes) { unpack(bytes)? } else { bytes.to_vec() };
    let text = String::from_utf8_lossy(&unpacked);
    let mut questions = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let question: LabelledQuestion = serde_json::from_str(line)
            .map_err(|error| DatasetError::Line { line: at + 1, reason: error.to_string() })?;
        for (field, turns) in [("evidence", &question.evidence), ("stale", &question.stale)] {
            if let Some(turn) = turns.iter().find(|turn| **turn >= question.turns.len()) {
                let reason = format!("{field} names turn {turn} of {}", question.turns.len());
                return Err(DatasetError::Line { line: at + 1, reason });
            }
        }
        questions.push(question);
    }
    // Their recall is undefined and would distort the mean.
    questions.retain(|question| !question.evidence.is_empty());
    if questions.is_empty() { Err(DatasetError::Empty) } else { Ok(questions) }
}

fn unpack(bytes: &[u8]) -> Result<Vec<u8>, DatasetError> {
    let mut unpacked = Vec::new();
    // The limit protects against a compressed file that expands without end. One byte more shows that there are more.
    let mut content = ZstdReader::new(bytes).take(UNPACKED_BYTES + 1);
    let read = content.read_to_end(&mut unpacked);
    read.map_err(|error| DatasetError::Unpack(error.to_string()))?;
    if content.limit() == 0 { Err(DatasetError::TooLarge) } else { Ok(unpacked) }
}

/// The time of a turn, in milliseconds since 1970; `None` for another format.
pub(crate) fn parse_time(text: &str) -> Option<i64> {
    let numbers: Vec<i64> = text
        .split(|c: char| !c.is_ascii_digit())
        .filter(|part| !part.is_empty())
        .map_while(|part| part.parse().ok())
        .collect();
    let [year, month, day, rest @ ..] = numbers.as_slice() else { return None };
    let (hour, minute) = (rest.first().copied().unwrap_or(0), rest.get(1).copied().unwrap_or(0));
    // Days of the civil calendar, with years that start in March.
    let shifted = if *month > 2 { month - 3 } else { month + 9 };
    let year = if *month > 2 { *year } else { year - 1 };
    let of_year = (153 * shifted + 2) / 5 + day - 1;
    let of_era = year.rem_euclid(400) * 365 + year.rem_euclid(400) / 4 - year.rem_euclid(400) / 100
        + of_year;
    let days = year.div_euclid(400) * 146_097 + of_era - 719_468;
    Some(((days * 24 + hour) * 60 + minute) * 60_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_a_line() {
        let line = r#"{"id":"q","query":"where?","evidence":[0],"turns":[{"s":"a","t":"2023/05/20 (Sat) 09:04","role":"user","text":"here"}]}"#;
        let questions = parse_questions(line.as_bytes()).unwrap();
        assert_eq!(questions[0].turns[0].text, "here");
        let wrong = line.replace("[0]", "[1]");
        assert_eq!(
            parse_questions(wrong.as_bytes()).unwrap_err().to_string(),
            "line 1: evidence names turn 1 of 1"
        );
        assert!(matches!(parse_questions(b""), Err(DatasetError::Empty)));
    }

    #[test]
    fn every_frame_of_a_compressed_data_set_is_read() {
        let line = |id| {
            format!(
                r#"{{"id":"{id}","query":"?","evidence":[0],"turns":[{{"role":"user","text":"x"}}]}}"#
            ) + "\n"
        };
        let frame = |id| {
            let level = ruzstd::encoding::CompressionLevel::Fastest;
            ruzstd::encoding::compress_to_vec(line(id).as_bytes(), level)
        };
        let both = [frame("a"), frame("b")].concat();
        let ids: Vec<String> =
            parse_questions(&both).unwrap().into_iter().map(|question| question.id).collect();
        assert_eq!(ids, ["a", "b"]);
        let cut = parse_questions(&both[..both.len() - 5]).unwrap_err().to_string();
        assert!(cut.starts_with("the compressed data ends early"), "{cut}");
    }

    #[test]
    fn replaced_evidence_is_separated_from_the_current_one() {
        let turn = |s| format!(r#"{{"s":"{s}","role":"user","text":"x"}}"#);
        let turns = [turn("a"), turn("b"), turn("b")].join(",");
        let line = |rest: &str| format!(r#"{{"id":"q","query":"?","turns":[{turns}],{rest}}}"#);
        let split =
            |rest: &str| parse_questions(line(rest).as_bytes()).unwrap()[0].split_evidence();
        assert_eq!(split(r#""evidence":[1],"stale":[0]"#), (vec![0], vec![1]));
        let updated = r#""evidence":[0,1,2],"category":"knowledge-update""#;
        assert_eq!(split(updated), (vec![0], vec![1, 2]));
        assert_eq!(split(r#""evidence":[0,2]"#), (vec![], vec![0, 2]));
        let wrong = parse_questions(line(r#""evidence":[1],"stale":[7]"#).as_bytes()).unwrap_err();
        assert_eq!(wrong.to_string(), "line 1: stale names turn 7 of 3");
    }

    #[test]
    fn times_of_the_data_set() {
        assert_eq!(parse_time("1970/01/02 (Fri) 00:01"), Some(86_460_000));
        assert_eq!(parse_time("2000/02/29"), Some(951_782_400_000));
        assert_eq!(parse_time("yesterday"), None);
    }
}
