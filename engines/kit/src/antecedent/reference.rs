//! How a short request refers to the messages before it: by the name of an option, by a word such as "that port", or by
//! agreeing to a proposal; in the languages most common among agents.

use std::sync::LazyLock;

use ctxhost_engine_api::transcript::tokens::weighted_chars;
use regex::Regex;

use super::MOST_REQUEST_CHARS;
use crate::dialogue::is_assent;
use crate::rules::find_rules;
use ctxhost_text::identifiers::for_each_identifier;

/// What a request refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reference {
    /// Items of a list.
    Options(Vec<OptionName>),
    /// Something with a name or a number. The words of the request, in lower case, say what it is.
    Name(Vec<String>),
    /// A question or a proposal, or else what was said last.
    Reply,
    /// The way that was not proposed.
    Other,
    /// A question, if there is one.
    Unknown,
    /// Nothing: it is long enough, or says "thanks" or "continue".
    Nothing,
}

/// Which item of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OptionName {
    /// The item at a place, from 0.
    Place(usize),
    /// The last item.
    Last,
    /// The item with this letter or number, in lower case.
    Label(String),
}

/// Most items that a request names.
const MOST_OPTIONS: usize = 4;
/// Words of a request that consists of "remember that" alone.
const BARE_WORDS: usize = 5;

/// Words of a request that only agrees, or refuses.
const REPLY_WORDS: usize = 4;
/// Words of a request for the other way.
const OTHER_WORDS: usize = 7;
/// Words of a request that only answers a question.
const ANSWER_WORDS: usize = 5;

