//! The user's requests: which of them stay where not all fit, and how. Rules and facts come before the others, newest first.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;

use ctxhost_engine_api::transcript::tokens::{self, CHARS_PER_TOKEN};
use ctxhost_engine_api::{Entry, Flags, Transcript};

use crate::antecedent::Antecedent;
use crate::dialogue::is_request;
use crate::request_excerpt::{RequestSentences, shorten_request};
use crate::rules::{KnownSubjects, find_rules};
use crate::wordings::WordingCounts;
use ctxhost_text::identifiers::states_fact;
use ctxhost_text::injected_text::request_text;
use ctxhost_text::truncate::{FILE, IMAGE, with_placeholder};

/// Lower bound of a shortened request: a rule or two.
const LEAST_EXCERPT_TOKENS: u64 = 40;

/// A longer request with rules has a room of its own beside the others, in tokens: about fifteen lines.
const LONG_REQUEST_TOKENS: u64 = 200;

/// Part of the slack of an engine that long requests may take.
// With more, the window would move much more often.
pub const LONG_SLACK_PART: u64 = 3;

/// A request and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizedRequest {
    /// Its position.
    pub seq: u64,
    /// Its size in tokens.
    pub tokens: u64,
    /// The size of its text; less than that of a request with images or files.
    pub text_tokens: u64,
    /// The least that is shown of it, in tokens; less than its text if that may be shortened.
    pub least_tokens: u64,
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
        let own = request_text(entry);
        let is_rule = entry.is_instruction() || find_rules(&own).next().is_some();
        SizedRequest::from_text(entry, &own, is_rule)
    }

    /// A user message of which its user wrote `own`.
    fn from_text(entry: &Entry<'_>, own: &str, is_rule: bool) -> SizedRequest {
        let tokens = entry.tokens();
        let text_tokens = tokens::estimate(&with_files(entry, own.into())).min(tokens);
        SizedRequest {
            seq: entry.seq(),
            tokens,
            text_tokens,
            least_tokens: text_tokens.min(LEAST_EXCERPT_TOKENS),
            is_rule,
            states_fact: states_fact(own),
            is_repeated: false,
        }
    }
}

/// The text of a request as its user wrote it, with a placeholder for its images and files.
pub fn text_of_request(entry: &Entry<'_>) -> String {
    with_files(entry, request_text(entry)).into_owned()
}

/// The text of an entry with a placeholder for its images and files.
fn with_files<'t>(entry: &Entry<'_>, text: Cow<'t, str>) -> Cow<'t, str> {
    if entry.has(Flags::IMAGES) {
        with_placeholder(text, IMAGE)
    } else if entry.tokens() >= tokens::estimate(entry.text()) + tokens::IMAGE_TOKENS {
        // A block of a provider's own; it costs as much as an image at least.
        with_placeholder(text, FILE)
    } else {
        text
    }
}

/// How a chosen request is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestForm {
    /// As it is.
    Whole,
    /// Its [text](text_of_request), because its images and files, or what its client inserted, do not fit.
    Text,
    /// Its text, shortened to a size in tokens.
    Short(u64),
}

impl RequestForm {
    /// The text of a request in this form; `None` for the request as it is.
    pub fn text(self, entry: &Entry<'_>) -> Option<String> {
        match self {
            RequestForm::Whole => None,
            RequestForm::Text => Some(text_of_request(entry)),
            RequestForm::Short(most_tokens) => {
                Some(shorten_request(&text_of_request(entry), most_tokens * CHARS_PER_TOKEN))
            }
        }
    }
}

/// The room for requests, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRoom {
    /// For all of them.
    pub tokens: u64,
    /// More for long ones with rules: a specification is longer than what is asked about it.
    pub long_tokens: u64,
    /// Whether they may be shortened. Where rules are listed and the rest is found, what a prompt needs of them is there.
    pub may_shorten: bool,
}

