//! Sentences that end, lift or change an earlier rule.

use std::ops::{Range, RangeInclusive};
use std::sync::LazyLock;

use regex::Regex;

use super::distinction::is_order_for_now;
use super::narrative::orders_nothing;
use super::subject::is_value;
use super::{RULE_CUES, is_question, matches};
use ctxhost_engine_api::transcript::tokens::weighted_chars;

/// Length of a sentence that may change a rule, in weighted characters.
// A longer one says itself what it is about.
const HINT_CHARS: RangeInclusive<u64> = 8..=160;

/// Names of languages, in the languages of the cues: what language to answer in is the most common rule of all.
pub(super) const LANGUAGES: &str = concat!(
    "english|german|french|spanish|portuguese|italian|dutch|polish|russian|ukrainian|turkish|chinese|japanese|korean|arabic|hindi|indonesian|vietnamese",
    r"|(?:englisch|deutsch|französisch|spanisch|portugiesisch|italienisch|niederländisch|polnisch|russisch|ukrainisch|türkisch|chinesisch|japanisch|koreanisch|arabisch)[^ ,]{0,2}",
    "|anglais|allemand|français|espagnol|portugais|italien|néerlandais|polonais|russe|turc|chinois|japonais",
    "|inglés|alemán|francés|español|portugués|italiano|inglês|alemão|francês|espanhol|português|inglese|tedesco|francese|spagnolo|portoghese",
    r"|engels|duits|frans|spaans|nederlands|(?:по )?(?:angielsk|niemieck|francusk|hiszpańsk|polsk)[^ ,]+|(?:английск|немецк|французск|испанск|русск|англійськ|німецьк|французьк|українськ|російськ)[^ ,]+",
    "|[iİ]ngilizce|almanca|fransızca|ispanyolca|türkçe|inggris|jerman|prancis|tiếng anh|tiếng việt|tiếng pháp",
);
/// The same in scripts whose words have no spaces between them, and others.
const LANGUAGE_SIGNS: &str = r"[中英法德日韩韓俄西]文|[英法德日韩韓俄汉漢]语|[英法德日韓漢]語|中国語|日本語|ドイツ語|フランス語|韓国語|한국어|영어|일본어|중국어|프랑스어|독일어|(?:ال)?(?:إنجليزية|عربية|فرنسية|ألمانية)|अंग्रेज़ी|हिंदी|हिन्दी|फ़्रेंच";