/// Words for the first to the fifth item, and for the last one.
const PLACES: [&str; 6] = [
    r"(?i)\b(?:first|1st|former|number one|option one|erste[nrsm]?|erstere[nrsm]?|nummer eins|eerstgenoemde|1-?(?:й|я|е|ый|ая|ое|ю)|1(?:er|re|ère|[ºª])|premi(?:er|ère)|primer[oa]?|primeir[oa]|prim[oa]|eerste|pierwsz\w+|перв\w+|перш\w+|birinci\w*|ilkini?|thứ nhất|pertama)\b|第一|第1|一つ目|1つ目|一番目|1番目|最初の|前者|첫 ?번째|전자(?:로|를|요|$)|الأول|पहल[ाेी]",
    r"(?i)\b(?:second|2nd|number two|option two|nummer zwei|numéro deux|número (?:dos|dois)|2-?(?:й|я|е|ой|ая|ое|ую)|2(?:ème|[ºª])|zweite[nrsm]?|deuxième|seconde|segund[oa]|second[oa]|tweede|drug(?:i|ie|ą|a|iej|iego)|втор\w+|друг(?:ий|а|е|у|ого|ої)|ikinci\w*|thứ hai|kedua)\b|第二|第2|二つ目|2つ目|二番|2番目|2つめ|두 ?번째|الثاني|दूसर[ाेी]",
    r"(?i)\b(?:third|3rd|number three|option three|nummer drei|numéro trois|número (?:tres|três)|3-?(?:й|я|е|ий|ья|ье|ью)|3(?:ème|[ºª])|dritte[nrsm]?|troisième|tercer[oa]?|terceir[oa]|terz[oa]|derde|trzeci\w*|трет\w+|üçüncü\w*|thứ ba|ketiga)\b|第三|第3|三つ目|3つ目|三番|3番目|3つめ|세 ?번째|الثالث|तीसर[ाेी]",
    r"(?i)\b(?:fourth|4th|vierte[nrsm]?|quatrième|cuart[oa]|quart[oa]|vierde|czwart\w+|четв[её]рт\w+|dördüncü\w*|thứ tư|keempat)\b|第四|第4|四つ目|4つ目|네 ?번째|الرابع|चौथ[ाेी]",
    r"(?i)\b(?:fifth|5th|fünfte[nrsm]?|cinquième|quint[oa]|vijfde|piąt\w+|пят(?:ый|ая|ое|ую)|п'ят\w+|beşinci\w*|thứ năm|kelima)\b|第五|第5|五つ目|5つ目|다섯 ?번째|الخامس|पाँचव[ाेी]",
    r"(?i)\b(?:(?:the )?last(?: one| option)?|latter|letzte[nrsm]?|letztere[nrsm]?|laatstgenoemde|derni(?:er|ère)|últim[oa]|ultim[oa]|laatste|ostatni\w*|последн\w+|останн\w+|sonuncu\w*|cuối cùng|terakhir)\b|最后一|最後の|后者|後者|마지막|후자|الأخير|आखिरी",
];
/// The letter or number of an option behind a word for it.
const LABEL: &str = concat!(
    r"(?:\b(?i:option|variante?|alternative|choice|plan|approach|solution|proposal|number|no\.?|nr\.?|nummer|número|numéro|numero|item|point|punkt|",
    r"vorschlag|proposition|opción|opção|opzione|optie|opcj\w+|вариант\w*|варіант\w*|пункт\w*|seçenek|pilihan|opsi|phương án)\s*#?\s*|",
    r"(?:方案|选项|選項|選択肢|案|オプション|옵션|방안|الخيار|विकल्प)\s*)",
    r"(?:(?<upper>[A-H]|[1-9][0-9]?)(?:\b|番|번|个|個|を|で|に|로)|(?<lower>[a-h])\s*(?:[,.;:!?)]|$)|(?<kanji>[一二三四五]))",
);
/// A request that is hardly more than the letter or number of an option.
const BARE_LABEL: &str = concat!(
    r"^(?:(?i:ok(?:ay)?|yes|ja|no|nein|let'?s|do|use|take|go with|go for|nimm|nehmen wir|prends|usa|toma|pick|i'?d (?:take|prefer)|",
    r"the|die|den|das|der|la|le|el|il|het|de|давай|тогда)[\s,]+|(?:好|那|就|选|選|用|要)[，,\s]*)*",
    r"[(#]?(?<label>[A-Ha-h]|[1-9][0-9]?)[).]?\s*",
    // Counters and particles of languages without spaces between words.
    r"(?:番目?|号|號|个|個|つ目|번째?)?(?:の(?:方|ほう|案))?\s*(?:で|を|が|に|吧|로|으로)?\s*",
    r"(?:お願い\S*|おねがい\S*|いい\S*|よろしく\S*|やって\S*|使って\S*|해\s?\S*|할게요?|부탁\S*|요)?",
    r"(?:\s*(?:please|bitte))?\s*[.!。！]?$",
);
/// Requests for the one of two ways that was not proposed.
const OTHER: &str = concat!(
    r"(?i)\b(?:the other|the alternative|d(?:ie|en|as|er) andere[nrsm]?|l'autre|(?:el|la|lo) otr[oa]|[oa] outr[oa]|l'altr[oa]|(?:de|het) andere|t[ęaą] inn\w+|другой|другая|другое|другую|інш(?:ий|а|е|у|ого)|",
    r"diğeri\w*|öbürü\w*|öteki\w*|yang (?:lain(?:nya)?|satunya)|(?:cái|cách|phương án) (?:kia|khác|còn lại))",
    r"(?:[\s,]+(?:ones?|options?|ways?|approach|variante?|alternative|solution|choice|weg|lösung|opción|opção|opzione|optie|вариант|варіант|please|instead|then|bitte|lieber|dann|stattdessen|por favor|mejor|plutôt|s'il te plaît))*\s*[.!]?$",
    r"|另一[个個种種]|另外(?:那|一)?[个個种種]|もう一つ|もう一方|もうひとつ|他の(?:方|ほう|案)|別の(?:方|ほう|案)|다른 ?(?:거|것|걸|쪽|방법|하나|안)|나머지|الآخر|الأخرى|दूसर[ाेी] वाल[ाेी]",
);
/// Words that point back.
const POINTING: &str = r"that|this|those|these|its|dies\w*|jene\w*|cette?|cet|ese|esa|este|esta|esse|essa|quel\w*|questo|questa|dat|deze|dit|ten|tę|tego|этот|эту|это|той|цей|bu|şu|itu|ini|này|đó";
/// What has a name or a number.
const NAMED: &str = r"ids?|number|port|address|url|link|path|file(?:name)?|name|host(?:name)?|server|hash|commit|sha|ticket|issue|version|branch|tag|build|release|value|code|date|ip|endpoint|container|pod|cluster|bucket|table|account|email|nummer|adresse|pfad|datei|namen?|wert|zweig|numéro|adresse|chemin|fichier|nom|valeur|número|dirección|puerto|ruta|archivo|nombre|valor|endereço|porta|caminho|arquivo|nome|indirizzo|percorso|valore|numero|poort|pad|bestand|naam|waarde|numer|adres|ścieżka|plik|nazw\w+|номер\w*|адрес\w*|порт\w*|путь|файл\w*|им[яе]\w*|значени\w*|numara\w*|adres\w*|nomor|alamat|số|địa chỉ|cổng";
/// Requests to remember something.
const REMEMBER: &str = concat!(
    r"(?i)\b(?:remember|note|keep|save|store|write (?:that|this|it) down|memori[sz]e|merk\w*|notier\w*|speicher\w*|behalt\w*|retiens|recuerda|anota|guarda|lembr\w+|ricorda|annota|onthoud|noteer|zapamiętaj|запомни\w*|запиши\w*|запам'ятай\w*|hatırla|unutma|ingat|catat|nhớ)\b",
    r"|记住|記住|记下|覚えて|メモして|기억해|تذكر|احفظ|याद",
);
/// Agreement, refusal, and words for what was proposed.
const REPLY: &str = concat!(
    // At the beginning.
    r"(?i)^(?:ok(?:ay)?|yes|yep|yeah|sure|no|nope|agreed|exactly|right|correct|sounds? good|looks? good|lgtm|please do|both|neither|all of (?:them|those)|",
    r"ja|jo|klar|genau|nein|passt|einverstanden|gerne|in ordnung|oui|d'accord|vas-y|parfait|exactement|non|sí|si|vale|de acuerdo|hazlo|adelante|claro|sim|pode ser|faça|",
    r"sì|va bene|certo|esatto|procedi|doe dat|akkoord|graag|prima|nee|tak|zgoda|dobrze|zrób|nie|да|давай\w*|сделай|согласен|согласна|хорошо|именно|нет|так|зроби|згоден|добре|ні|",
    r"evet|tamam|olur|yap|hayır|ya|oke|lakukan|setuju|tidak|vâng|đúng|được|đồng ý|không)(?:[^\p{L}]|$)",
    // Anywhere.
    r"|\b(?:do (?:it|that|so|this)|go (?:ahead|with|for) (?:it|that|this|your|the)|go ahead|your (?:call|choice|proposal|suggestion|plan|idea|approach|recommendation)|as you (?:suggest|propos|said|say|like|wish|recommend)\w*|like that|that way|",
    r"mach (?:das|es|mal)|genau so|so machen|(?:dein|deine|deinen|deinem|ihr|ihren|ihrem) (?:vorschlag|plan|empfehlung|idee)|wie (?:du|vorgeschlagen)|fais(?:-le| ça| comme ça)|ta (?:proposition|suggestion)|ton (?:plan|idée)|comme (?:ça|tu)|",
    r"tu (?:propuesta|sugerencia|plan|idea)|como (?:dices|propones)|sua (?:proposta|sugestão)|faz isso|la tua proposta|fallo|fai così|jouw voorstel|twoj\w+ propozycj\w+|твоё|твой|твоему|как ты|senin önerin\w*|usulan\w*|đề xuất của bạn)\b",
    // Scripts without spaces between words, and others.
    r"|^(?:好|可以|行|对|對|是的|同意|没问题|不要|不行|はい|うん|そう|お願い|いいです|了解|いいえ|네|예|응|좋아|그래|아니|نعم|حسنا|موافق|لا\b|हाँ|हां|ठीक|नहीं)|就这样|就這樣|按你说的|照你说的|你的(?:方案|建议)|それで|その(?:案|方法|通り)|提案通り|그렇게|그대로|제안대로|افعل ذلك|اقتراحك|वही करो|ऐसा ही",
);
/// Words for what was proposed.
const PROPOSED_WORDS: &str = r"(?i)\b(?:proposal|suggestion|recommendation|your (?:plan|idea|approach)|as you|vorschlag|empfehlung|proposition|propuesta|sugerencia|proposta|sugestão|voorstel|propozycj\w+|önerin\w*|usulan\w*|đề xuất)\b";
/// Words that stand for what was said before.
const ANAPHORA: &str = r"(?i)\b(?:that|this|those|these|it|them|same|ones?|das|dies\w*|es|so|ça|cela|celui-ci|celle-ci|eso|esto|isso|isto|questo|quello|dat|dit|to|tak|это|эту|этот|его|её|так|це|цю|bunu|onu|itu|đó|này)\b|这个|這個|那个|那個|它|これ|それ|その|あれ|이거|그거|이걸|그걸|هذا|ذلك|यह|वह|इसे|उसे";
/// Those of them that are also an article, a determiner or a conjunction.
const AMBIGUOUS: &str = "that this those these one ones so das dies diese dieser diesen diesem dieses dat dit to tak это эту этот так це цю này đó";
/// Words behind which such a word has no noun.
const FOLLOWERS: &str = concat!(
    "in on at for from as to is was are when if and or but now then always never again instead everywhere ",
    "please with by until whenever too only here there before after because way ",
    "ab immer nie für bei auf und oder bitte jetzt so nicht auch künftig ist war ",
    "altijd nooit vanaf en of voor bij ook zawsze od i lub dla przy też ",
    "всегда с и или для при тоже теперь впредь завжди від з або",
);
/// Words before a noun that the rest of a sentence may refer to.
const DETERMINERS: &str = "a an the any every each all no our your my some both ein eine einen einem der die den dem jede jeder jedes jeden een de het elke";
/// Nouns of time and place, to which no pronoun refers.
const ADVERBIAL_NOUNS: &str = "time day case beginning start end moment future zukunft zeit fall";
/// Pronouns that a noun of the same sentence explains.
const PRONOUNS: &str = "it them es";