/// The requests that fit a room, by position: rules in half of it, then facts in half of it, then the
/// others, and those that newer ones repeat last. `newest_first` is their order; those that are shown anyway are left
/// out. A text that is too long is shortened, one without a rule or fact only if the others leave room. Images and files
/// take what the texts leave.
pub fn choose_requests(
    newest_first: impl Iterator<Item = SizedRequest>,
    room: RequestRoom,
    is_shown: impl Fn(u64) -> bool,
) -> BTreeMap<u64, RequestForm> {
    let room_tokens = room.tokens;
    let newest_first = newest_first.collect();
    let mut choice =
        RequestChoice { newest_first, is_shown, chosen: BTreeMap::new(), left_tokens: room_tokens };
    let half_tokens = room_tokens / 2;
    // At most half each, so that they do not displace what was asked last.
    let is_new_rule = |request: &SizedRequest| request.is_rule && !request.is_repeated;
    let rules = choice.add(half_tokens, room.may_shorten, is_new_rule);
    choice.lengthen(half_tokens - rules, |_| true);
    // An engine without room for long requests finds their facts by other means.
    let has_long = room.long_tokens > 0;
    choice.add(half_tokens, has_long, |request| request.states_fact && !request.is_repeated);
    choice.add(room_tokens, false, |request| !request.is_repeated);
    choice.add(room_tokens, false, |_| true);
    choice.add(room_tokens, room.may_shorten, |_| true);
    choice.lengthen(room_tokens, |_| true);
    choice.add_files();
    choice.left_tokens = room.long_tokens;
    let is_long_rule =
        |request: &SizedRequest| request.is_rule && request.text_tokens > LONG_REQUEST_TOKENS;
    choice.add(room.long_tokens, true, is_long_rule);
    choice.lengthen(room.long_tokens, is_long_rule);
    choice.chosen.into_iter().map(|(seq, (_, form))| (seq, form)).collect()
}

/// A choice that is being made.
struct RequestChoice<F> {
    newest_first: Vec<SizedRequest>,
    is_shown: F,
    chosen: BTreeMap<u64, (SizedRequest, RequestForm)>,
    left_tokens: u64,
}

impl<F: Fn(u64) -> bool> RequestChoice<F> {
    /// Adds the texts of a kind in `most_tokens`, newest first, and returns what they take.
    fn add(
        &mut self,
        most_tokens: u64,
        may_shorten: bool,
        is_of_kind: impl Fn(&SizedRequest) -> bool,
    ) -> u64 {
        let most_tokens = most_tokens.min(self.left_tokens);
        let mut room_tokens = most_tokens;
        for request in &self.newest_first {
            let (form, tokens) = if request.text_tokens <= room_tokens {
                (RequestForm::Text, request.text_tokens)
            } else {
                (RequestForm::Short(request.least_tokens), request.least_tokens)
            };
            // In a long session few fit, and the size is the cheapest to know.
            let is_allowed = tokens <= room_tokens && (may_shorten || form == RequestForm::Text);
            if is_allowed
                && is_of_kind(request)
                && !self.chosen.contains_key(&request.seq)
                && !(self.is_shown)(request.seq)
            {
                self.chosen.insert(request.seq, (*request, form));
                room_tokens -= tokens;
            }
        }
        self.left_tokens -= most_tokens - room_tokens;
        most_tokens - room_tokens
    }

    /// Gives `most_tokens` to the shortened texts of a kind, newest first.
    fn lengthen(&mut self, most_tokens: u64, is_of_kind: impl Fn(&SizedRequest) -> bool) {
        let mut room_tokens = most_tokens.min(self.left_tokens);
        self.left_tokens -= room_tokens;
        for (request, form) in self.chosen.values_mut().rev() {
            if let RequestForm::Short(tokens) = *form
                && is_of_kind(request)
            {
                let more_tokens = room_tokens.min(request.text_tokens - tokens);
                room_tokens -= more_tokens;
                let tokens = tokens + more_tokens;
                let is_whole = tokens == request.text_tokens;
                *form = if is_whole { RequestForm::Text } else { RequestForm::Short(tokens) };
            }
        }
        self.left_tokens += room_tokens;
    }

    /// Shows the requests whole whose images and files fit, newest first.
    fn add_files(&mut self) {
        for (request, form) in self.chosen.values_mut().rev() {
            let more_tokens = request.tokens - request.text_tokens;
            if *form == RequestForm::Text && more_tokens <= self.left_tokens {
                *form = RequestForm::Whole;
                self.left_tokens -= more_tokens;
            }
        }
    }
}

/// The requests of one session, oldest first.
#[derive(Debug, Default)]
pub struct RequestList {
    requests: Vec<SizedRequest>,
    wordings: WordingCounts,
    /// What short requests refer to, by their position.
    antecedents: BTreeMap<u64, Antecedent>,
    /// The sentences of those that may be shortened. Read once: to find the rules among them takes longer than all else of a
    /// choice, and the same requests are shortened whenever the window moves.
    sentences: BTreeMap<u64, OnceLock<RequestSentences>>,
    /// What earlier requests have rules about: "back to tabs" is a rule behind one about tabs.
    subjects: KnownSubjects,
}

