//! The user's requests: which of them stay where not all fit, and how. Rules and facts come before the others, newest first.

use std::collections::BTreeMap;

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Entry, Flags};

use crate::dialogue::is_request;
use crate::identifiers::states_fact;
use crate::rules::find_rules;
use crate::text::{FILE, IMAGE, with_placeholder};
use crate::wordings::WordingCounts;

/// A request and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizedRequest {
    /// Its position.
    pub seq: u64,
    /// Its size in tokens.
    pub tokens: u64,
    /// The size of its text; less than that of a request with images or files.
    pub text_tokens: u64,
    /// Whether it holds a rule or preference.
    pub is_rule: bool,
    /// Whether it states a fact, such as a path, an address or an order number.
    pub states_fact: bool,
    /// Whether newer requests have the same words except for numbers and few others.
    pub is_repeated: bool,
}

impl SizedRequest {
    /// A user message as a request.
    pub fn new(entry: &Entry<'_>) -> SizedRequest {
        let tokens = entry.tokens();
        SizedRequest {
            seq: entry.seq(),
            tokens,
            text_tokens: tokens::estimate(&text_of_request(entry)).min(tokens),
            is_rule: entry.is_instruction() || find_rules(entry.text()).next().is_some(),
            states_fact: states_fact(entry.text()),
            is_repeated: false,
        }
    }
}

/// The text of a request, with a placeholder for its images and files.
pub fn text_of_request(entry: &Entry<'_>) -> String {
    let text = entry.text();
    if entry.has(Flags::IMAGES) {
        with_placeholder(text.into(), IMAGE).into_owned()
    } else if entry.tokens() >= tokens::estimate(text) + tokens::IMAGE_TOKENS {
        // A block of a provider's own; it costs as much as an image at least.
        with_placeholder(text.into(), FILE).into_owned()
    } else {
        text.to_owned()
    }
}

/// How a chosen request is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestForm {
    /// As it is.
    Whole,
    /// Its [text](text_of_request), because its images and files do not fit.
    Text,
}

/// The requests that take at most `room_tokens`, by position: rules in half of it, then facts in half of it, then the
/// others, and those that newer ones repeat last. `newest_first` is their order; those that are shown anyway are left
/// out. A text that is too long is skipped. Images and files take what the texts leave.
pub fn choose_requests(
    newest_first: impl Iterator<Item = SizedRequest> + Clone,
    room_tokens: u64,
    is_shown: impl Fn(u64) -> bool,
) -> BTreeMap<u64, RequestForm> {
    let mut chosen: BTreeMap<u64, SizedRequest> = BTreeMap::new();
    let mut left_tokens = room_tokens;
    // At most half each, so that they do not displace what was asked last.
    type IsOfKind = fn(&SizedRequest) -> bool;
    let kinds: [(IsOfKind, u64); 4] = [
        (|request| request.is_rule && !request.is_repeated, room_tokens / 2),
        (|request| request.states_fact && !request.is_repeated, room_tokens / 2),
        (|request| !request.is_repeated, room_tokens),
        (|_| true, room_tokens),
    ];
    for (is_of_kind, most_tokens) in kinds {
        let mut room_tokens = most_tokens.min(left_tokens);
        for request in newest_first.clone() {
            // In a long session few fit, and the size is the cheapest to know.
            let is_candidate = request.text_tokens <= room_tokens && is_of_kind(&request);
            if is_candidate && !chosen.contains_key(&request.seq) && !is_shown(request.seq) {
                chosen.insert(request.seq, request);
                room_tokens -= request.text_tokens;
                left_tokens -= request.text_tokens;
            }
        }
    }
    let mut forms = BTreeMap::new();
    for (seq, request) in chosen.into_iter().rev() {
        let more_tokens = request.tokens - request.text_tokens;
        let form = if more_tokens <= left_tokens { RequestForm::Whole } else { RequestForm::Text };
        if form == RequestForm::Whole {
            left_tokens -= more_tokens;
        }
        forms.insert(seq, form);
    }
    forms
}

/// The requests of one session, oldest first.
#[derive(Debug, Default)]
pub struct RequestList {
    requests: Vec<SizedRequest>,
    wordings: WordingCounts,
}