/// Sentences that end or lift a rule by themselves.
const END_WORDS: &str = concat!(
    // English.
    r"you (?:may|can|are allowed to|are free to)(?: now)? (?:[^,;:]* )?again|(?:is|are) (?:ok|okay|fine|allowed|permitted|acceptable) again|you can stop [^ ,]+ing|you (?:don['’]t|do not) (?:have|need) to [^,;:]*(?:any ?more|any longer)|no need (?:to|for) [^,;:]*(?:any ?more|any longer)",
    r"|(?:undo|retract|take back|forget|scratch|scrap|disregard|ignore|drop|cancel|withdraw|revoke) (?:what i (?:sa(?:id|y)|asked|wrote|wanted)|that (?:bit )?about|(?:the|my|that|this|our)(?: [^ ,]+)? (?:rule|ban|restriction|instruction|requirement|preference)s?)",
    r"|forget (?:about )?(?:the|my|those|these) [^,;:]*[,;:] ?(?:and |just )?(?:use|go|do|make|take|write|put)|(?:rule|ban|freeze|restriction|requirement)s? (?:[^,;:]* )?(?:(?:is|are) (?:gone|lifted|off|void|obsolete|over|dropped)|(?:does not|doesn['’]t|do not|don['’]t) (?:apply|hold))",
    r"|lift(?:ed|ing)? the (?:[^ ,]+ )?(?:ban|restriction|rule|requirement)|(?:changed|change) my mind|as of (?:today|now|this week)|starting (?:today|now)",
    // German, French, Spanish, Portuguese, Italian, Dutch.
    r"|(?:du|ihr|sie|man) (?:darfst|dürft|dürfen|darf|kannst|könnt|können) [^,;:]*wieder|(?:ist|sind|sei) (?:ab jetzt |jetzt |nun )?wieder (?:erlaubt|ok|okay|in ordnung)|vergiss [^;:]*(?:regel|vorgabe|verbot|nimm|nutze|verwende|benutze)[^ ,]*|doch (?:lieber|wieder|besser)|lieber doch|bitte doch|anders überlegt|(?:regel|vorgabe|verbot)[^ ,]* (?:gilt|ist|entfällt|fällt) [^,;:]*(?:nicht|aufgehoben|weg|hinfällig)|nicht länger|du kannst aufhören",
    r"|oublie[rz]? [^;:]*(?:règle|consigne|interdiction|j['’]ai dit|j['’]ai demandé|utilise)|(?:tu peux|vous pouvez) (?:de|à) nouveau|n['’]est plus (?:nécessaire|interdite?|obligatoire)|plus (?:besoin|la peine) de|changé d['’]avis|tu peux arrêter de",
    r"|olvida [^;:]*(?:regla|dije|pedí|usa)|puedes [^,;:]*(?:otra vez|de nuevo)|puedes dejar de|ya no (?:hace|es|hay)|cambi[eé] de (?:idea|opinión)",
    r"|esque(?:ça|ce) [^;:]*(?:regra|instrução|eu disse|pedi|use)|pode[ms]? [^,;:]*(?:de novo|novamente|outra vez)|não (?:é|precisa)(?: de)? (?:[^,;:]* )?mais|pode parar de|mudei de ideia",
    r"|dimentica [^;:]*(?:regola|ho detto|ho chiesto|usa)|puoi di nuovo|di nuovo (?:permess|consentit|ammess)[oaie]|non (?:serve|è) più|puoi smettere di|cambiato idea",
    r"|vergeet [^;:]*(?:regel|vroeg|gebruik)|(?:mag|mogen) [^,;:]*weer|toch (?:maar|liever|weer)|hoef[^ ,]* [^,;:]*niet meer|niet langer|van gedachten veranderd",
    // Polish, Russian, Ukrainian, Turkish, Indonesian, Vietnamese.
    r"|zapomnij o [^;:]*(?:regule|zasadzie|użyj|używaj)|(?:możesz|wolno|można) (?:znowu|znów|ponownie)|(?:znowu|znów) (?:możesz|wolno|można)|nie (?:trzeba|musisz) już|już nie (?:trzeba|musisz)|zmienił[ae]m zdanie|rozmyślił[ae]m się",
    r"|забудь(?:те)? (?:про|о|об|что я)|(?:снова|опять) (?:можно|разрешено|разрешается)|можно (?:снова|опять)|можешь (?:снова|опять|больше не)|передумала?|отмен[^ ,]+ (?:правило|запрет|требование)|больше не (?:нужно|надо)",
    r"|знову можна|можна знову|скасу[^ ,]+ (?:правило|заборону|вимогу)|більше не (?:треба|потрібно)|vazgeçtim|fikrimi değiştirdim|artık [^,;:]*(?:gerek yok|serbest|gerekmiyor)|tekrar [^,;:]*bilirsin(?:iz)?|kuralını (?:unut|iptal et)",
    r"|berubah pikiran|boleh [^,;:]*lagi|tidak perlu [^,;:]*lagi|lupakan (?:aturan|yang)|đổi ý|không cần [^,;:]*nữa|bỏ (?:qua )?quy tắc|được phép [^,;:]*(?:trở )?lại",
);
/// The same in scripts whose words have no spaces between them, and others.
const END_SIGNS: &str = concat!(
    r"还是(?:用|说|改|换|写)|還是(?:用|說|改|換|寫)|改用|改回|换回|換回|[换換]成|不用再|不必再|不需要再|[无無]需再|(?:又|重新)可以|可以再次|取消[^，。,]*(?:规则|規則|要求|限制)|改(?:变)?主意",
    r"|(?:やっぱり|やはり)[^。]*(?:て|で|ください|下さい|しよう|にする)[。！!]?$|に戻して|に戻そう|もう[^。]*(?:なくて|不要|必要ありません|必要はありません)|(?:再び|また)[^。]*ても(?:いい|よい|構いません)|(?:ルール|規則|指示|禁止)[^。]*(?:取り消|解除|撤回|忘れて)",
    r"|더 ?이상|더는 [^.]*(?:돼|됩니다)|다시 [^.]*해도 (?:돼|됩니다|좋)|(?:규칙|지시)[^.]*(?:취소|잊어)|생각이 바뀌|غيرت رأيي|يمكنك [^،.]*(?:مجددا|مرة أخرى)|لم يعد|(?:انس|ألغ) (?:قاعدة|القاعدة|ما قلت)|फिर से [^।]*सकते|इरादा बदल|नियम [^।]*(?:भूल|हटा)",
);
/// Words that may announce a change, and are common in other requests.
const HINT_WORDS: &str = concat!(
    r"instead|actually|rather|again|back to|after all|forget|scrap|scratch|drop|undo|(?:is|are) (?:now )?(?:fine|ok|okay|allowed|permitted|gone)|as of|migrated|not enough|any ?more|any longer|no need|stop [^ ,]+ing|on second thought",
    r"|doch|lieber|wieder|statt(?:dessen)?|zurück|vergiss|erlaubt|finalement|plutôt|à la place|au lieu|reviens|revenons|revenez|oublie[rz]?|mejor|al final|en (?:lugar|vez) de|olvida|vuelve|melhor|afinal|em vez|ao invés|volte|volta|esqueça|esquece",
    r"|anzi|alla fine|piuttosto|invece|dimentica|torna|torniamo|toch|liever|in plaats|vergeet|weer|jednak|raczej|zamiast|zapomnij|wróć|wróćmy|лучше|вместо|(?:всё|все)[- ]таки|вернись|верн[её]мся|снова|краще|замість|знову|aslında|yerine|yeniden|tekrar|artık|saja|sebagai gantinya|kembali|thay vào đó|quay lại",
);
/// Permissions that need no word such as "again" to lift a ban.
const PERMISSION_WORDS: &str = concat!(
    r"you (?:may|can|could)(?: [^,;:]+)? now|now you (?:may|can)|you (?:may|can|are) (?:now |also )*(?:allowed|free) to|(?:it|that)['’]s (?:now )?(?:fine|ok|okay|safe|allowed|permitted)|feel free to|go ahead and",
    r"|(?:du|ihr|sie|man|wir) (?:darfst|dürft|dürfen|darf|kannst|könnt|können) (?:[^,;:]* )?(?:jetzt|nun)|(?:jetzt|nun) (?:darfst|dürft|dürfen|darf|kannst|könnt|können)",
    r"|(?:tu peux|vous pouvez|on peut) (?:[^,;:]* )?maintenant|maintenant (?:tu peux|vous pouvez|on peut)|(?:puedes?|pueden) (?:[^,;:]* )?ahora|(?:ahora|ya) (?:sí )?(?:puedes?|pueden)|pode[ms]? (?:[^,;:]* )?agora|(?:agora|já) pode[ms]?|puoi (?:[^,;:]* )?(?:ora|adesso)|(?:ora|adesso) puoi",
    r"|(?:mag|kunt|kan) (?:je )?(?:[^,;:]* )?nu|nu (?:mag|kun|kan) je|(?:teraz|już) (?:możesz|można|wolno)|(?:możesz|można|wolno) (?:teraz|już)|(?:сейчас|уже) (?:можно|можешь|можете)|(?:можно|можешь|можете) (?:уже|сейчас)|вже можна|можна вже|şimdi [^,;:]*bilirsin(?:iz)?|sekarang boleh|boleh (?:[^,;:]* )?sekarang|bây giờ (?:bạn )?(?:có thể|được)",
);
/// Words beside the name of a language that is all that is asked for.
const PLEASE_WORDS: &str = "please|bitte|s['’]il (?:te|vous) plaît|por favor|per favore|alsjeblieft|proszę|пожалуйста|будь ласка|lütfen";
/// The same in scripts whose words have no spaces between them, and others.
const HINT_SIGNS: &str = "现在可以|現在可以|可以再|お願い|अब|الآن|이제|还是|還是|算了|改|换|換|恢复|恢復|やっぱり|やはり|代わりに|戻|대신|역시|다시|بدلا|عد إلى|के बजाय|की जगह|वापस|फिर से";
/// Words of such sentences that do not say what they are about.
const EMPTY_WORDS: &str = concat!(
    r"you|may|can|now|forget|scrap|scratch (?:that|the|my|what)|drop|undo|revoke|cancel|lift(?:ed)?|stop|back|go|rule|ban|freeze|over|restriction|requirement|sorry|actually|instead|rather|fine|ok|okay|allowed|permitted|sa(?:id|y)|asked|mind|chang(?:ed|e)|need|longer|any ?more|please|jetzt|maintenant|ahora|agora|adesso|teraz|сейчас",
    "|bitte|doch|lieber|wieder|statt|vergiss|regel|erlaubt|darfst|kannst|finalement|plutôt|oublie|règle|mejor|olvida|regla|puedes|melhor|regra|pode|anzi|regola|puoi|toch|liever|regel|mag|jednak|лучше|забудь|правило|можно|снова|нет|краще|vazgeçtim|aslında",
);

