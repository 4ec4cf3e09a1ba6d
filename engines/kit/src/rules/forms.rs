//! Rules without a cue: what holds for every thing of a kind, limits, exclusions, and orders not to do something.

use std::sync::LazyLock;

use regex::Regex;

use super::changes::LANGUAGES;

/// Quantities as words, for limits.
const QUANTITY: &str = r"(?:\d|(?:an?|one|two|three|four|five|six|seven|eight|nine|ten|twelve|fifteen|twenty|thirty|forty|fifty|sixty|eighty|hundred)\s)";
/// Forms at the beginning of a sentence.
const FIRST_FORMS: &str = concat!(
    // What holds for each of a kind.
    r"(?:every|each) (?:[^ ,]+ ){1,5}(?:needs|shall|should|has to|requires|gets|begins with|ends with|starts with|carries)",
    r"|all (?:of )?(?:the |our |new |my )?(?:[^ ,]+ ){0,3}[^ ,]{2,}s (?:[^ ,]+ ){0,3}(?:need|shall|should|have to|require|get|begin with|end with|start with)",
    r"|(?:write|answer|phrase|spell|give|express|sign|prefix|store|keep|name) (?:all|every|each) (?:[^ ,]+ ){1,4}(?:in|with|as|using|by|under|without)",
    r"|(?:we |i )?(?:stick|keep|hold) to [^ ,]+|treat (?:all|every|each|everything)(?: [^ ,]+){0,5} as|hands off|stop [^ ,]+ing",
    r"|(?:do not|don't|don’t) [^ ,]+|no [^ ,]+(?: [^ ,]+){0,2} (?:in|on|at|without|anywhere|allowed|please)",
    // German.
    r"|jede[rsn]? (?:[^ ,]+ ){1,4}(?:braucht|muss|soll|benötigt|bekommt)|alle[rn]? (?:[^ ,]+ ){1,4}(?:müssen|brauchen|sollen|benötigen)|alle [^ ,]+ (?:auf|in|mit|als) [^ ,]+ (?:schreiben|verfassen|benennen|speichern|angeben)",
    r"|keine? (?:[^ ,]+ ){1,5}(?:verwenden|benutzen|nutzen|schreiben|machen|hinzufügen|ändern|löschen|einbauen|committen|pushen)",
    r"|(?:verwende|verwendet|benutze?|nutze?|schreibe?|mache?|ändere|lösche?|füge?|pushe?|committe|setze?|fasse?|starte) (?:[^,;:]* )?(?:keine?[nrms]?|nicht)",
    // French, Spanish, Portuguese, Italian, Dutch.
    r"|chaque (?:[^ ,]+ ){1,4}(?:doit|nécessite|a besoin)|tou(?:s|tes) les (?:[^ ,]+ ){1,4}doivent|(?:écri[st]|rédige|écrivez|rédigez) (?:tous|toutes|chaque)|(?:ne |n['’])(?:l[ae]s? |l['’])?[^ ,]+ (?:pas|plus)|(?:surtout )?pas d(?:e |['’])[^ ,]+ (?:dans|sur|en|s['’]il)",
    r"|cada (?:[^ ,]+ ){1,4}(?:debe|necesita|requiere|deve|precisa)|tod[oa]s (?:l[oa]s|[oa]s) (?:[^ ,]+ ){1,4}(?:deben|necesitan|devem|precisam)|(?:escrib[ea]|escrev[ae]) (?:tod[oa]s|cada)",
    r"|no (?:uses|usen|utilices|toques|cambies|edites|hagas|agregues|añadas|escribas|borres|elimines|ejecutes|incluyas|pongas|menciones|envíes|llames|modifiques)|(?:nada de|sin) [^ ,]+ en",
    r"|não (?:use|usem|utilize|toque|mude|altere|edite|faça|adicione|escreva|apague|exclua|execute|inclua|coloque|mencione|envie|modifique)",
    r"|ogni (?:[^ ,]+ ){1,4}(?:deve|richiede|ha bisogno)|tutt[ie] (?:i|gli|le) (?:[^ ,]+ ){1,4}devono|scriv[ia] (?:tutt[ie]|ogni)|non (?:usare|toccare|cambiare|modificare|fare|aggiungere|scrivere|cancellare|eliminare|eseguire|includere|mettere|menzionare|inviare)",
    r"|elke? (?:[^ ,]+ ){1,4}(?:moet|heeft|krijgt)|alle (?:[^ ,]+ ){1,4}moeten|(?:gebruik|schrijf|wijzig|verander|maak|zet|verwijder|raak) (?:[^,;:]* )?(?:geen|niet)|(?:graag )?geen [^ ,]+ (?:in|op|aan)",
    // Polish, Russian, Ukrainian, Turkish, Indonesian, Vietnamese.
    r"|każd[^ ,]+ (?:[^ ,]+ ){1,4}(?:musi|potrzebuje|powin[^ ,]+)|nie (?:używaj|zmieniaj|dotykaj|edytuj|dodawaj|pisz|usuwaj|uruchamiaj|rób|wysyłaj|wstawiaj)(?:cie)?",
    r"|кажд[^ ,]+ (?:[^ ,]+ ){1,4}(?:долж[^ ,]+|требует|нуждается)|все (?:[^ ,]+ ){1,4}должны|пиши(?:те)? (?:все|кажд[^ ,]+)|кожн[^ ,]+ (?:[^ ,]+ ){1,4}(?:має|повин[^ ,]+|потребує)|усі (?:[^ ,]+ ){1,4}(?:мають|повинні)",
    r"|не (?:используй|меняй|трогай|правь|добавляй|пиши|удаляй|запускай|делай|отправляй|коммить|пушь|вставляй|ставь|упоминай|вызывай|применяй|використовуй|змінюй|чіпай|додавай|видаляй|роби|надсилай)(?:те)?",
    r"|her (?:[^ ,]+ ){1,4}(?:gerek[^ ,]*|zorunda[^ ,]*|olmalı|içermeli)|setiap (?:[^ ,]+ ){1,4}(?:harus|perlu|wajib)|semua (?:[^ ,]+ ){1,4}(?:harus|wajib)|mỗi (?:[^ ,]+ ){1,4}(?:phải|cần)|mọi (?:[^ ,]+ ){1,4}(?:phải|cần)|(?:đừng|không được) [^ ,]+",
);
/// What is used, and what instead of it is not: "use pnpm, not npm". Forms at the beginning.
const CONTRASTS: &str = concat!(
    r"(?:we |i |always )?(?:use|run|write|deploy|build|format|test|call|name|put|store|install|work)(?: [^ ,;:]+){1,6}, (?:and )?not [^ ]+|(?:we )?(?:use|write) [^ ,]+ (?:and )?not [^ ,]+",
    r"|(?:wir )?(?:verwende[nt]?|benutze[nt]?|nutze[nt]?|nutz|nimm|nehmen|schreib|schreibe[nt]?)(?: [^ ,;:]+){1,6}, (?:und )?(?:nicht|keine?[nrms]?) [^ ]+",
    r"|(?:on |nous )?(?:utilise[rz]?|utilisons|écri[st]|écrivez|prends)(?: [^ ,;:]+){1,6}, (?:et )?pas [^ ]+|(?:usa|usamos|usar|utiliza|utilizamos|escribe)(?: [^ ,;:]+){1,6}, (?:y )?no [^ ]+|(?:use|usamos|utilize|escreva)(?: [^ ,;:]+){1,6}, (?:e )?não [^ ]+",
    r"|(?:usa|usiamo|utilizza|scrivi)(?: [^ ,;:]+){1,6}, (?:e )?non [^ ]+|(?:we )?(?:gebruik|gebruiken|schrijf)(?: [^ ,;:]+){1,6}, (?:en )?(?:niet|geen) [^ ]+|(?:używaj|używamy|pisz)(?: [^ ,;:]+){1,6}, (?:a )?nie [^ ]+",
    r"|(?:мы )?(?:используй(?:те)?|используем|пиши(?:те)?|бери)(?: [^ ,;:]+){1,6}, (?:а )?не [^ ]+|(?:використовуй(?:те)?|використовуємо|пиши)(?: [^ ,;:]+){1,6}, (?:а )?не [^ ]+",
    // "No emojis in the docs."
    r"|keine? [^ ,]+(?: [^ ,]+){0,2} (?:in|im|auf|bei|an|am) [^ ,]+",
);
/// Duties, as "must" states them in other languages.
const DUTIES: &str = concat!(
    r"(?:muss|müssen) (?:[^,;:]* )?(?:auf|in|im|mit|unter|über|vor|nach|bei|als|durch|[^ ,]+(?:t|en)) (?:[^,;:]* )?(?:bleiben|sein|werden|haben|stehen|laufen|enthalten)|(?:darf|dürfen) (?:[^,;:]* )?(?:nicht|nie|keine?[nrms]?|nur) [^,;:]+",
    r"|(?:doit|doivent)(?: [^ ,]+){0,2} (?:être|rester|avoir|contenir|commencer|finir|passer|utiliser|suivre)|ne (?:doit|doivent) (?:pas|jamais|plus)|(?:debe|deben|tienen? que)(?: [^ ,]+)? (?:estar|ser|quedar|tener|contener|usar|empezar|seguir)|no deben? [^ ,]+",
    r"|(?:deve|devem|tem que|têm que|precisam?)(?: [^ ,]+)? (?:estar|ser|ficar|ter|conter|usar|começar|seguir)|não devem? [^ ,]+|(?:deve|devono)(?: [^ ,]+)? (?:essere|restare|rimanere|avere|contenere|usare|iniziare)|non (?:deve|devono) [^ ,]+",
    r"|(?:moet|moeten) (?:[^,;:]* )?(?:zijn|blijven|worden|hebben|staan)|(?:mag|mogen) (?:[^,;:]* )?(?:niet|geen) [^,;:]+|(?:musi|muszą) (?:być|mieć|zostać|zawierać)|nie wolno",
    r"|(?:долж[^ ,]+) (?:быть|оставаться|иметь|содержать|начинаться)|не долж[^ ,]+|нельзя|(?:має|мають|повин[^ ,]+) (?:бути|залишатися|містити)|не повин[^ ,]+|не можна|[^ ,]+(?:malı|meli)(?:dır|dir)?|harus (?:di[^ ,]+|tetap|menggunakan|pakai|dalam)|phải (?:được|dùng|viết|bằng)",
);
/// Forms anywhere in a sentence.
const FORMS: &str = concat!(
    // What holds everywhere, or of all.
    r"(?:use|keep|write|spell|format) [^,;:]* throughout|keep (?:the|your|all) (?:[^ ,]+ ){0,2}(?:tone|style|wording|answers|replies|language)(?: [^ ,]+){1,3}|all[er]? [^ ,]+ bitte (?:in|mit|ohne|als|inklusive|auf)",
    // Politely, and who gets which language.
    r"|i['’]?d (?:be (?:grateful|glad|happy|thankful)|appreciate it|prefer it) if you|(?:ich )?wäre (?:dir |ihnen )?dankbar,? wenn (?:du|sie)",
    // Consent.
    r"|without (?:my|our|asking|telling) [^ ,]+|(?:needs?|requires?) my (?:[^ ,]+ )?(?:approval|consent|ok|okay|permission|sign-off)|(?:ask|check with|tell|warn) (?:me )?(?:first )?before(?: you)?(?: [^ ,]+){1,}|off[- ]limits",
    r"|ohne meine?n? (?:[^ ,]+ )?(?:freigabe|zustimmung|erlaubnis|genehmigung|ok)|frage?n? (?:mich |vorher |erst )*(?:bevor|vorher)|braucht meine (?:freigabe|zustimmung)|finger weg|ist tabu|sind tabu",
    r"|sans mon (?:accord|autorisation|feu vert)|demande(?:-moi|z-moi)? (?:avant|d['’]abord)|sin mi (?:permiso|aprobación|visto bueno)|pregúntame antes|pregunta antes|sem (?:a )?minha (?:aprovação|autorização|permissão)|pergunte antes",
    r"|senza (?:il mio|la mia) (?:consenso|approvazione|permesso)|chiedi(?:mi)? prima|zonder mijn (?:toestemming|akkoord|goedkeuring)|vraag (?:het )?(?:me |eerst )*(?:voordat|eerst)|bez mojej (?:zgody|akceptacji)|zapytaj (?:mnie )?(?:zanim|najpierw)",
    r"|без моего (?:согласия|разрешения|одобрения)|спроси(?:те)? (?:меня )?(?:перед|прежде|сначала)|без моєї згоди|(?:onayım|iznim) olmadan|tanpa (?:persetujuan|izin) saya|không có sự đồng ý của tôi",
    // What is not wanted, and what else is not.
    r"|i (?:don['’]?t|do not) want (?:any|new|more|you to|to see)|leave [^,;:]* alone|unless (?:i|we) (?:say|ask|state|tell)|unless (?:otherwise )?(?:stated|noted|specified|asked)|only (?:between|from|with my)|,? (?:and )?nothing else|not into",
    r"|pas d(?:e |['’])[^,;:]+, (?:s['’]il|merci)|nada de [^,;:]+,? por favor|(?:ich will|ich möchte) keine?n?|und sonst nichts|je ne veux pas de|no quiero (?:ver )?(?:ningún|ninguna|más|nuevas|nuevos)",
    // Exclusions.
    r"|no exceptions?|without exceptions?|keine ausnahmen?|ohne ausnahmen?|sans exception|sin excepci(?:ón|ones)|sem exceç(?:ão|ões)|senza eccezion[ei]|zonder uitzondering(?:en)?|bez wyjątk[^ ,]+",
    r"|без исключени[^ ,]+|без винятк[^ ,]+|istisnasız|tanpa pengecualian|không (?:có )?ngoại lệ",
    r"|(?:but|and) only (?:for|in|with|when|if)|use (?:[^ ,]+ ){1,4}only (?:for|in|when|if|with)|(?:aber|und) nur (?:für|in|bei|mit|wenn)|mais (?:seulement|uniquement) (?:pour|dans|en|si)|pero s[oó]lo (?:para|en|si)",
    r"|mas (?:só|somente|apenas) (?:para|em|nos?|nas?|se)|ma solo (?:per|nei|nelle|in|se)|maar alleen (?:voor|in|als)|ale tylko (?:dla|do|w|na|jeśli)|но только (?:для|в|на|если)|але (?:тільки|лише) (?:для|в|у|на|якщо)|ama (?:sadece|yalnızca)|tapi hanya|nhưng chỉ",
    // Orders not to do something.
    r"|bitte (?:[^ ,]+ )?(?:keine?[nrms]?|nicht|nie)|(?:по)?жалуйста,? не [^ ,]+|por favor,? (?:no|não) [^ ,]+|s['’]il (?:te|vous) plaît,? (?:pas|ne) [^ ,]+|alsjeblieft (?:geen|niet)",
    r"|(?:kullanma|dokunma|değiştirme|silme|çalıştırma|gönderme|yapma|ekleme|yazma)(?:yın|yin|yınız|yiniz)",
    // Limits.
    r"|garde[rz]? [^,;:]*(?:sous|moins de|en dessous de)|mant[eé]n(?:er|ga)? [^,;:]*(?:por debajo de|menos de)|mantenha [^,;:]*(?:abaixo de|menos de)|(?:mantieni|tieni) [^,;:]*(?:sotto|meno di)|houd [^,;:]*onder",
    r"|halte? [^,;:]* unter|(?:höchstens|maximal) \d+|не (?:больше|более|длиннее|більше|довше) \d+",
);
/// Forms in scripts whose words have no spaces between them, and others.
const FORM_SIGNS: &str = concat!(
    r"(?:每[个個条條次项項]|所有)[^，。,]*(?:都|需|必|要|请用|請用|请使用|請使用)|别(?:用|改|动|碰|再|提交|写|加|删)|勿|没有例外|沒有例外|无一例外|但只|只用于|只用於|不超过|不超過|不得超过",
    r"|(?:すべて|全て|各)の?[^、。]*(?:必要|べき|こと)|ないで(?:ください|下さい|ね|。|$)|例外なく|以内に|以下に(?:して|抑え)|지 ?(?:마세요|마라|말아|말 것)|예외 ?없이|모든 [^.]*(?:해야|필요)|이내로",
    r"|(?:没有|沒有|未经|未經)我的?(?:同意|许可|許可|批准)|(?:許可|承認|確認)(?:なし|なく|を得ず|を取らず)|(?:しない|変えない|触らない|使わない)こと|(?:허락|승인|동의) ?없이|بدون (?:موافقتي|إذني)|ممنوع|मेरी (?:अनुमति|सहमति) के बिना",
    r"|لا ت(?:ستعمل|غير|غيّر|كتب|حذف|لمس|ضف|عدل|عدّل)|كل [^،.]*يجب|بدون استثناء|مت (?:करो|करना|करें|लिखो|बदलो)|मत (?:करो|करना|करें|लिखो|बदलो|जोड़ो)|يجب (?:أن|عدم|ألا)|(?:は|語|文)[^。、]*で(?:書いて|答えて|回答して|返信して)(?:ください|下さい)|हर [^।,]*(?:चाहिए|ज़रूरी)|बिना अपवाद",
);
/// What a negated order at the beginning does not forbid.
const NO_ORDER_PATTERN: &str = concat!(
    r"(?i)^(?:do not|don['’]t) (?:worry|get me wrong|know|think|care|mind|bother|see|like|need|have|want|you|we|they|be|feel|hesitate|understand|remember|believe)\b|^no (?:problem|idea|need|worries|one|doubt|wonder|luck|thanks|longer|matter)\b|^ne sais\b",
    // Reports and suppositions: "keine Fehler in der Konsole", "das muss kaputt sein", "run it, not sure whether it works".
    r"|^keine? (?:ahnung|zeit|sorge|lust|frage|antwort|änderung|änderungen|fehler|problem|probleme|warnung|warnungen|treffer)(?:\W|$)|^(?:ich|das|es|da|er|sie|ça|cela|ce|il|elle|je|tu|eso|esto|isso|isto|questo|dat|het|ik|to|это|он|она|я) (?:muss|müssen|darf|doit|debe|deve|moet|mag|musi|долж[^ ,]+)(?:\W|$)|(?:kaputt|defekt|weg|falsch|tot|un bug|cassée?|roto|rota|quebrado|rotto|kapot|ошибк[^ ,]+) (?:sein|être|zijn)(?:\W|$)|(?:doit|doivent|debe|deben|deve|devono|долж[^ ,]+) (?:être|estar|ser|essere|быть) (?:un|une|en panne|cassé|roto|rota|caído|quebrado|rotto|giù|сломан[^ ,]*|ошибк[^ ,]+|где-то)(?:\W|$)|,? not (?:sure|yet|only|just|that|because|necessarily|now|then)(?:\W|$)",
);