/// Words that only ask to go on, or thank.
const NOTHING: &str = r"(?i)^(?:(?:and|go on|continue|proceed|next|thanks|thank you|thx|weiter|mach weiter|danke|continue[rz]?|merci|continúa|sigue|gracias|continua|obrigad[oa]|grazie|ga (?:door|verder)|dank je|dalej|kontynuuj|dzięki|продолжай\w*|дальше|спасибо|далі|дякую|devam(?: et)?|teşekkürler|lanjut\w*|terima kasih|tiếp tục|cảm ơn|继续|繼續|谢谢|謝謝|続けて|ありがとう|계속\S*|고마워\S*|감사\S*|تابع|شكرا|जारी रखो|धन्यवाद|嗯)[\s,.!。，！]*)+$";

static PLACE_WORDS: LazyLock<Vec<Regex>> =
    LazyLock::new(|| PLACES.iter().filter_map(|pattern| Regex::new(pattern).ok()).collect());
static LABELS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(LABEL).ok());
static BARE_LABELS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(BARE_LABEL).ok());
static OTHERS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(OTHER).ok());
static NAMES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(&format!(r"(?i)\b(?:{POINTING})\s+(?:[\p{{L}}-]+\s+){{0,2}}(?:{NAMED})\b|(?:这个|那个|該|その|この|그|이)\s*(?:\S{{0,4}})(?:号|號|端口|地址|路径|番号|ポート|アドレス|번호|포트|주소)")).ok()
});
static REMEMBERING: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(REMEMBER).ok());
static REPLIES: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(REPLY).ok());
static PROPOSED: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(PROPOSED_WORDS).ok());
static ANAPHORS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(ANAPHORA).ok());
static NOTHINGS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(NOTHING).ok());

