//! What tells two rules apart that have words in common: the billing service and the search service are two things.
//!
//! A rule that is kept too long costs a line. A lost "never" costs data, so a doubt keeps both.

use std::sync::LazyLock;

use ctxhost_text::hash::fnv1a;
use ctxhost_text::identifiers::is_unspaced;
use ctxhost_text::search::distinct_terms;
use regex::Regex;

use super::changes::word_pattern;
use super::matches;
use super::subject::{bare_word, is_common, is_value};
use super::things::sets_value;

/// Words that tell no thing from another: verbs of most orders, and adverbs.
const GENERIC_WORDS: &str = concat!(
    "run running make add keep put get set do need want begin end touch edit change changed modify write written writing merge use used using let have lets answer answers question questions reply respond response responses speak talk tell say said give show help switch back go ask check ",
    "anywhere everywhere anything everything thing things ever even yet still now today tomorrow already really very well only always never first instead rather anymore longer more any time times circumstances ",
    "may can must should allowed allow permitted fine okay ok free needed necessary required wanted want safe plan correction rule rules ban freeze lock restriction exception please thanks sorry yes whole entire same ",
    "under between through without within because since after before while until during there here one ones lot bit way moment again language languages regular normal mind either too other others ",
    "nicht kein keine keinen immer nie niemals nur noch mehr jetzt nun wieder auch bitte mal mir mich uns dir dich euch ihr sie wir man kann kannst darf darfst dürfen könnt muss musst müssen soll sollst sollen ist sind war werden wird hier dort alles etwas doch lieber ab sofort heute ",
    "antworte antworten schreib schreibe schreiben sprich sprechen rede reden ändern ändere bearbeiten bearbeite verwenden verwende benutzen nutzen nutze erlaubt sprache lass haben hat habe an am vom beim als ohne unter ",
    "nouveau encore toujours jamais maintenant plus pas peux peut pouvez vous tu nous moi réponds répondre répondez écris écrire écrivez parle parler modifier modifie utiliser utilise est sont doit doivent ici tout aussi langue sans sous ce cette ces mon ma mes ton ta tes notre votre ",
    "siempre nunca ahora más puedes puede podemos usted yo mí responde responder escribe escribir habla hablar cambiar editar usar usa es son está debe deben aquí todo también idioma sin este esta estos estas mi mis tu tus nuestro otra vez ",
    "sempre agora mais pode podes podem você responda escreva escrever fale falar mudar é são deve devem aqui tudo também língua sem isso novo novamente mai ora puoi può rispondi rispondere scrivi scrivere parla modificare usare è sono qui tutto anche lingua senza ",
    "altijd nooit nu weer mag mogen kan kun kunt antwoord antwoorden schrijf schrijven spreek praat wijzigen gebruiken is zijn moet moeten hier alles ook taal zonder zawsze nigdy teraz możesz można odpowiadaj pisz pisać mów jest są musi tutaj wszystko ",
    "всегда никогда теперь сейчас снова опять можно можешь можете нельзя надо нужно отвечай отвечайте ответь пиши пишите писать говори изменять менять использовать используй это мне нам вам здесь всё все тоже завжди ніколи знову можна відповідай пиши ",
    "her zaman asla şimdi artık tekrar cevap ver yaz konuş kullan selalu jangan sekarang lagi boleh jawab tulis luôn không bây giờ trả lời viết استخدام الآن يمكنك",
);
/// Words that begin another part of a sentence, besides its marks.
const PART_WORDS: &str = "because since denn weil da car parce porque perché omdat want bo ponieważ потому так бо çünkü karena vì but aber mais pero mas ma maar ale но а";
/// Words of a ban.
const BAN_WORDS: &str = concat!(
    r"never|not|no|cannot|(?:do|does|must|should|can|wo)n['’]?t|avoid|stop|without|hands off|off[- ]limits|under no circumstances|nie|niemals|nicht|keine?[nrms]?|ohne|tabu",
    r"|jamais|pas|sans|nunca|jamás|sin|não|sem|non|mai|senza|nooit|niet|geen|zonder|nigdy|bez|никогда|не|нельзя|без|ніколи|ні|asla|jangan|đừng|không",
);
/// The same in scripts whose words have no spaces between them, and others.
const BAN_SIGNS: &str =
    "不要|不得|不能|不可|禁止|勿|别|決して|ないで|禁止|하지 ?마|지 ?마|절대|لا |ممنوع|मत |कभी न";