static FORM: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let first = format!(
        r"^(?:(?:please|also|and|but|then|let['’]s|bitte|und|aber|por favor|пожалуйста|и|lütfen|tolong|mohon),? )*(?:{FIRST_FORMS}|{CONTRASTS})"
    );
    let limit = format!(
        r"keep (?:[^ ,]+ ){{1,5}}(?:under|below|within|above|over|shorter than|at most|to at most) {QUANTITY}"
    );
    // Without `\b`, as for the cues.
    // "Anna gets German, Bob gets English": for whom, and in which language.
    let languages = format!(
        r"(?:gets?|reads?|bekommt|kriegt) (?:{LANGUAGES})|(?:{LANGUAGES}) (?:for|für|pour|para|per|dla|для) [^ ,]+,"
    );
    Regex::new(&format!(
        r"(?i)(?:{first})(?:\W|$)|(?:^|\W)(?:(?:{FORMS}|{DUTIES}|{languages})(?:\W|$)|{limit})|{FORM_SIGNS}"
    ))
    .ok()
});
static NO_ORDER: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(NO_ORDER_PATTERN).ok());

/// Whether a sentence has the form of a rule, though it has no cue.
pub(super) fn has_form(line: &str) -> bool {
    FORM.as_ref().is_some_and(|forms| forms.is_match(line))
        && !NO_ORDER.as_ref().is_some_and(|pattern| pattern.is_match(line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::find_rules;

    #[test]
    fn the_patterns_compile() {
        assert!(FORM.is_some() && NO_ORDER.is_some());
    }

    #[test]
    fn rules_without_a_cue_are_found() {
        for text in [
            "Use British spelling throughout.",
            "Let's stick to Celsius.",
            "Please stop apologising.",
            "I'd be grateful if you kept the answers short.",
            "Anna gets German, Bob gets English.",
            "German for Anna, English for Bob.",
            "Keep the tone formal.",
            "Alle Preise bitte inklusive Mehrwertsteuer.",
            "所有日期请用ISO格式。",
            "Every endpoint needs a rate limit.",
            "I don't want any global state.",
            "Ask me before you change the schema.",
            "Anything about billing needs my approval.",
            "The folder certs is off limits.",
            "Leave the old migrations alone.",
            "Treat everything in this folder as read-only.",
            "Restarts only between 2 and 4 am.",
            "Amounts are in euros unless otherwise stated.",
            "Ohne meine Zustimmung wird nichts gelöscht.",
            "Finger weg vom Ordner certs.",
            "Pas de nouveaux modules, s'il te plaît.",
            "Nada de abreviaturas, por favor.",
            "未经我的批准禁用任何功能。",
            "承認なしに設定を変更しないこと。",
            "Без моего разрешения ничего не удалять.",
            "ممنوع الحذف بدون إذني.",
            "Each public type should implement Debug.",
            "All timestamps in logs have to be UTC.",
            "Please write all error messages in American English.",
            "Keep lines below a hundred characters.",
            "Amounts are integers in cents, without exception.",
            "Use macros, but only for enums.",
            "Don't rename public functions.",
            "No TODO comments in merged code.",
            "Bitte keine Abkürzungen in Variablennamen.",
            "Jede Tabelle braucht einen Primärschlüssel.",
            "Verwende nicht die globale Konfiguration.",
            "Chaque module doit avoir un test.",
            "N'utilise pas de variables globales.",
            "No uses variables globales.",
            "Não use variáveis globais.",
            "Non usare variabili globali.",
            "Gebruik geen globale variabelen.",
            "Nie używaj zmiennych globalnych.",
            "Не меняй публичные интерфейсы.",
            "Каждая таблица должна иметь ключ.",
            "Her tablo bir anahtar içermeli.",
            "Setiap tabel harus punya kunci.",
            "Đừng đổi tên hàm công khai.",
            "每个接口都要有超时。",
            "公開関数の名前を変えないでください。",
            "Use pnpm, not npm.",
            "We use pnpm, not npm.",
            "Use tabs not spaces.",
            "Run tests with pytest -x, not unittest.",
            "Verwende pnpm, nicht npm.",
            "Utilise pnpm, pas npm.",
            "Usa pnpm, no npm.",
            "Используй pnpm, а не npm.",
            "Kommentare müssen auf Deutsch sein.",
            "Die API muss auf Port 8080 bleiben.",
            "Die Datei darf nicht gelöscht werden.",
            "Les commits doivent être signés.",
            "Los commits deben estar firmados.",
            "Os commits devem ser assinados.",
            "I commit devono essere firmati.",
            "Commits moeten ondertekend zijn.",
            "Код должен быть покрыт тестами.",
            "يجب أن تكون التعليقات بالعربية.",
            "コメントは英語で書いてください。",
            "Keine Emojis in der Doku.",
            "공개 함수 이름을 바꾸지 마세요.",
        ] {
            assert_eq!(Vec::from_iter(find_rules(text)), [text]);
        }
    }

    #[test]
    fn requests_and_statements_are_not_taken_for_rules() {
        for text in [
            "Don't worry about the deadline.",
            "No problem in the parser then.",
            "All I need is the name of the file.",
            "Please list all files in src.",
            "Every morning I drink a cup of tea.",
            "Keep going with the next part.",
            "I don't want to bother you.",
            "Leave a note in the log.",
            "Who needs the approval of the lead?",
            "Ask the server for its version.",
            "Only the parser is left.",
            "Keine Ahnung in welcher Datei das ist.",
            "Keine Fehler in der Konsole.",
            "Das muss ein Fehler im Parser sein.",
            "Ça doit être un bug.",
            "Eso debe ser un error.",
            "Run the tests, not sure whether they pass.",
            "Muss ich die Datei löschen?",
            "この関数をRustで書いてください。",
            "Это должно быть ошибка.",
            "Use the file that does not crash.",
            "Ich muss heute noch in die Stadt gehen und beim Arzt sein.",
            "Покажи все файлы.",
        ] {
            assert_eq!(find_rules(text).count(), 0, "{text}");
        }
    }
}