impl Reference {
    /// How a request refers to what was said before it.
    pub(super) fn of(request: &str) -> Reference {
        let request = request.trim();
        let is_short = !request.is_empty() && weighted_chars(request) <= MOST_REQUEST_CHARS;
        if !is_short || matches(&NOTHINGS, request) {
            return Reference::Nothing;
        }
        if is_assent(request) {
            return Reference::Reply;
        }
        let words = request.split_whitespace().count();
        // Before the places: in some languages the other one of two is the second.
        if words <= OTHER_WORDS && matches(&OTHERS, request) {
            return Reference::Other;
        }
        let names = option_names(request);
        if !names.is_empty() {
            return Reference::Options(names);
        }
        let is_bare = matches(&REMEMBERING, request) && words <= BARE_WORDS;
        if (points_at_name(request) || is_bare) && !states_name(request) {
            return Reference::Name(words_of(request));
        }
        // "Rename it" says what to do; "use that from now on" does not say what holds.
        let is_rule = || refers_back(request) && find_rules(request).next().is_some();
        let is_bare = words <= REPLY_WORDS || matches(&PROPOSED, request);
        if (matches(&REPLIES, request) && is_bare) || is_rule() {
            return Reference::Reply;
        }
        // "OK, create the branch feature-7 now" says itself what to do.
        if words <= ANSWER_WORDS { Reference::Unknown } else { Reference::Nothing }
    }
}

