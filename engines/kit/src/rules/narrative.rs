//! Sentences that have a cue of a rule and state none: narrative, thanks, suppositions, exceptions for once, and what
//! another person wants.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

use super::matches;

/// English adverbs that are a cue in an order, and a narrative before a verb in the past.
const FREQUENCY_WORDS: [&str; 2] = ["always", "never"];
/// Words before such an adverb that put the verb behind it in the past.
const PAST_AUXILIARIES: [&str; 14] = [
    "have", "has", "had", "i've", "we've", "you've", "they've", "it's", "i'd", "was", "were",
    "did", "didn't", "wasn't",
];
/// Words before such an adverb that make the verb behind it a participle: "secrets are never logged".
const PASSIVE_AUXILIARIES: [&str; 9] =
    ["is", "are", "be", "get", "gets", "must", "should", "shall", "stay"];
/// Irregular verbs in the past.
const PAST_VERBS: &str = concat!(
    "was were had did went knew thought saw got came made took found felt ran gave been wrote became ",
    "kept left lost meant met paid sent slept spent stood taught understood won broke chose drove ate fell ",
    "flew forgot grew held spoke stole threw wore known seen done gone given taken bought brought built",
);
/// Verbs that end in "ed" and are not in the past.
const PRESENT_VERBS: &str =
    "need feed seed embed exceed proceed succeed speed shed heed breed bleed weed";

