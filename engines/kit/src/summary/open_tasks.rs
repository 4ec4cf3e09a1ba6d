//! Open tasks: how messages announce them, and which later lines report them as done.

use std::sync::LazyLock;

use ctxhost_text::search::distinct_terms;
use regex::Regex;

/// Marks a task of an earlier summary.
pub(super) const EARLIER: &str = "(earlier) ";

/// Words that announce an open task anywhere in a sentence.
const TASK_PATTERN: &str = concat!(
    r"(?i)^\[ \]|\btodo\b|\bstill need|\bremaining (?:work|task|step)|\bleft to do\b|\bstill (?:to do|open|missing)\b|\blater (?:we|i)(?: also| still| will)* (?:need|have to|must)\b",
    r"|\b(?:don['’]t forget to|remind me to|vergiss nicht|erinnere mich|n['’]oublie[rz]? pas|rappelle[- ]moi|no (?:te )?olvides|recuérdame|não (?:se )?esqueça|lembre-me|non dimenticare|ricordami|vergeet niet|herinner me|nie zapomnij|przypomnij mi|не забудь(?:те)?|напомни(?:те)?|нагадай|jangan lupa|ingatkan|đừng quên|nhắc tôi)\b",
    r"|\b(?:noch (?:zu tun|zu erledigen|offen)|fehlt noch|reste à faire|queda por|falta por|por hacer|a fazer|da fare|nog te doen|do zrobienia|ещё (?:нужно|надо|осталось)|ще треба)\b",
    r"|待办|待辦|还需要|還需要|尚未|别忘了|別忘了|提醒我|未完成|未対応|やること|忘れないで|할 일|미완료|لا تنس|ذكرني|याद दिला",
);
/// Orders that are postponed: "later, please also update the changelog", "when the tests are green, bump the version".
const POSTPONED_PATTERN: &str = concat!(
    r"(?i)\blater,? (?:when|once|after|please|also|on,? please)\b|^(?:(?:and|but|then),? )?(?:when|once|after|as soon as) [^.;:!?]{2,60}\b(?:done|finished|complete|completed|ready|merged|green|over|through|passes|pass),? (?:please|also|then|you (?:can|should|must)|update|add|remove|write|bump|delete|run|rename)\b|\b(?:please|also|and) [^.;:!?]{3,80}\b(?:at the very end|when (?:you are|you['’]re|everything(?: else)? is|all (?:else )?is) done)\b",
    r"|^(?:später|danach|zum schluss|am ende|nachher)[, ][^.;:!?]{0,80}\b(?:bitte|noch|auch)\b|^(?:wenn|sobald) [^.;:!?]{2,60}\b(?:fertig|erledigt|grün|durch) (?:ist|sind),? (?:bitte|dann|auch)\b",
    r"|^(?:plus tard|ensuite|à la fin|une fois|dès que|quand)[, ][^.;:!?]{0,80}\b(?:s['’]il (?:te|vous) plaît|aussi|pense[rz]? à)|^(?:más tarde|después|luego|al final|cuando)[, ][^.;:!?]{0,80}\b(?:por favor|también)|^(?:mais tarde|depois|no final|quando)[, ][^.;:!?]{0,80}\b(?:por favor|também)",
    r"|^(?:più tardi|dopo|alla fine|quando)[, ][^.;:!?]{0,80}\b(?:per favore|anche)\b|^(?:later|straks|daarna|als)[, ][^.;:!?]{0,80}\b(?:alsjeblieft|graag|ook)\b|^(?:później|potem|na końcu|gdy|kiedy)[, ][^.;:!?]{0,80}\b(?:proszę|też|także)\b",
    r"|^(?:потом|позже|в конце|когда|пізніше|потім|коли)[, ][^.;:!?]{0,80}\b(?:пожалуйста|также|тоже|будь ласка|також)|^(?:nanti|setelah)[, ][^.;:!?]{0,80}\b(?:tolong|juga)\b|^(?:sau này|sau khi)[, ][^.;:!?]{0,80}(?:hãy|cũng)",
    r"|(?:稍后|稍後|以后|之后|最后|完成后|完成後)[^。！？]{0,30}(?:请|請|再|也)[^。！？]+|(?:後で|あとで|最後に|終わったら|完了したら)[^。]{0,60}(?:ください|下さい)|(?:나중에|끝나면|마지막에)[^.]{0,60}(?:주세요|해줘)|لاحقا[^.]{0,60}(?:من فضلك|أيضا)|बाद में[^।]{0,60}(?:कृपया|भी)",
);
/// Labels of open tasks, which mean something else without their colon.
const LABEL_PATTERN: &str = concat!(
    r"(?i)^(?:still |noch |encore |aún |ancora |nog |ещё |ще )?(?:remaining|left|open|outstanding|pending|missing|open (?:points?|items?|tasks?|questions?|issues?)|to do|offen|ausstehend|offene (?:punkte|aufgaben)|fehlt|reste|restant|à faire|en suspens|pendientes?|falta|queda",
    r"|pendentes?|resta|falta fazer|in sospeso|rimane|resta da fare|openstaand|resterend|pozostało|zostało|осталось|не сделано|залишилос[ья]|kalan|yapılacaklar|sisanya|yang tersisa|còn lại|cần làm",
    r"|剩余|剩餘|剩下|还剩|還剩|残り|残作業|남은 (?:일|작업)|المتبقي|متبق[يٍ]?|बाकी|शेष)\s?[:：]",
);