/// Beginnings of a correction that may name the new value alone.
const BARE_BEGINS: &str = concat!(
    r"(?i)^(?:(?:no|nein|non|nee|nie|não|нет|ні|hayır|tidak|không)[,.:] |(?:(?:actually|rather|no|sorry),? )?make (?:that|it) |sagen wir |disons |digamos |facciamo |zróbmy )",
    r"|^(?:不[,，]?|还是)?(?:改|换|換)(?:成|为|為|到)|^いや[、,]|^아니[,요]|^لا[،,]|^नहीं[,]",
);

static BARE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(BARE_BEGINS).ok());
static ENDS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let back = format!(
        r"(?:go|switch|change|come|move|get|going) back to (?:{LANGUAGES}|(?:the )?(?:old|previous|former|original) (?:way|style|rule|format|convention))|zurück zu[mr]? (?:{LANGUAGES})|re(?:viens|venons|venez|passe|passons) (?:à|au|en) (?:l['’])?(?:{LANGUAGES})|(?:vuelve|volvamos|volta|volte|torna|torniamo) (?:al?|ao|all['’]|à) ?(?:{LANGUAGES})"
    );
    Regex::new(&format!(r"(?i)(?:^|\W)(?:{END_WORDS}|{back})(?:\W|$)|{END_SIGNS}")).ok()
});
static HINTS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let language = format!(r"(?:(?:in|auf|en|em|op|po) )?(?:{LANGUAGES})");
    let please =
        format!(r"^{language},? (?:{PLEASE_WORDS})\W*$|^(?:{PLEASE_WORDS}),? {language}\W*$");
    Regex::new(&format!(
        r"(?i)(?:^|\W)(?:{HINT_WORDS}|{PERMISSION_WORDS})(?:\W|$)|^no[,.:] |^nein,|{please}|{HINT_SIGNS}"
    ))
    .ok()
});
static EMPTY: LazyLock<Option<Regex>> = LazyLock::new(|| word_pattern(EMPTY_WORDS, HINT_SIGNS));
/// A name of a language.
pub(super) static LANGUAGE_NAMES: LazyLock<Option<Regex>> =
    LazyLock::new(|| word_pattern(LANGUAGES, LANGUAGE_SIGNS));