/// Whether a request consists of words that agree, refuse, thank or ask to go on.
pub(super) fn only_replies(request: &str) -> bool {
    let request = request.trim();
    let is_reply = || {
        let reply = REPLIES.as_ref().and_then(|pattern| pattern.find(request));
        let behind = reply.filter(|reply| reply.start() == 0).map(|reply| reply.end());
        let rest = behind.and_then(|end| request.get(end..));
        rest.is_some_and(|rest| !rest.contains(char::is_alphanumeric))
    };
    is_assent(request) || matches(&NOTHINGS, request) || is_reply()
}

/// Whether a request points at something with a name or a number.
fn points_at_name(request: &str) -> bool {
    let mut found = NAMES.iter().flat_map(|pattern| pattern.find_iter(request));
    // "Make sure that every endpoint" is a conjunction with a subject of its own.
    found.any(|name| {
        let next = name.as_str().split_whitespace().nth(1).unwrap_or_default();
        !is_listed(DETERMINERS, &next.to_lowercase())
    })
}

/// Whether a word of a request stands for something that was mentioned before the request.
fn refers_back(request: &str) -> bool {
    let mut found = ANAPHORS.iter().flat_map(|pattern| pattern.find_iter(request));
    found.any(|word| {
        let before = request.get(..word.start()).unwrap_or_default();
        let behind = request.get(word.end()..).unwrap_or_default();
        let lower = word.as_str().to_lowercase();
        if is_listed(AMBIGUOUS, &lower) {
            // "This repo" says what it is.
            has_no_noun(behind)
        } else {
            !(is_listed(PRONOUNS, &lower) && names_noun(before))
        }
    })
}

/// Whether the text behind a determiner begins without a noun.
fn has_no_noun(behind: &str) -> bool {
    let Some(rest) = behind.strip_prefix(char::is_whitespace) else {
        // A mark follows, or the request ends; "that's" is a pronoun with its verb.
        return !behind.starts_with('-');
    };
    let rest = rest.to_lowercase();
    let mut words = rest.split(|c: char| !c.is_alphanumeric());
    let next = words.next().unwrap_or_default();
    // "Do this every time", but "see that every test passes".
    let is_time = is_listed("every each", next)
        && words.next().is_some_and(|noun| is_listed(ADVERBIAL_NOUNS, noun));
    next.is_empty() || is_time || is_listed(FOLLOWERS, next)
}