/// Parts of a sentence with a cue that is none there.
const NARRATIVE_PATTERN: &str = concat!(
    r"(?i)\bused to (?:always|never)\b|\bnever ?mind\b|\b(?:as|like) always\b|\bnever[- ]ending\b",
    // Plans of the user, not orders.
    r"|\b(?:i|we)(?:'ll|’ll| will)(?: also| definitely| certainly| just)? (?:make sure|be sure to|keep in mind|avoid|remember (?:that|to))\b",
    r"|\bmust (?:have (?:been|had)|say|admit|confess)\b",
    // Thanks.
    r"|\bi(?: really)? (?:like|love)(?: how| your| you| these| those| what you| the way)\b",
    r"|\bi(?: really)? (?:like|love) (?:it|this|that|them)(?: (?:so much|very much|a lot|too|already|all|now))?\s*(?:[.!,;:)]|$)",
    // German, French, Spanish, Portuguese, Italian, Dutch.
    r"|\b(?:noch|schon) (?:nie|immer)\b|\bimmer (?:noch|wieder|mehr)\b|\b(?:war|waren|wurde|wurden)(?: [^ ,]+){0,2} (?:immer|niemals|nie)\b",
    r"|\b(?:hat|habe|haben|hatte|hatten)\b[^,;]*\b(?:immer|niemals|nie)\b[^,;]*\b(?:ge[^ ,]+(?:t|en)|[^ ,]+iert)\b",
    r"|(?:\b|')(?:ai|as|a|avons|avez|ont|avais|avait|avaient|était|étaient) (?:toujours|jamais)\b",
    r"|\b(?:siempre|nunca) (?:he|ha|hemos|han|había[^ ,]*|quise|fue|fui|era|tuve|tuvo|[^ ,]+(?:ó|aba|aban))\b|\b(?:he|ha|hemos|han|había) (?:siempre|nunca)\b",
    r"|\b(?:sempre|nunca) (?:tive|quis|fui|foi|era|[^ ,]+(?:ou|ava|avam))\b|\b(?:ho|hai|ha|abbiamo|avete|hanno|era|avevo|aveva) sempre\b",
    r"|\b(?:heb|hebt|heeft|hebben|had|hadden|was|waren)(?: [^ ,]+){0,2} (?:altijd|nooit)\b",
    // Polish, Russian, Ukrainian, Turkish, Chinese.
    r"|\b(?:zawsze|nigdy)(?: nie)? [^ ,]+(?:łem|łam|ł|ło|ły)\b",
    r"|\b(?:всегда|никогда|завжди|ніколи)(?: не)? [^ ,]+(?:л|ла|ло|ли|лся|лась|лось|лись|в|вся)\b",
    r"|\b(?:her zaman|asla) [^ ,]+(?:dım|dim|dum|düm|tım|tim|dık|dik)\b|我们?不要",
);
/// Orders for once.
const ONCE_PATTERN: &str = concat!(
    r"(?i)\b(?:(?:just|only) (?:for )?this (?:once|time|one time)|this (?:once|time) only|(?:nur|bloß) (?:dieses|diesmal|dies eine)(?: eine)?(?: mal)?|ausnahmsweise",
    r"|(?:juste|seulement|uniquement) (?:pour )?cette fois|(?:solo|sólo|só|soltanto) (?:por )?(?:esta|desta|questa) (?:vez|volta)|alleen (?:deze keer|ditmaal)|tylko tym razem",
    r"|только (?:в|на) этот раз|лише цього разу|тільки цього разу|(?:sadece )?bu seferlik|hanya kali ini|chỉ lần này)\b",
    r"|仅此一次|就这一?次|只这一?次|今回だけ|今回に限り|이번(?:에)?만|هذه المرة فقط|(?:सिर्फ़|सिर्फ|केवल) इस बार",
);
/// Suppositions: "if we always retried, the queue would grow".
const SUPPOSED_PATTERN: &str = concat!(
    r"(?i)^(?:(?:and|but|und|et|y|e|a|но|и) )?(?:if|wenn|falls|si|se|als|gdyby[^ ,]*|если|якщо)\b.*(?:\b(?:would|wouldn['’]t|würde[^ ,]*|wäre[^ ,]*",
    r"|serait|seraient|aurait|ferait|pourrait|sería|haría|tendría|seria|faria|teria|sarebbe|farebbe|avrebbe|zou|zouden|byłoby|бы|би)\b|['’]d\b)",
);
/// Wishes and polite orders in the same form.
const WISH_PATTERN: &str = r"(?i)\bwould (?:like|prefer|rather|love|appreciate|you)\b|\byou would\b|\b(?:i|you|we)['’]d\b|\b(?:ich|du) würde";
/// What another person wants and the user rejects in the same sentence.
const REFUSED_PATTERN: &str = concat!(
    r"(?i)\b(?:sa(?:ys?|id)|wrote|writes|claims?|claimed|thinks?|insists?|recommends?|suggests?|wants|sagt|meint|schreibt|findet|dit|écrit|veut|dice|escribe|diz|escreve|scrive",
    r"|zegt|schrijft|mówi|pisze|говорит|пишет|считает|каже|пише|diyor|bilang|nói)\b.*",
    r"(?:\b(?:i (?:disagree|don['’]?t|do not|won['’]t)|we (?:don['’]?t|do not|won['’]t|disagree)|but (?:that['’]s|that is) (?:wrong|nonsense)|but not (?:here|us|me)|ignore (?:it|that)",
    r"|ich (?:will|möchte|mag|sehe) (?:das|es|dies) (?:nicht|anders)|ich nicht|stimmt (?:aber )?nicht|moi non|pas moi|yo no|no estoy de acuerdo|eu não|discordo|io no|non sono d'accordo|ik niet|ja nie|nie zgadzam",
    r"|я (?:не|против)|я ні|ben istemiyorum|katılmıyorum|saya tidak|tôi không)\b)",
);
/// A sentence that rejects the one before it.
const REJECTION_PATTERN: &str = concat!(
    r"(?i)^(?:(?:but|please|and|so|just|aber|bitte|also|mais|pero|mas|ma|maar|но|пожалуйста),? )*(?:",
    r"(?:ignore|disregard|forget|skip|don['’]t (?:do|follow|apply|believe)|do not (?:do|follow|apply|believe)) (?:it|that|this|him|her|them)(?: here| though| please)?",
    r"|(?:i|we) (?:disagree|don['’]t (?:agree|do (?:it|that)|follow (?:it|that)|want (?:it|that))|do not (?:agree|follow (?:it|that)|want (?:it|that)))(?: with (?:it|that|him|her|them))?(?: here| though)?",
    r"|(?:that|this|it)(?:['’]s| is) (?:wrong|nonsense|outdated|obsolete|no(?:t| longer) true|false|not (?:how|what) we [^.]*)|not true|wrong|nonsense",
    r"|(?:ignorier[^ ,]*|vergiss|vergesst|beachte) (?:das|es|ihn|sie)(?: nicht)?|das (?:stimmt|gilt) (?:hier |so )?nicht|das ist (?:falsch|veraltet|unsinn|quatsch)|ich (?:will|möchte|sehe) (?:das|es) (?:nicht|anders)",
    r"|(?:ignore|ignorez|oublie|oubliez)(?:[- ](?:le|la|les|ça|cela))|c'est faux|je ne suis pas d'accord|ign[oó]r(?:alo|ala|elo)|olvídalo|no es cierto|no estoy de acuerdo",
    r"|(?:ignore|esque(?:ça|ce)) (?:isso|isto)|não concordo|(?:ignora|dimentica)l[oa]|non è vero|non sono d'accordo|(?:negeer|vergeet) (?:dat|het|dit)|dat klopt niet|zignoruj to|zapomnij o tym|to nieprawda",
    r"|(?:игнорируй(?:те)?|забудь(?:те)?) (?:это|его|об этом)|это (?:не так|неправда|неверно)|я не согласен|я не согласна|(?:ігноруй|забудь) це|це не так",
    r"|bunu (?:görmezden gel|unut|dikkate alma)|(?:abaikan|lupakan) (?:itu|saja)|bỏ qua (?:nó|điều đó)",
    r"|别管(?:它|这个)|不用(?:管|理)(?:它|这个)|忽略(?:它|这个)|无视(?:它|这个)|(?:それは)?無視して(?:ください)?|그건 무시해(?: ?주세요)?|무시해(?: ?주세요)?|تجاهل (?:ذلك|هذا)|इसे अनदेखा (?:करो|करें)",
    r")\s*[.!。！।]*$",
);
/// Texts that the user hands over to be worked on, or orders: "translate: never touch it", "a test that we never retry".
const HANDED_OVER_PATTERN: &str = concat!(
    r"(?i)^(?:(?:please|now|then|can you|could you|and|bitte|und|por favor|пожалуйста|lütfen|tolong),? )*(?:",
    // All that stands behind the colon.
    r"(?:translate|summari[sz]e|paraphrase|rephrase|proofread|shorten|correct|übersetze?|fasse?|korrigiere?|kürze?|traduis|traduisez|résume[rz]?|corrige[rz]?|traduce|traduzca|resume|traduza|traduz|resuma|corrija",
    r"|traduci|riassumi|correggi|vertaal|vat|przetłumacz|streść|popraw|переведи(?:те)?|перескажи(?:те)?|исправь(?:те)?|переклади|виправ|çevir|özetle|terjemahkan|ringkas|dịch|tóm tắt)\b[^:：]*[:：].*",
    r"|(?:here is|here['’]s|this is|(?:hier|das) ist|voici|aquí (?:está|tienes)|aqui está|ecco|hier is|oto|вот|ось) [^:：]*[:：].*",
    r"|(?:draft|write|compose|send|schreibe?|verfasse?|écri[st]|rédige[rz]?|escribe|redacta|escreva|redija|scrivi|schrijf|napisz|напиши(?:те)?) (?:an?|the|me|us|him|her|them|to|einen?|eine|ein|mir|une?|una?|uma?|un|een|ответ|письмо) [^:：]*[:：].*",
    // What the text, the test or the answer is to say.
    r"|(?:draft|write|compose|send|tell|explain|describe|check|verify|find|show|see|test|ask|schreibe?|verfasse?|erkläre?|prüfe?|finde|écri[st]|rédige[rz]?|explique[rz]?|vérifie[rz]?|escribe|redacta|explica|comprueba|escreva|explique|verifique",
    r"|scrivi|spiega|controlla|schrijf|controleer|napisz|wyjaśnij|sprawdź|напиши(?:те)?|объясни(?:те)?|проверь(?:те)?|напиши|поясни|перевір) (?:[^,;:]*,? )?(?:that|why|where|whether|how|if|dass|warum|wo|ob|que|pourquoi|si|por qué|por que|che|perché|dat|waarom|że|dlaczego|czy|что|почему|где|що|чому)\b.*)",
    r"|^(?:the |an? )?(?:error|warning|exception|compiler|linter|log|console|output|message)[^:]{0,40}(?:says|reads|shows|prints|states)\s?:.*",
    r"|^(?:请|請)?(?:帮我|幫我)?(?:翻译|翻譯|总结|總結|校对)[^:：]*[:：].*|(?:訳して|翻訳して|要約して)[^:：]*[:：].*|(?:번역|요약)[^:：]*[:：].*|^(?:ترجم|لخص)[^:]*:.*|(?:अनुवाद|सारांश)[^:]*:.*",
);
/// Bans whose object is only a pronoun: the sentence before says what they forbid.
const PRONOUN_BAN_PATTERN: &str = concat!(
    r"(?i)^(?:(?:but|so|and|please|aber|bitte|und|mais|et|pero|y|mas|ma|e|maar|en|но|и),? )*(?:",
    r"(?:do not|don['’]t|never|please don['’]t) [^ ,]+ (?:it|that|this|them|those|these)",
    r"|(?:mach|mache|macht|tu|änder|ändere|lösche?|fass) (?:das|es|sie|ihn|dies)|ne (?:le|la|les) [^ ,]+ pas|ne fai[st] pas (?:ça|cela)|no l[oa]s? [^ ,]+|não (?:o|a|os|as) [^ ,]+|não faça isso|non (?:farlo|toccarlo|cambiarlo)",
    r"|(?:doe|verander|raak) (?:het|dat|dit)|nie rób (?:tego|go)|не (?:делай|меняй|трогай|удаляй)(?:те)? (?:это|его|её|их)|не роби цього|bunu [^ ,]+m[ae](?:yın|yin)?|jangan [^ ,]+ itu|đừng [^ ,]+ (?:nó|điều đó)",
    r")(?: (?:now|yet|today|again|anymore|ever|at all|here|jetzt|noch|heute|nicht|niet|nu|maintenant|encore|ahora|todavía|agora|ainda|adesso|ora|teraz|сейчас|пока|зараз|şimdi|sekarang|bây giờ))*\s*[.!]*$",
    r"|^(?:现在|現在|先)?(?:不要|别)(?:现在|現在)?(?:做|动|改|碰)(?:它|这个|那个)?[。！]?$|^(?:今は|まだ)?(?:それを)?しないで(?:ください|下さい)?[。！]?$",
);
/// What a sentence quotes.
const QUOTED_PATTERN: &str =
    r#""[^"]+"|“[^”]+”|„[^“”]+[“”]|«[^»]+»|「[^」]+」|『[^』]+』|`[^`]+`|(?:^|[\s(:])'[^']+'"#;