/// Words of a permission, or of the end of a duty.
const LIFT_WORDS: &str = concat!(
    r"(?:may|can|could)(?: now)? [^,;:]+|(?:is|are|it's|it’s|that's) (?:now |also |again )*(?:fine|ok|okay|allowed|permitted|acceptable|safe|possible|over|gone|lifted)|(?:no longer|not|[^ ]+n['’]t) (?:need|have|necessary|required|forbidden)|no need|can stop|feel free|allowed to|free to",
    r"|(?:darf|darfst|dürft|dürfen|kann|kannst|könnt|können) [^,;:]+|erlaubt|aufgehoben|(?:peux|peut|pouvez) [^,;:]+|permise?|autorisée?|puedes?|pueden|permitid[oa]s?|pode[ms]?|permitid[oa]s?|puoi|può|permess[oaie]|mag|mogen|toegestaan|możesz|można|wolno",
    r"|можно|можешь|можете|разрешено|можна|дозволено|bilirsin(?:iz)?|serbest|boleh|được phép|có thể",
);
/// The same in scripts whose words have no spaces between them, and others.
const LIFT_SIGNS: &str = "可以|不用再|不必再|ても(?:いい|よい|構いません)|해도|يمكنك|सकते";
/// Words between what a statement is about and its new value.
const STATEMENT_WORDS: &str = concat!(
    r"(?:is|are|goes|go|lives|live|runs|run) now|now (?:is|are|uses|use|goes|go|lives|runs)|(?:has |have |was |were |is |are )?(?:moved|changed|switched|migrated|renamed) to",
    r"|(?:ist|sind|läuft|liegt) (?:jetzt|nun|ab sofort)|est (?:maintenant|désormais)|es ahora|ahora es|está ahora|é agora|agora é|è ora|ora è|is nu|теперь",
);

/// Words at the end of an order that is for once.
const NOW_WORDS: &str =
    "now|jetzt|maintenant|ahora|agora|adesso|nu|teraz|сейчас|зараз|şimdi|sekarang|bây giờ";
/// Verbs of statements, which order nothing.
const STATED_VERBS: &str =
    "is|are|was|were|has|have|must|ist|sind|war|muss|est|sont|es|son|é|são|è|sono|zijn|jest|są";

/// Characters at the beginning that forms of a word share, in languages whose endings are not known.
const BEGINNING_CHARS: usize = 6;
/// Characters of the shortest word in a script without spaces.
const LEAST_SIGNS: usize = 2;

static BANS: LazyLock<Option<Regex>> = LazyLock::new(|| word_pattern(BAN_WORDS, BAN_SIGNS));
static LIFTS: LazyLock<Option<Regex>> = LazyLock::new(|| word_pattern(LIFT_WORDS, LIFT_SIGNS));
static NOW_ORDERS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(&format!(r"(?i)\s(?:{NOW_WORDS})[.!]*$")).ok());
static STATED: LazyLock<Option<Regex>> = LazyLock::new(|| word_pattern(STATED_VERBS, "[。！]$"));
static STATEMENTS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(&format!(r"(?i)\s(?:{STATEMENT_WORDS})\s")).ok());
static GENERIC_TERMS: LazyLock<Vec<u64>> = LazyLock::new(|| {
    let mut terms: Vec<u64> = GENERIC_WORDS.split(' ').flat_map(distinct_terms).collect();
    terms.sort_unstable();
    terms
});

/// A word that may tell a thing from another.
#[derive(Clone, Copy, Debug)]
struct RuleWord {
    term: u64,
    /// What other forms of it share.
    beginning: u64,
    /// Number of its part of the sentence.
    part: u32,
    /// Whether another one stands directly before it.
    has_modifier: bool,
}

impl RuleWord {
    fn is_in(&self, words: &[RuleWord]) -> bool {
        words.iter().any(|word| word.term == self.term || word.beginning == self.beginning)
    }
}

/// The words that tell the things of rules apart, and the form of the sentence.
#[derive(Clone, Debug, Default)]
pub(super) struct RuleDistinction {
    words: Vec<RuleWord>,
    /// All of the sentence, those of its cues included: "don't delete" is one.
    all: Vec<RuleWord>,
    /// Those of what a statement such as "the server is now b" is about.
    stated: Vec<RuleWord>,
    /// What is in a script without spaces.
    signs: String,
    pub(super) is_ban: bool,
    /// Whether it permits something, or ends a duty.
    pub(super) is_lift: bool,
    /// Whether it orders something for once: "run the migrations now".
    pub(super) is_order_for_now: bool,
    /// Whether it orders a value: "book aisle seats".
    pub(super) sets_value: bool,
}

impl RuleDistinction {
    /// Reads a rule, and the rest of it without cues, names and values.
    pub(super) fn read(rule: &str, rest: &str) -> RuleDistinction {
        let statement = STATEMENTS.as_ref().and_then(|pattern| pattern.find(rule));
        let stated = statement.and_then(|found| rule.get(..found.start())).map(words_of);
        let signs = rest.split(|c| !is_unspaced(c)).collect::<Vec<_>>().join(" ");
        RuleDistinction {
            words: words_of(rest),
            all: words_of(rule),
            stated: stated.unwrap_or_default(),
            signs,
            is_ban: matches(&BANS, rule),
            is_lift: matches(&LIFTS, rule),
            is_order_for_now: is_order_for_now(rule),
            sets_value: sets_value(rule),
        }
    }

    /// Whether both have a word that the other lacks, in the parts that are about the same.
    pub(super) fn differs_on_both_sides(&self, earlier: &RuleDistinction) -> bool {
        self.has_more_than(earlier) && earlier.has_more_than(self)
    }