/// Whether the sentence before a pronoun has a noun that it may refer to.
fn names_noun(before: &str) -> bool {
    let sentence = before.rsplit(['.', '!', '?']).next().unwrap_or_default();
    let words = words_of(sentence);
    // "The next time" is not what a pronoun refers to.
    let is_time =
        |at: usize| words.iter().skip(at + 1).take(2).any(|noun| is_listed(ADVERBIAL_NOUNS, noun));
    let mut determiners = words.iter().enumerate().filter(|(_, word)| is_listed(DETERMINERS, word));
    let has_noun = determiners.any(|(at, _)| !is_time(at));
    let is_plural = |word: &String| {
        word.len() > 3 && word.ends_with('s') && !matches!(word.as_str(), "always" | "this")
    };
    has_noun || words.iter().any(is_plural) || states_name(sentence)
}

/// Whether a word is in a list with spaces between the words.
fn is_listed(list: &str, word: &str) -> bool {
    list.split(' ').any(|listed| listed == word)
}

/// The items of a list that a request names.
fn option_names(request: &str) -> Vec<OptionName> {
    let label = |found: regex::Match<'_>| OptionName::Label(found.as_str().to_lowercase());
    let bare = BARE_LABELS.as_ref().and_then(|pattern| pattern.captures(request));
    if let Some(found) = bare.as_ref().and_then(|found| found.name("label")) {
        return vec![label(found)];
    }
    let mut names: Vec<OptionName> = Vec::new();
    let labels = LABELS.iter().flat_map(|pattern| pattern.captures_iter(request));
    for found in labels {
        let kanji = found.name("kanji").and_then(|kanji| "一二三四五".find(kanji.as_str()));
        let name = match kanji {
            Some(at) => Some(OptionName::Place(at / "一".len())),
            None => found.name("upper").or_else(|| found.name("lower")).map(label),
        };
        names.extend(name);
    }
    if names.is_empty() {
        let is_named = |(_, pattern): &(usize, &Regex)| pattern.is_match(request);
        let places = PLACE_WORDS.iter().enumerate().filter(is_named);
        names.extend(places.map(|(place, _)| match place {
            place if place + 1 == PLACES.len() => OptionName::Last,
            place => OptionName::Place(place),
        }));
    }
    names.truncate(MOST_OPTIONS);
    names
}