static NARRATIVE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(NARRATIVE_PATTERN).ok());
static ONCE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(ONCE_PATTERN).ok());
static SUPPOSED: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(SUPPOSED_PATTERN).ok());
static WISH: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(WISH_PATTERN).ok());
static REFUSED: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(REFUSED_PATTERN).ok());
static HANDED_OVER: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(HANDED_OVER_PATTERN).ok());
static REJECTION: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(REJECTION_PATTERN).ok());
static PRONOUN_BAN: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(PRONOUN_BAN_PATTERN).ok());
static QUOTED: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(QUOTED_PATTERN).ok());

/// Whether a sentence with a cue orders nothing that lasts.
pub(super) fn orders_nothing(line: &str) -> bool {
    let is_supposed = matches(&SUPPOSED, line) && !matches(&WISH, line);
    is_supposed || matches(&ONCE, line) || matches(&REFUSED, line)
}

/// Whether a sentence rejects the one before it: "Ignore that."
pub(crate) fn rejects_previous(sentence: &str) -> bool {
    matches(&REJECTION, sentence.trim())
}

/// Whether only the sentence before says what a ban forbids: "Do not do it now."
pub(super) fn forbids_previous(sentence: &str) -> bool {
    matches(&PRONOUN_BAN, sentence.trim())
}