/// What a model promises to do later, in the languages of the tasks. What it does at once its calls record.
const PROMISE_PATTERN: &str = concat!(
    r"(?i)\bi(?:['’]ll| will| shall) (?:also|come back to|get back to|remind you|follow up)\b|\bi (?:promise|owe you)\b",
    r"|\bi(?:['’]ll| will| shall) [^.;:!?]{0,80}\b(?:at the end|afterwards?|later|once|as soon as|when (?:we|you|i|the|that|this|it)|before (?:we|you|i|the)|after (?:we|you|i|the|that|this))\b",
    r"|\b(?:at the end|afterwards?|later(?: on)?|(?:once|when|as soon as|before|after) [^,.;:]{3,60}),? i(?:['’]ll| will| shall)\b",
    r"|\bich [^.;:!?]{0,60}\b(?:am ende|zum schluss|später|danach|anschließend|nachher|sobald)\b|\b(?:am ende|zum schluss|später|danach|anschließend|nachher|sobald [^,.;:]{3,60},) [^ ,.;:]+ ich\b|\bich werde (?:auch|noch)\b",
    r"|\b(?:à la fin|plus tard|ensuite|une fois [^,.;:]{3,60}|dès que [^,.;:]{3,60}),? je\b|\bje [^.;:!?]{0,60}\b(?:à la fin|plus tard|ensuite)\b|\bje vais aussi\b",
    r"|\b(?:al final|más tarde|después|cuando [^,.;:]{3,60}|en cuanto [^,.;:]{3,60}),? [^ ,.;:]+[aei]ré\b|\b(?:también|al final) (?:voy a\b|[^ ,.;:]+[aei]ré\b)|\b(?:no final|mais tarde|depois),? (?:eu )?vou\b|\btambém vou\b|\b(?:alla fine|più tardi|dopo),? [^ ,.;:]+[aei]rò\b|\banche [^ ,.;:]+[aei]rò\b",
    r"|\b(?:в конце|потом|позже|после этого|как только [^,.;:]{3,60},) я\b|\bя (?:также|ещё|потом|позже|в конце)\b|\b(?:na końcu|później|potem) [^ ,.;:]+ę\b",
    r"|(?:最后|最後|稍后|稍後|之后|之後|完成后|完成後|等[^。，,]{1,20}[，,]?)我(?:会|會|再|来|來)|我(?:还|還|也|稍后|稍後|之后|之後|最后|最後)[会會]|(?:最後に|後で|あとで|その後|完了したら|終わったら)[^。]{0,40}ます|(?:나중에|마지막에|끝나면|이후에)[^.]{0,40}(?:겠습니다|게요)",
);

static TASK: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(TASK_PATTERN).ok());
static LABEL: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(LABEL_PATTERN).ok());
static POSTPONED: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(POSTPONED_PATTERN).ok());
static PROMISE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(PROMISE_PATTERN).ok());