/// Whether a sentence ends or lifts a rule.
pub(super) fn is_end(line: &str) -> bool {
    matches(&ENDS, line)
}

/// Whether a sentence may change a rule; only an earlier one about the same shows whether it does.
pub(super) fn hints_at_change(line: &str) -> bool {
    matches(&HINTS, line) || matches(&ENDS, line)
}

/// A sentence on one line that changes a rule if there is an earlier one about the same: by a word, or by another value.
/// `None` for one that is a rule by itself.
pub fn parse_hint(sentence: &str) -> Option<String> {
    let line = sentence.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_hint = HINT_CHARS.contains(&weighted_chars(&line))
        && (matches(&HINTS, &line)
            || begins_correction(&line)
            || is_order_for_now(&line)
            || line.split(' ').any(is_value))
        && !is_question(&line)
        && !matches(&RULE_CUES, &line)
        && !orders_nothing(&line);
    is_hint.then_some(line)
}

/// Whether a sentence begins as a correction that may name nothing but the new value: "no, on Fridays".
pub(super) fn begins_correction(line: &str) -> bool {
    matches(&BARE, line)
}

/// A sentence without the words that announce a change.
pub(super) fn without_hints(line: &str) -> String {
    blank(line, &find_words(&EMPTY, line))
}

/// Matches whole words with what stands before and behind them, and signs anywhere.
// Not with `\b`: where a line is not all ASCII, an automaton cannot decide it, and reading a message takes ten times as long.
pub(super) fn word_pattern(words: &str, signs: &str) -> Option<Regex> {
    Regex::new(&format!(r"(?i)(?:^|\W)(?:{words})(?:\W|$)|{signs}")).ok()
}