/// Whether a sentence announces a text that the user hands over, which begins with the next one.
pub(super) fn hands_over(sentence: &str) -> bool {
    sentence.trim_end().ends_with([':', '：']) && matches(&HANDED_OVER, sentence.trim())
}

/// A sentence without what it narrates, hands over or quotes. Cues in the rest are those of a rule.
pub(super) fn without_narrative(line: &str) -> String {
    let unquoted = replace(&QUOTED, line);
    // A sentence that is nothing but a quotation, or names a value by it, is read whole.
    let is_bare = !unquoted.contains(char::is_alphanumeric);
    let rest = if is_bare { Cow::Borrowed(line) } else { unquoted };
    let rest = replace(&HANDED_OVER, rest.trim());
    let rest = replace(&NARRATIVE, &rest);
    let words: Vec<&str> = rest.split_whitespace().collect();
    let lower: Vec<String> = words.iter().map(|word| bare_word(word)).collect();
    let kept = words.iter().enumerate().filter(|(at, _)| !is_past(&lower, *at));
    kept.map(|(_, word)| *word).collect::<Vec<_>>().join(" ")
}

/// Whether the word at a place is "always" or "never" before a verb in the past.
fn is_past(words: &[String], at: usize) -> bool {
    let word_at = |at: Option<usize>| at.and_then(|at| words.get(at)).map_or("", String::as_str);
    if !FREQUENCY_WORDS.contains(&word_at(Some(at))) {
        return false;
    }
    let before = word_at(at.checked_sub(1));
    let subject = word_at(at.checked_sub(2));
    // "Have always two reviewers" is an order.
    if PAST_AUXILIARIES.contains(&before) && (before != "have" || !subject.is_empty()) {
        return true;
    }
    if matches!(before, "would" | "wouldn't") {
        return !matches!(subject, "i" | "we" | "you");
    }
    let next = word_at(at.checked_add(1));
    let is_listed = |list: &str| list.split(' ').any(|verb| verb == next);
    let is_past = next.ends_with("ed") && !is_listed(PRESENT_VERBS) || is_listed(PAST_VERBS);
    is_past && !PASSIVE_AUXILIARIES.contains(&before)
}