impl RequestList {
    /// Adds the next entry if it is a request.
    pub fn read_entry(&mut self, entry: &Entry<'_>) {
        if is_request(entry) || entry.is_instruction() {
            self.requests.push(SizedRequest::new(entry));
            self.wordings.add(entry.text());
        }
    }

    /// The request at a position.
    pub fn get(&self, seq: u64) -> Option<&SizedRequest> {
        let at = self.requests.binary_search_by_key(&seq, |request| request.seq).ok()?;
        self.requests.get(at)
    }

    /// The newest request before `end`.
    pub fn newest_before(&self, end: u64) -> Option<u64> {
        self.requests.iter().rev().map(|request| request.seq).find(|seq| *seq < end)
    }

    /// The requests before `end` for a room, without those that are shown anyway.
    pub fn choose_before(
        &self,
        end: u64,
        room_tokens: u64,
        is_shown: impl Fn(u64) -> bool,
    ) -> BTreeMap<u64, RequestForm> {
        let older = self.requests.partition_point(|request| request.seq < end);
        let older = self.requests.get(..older).unwrap_or_default().iter().enumerate().rev();
        let newest_first = older.map(|(at, request)| SizedRequest {
            is_repeated: self.wordings.is_repeated(at),
            ..*request
        });
        choose_requests(newest_first, room_tokens, is_shown)
    }

    /// Memory use in bytes.
    pub fn size_bytes(&self) -> usize {
        self.requests.capacity() * size_of::<SizedRequest>() + self.wordings.size_bytes()
    }
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::TranscriptBuilder;

    use super::*;

    fn request(seq: u64, tokens: u64, is_rule: bool) -> SizedRequest {
        SizedRequest {
            seq,
            tokens,
            text_tokens: tokens,
            is_rule,
            states_fact: false,
            is_repeated: false,
        }
    }

    fn choose(newest_first: &[SizedRequest], room_tokens: u64) -> BTreeMap<u64, RequestForm> {
        choose_requests(newest_first.iter().copied(), room_tokens, |_| false)
    }

    #[test]
    fn a_rule_stays_before_newer_requests() {
        let requests = [
            request(9, 4, false),
            request(7, 30, false),
            request(5, 4, false),
            request(1, 5, true),
        ];
        let chosen = |room_tokens| Vec::from_iter(choose(&requests, room_tokens).into_keys());
        assert_eq!(chosen(10), [1, 9]);
        assert_eq!(chosen(13), [1, 5, 9]);
        assert_eq!(chosen(9), [5, 9], "a rule takes at most half");
        assert_eq!(chosen(100), [1, 5, 7, 9]);
        assert!(chosen(0).is_empty());
        let with_fact =
            [request(9, 4, false), SizedRequest { states_fact: true, ..request(3, 4, false) }];
        assert_eq!(Vec::from_iter(choose(&with_fact, 8).into_keys()), [3, 9]);
        assert_eq!(
            Vec::from_iter(choose(&with_fact, 7).into_keys()),
            [9],
            "a fact takes at most half"
        );
    }

    #[test]
    fn texts_of_requests_come_before_their_images() {
        let with_image =
            |seq| SizedRequest { tokens: 2_024, text_tokens: 24, ..request(seq, 0, false) };
        let requests = [with_image(6), request(4, 20, false), with_image(2)];
        let (whole, text) = (RequestForm::Whole, RequestForm::Text);
        let chosen = |room_tokens| Vec::from_iter(choose(&requests, room_tokens));
        assert_eq!(chosen(100), [(2, text), (4, whole), (6, text)]);
        assert_eq!(chosen(2_068), [(2, text), (4, whole), (6, whole)], "the newest image first");
    }

    #[test]
    fn an_image_is_named_in_the_text() {
        let mut talk = TranscriptBuilder::new();
        talk.user("Begin.").image("What is on it?");
        let transcript = talk.transcript();
        let texts: Vec<String> = transcript.iter().map(|entry| text_of_request(&entry)).collect();
        assert_eq!(texts, ["Begin.", "What is on it?\n[an image]"]);
        let sized = SizedRequest::new(&transcript.get(1).unwrap());
        assert!(sized.text_tokens < 10 && sized.tokens > 2_000, "{sized:?}");
    }
}
