//! The word of the user that a request waits for: "go" after "deploy nothing until I say go".

use std::sync::LazyLock;

use ctxhost_engine_api::transcript::tokens::weighted_chars;
use ctxhost_engine_api::{Entry, EntryKind, Transcript};
use ctxhost_text::injected_text::request_text;
use regex::Regex;

use super::{Antecedent, shown};
use crate::dialogue::is_assent;
use crate::ledger::listed_requests;
use crate::summary::envelope::unwrap_summary;

/// Entries before a word that are searched for what waits for it.
// Such a word is rare, and without a limit a session of nothing else would take quadratic time.
const SEARCHED_ENTRIES: usize = 2_000;
/// Length of a request that waits, in weighted characters.
// A longer one is a specification that has such a word somewhere.
const MOST_HOLD_CHARS: u64 = 400;

/// What says that a request waits for its user.
const HOLD: &str = concat!(
    r"(?i)\b(?:(?:until|till|before|unless) (?:i|we|you (?:have|get) my)\b|wait(?:s|ing)? for (?:me|my)\b|without my\b|(?:when|once|after|as soon as) i(?:['’]ve| have)? (?:say|tell|confirm|approve|agree|give|sign)",
    r"|(?:bis|bevor|ehe|erst wenn|sobald) (?:ich|wir)\b|(?:auf|ohne) mein[a-z]*|(?:jusqu['’]à ce|avant|tant) que (?:je|nous)\b|(?:attends?|attendez|sans) m(?:on|a)\b|(?:hasta|antes de|sin) que (?:yo\b|te|lo|dé|diga|confirme|apruebe)|(?:espera|sin) mi\b",
    r"|(?:até|antes) (?:que )?eu\b|sem (?:o meu|a minha|minha|meu)\b|(?:finché non|prima che) (?:io|lo|te|ve|ti|dico|dica|confermo|approvo)|senza (?:il mio|la mia)\b|(?:tot(?:dat)?|voordat) ik\b|(?:op|zonder) mijn\b|(?:dopóki|zanim|aż) (?:nie )?(?:ja|powiem|potwierdzę|zatwierdzę|dam)|bez mojej\b",
    r"|(?:пока|прежде чем|до тех пор как) я\b|без моего\b|до моего\b|(?:поки|перш ніж) я\b|без мого\b|ben [^.]*(?:kadar|önce)|(?:onayım|iznim) olmadan|(?:sampai|sebelum) saya\b|tanpa persetujuan saya|(?:cho đến khi|trước khi) tôi\b",
    r")|我[^，。,]*(?:之前|以前)|等我|直到我|没有我的|沒有我的|(?:私|こちら)が[^。]*(?:まで|前)|(?:指示|許可|承認)(?:する|が出る|を出す)?(?:まで|なし|なく)|(?:내가|제가)[^.]*(?:때까지|전)|(?:حتى|قبل أن) (?:أ|نـ)|जब तक मैं",
);
/// Words that permit what waits, whatever it waits for.
const PERMITTING: &str = "go ahead do it proceed yes yep yeah sure 好 好的 可以 行";
/// Words that mean "I see" as often: they permit what names them.
const NAMED: &str = "ok okay continue next fine good alright 继续";

static HOLDS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(HOLD).ok());

/// The request that waited for this word; `None` where none did, or it has had its word.
pub(super) fn find_hold(transcript: &Transcript, request: &Entry<'_>) -> Option<Antecedent> {
    let word = request_text(request);
    let word = word.trim();
    if !is_assent(word) {
        return None;
    }
    let newest_first = transcript.range(0..request.seq()).rev().take(SEARCHED_ENTRIES);
    for entry in newest_first {
        if entry.kind() == EntryKind::CompactionSummary {
            let requests = listed_requests(&unwrap_summary(entry.text().trim()));
            let hold = requests.iter().rev().find(|earlier| waits_for(earlier, word))?;
            return antecedent(&entry, hold);
        }
        if !entry.is_user_message() {
            continue;
        }
        let earlier = request_text(&entry);
        if earlier.trim().eq_ignore_ascii_case(word) {
            return None;
        }
        if waits_for(&earlier, word) {
            return antecedent(&entry, &earlier);
        }
    }
    None
}

fn antecedent(entry: &Entry<'_>, hold: &str) -> Option<Antecedent> {
    Some(Antecedent { seq: entry.seq(), text: shown(hold.trim())?, is_chosen: true })
}

/// Whether a request waits for such a word.
fn waits_for(request: &str, word: &str) -> bool {
    let is_short = weighted_chars(request) <= MOST_HOLD_CHARS;
    is_short
        && HOLDS.as_ref().is_some_and(|holds| holds.is_match(request))
        && permits(word, request)
}

fn permits(word: &str, request: &str) -> bool {
    let is_in = |list: &str, word: &str| list.split(' ').any(|listed| listed == word);
    // "Go on" asks for more of the same.
    let word = word.to_lowercase().replace("go on", "");
    let request = request.to_lowercase();
    words(&word).any(|word| is_in(PERMITTING, word) || is_in(NAMED, word) && names(&request, word))
}

/// Whether a request names a word; scripts without spaces join it to others.
fn names(request: &str, word: &str) -> bool {
    let is_spaced = word.is_ascii();
    if is_spaced { words(request).any(|named| named == word) } else { request.contains(word) }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::TranscriptBuilder;

    use super::*;

    fn hold_of(hold: &str, word: &str) -> Option<String> {
        let mut talk = TranscriptBuilder::new();
        talk.user(hold).assistant("Understood.");
        for _ in 0..200 {
            talk.user("Read the next file.").assistant("It has 20 lines.");
        }
        talk.user(word);
        let transcript = talk.transcript();
        let request = transcript.iter().last()?;
        Antecedent::find(&transcript, &request).map(|found| found.append_to(word))
    }

    #[test]
    fn a_word_that_was_waited_for_is_shown_with_what_waited() {
        for (hold, word) in [
            ("Wait with the release until I say go.", "go"),
            ("Wait with the release until I say go.", "ok go"),
            ("Don't deploy anything before I confirm.", "yes"),
            ("Do not merge without my ok.", "ok"),
            ("Warte mit dem Umzug, bis ich ok sage.", "ok"),
            ("N'envoie rien avant que je confirme.", "yes"),
            ("我说可以之前不要发布。", "可以"),
            ("等我说继续再发布。", "继续"),
            ("No publiques nada hasta que diga ok.", "ok"),
        ] {
            let expected = format!("{word}\n> in answer to: {hold}");
            assert_eq!(hold_of(hold, word), Some(expected), "{hold}");
        }
    }

    #[test]
    fn other_words_and_requests_are_not_joined() {
        for (hold, word) in [
            ("Wait with the release until I say go.", "thanks"),
            ("Wait with the release until I say go.", "ok"),
            ("Wait with the release until I say go.", "go on"),
            ("Please wait until I say go, thanks.", "thanks, please"),
            ("Run the tests before the release.", "go"),
            ("Read the whole file before you edit it.", "yes"),
        ] {
            assert_eq!(hold_of(hold, word), None, "{hold} {word}");
        }
    }

    #[test]
    fn a_hold_ends_once() {
        let mut talk = TranscriptBuilder::new();
        talk.user("Wait with the release until I say go.").assistant("Understood.");
        talk.user("go").assistant("It is released.").user("go");
        let transcript = talk.transcript();
        let request = transcript.iter().last();
        assert_eq!(request.and_then(|request| Antecedent::find(&transcript, &request)), None);
    }
}