/// The words of a request that may say what a name is of, in lower case.
fn words_of(request: &str) -> Vec<String> {
    let words = request.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

/// Whether a request has a name or a number of its own.
fn states_name(request: &str) -> bool {
    let mut is_found = request.contains(|c: char| c.is_ascii_digit());
    for_each_identifier(request, |_| is_found = true);
    is_found
}

fn matches(pattern: &LazyLock<Option<Regex>>, text: &str) -> bool {
    pattern.as_ref().is_some_and(|pattern| pattern.is_match(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_patterns_compile() {
        assert_eq!(PLACE_WORDS.len(), PLACES.len());
        let all = [
            &LABELS,
            &BARE_LABELS,
            &OTHERS,
            &NAMES,
            &REMEMBERING,
            &REPLIES,
            &PROPOSED,
            &ANAPHORS,
            &NOTHINGS,
        ];
        assert!(all.iter().all(|pattern| pattern.is_some()));
    }

    #[test]
    fn an_option_is_named_by_its_place_or_its_label() {
        let label = |label: &str| OptionName::Label(label.to_owned());
        for (request, names) in [
            ("the second one, from now on", vec![OptionName::Place(1)]),
            ("Die zweite bitte.", vec![OptionName::Place(1)]),
            ("la deuxième, s'il te plaît", vec![OptionName::Place(1)]),
            ("第二个吧", vec![OptionName::Place(1)]),
            ("второй вариант", vec![OptionName::Place(1)]),
            ("두 번째로 해 주세요", vec![OptionName::Place(1)]),
            ("the last one", vec![OptionName::Last]),
            ("use option B", vec![label("b")]),
            ("go with option b.", vec![label("b")]),
            ("方案B", vec![label("b")]),
            ("选项二", vec![OptionName::Place(1)]),
            ("number 3 please", vec![label("3")]),
            ("2", vec![label("2")]),
            ("b)", vec![label("b")]),
            ("2番で", vec![label("2")]),
            ("2番でお願いします", vec![label("2")]),
            ("选2", vec![label("2")]),
            ("2번으로 해 주세요", vec![label("2")]),
            ("la 2", vec![label("2")]),
            ("die 2 bitte", vec![label("2")]),
            ("二番の方で", vec![OptionName::Place(1)]),
            ("2-й", vec![OptionName::Place(1)]),
            ("number two", vec![OptionName::Place(1)]),
            ("后者", vec![OptionName::Last]),
            ("後者でお願いします", vec![OptionName::Last]),
            ("前者", vec![OptionName::Place(0)]),
            ("후자로 해 주세요", vec![OptionName::Last]),
            ("das Letztere", vec![OptionName::Last]),
            ("options: first and third", vec![OptionName::Place(0), OptionName::Place(2)]),
        ] {
            assert_eq!(Reference::of(request), Reference::Options(names), "{request}");
        }
    }

    #[test]
    fn the_other_way_is_the_one_that_was_not_proposed() {
        for request in [
            "no, the other",
            "No, the other one please.",
            "nein, lieber die andere",
            "non, l'autre",
            "no, la otra",
            "нет, другой вариант",
            "不，另一个",
            "もう一方で",
            "아니, 다른 쪽으로",
            "لا، الآخر",
        ] {
            assert_eq!(Reference::of(request), Reference::Other, "{request}");
        }
        for request in ["fix the other tests", "What do the other modules do?", "la otra tabla"] {
            assert_ne!(Reference::of(request), Reference::Other, "{request}");
        }
    }

    #[test]
    fn a_name_is_pointed_at() {
        for request in [
            "remember that build number",
            "Use that port from now on.",
            "note this ticket id",
            "Merk dir diese Nummer",
            "запомни этот номер",
            "remember that",
            "记住那个端口号",
        ] {
            assert!(matches!(Reference::of(request), Reference::Name(_)), "{request}");
        }
        for request in ["remember that port 8443 is ours", "remember to run the linter each time"] {
            assert!(!matches!(Reference::of(request), Reference::Name(_)), "{request}");
        }
    }

    #[test]
    fn an_agreement_refers_to_a_proposal() {
        for request in [
            "yes, do that",
            "ja, genau so",
            "go with your proposal",
            "ok",
            "No, leave it.",
            "oui, vas-y",
            "sí, hazlo",
            "да, давай",
            "好的，就这样",
            "はい、それでお願いします",
            "네, 그렇게 해 주세요",
            "use that from now on",
        ] {
            assert_eq!(Reference::of(request), Reference::Reply, "{request}");
        }
    }

    #[test]
    fn a_rule_that_names_its_subject_refers_to_nothing() {
        for request in [
            "Always indent with tabs in this repo.",
            "When a test is flaky, quarantine it instead of retrying.",
            "Never push to the protected branches from a script.",
            "Always close connections before you drop them.",
            "Make sure that every endpoint has a timeout.",
            "From now on use these four labels for tickets of customers.",
            "Bei jedem Fehler die Anfrage immer protokollieren, bevor du es nochmals versuchst.",
            "Verwende in diesem Projekt immer das Format von Google.",
        ] {
            assert_eq!(Reference::of(request), Reference::Nothing, "{request}");
        }
        for request in [
            "From now on always do it like that, please.",
            "Always use this for the reports of the customers.",
            "Never do that again without asking me before.",
            "Mach das ab jetzt immer vor einem Commit.",
            "The next time always do it before the release.",
        ] {
            assert_eq!(Reference::of(request), Reference::Reply, "{request}");
        }
    }

    #[test]
    fn other_requests_answer_a_question_at_most() {
        for request in ["Postgres.", "rename it"] {
            assert_eq!(Reference::of(request), Reference::Unknown, "{request}");
        }
        for request in [
            "now fix the parser and its tests",
            "ok, create a branch for the parser",
            "thanks",
            "continue",
            "go on!",
            "weiter",
            "继续，谢谢",
        ] {
            assert_eq!(Reference::of(request), Reference::Nothing, "{request}");
        }
    }
}