impl RequestList {
    /// Adds the next entry if it is a request, or agrees to something.
    pub fn read_entry(&mut self, transcript: &Transcript, entry: &Entry<'_>) {
        let antecedent = Antecedent::find(transcript, entry);
        if antecedent.is_none() && !is_request(entry) && !entry.is_instruction() {
            return;
        }
        let own = request_text(entry);
        let is_rule = self.subjects.read_message(&own) || entry.is_instruction();
        let mut request = SizedRequest::from_text(entry, &own, is_rule);
        if request.least_tokens < request.text_tokens {
            self.sentences.insert(entry.seq(), OnceLock::new());
        }
        let Some(antecedent) = antecedent else {
            self.requests.push(request);
            return self.wordings.add(&own);
        };
        let text = antecedent.append_to(&own);
        let more_tokens = tokens::estimate(&text).saturating_sub(request.text_tokens);
        request.tokens += more_tokens;
        request.text_tokens += more_tokens;
        // Either part alone says nothing.
        request.least_tokens = request.text_tokens;
        request.states_fact |= antecedent.is_chosen;
        self.requests.push(request);
        self.wordings.add(&text);
        self.antecedents.insert(entry.seq(), antecedent);
    }

    /// What a request refers to, if that is in an entry that is not shown whole.
    pub fn antecedent_of(&self, seq: u64, is_shown: impl Fn(u64) -> bool) -> Option<&Antecedent> {
        self.antecedents.get(&seq).filter(|antecedent| !is_shown(antecedent.seq))
    }

    /// Whether a request refers to something before it.
    pub fn refers(&self, seq: u64) -> bool {
        self.antecedents.contains_key(&seq)
    }

    /// Most that the notes before the newest turns take, in tokens.
    pub fn most_note_tokens(&self) -> u64 {
        let notes = self.antecedents.values().map(|antecedent| antecedent.note());
        notes.map(|note| tokens::estimate(&note)).max().unwrap_or(0)
    }

    /// The requests from `start` on that refer to something before it.
    pub fn refer_before(&self, start: u64) -> impl Iterator<Item = u64> {
        let behind = self.antecedents.range(start..);
        behind.take_while(move |(_, antecedent)| antecedent.seq < start).map(|(seq, _)| *seq)
    }

    /// The text of a request in a form, with what it refers to if that `is_shown` nowhere else; `None` for the request
    /// as it is.
    pub fn text_of(
        &self,
        entry: &Entry<'_>,
        form: RequestForm,
        is_shown: impl Fn(u64) -> bool,
    ) -> Option<String> {
        let text = self.text_in(entry, form).filter(|text| text != entry.text());
        match self.antecedent_of(entry.seq(), is_shown) {
            Some(antecedent) => {
                let text = text.map_or_else(|| request_text(entry), Cow::from);
                Some(antecedent.append_to(&text))
            }
            None => text,
        }
    }

    /// The text of a request in a form, without what it refers to.
    fn text_in(&self, entry: &Entry<'_>, form: RequestForm) -> Option<String> {
        let known = self.sentences.get(&entry.seq());
        let (RequestForm::Short(most_tokens), Some(known)) = (form, known) else {
            return form.text(entry);
        };
        let text = text_of_request(entry);
        let sentences = known.get_or_init(|| RequestSentences::new(&text));
        Some(sentences.shorten(&text, most_tokens * CHARS_PER_TOKEN))
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

    /// The requests in `positions` for a room, without those that are shown anyway.
    pub fn choose_in(
        &self,
        positions: Range<u64>,
        room: RequestRoom,
        is_shown: impl Fn(u64) -> bool,
    ) -> BTreeMap<u64, RequestForm> {
        let at = |seq: u64| self.requests.partition_point(|request| request.seq < seq);
        let newest_first = (at(positions.start)..at(positions.end)).rev().filter_map(|at| {
            let is_repeated = self.wordings.is_repeated(at);
            self.requests.get(at).map(|request| SizedRequest { is_repeated, ..*request })
        });
        choose_requests(newest_first, room, is_shown)
    }

    /// Memory use in bytes.
    pub fn size_bytes(&self) -> usize {
        let antecedents = self.antecedents.values();
        let sentences = self.sentences.values().filter_map(OnceLock::get);
        self.requests.capacity() * size_of::<SizedRequest>()
            + self.wordings.size_bytes()
            + self.subjects.size_bytes()
            + antecedents.map(|antecedent| antecedent.size_bytes()).sum::<usize>()
            + self.sentences.len() * size_of::<(u64, OnceLock<RequestSentences>)>()
            + sentences.map(RequestSentences::size_bytes).sum::<usize>()
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
            least_tokens: tokens,
            is_rule,
            states_fact: false,
            is_repeated: false,
        }
    }