fn bare_word(word: &str) -> String {
    let word = word.trim_matches(|c: char| !c.is_alphanumeric());
    word.to_lowercase().replace('’', "'")
}

fn replace<'t>(pattern: &LazyLock<Option<Regex>>, text: &'t str) -> Cow<'t, str> {
    pattern.as_ref().map_or(Cow::Borrowed(text), |pattern| pattern.replace_all(text, " "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::find_rules;

    fn rules(text: &str) -> Vec<String> {
        find_rules(text).collect()
    }

    #[test]
    fn the_patterns_compile() {
        let all = [
            &PRONOUN_BAN,
            &NARRATIVE,
            &HANDED_OVER,
            &ONCE,
            &SUPPOSED,
            &WISH,
            &REFUSED,
            &REJECTION,
            &QUOTED,
        ];
        assert!(all.iter().all(|pattern| pattern.is_some()));
    }

    #[test]
    fn narrative_and_thanks_are_no_rules() {
        for text in [
            "I never managed to build it on the old laptop.",
            "We have always had trouble with that vendor.",
            "My father always took the early train.",
            "Our team used to never review such changes.",
            "I've always been curious about compilers.",
            "I really like your explanation!",
            "I love that!",
            "It must have been a bad day.",
            "I'll make sure to read it tonight.",
            "Das hat hier noch nie jemanden gestört.",
            "Wir haben immer freitags gearbeitet.",
            "J'ai toujours aimé ce projet.",
            "Siempre quise aprender a programar.",
            "Sempre quis conhecer Lisboa.",
            "We hebben nooit problemen gehad.",
            "Nigdy nie widziałem takiego błędu.",
            "Он никогда не работал у меня.",
        ] {
            assert_eq!(rules(text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn suppositions_and_orders_for_once_are_no_rules() {
        for text in [
            "If the client never closed its sockets, the server would run out of them.",
            "If it would never sleep, the battery'd be empty by noon.",
            "Wenn wir immer alles laden, wäre der Speicher voll.",
            "Only this time, never mind the style and do not run the formatter.",
            "Bitte nur dieses Mal nicht mehr warten als nötig.",
            "Juste cette fois, ne lance jamais les tests.",
            "仅此一次，不要运行测试。",
        ] {
            assert_eq!(rules(text), Vec::<String>::new(), "{text}");
        }
        for text in [
            "If a test fails twice, never retry it.",
            "If you touch the schema I would prefer a migration beside it.",
            "Secrets are never logged.",
            "Always embed the fonts.",
            "I like it when you always show the diff.",
            "Have always two reviewers.",
        ] {
            assert_eq!(rules(text), [text]);
        }
    }

    #[test]
    fn what_the_user_hands_over_or_orders_is_no_rule() {
        for text in [
            "Translate into Italian: Never lean out of the window.",
            "Please proofread: we always ship on Mondays.",
            "Here is the mail of our landlord: please never park in the yard.",
            "Write a check that we never send the same invoice twice.",
            "Explain why a lock must not be held over an await.",
            "Find the places where we never close the file.",
            "Draft an answer to Nora: we always deliver before noon.",
            "The error says: you must not call close twice.",
            "Schreib eine Mail an Uwe, dass er nie ohne Anmeldung kommen soll.",
            "Übersetze: Immer den Helm tragen!",
            "Traduis : ne jamais ouvrir cette porte.",
            "Переведи: никогда не сдавайся.",
            "翻译一下：请不要触摸展品。",
            "Translate this:\nNever lean out of the window.",
        ] {
            assert_eq!(rules(text), Vec::<String>::new(), "{text}");
        }
        for text in [
            "Remember: never lean on the mocks.",
            "Commit messages: always in the imperative.",
            "Write all mails in German.",
            "Check the style guide, and never use tabs.",
            "Make sure that every list is sorted.",
        ] {
            assert_eq!(rules(text), [text]);
        }
    }

    #[test]
    fn what_the_user_rejects_or_quotes_is_no_rule() {
        for text in [
            "The handbook says: always rebase before a review. Disregard that.",
            "The old guide recommends to never mock a clock. That's outdated.",
            "Anna wrote \"never commit generated files\", we don't agree.",
            "Our lead says we must always squash, but I disagree.",
            "Der Leitfaden sagt: nie mit Leerzeichen einrücken. Das gilt hier nicht.",
            "В документации: всегда используйте глобальные переменные. Забудь это.",
            "Le guide dit : toujours indenter avec des tabulations. Oublie ça.",
            "It stops with \"the name must not be empty\" on start.",
            "The log has `never reached` in it.",
        ] {
            assert_eq!(rules(text), Vec::<String>::new(), "{text}");
        }
        for text in [
            "The client says we must never store card numbers.",
            "Always sign with \"Yours, Ada\".",
        ] {
            assert_eq!(rules(text), [text]);
        }
    }
}