/// Where the words of a [word pattern](word_pattern) stand in a line.
pub(super) fn find_words(pattern: &Option<Regex>, line: &str) -> Vec<Range<usize>> {
    let is_around = |character: char| !character.is_alphanumeric();
    let mut found: Vec<Range<usize>> = Vec::new();
    let next = |from: usize| {
        let text = pattern.as_ref()?.find_at(line, from)?;
        let word = text.as_str().trim_start_matches(is_around);
        let start = text.end() - word.len();
        Some(start..start + word.trim_end_matches(is_around).len())
    };
    // What stands behind one word stands before the next.
    while let Some(word) =
        next(found.last().map_or(0, |word| word.end)).filter(|word| !word.is_empty())
    {
        found.push(word);
    }
    found
}

/// A line with a blank for each of some ranges.
pub(super) fn blank(line: &str, ranges: &[Range<usize>]) -> String {
    let mut text = String::new();
    let mut read = 0;
    for range in ranges {
        text.push_str(line.get(read..range.start).unwrap_or_default());
        text.push(' ');
        read = range.end;
    }
    text + line.get(read..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::find_rules;

    #[test]
    fn words_are_found_beside_each_other_and_beside_other_letters() {
        let words = |line: &str| -> Vec<String> {
            find_words(&EMPTY, line).into_iter().map(|word| line[word].to_owned()).collect()
        };
        assert_eq!(words("You may now: “stop” — okay?"), ["You", "may", "now", "stop", "okay"]);
        assert_eq!(words("éstop maybe gone, stopé"), [""; 0]);
        assert_eq!(words("现在可以 drop"), ["现在可以", "drop"]);
        assert_eq!(without_hints("please stop, größer"), "   , größer");
    }

    #[test]
    fn the_patterns_compile() {
        assert!(
            [&BARE, &ENDS, &HINTS, &EMPTY, &LANGUAGE_NAMES].iter().all(|pattern| pattern.is_some())
        );
    }

    #[test]
    fn ends_and_lifts_are_rules() {
        for text in [
            "You may edit the lock file again.",
            "Emojis are allowed again.",
            "You can stop adding comments.",
            "Scrap the rule about semicolons.",
            "Please undo what I asked about the linter.",
            "Forget the spaces, use tabs.",
            "The ban on nightly features is lifted.",
            "Let's switch back to German.",
            "Du darfst die Datei wieder ändern.",
            "Lieber doch ohne Emojis.",
            "Tu peux de nouveau modifier le fichier.",
            "Puedes usar la biblioteca otra vez.",
            "Podes usar a biblioteca de novo.",
            "Puoi di nuovo usare la libreria.",
            "Je mag het bestand weer wijzigen.",
            "Możesz znowu używać tej biblioteki.",
            "Передумал, пиши по-немецки.",
            "Vazgeçtim, dört boşluk kullan.",
            "Kamu boleh pakai emoji lagi.",
            "还是用空格吧。",
            "やっぱりタブを使ってください。",
        ] {
            assert_eq!(Vec::from_iter(find_rules(text)), [text]);
        }
    }

    #[test]
    fn hints_alone_are_no_rules() {
        for text in [
            "Actually show me the first file.",
            "Run the tests again.",
            "Read the second file instead.",
            "I forget where the parser is.",
            "Finalement ça marche.",
            "Lieber Claude, zeig mir die Datei.",
        ] {
            assert_eq!(find_rules(text).count(), 0, "{text}");
        }
        assert!(parse_hint("Actually show me the first file.").is_some());
        assert!(parse_hint("Show me the first file.").is_none());
        assert!(parse_hint("Reduce the evening dose to 12 mg.").is_some());
    }
}