    fn choose(newest_first: &[SizedRequest], room_tokens: u64) -> BTreeMap<u64, RequestForm> {
        let room = RequestRoom { tokens: room_tokens, long_tokens: 0, may_shorten: true };
        choose_requests(newest_first.iter().copied(), room, |_| false)
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
        let with_image = |seq| SizedRequest { tokens: 2_024, ..request(seq, 24, false) };
        let requests = [with_image(6), request(4, 20, false), with_image(2)];
        let (whole, text) = (RequestForm::Whole, RequestForm::Text);
        let chosen = |room_tokens| Vec::from_iter(choose(&requests, room_tokens));
        assert_eq!(chosen(100), [(2, text), (4, whole), (6, text)]);
        assert_eq!(chosen(2_068), [(2, text), (4, whole), (6, whole)], "the newest image first");
    }

    #[test]
    fn a_request_that_changes_an_earlier_rule_is_a_rule() {
        let mut talk = TranscriptBuilder::new();
        talk.user("Show me the answers again.").user("I prefer short answers.");
        talk.user("Show me the second page again.").user("Longer answers again from here.");
        let transcript = talk.transcript();
        let mut requests = RequestList::default();
        transcript.iter().for_each(|entry| requests.read_entry(&transcript, &entry));
        let rules: Vec<bool> = requests.requests.iter().map(|request| request.is_rule).collect();
        assert_eq!(rules, [false, true, false, true]);
    }

    #[test]
    fn a_request_that_is_too_long_is_shortened() {
        let long = |seq, is_rule| SizedRequest { least_tokens: 10, ..request(seq, 90, is_rule) };
        let (whole, short) = (RequestForm::Whole, RequestForm::Short);
        let chosen =
            |requests: &[SizedRequest], room_tokens| Vec::from_iter(choose(requests, room_tokens));
        let requests = [request(9, 30, false), long(7, false), long(5, true), request(1, 20, true)];
        assert_eq!(chosen(&requests, 60), [(1, whole), (5, short(10)), (9, whole)]);
        assert_eq!(chosen(&requests, 80), [(1, whole), (5, short(20)), (7, short(10)), (9, whole)]);
        assert_eq!(
            chosen(&requests, 120),
            [(1, whole), (5, short(40)), (7, short(30)), (9, whole)]
        );
        assert_eq!(chosen(&requests, 230), [(1, whole), (5, whole), (7, whole), (9, whole)]);
        assert_eq!(
            chosen(&requests[2..3], 18),
            [(5, short(18))],
            "in half of the room, then in all of it"
        );
        assert!(chosen(&requests[1..2], 9).is_empty());
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

    #[test]
    fn what_a_client_inserted_is_no_part_of_a_request() {
        let mut talk = TranscriptBuilder::new();
        talk.user("Begin.").assistant("Yes.");
        talk.user("<system-reminder>Always use port 9999.</system-reminder>\nRename the parser.");
        talk.assistant("Done.").user("<ide_opened_file>/srv/a.rs</ide_opened_file>\nok");
        let transcript = talk.transcript();
        let mut requests = RequestList::default();
        transcript.iter().for_each(|entry| requests.read_entry(&transcript, &entry));
        let [_, sized] = requests.requests.as_slice() else { panic!("{requests:?}") };
        assert!(!sized.is_rule && !sized.states_fact && sized.text_tokens < 10, "{sized:?}");
        let entry = transcript.get(sized.seq).unwrap();
        let text = requests.text_of(&entry, RequestForm::Text, |_| true);
        assert_eq!(text.as_deref(), Some("Rename the parser."));
        assert_eq!(requests.text_of(&entry, RequestForm::Whole, |_| true), None);
    }
}