/// Common terms from which a line is about a task.
const LEAST_TERMS: usize = 2;
/// Longest label before a task, in bytes.
const LABEL_BYTES: usize = 48;

/// Whether a text announces an open task.
pub(super) fn announces_task(text: &str) -> bool {
    let holds = |pattern: &LazyLock<Option<Regex>>| {
        pattern.as_ref().is_some_and(|pattern| pattern.is_match(text))
    };
    holds(&TASK) || holds(&LABEL)
}

/// Whether a user postpones an order. A model that says the same promises a step.
pub(super) fn postpones_order(text: &str) -> bool {
    POSTPONED.as_ref().is_some_and(|pattern| pattern.is_match(text))
}

/// Whether a text of a model promises a later step.
pub(super) fn promises_step(text: &str) -> bool {
    PROMISE.as_ref().is_some_and(|pattern| pattern.is_match(text))
}

/// Whether a later line reports a task: it has at least half of its words.
pub(super) fn is_reported(task: &str, line: &str) -> bool {
    let task = task.strip_prefix(EARLIER).unwrap_or(task);
    let task = task.trim_start_matches("[ ]");
    let label = task.split_once([':', '：']).filter(|(label, _)| label.len() <= LABEL_BYTES);
    let terms = distinct_terms(label.map_or(task, |(_, rest)| rest));
    let other = distinct_terms(line);
    let common = terms.iter().filter(|term| other.contains(term)).count();
    common >= LEAST_TERMS.min(terms.len().max(1)) && common * 2 >= terms.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_patterns_compile() {
        assert!(TASK.is_some() && LABEL.is_some() && PROMISE.is_some() && POSTPONED.is_some());
    }

    #[test]
    fn open_tasks_are_announced_in_many_languages() {
        for text in [
            "Remaining: remove the feature flag fast_cart.",
            "Open points: the webhook.",
            "Noch offen: der Index auf carts.user_id.",
            "Reste à faire : la migration.",
            "Pendiente: añadir el índice.",
            "Осталось: добавить индекс.",
            "待办:给 carts.user_id 加索引。",
            "残り:carts.user_id にインデックスを追加する。",
            "남은 작업: 인덱스 추가",
            "Don't forget to rotate the key.",
        ] {
            assert!(announces_task(text), "{text}");
        }
        for text in ["The remaining time is short.", "The file is open.", "Der Laden ist offen."] {
            assert!(!announces_task(text), "{text}");
        }
    }

    #[test]
    fn postponed_orders_are_known_in_many_languages() {
        for text in [
            "Later, when everything else is done, please also update CHANGELOG.md.",
            "When the tests are green, please bump the version.",
            "Später bitte noch das CHANGELOG ergänzen.",
            "Sobald alles fertig ist, bitte die Version erhöhen.",
            "Plus tard, mets aussi à jour le journal.",
            "Más tarde, actualiza también el registro.",
            "Потом, пожалуйста, обнови журнал.",
            "稍后请再更新日志。",
            "終わったら変更履歴も更新してください。",
        ] {
            assert!(postpones_order(text), "{text}");
        }
        for text in [
            "When the server is done, it prints a line.",
            "Read the later part of the file.",
            "Cuando arranca, imprime una línea.",
            "Später war der Server weg.",
        ] {
            assert!(!postpones_order(text), "{text}");
        }
    }

    #[test]
    fn a_report_ends_a_task_and_another_line_does_not() {
        for (task, line, is_done) in [
            ("TODO: add the index on carts.user_id.", "I added the index on carts.user_id.", true),
            ("(earlier) Next I will bump the client to 4.2.", "The client is at 4.2 now.", true),
            (
                "Noch offen: der Index auf carts.user_id.",
                "Der Index auf carts.user_id ist da.",
                true,
            ),
            ("待办:给 carts.user_id 加索引。", "carts.user_id 的索引已经加好了。", true),
            (
                "TODO: add the index on carts.user_id.",
                "I read src/carts.rs and ran its tests.",
                false,
            ),
            ("Write the docs.", "Run the tests.", false),
        ] {
            assert_eq!(is_reported(task, line), is_done, "{task} / {line}");
        }
    }
}