    /// Whether it has a word that another rule lacks, in the parts that are about the same.
    pub(super) fn has_more_than(&self, other: &RuleDistinction) -> bool {
        let is_about =
            |part: u32| self.words.iter().any(|word| word.part == part && word.is_in(&other.all));
        // Without a common word it is not known which part is about the same.
        let is_known = self.words.iter().any(|word| word.is_in(&other.all));
        let mut more = self.words.iter().filter(|word| !word.is_in(&other.all));
        more.any(|word| !is_known || is_about(word.part))
    }

    /// Whether a common word has another word before it in each: "line length" and "file length".
    pub(super) fn has_other_modifier(&self, earlier: &RuleDistinction) -> bool {
        self.modifiers().any(|(modifier, word)| {
            let mut others = earlier.modifiers().filter(|(_, other)| other.term == word.term);
            others.any(|(other, _)| !other.is_in(&self.all)) && !modifier.is_in(&earlier.all)
        })
    }

    fn modifiers(&self) -> impl Iterator<Item = (&RuleWord, &RuleWord)> {
        let pairs = self.words.iter().zip(self.words.iter().skip(1));
        pairs.filter(|(_, word)| word.has_modifier)
    }

    /// Whether it is a statement about something that an earlier rule does not name.
    pub(super) fn states_another_thing(&self, earlier: &RuleDistinction) -> bool {
        !self.stated.is_empty() && !self.stated.iter().any(|word| word.is_in(&earlier.all))
    }

    /// Whether it begins with a word that an earlier rule lacks.
    pub(super) fn begins_with_another(&self, earlier: &RuleDistinction) -> bool {
        self.words.first().is_some_and(|word| !word.is_in(&earlier.all))
    }

    /// Whether an earlier rule forbids what it orders for once.
    pub(super) fn is_order_against(&self, earlier: &RuleDistinction) -> bool {
        self.is_order_for_now && earlier.is_ban && !self.is_ban
    }

    /// Whether it hardly holds for anything but all.
    pub(super) fn has_short_scope(&self) -> bool {
        self.words.len() <= 1
    }

    /// Whether what two rules about a language hold for is not the same: commit messages, or all answers.
    pub(super) fn has_other_scope(&self, earlier: &RuleDistinction) -> bool {
        let is_all = self.words.is_empty() && earlier.words.is_empty();
        !is_all && !self.words.iter().any(|word| word.is_in(&earlier.words))
    }

    /// The same as [`Self::differs_on_both_sides`] in a script without spaces: each has neighbouring characters that the
    /// other lacks.
    pub(super) fn has_other_signs(&self, earlier: &RuleDistinction) -> bool {
        has_signs_beside(&self.signs, &earlier.signs)
            && has_signs_beside(&earlier.signs, &self.signs)
    }

    /// Memory use in bytes, beside its own size.
    pub(super) fn size_bytes(&self) -> usize {
        let words = self.words.capacity() + self.all.capacity() + self.stated.capacity();
        words * size_of::<RuleWord>() + self.signs.capacity()
    }
}

/// Whether a sentence orders something that is to be done now.
pub(super) fn is_order_for_now(line: &str) -> bool {
    matches(&NOW_ORDERS, line) && !matches(&STATED, line) && !matches(&LIFTS, line)
}

/// Whether a text has neighbouring characters that another lacks. Kana are mostly endings.
fn has_signs_beside(text: &str, other: &str) -> bool {
    let is_kana = |c: char| ('\u{3040}'..='\u{30ff}').contains(&c);
    let runs = text.split(|c: char| c.is_whitespace() || is_kana(c) || other.contains(c));
    runs.into_iter().any(|run| run.chars().nth(LEAST_SIGNS - 1).is_some())
}

/// The words of a text that may tell things apart.
fn words_of(text: &str) -> Vec<RuleWord> {
    let mut words = Vec::new();
    let (mut part, mut is_adjacent) = (0, false);
    for word in text.split_whitespace() {
        let bare = bare_word(word);
        if PART_WORDS.split(' ').any(|begin| begin == bare) {
            part += 1;
        }
        // "UI" and "README" are things.
        let is_name = is_value(word) && !bare.chars().all(char::is_alphabetic);
        let may_distinguish = !is_common(word) && !is_name && !word.contains(is_unspaced);
        let terms = if may_distinguish { distinct_terms(&bare) } else { Vec::new() };
        let mut found = false;
        for term in terms.into_iter().filter(|term| GENERIC_TERMS.binary_search(term).is_err()) {
            let end = bare.char_indices().nth(BEGINNING_CHARS).map_or(bare.len(), |(at, _)| at);
            let beginning = fnv1a(bare.get(..end).unwrap_or_default());
            words.push(RuleWord { term, beginning, part, has_modifier: is_adjacent });
            found = true;
        }
        is_adjacent = found;
        if word.ends_with([',', ';', ':', '，', '；', '：', '–', '—']) {
            part += 1;
            is_adjacent = false;
        }
    }
    words
}
