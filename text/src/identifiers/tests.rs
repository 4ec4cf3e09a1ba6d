//! Tests of what is recognised, what is not, and the time that it takes.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::IdentifierKind as Kind;
use super::*;

fn found(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for_each_identifier(text, |identifier| names.push(identifier.text));
    names
}

fn kinds(text: &str) -> Vec<(Kind, &str)> {
    let mut names = Vec::new();
    for_each_identifier(text, |identifier| names.push((identifier.kind, identifier.text)));
    names
}

fn check(text: &str, expected: &[&str]) {
    assert_eq!(extract([text], MAX_IDENTIFIERS), expected, "{text}");
}

#[test]
fn case_56_what_counts_as_an_identifier() {
    check("see https://example.com/a?b=1, then", &["https://example.com/a?b=1"]);
    check("run /usr/local/bin/tool.", &["/usr/local/bin/tool"]);
    check("commit deadbeefcafe", &["deadbeefcafe"]);
    check("order 123456 and port 8080", &["123456"]);
    check("id 550e8400-e29b-41d4-a716-446655440000!", &["550e8400-e29b-41d4-a716-446655440000"]);
    check("just /a here", &[]);
    check("host db.example.com:5432", &["db.example.com:5432"]);
    check(r"open C:\work\notes.txt", &[r"C:\work\notes.txt"]);
    check("see main.rs:120 and agent-session.ts:16", &[]);
    check("pi is 3.14159265 and 1.5e10", &[]);
    check("create mode 100644 kit.rs", &[]);
}

#[test]
fn case_56_at_most_twelve() {
    let many = (0..20).map(|n| format!("{}", 100_000 + n)).collect::<Vec<_>>().join(" ");
    assert_eq!(extract([many.as_str()], MAX_IDENTIFIERS).len(), 12);
}

#[test]
fn each_kind_of_code_is_found() {
    for (text, names) in [
        ("see ./src/main.rs:12 and `Cargo.toml`.", &["src/main.rs", "Cargo.toml"][..]),
        ("in /srv/app, ~/notes/a or host/cli/src", &["/srv/app", "~/notes/a", "host/cli/src"]),
        ("at https://a.example/b?c=1, then", &["https://a.example/b?c=1"]),
        ("commit deadbeef12 fixes PROJ-1234 in v2.4.1", &["deadbeef12", "PROJ-1234", "v2.4.1"]),
        ("listens on port 8080, localhost:3000", &["8080", "localhost:3000"]),
        ("call parseBody, parse_body and http::Body", &["parseBody", "parse_body", "http::Body"]),
        (
            "this.agent?.setModel(ctx:ToolContext, ...restArgs)",
            &["setModel", "ToolContext", "restArgs"],
        ),
        ("and/or 1.5 e.g. UTF-8 i.e. self.state 12 km/h", &[]),
        ("RUST_LOG=debug", &["RUST_LOG"]),
        ("order 123456 of 2026-11-23", &["123456", "2026-11-23"]),
        ("see main.rs:120 and agent-session.ts:16", &["main.rs", "agent-session.ts"]),
        ("pi is 3.14159265 and 1.5e10", &[]),
        ("create mode 100644 kit.rs", &["kit.rs"]),
    ] {
        assert_eq!(found(text), names, "{text}");
    }
}

#[test]
fn each_kind_that_people_write_is_found() {
    for (text, kind, name) in [
        (
            "open /srv/jürgen/Dokumente/Müller.xlsx now",
            Kind::File,
            "/srv/jürgen/Dokumente/Müller.xlsx",
        ),
        ("in 研究/データ.csv ist", Kind::File, "研究/データ.csv"),
        ("研究/データ.csvを開いて", Kind::File, "研究/データ.csv"),
        ("ファイルはsrc/main.rsです", Kind::File, "src/main.rs"),
        (
            "open \"/srv/max/Meine Dokumente/Liste 2.pdf\" please",
            Kind::File,
            "/srv/max/Meine Dokumente/Liste 2.pdf",
        ),
        ("in „Meine Rechnungen/März 2024.pdf“ steht", Kind::File, "Meine Rechnungen/März 2024.pdf"),
        ("'C:\\Program Files\\App\\app.exe' fails", Kind::File, "C:\\Program Files\\App\\app.exe"),
        ("see C:\\Daten\\Jürgen\\a.txt, please", Kind::File, "C:\\Daten\\Jürgen\\a.txt"),
        ("on \\\\server\\share\\x.docx.", Kind::File, "\\\\server\\share\\x.docx"),
        ("siehe Rechnung_2024.pdf", Kind::File, "Rechnung_2024.pdf"),
        ("Änderungsübersicht.docx bitte", Kind::File, "Änderungsübersicht.docx"),
        (
            "write to max.mueller+test@example.co.uk.",
            Kind::Contact,
            "max.mueller+test@example.co.uk",
        ),
        ("mail:jürgen@müller.de", Kind::Contact, "jürgen@müller.de"),
        ("<mailto:a@example.org>", Kind::Contact, "a@example.org"),
        ("邮箱是max@example.com，谢谢", Kind::Contact, "max@example.com"),
        ("call +49 170 1234567 today", Kind::Contact, "+49 170 1234567"),
        ("Tel. 030/12345678.", Kind::Contact, "030/12345678"),
        ("ring 0170-1234567", Kind::Contact, "0170-1234567"),
        ("call 555-867-5309 now", Kind::Contact, "555-867-5309"),
        ("+1 (555) 867-5309", Kind::Contact, "+1 (555) 867-5309"),
        ("host 192.168.178.20 down", Kind::Address, "192.168.178.20"),
        ("at 10.0.0.1:5432,", Kind::Address, "10.0.0.1:5432"),
        ("net 10.0.0.0/8", Kind::Address, "10.0.0.0/8"),
        ("ip 2001:db8::1.", Kind::Address, "2001:db8::1"),
        ("[fe80::1%eth0]", Kind::Address, "fe80::1%eth0"),
        ("MAC 00:1a:2b:3c:4d:5e", Kind::Address, "00:1a:2b:3c:4d:5e"),
        ("git@github.com:owner/name.git", Kind::Address, "git@github.com:owner/name.git"),
        ("Siehe https://ja.example/研究。", Kind::Address, "https://ja.example/研究"),
        (
            "(https://en.example/Rust_(language))",
            Kind::Address,
            "https://en.example/Rust_(language)",
        ),
        ("请看https://a.example/b然后", Kind::Address, "https://a.example/b"),
        ("order ORD-2024-00817 is late", Kind::Reference, "ORD-2024-00817"),
        ("ticket #48213,", Kind::Reference, "#48213"),
        ("invoice INV/2023/55.", Kind::Reference, "INV/2023/55"),
        ("订单号ORD-2024-00817已发货", Kind::Reference, "ORD-2024-00817"),
        ("booking LX8K2P please", Kind::Reference, "LX8K2P"),
        ("flight LH1234", Kind::Reference, "LH1234"),
        ("IBAN DE89 3704 0044 0532 0130 00 bitte", Kind::Reference, "DE89 3704 0044 0532 0130 00"),
        ("IBAN: GB29NWBK60161331926819.", Kind::Reference, "GB29NWBK60161331926819"),
        ("it costs € 1.249,50 in total", Kind::Amount, "€ 1.249,50"),
        ("a budget of $3,400.", Kind::Amount, "$3,400"),
        ("kostet 1.249,50 € brutto", Kind::Amount, "1.249,50 €"),
        ("1 200 CHF", Kind::Amount, "1 200 CHF"),
        ("EUR 99", Kind::Amount, "EUR 99"),
        ("费用3000元", Kind::Amount, "3000元"),
        ("₹5,00,000", Kind::Amount, "₹5,00,000"),
        ("on 2026-11-23 we", Kind::Date, "2026-11-23"),
        ("at 2026-11-23T10:15:30.5+01:00", Kind::Date, "2026-11-23T10:15:30.5+01:00"),
        ("am 23.11.2026 um", Kind::Date, "23.11.2026"),
        ("due 11/23/26", Kind::Date, "11/23/26"),
        ("am 3. März 2025 dort", Kind::Date, "3. März 2025"),
        ("on March 3, 2025 there", Kind::Date, "March 3, 2025"),
        ("le 12 mai 2025", Kind::Date, "12 mai 2025"),
        ("el 5 de mayo de 2025", Kind::Date, "5 de mayo de 2025"),
        ("会议在2024年3月5日举行", Kind::Date, "2024年3月5日"),
        ("um 14:30 Uhr", Kind::Date, "14:30 Uhr"),
        ("meet at 3pm", Kind::Date, "3pm"),
        ("the port 5433 is", Kind::Port, "5433"),
        ("PORT=5433", Kind::Port, "5433"),
        ("端口5433", Kind::Port, "5433"),
        (
            "id 550e8400-e29b-41d4-a716-446655440000",
            Kind::Code,
            "550e8400-e29b-41d4-a716-446655440000",
        ),
        ("version 1.0.0-beta.2", Kind::Code, "1.0.0-beta.2"),
        ("set DATABASE_URL first", Kind::Variable, "DATABASE_URL"),
        ("${DATABASE_URL}", Kind::Variable, "DATABASE_URL"),
        ("with --no-verify=true", Kind::Flag, "--no-verify"),
        ("on feature/login-form,", Kind::Branch, "feature/login-form"),
        ("the branch kit-3", Kind::Branch, "kit-3"),
        ("call the project \"Blue Heron\" from here", Kind::Quotation, "Blue Heron"),
        ("das Projekt heißt „Blauer Reiher“.", Kind::Quotation, "Blauer Reiher"),
        ("first this; the project is \"Blue Heron\".", Kind::Quotation, "Blue Heron"),
        ("项目叫「蓝鹭」", Kind::Quotation, "蓝鹭"),
    ] {
        assert_eq!(kinds(text), [(kind, name)], "{text}");
    }
}

#[test]
fn what_only_looks_like_a_fact_is_none() {
    for text in [
        "it's the user's choice, isn't it",
        "echo $1 $HOME",
        "and/or und/oder/für",
        "12 h 5 % 100 200 300",
        "Use SHA256, UTF-16, HTTP/2 or ES2020.",
        "a = b ? c : d; x[0] = 'y'",
        "std::mem and a::b",
        "on Monday in May we saw 3 birds",
        "step 3 of 10, line 42",
        "import some from \"other\";",
        "'quoted' and 'words' here, he wrote 'Go away from my garden, you old fool'",
    ] {
        let names: Vec<_> =
            kinds(text).into_iter().filter(|(kind, _)| *kind != Kind::Symbol).collect();
        let names: Vec<_> =
            names.into_iter().filter(|(kind, _)| *kind != Kind::Quotation).collect();
        assert_eq!(names, [], "{text}");
    }
}

#[test]
fn a_secret_is_no_identifier() {
    check("use sk-1234567890abcdef and AKIAIOSFODNN7EXAMPLE", &[]);
    check("password=12345678abcdef", &[]);
    for text in [
        "use sk-1234567890abcdef",
        "password: deadbeefcafe12",
        "AKIAIOSFODNN7EXAMPLE",
        "my PIN is 483920",
        "the password is \"Blue Heron\"",
        "Passwort lautet LX8K2P",
        "密码是483920",
        "https://ann:hunter2hunter2@db.example/app",
    ] {
        assert_eq!(found(text), Vec::<&str>::new(), "{text}");
    }
}

#[test]
fn under_other_names_nothing_exact_is_left() {
    let text =
        "copy /srv/app/main.rs to https://example.com/a, commit deadbeefcafe, /srv/app/main.rs";
    let anonymous = anonymise(text);
    assert_eq!(extract([anonymous.as_ref()], 9), Vec::<String>::new(), "{anonymous}");
    assert_eq!(anonymous.matches("path-").count(), 2);
    let path = anonymous.split(' ').find(|word| word.starts_with("path-")).unwrap();
    assert_eq!(anonymous.matches(path).count(), 2, "the same name for the same path");
    assert!(
        anonymous.starts_with("copy path-")
            && anonymous.contains("url-")
            && anonymous.contains("id-")
    );
    assert_eq!(anonymise(&anonymous), anonymous, "once is enough");
    let people =
        anonymise("ask max@example.com, +49 170 1234567, about ORD-2024-00817").into_owned();
    assert!(!people.contains("max") && !people.contains("170") && !people.contains("00817"));
}

#[test]
fn hex_is_compared_without_case() {
    assert!(is_mentioned("DEADBEEF", "at deadbeef"));
    assert!(!is_mentioned("/Srv/Notes", "at /srv/notes"));
}

/// Prose in five languages.
const PROSE: [&str; 5] = [
    "The committee met again on the following morning and talked for hours about the weather, the harvest and the state of the roads. \"I do not agree,\" replied the oldest of them, and none of them answered. ",
    "Am nächsten Morgen trafen sich die Bürgermeister erneut und sprachen über das Wetter, die Ernte und den Zustand der Straßen. „Ich bin nicht einverstanden“, sagte der Älteste, und niemand antwortete. ",
    "Le lendemain matin, l'assemblée s'est réunie à nouveau et a parlé du temps, de la récolte et de l'état des routes. « Je ne suis pas d'accord », dit le plus âgé, et personne ne répondit. ",
    "Наутро совет собрался снова и долго говорил о погоде, об урожае и о состоянии дорог. «Я не согласен», — сказал старший, и никто не ответил. ",
    "第二天早上，委员会再次开会，谈论天气、收成和道路状况。“我不同意”，最年长的人说，没有人回答。",
];

#[test]
fn prose_has_few_identifiers() {
    for prose in PROSE {
        let text = prose.repeat(10_000 / prose.len() + 1);
        let names: HashSet<&str> = found(&text).into_iter().collect();
        assert!(names.len() <= 2, "{names:?}");
    }
}

/// Bytes that look random, always the same.
fn noise(bytes: usize) -> impl Iterator<Item = u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    })
    .take(bytes)
}

#[test]
fn data_does_not_flood() {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let base64: String =
        noise(20_000).map(|byte| char::from(alphabet[usize::from(byte) % 64])).collect();
    let lines: Vec<&str> = (0..200).map(|n| &base64[n * 76..(n + 1) * 76]).collect();
    assert!(found(&base64).is_empty());
    assert!(found(&lines.join("\n")).len() <= 4, "{:?}", found(&lines.join("\n")));
    let minified = "function a(b,c){var d=b.innerHTML,e=c.offsetTop;return d.appendChild(e)&&f.setTimeout(function(){g()},10)}".repeat(100);
    assert!(found(&minified).len() <= 256);
}

#[test]
fn the_time_is_linear_in_the_text() {
    // A debug build takes about a second for each; quadratic time would be hours.
    let limit = Duration::from_secs(20);
    for part in [
        "a", "/", "1", ".", "\"", "'a", "字", "a字", "1,", "+1 ", "A/", "1.", "@", "a@", "x:",
        "\\", "-", "12 ", "„", "C:\\", "https://", "a=", "AB12", "DE89 ", "1-", "é", "__", "::",
        "#1", "$1", "1年",
    ] {
        let text = part.repeat(1_000_000 / part.len());
        let start = Instant::now();
        for_each_identifier(&text, |_| {});
        assert!(start.elapsed() < limit, "{part}: {:?}", start.elapsed());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Every identifier is a slice of the text, in order, and nothing panics.
    #[test]
    fn identifiers_are_slices_of_any_text(text in r#"(\PC|[a-zA-Z0-9/\\.:,@+#$€"'„“ \n=_-]|é|字|の|年){0,200}"#) {
        let mut last = 0;
        for_each_identifier(&text, |identifier| {
            let end = identifier.start + identifier.text.len();
            assert_eq!(text.get(identifier.start..end), Some(identifier.text));
            last = identifier.start;
        });
        let _ = (last, anonymise(&text), extract([text.as_str()], 12));
        for_each_stated_fact(&text, |_| {});
        for_each_clean_identifier(&text, |_| {});
    }
}

#[test]
fn the_rest_of_a_path_behind_a_bracket_is_none() {
    for text in
        ["rename src/{tui => modes}/main.rs (100%)", "${ROOT}/tools/write.ts", "$(pwd)/tools/a.rs"]
    {
        let mut found = Vec::new();
        for_each_identifier(text, |identifier| found.push(identifier.text.to_owned()));
        assert!(!found.iter().any(|name| name.starts_with('/')), "{text}: {found:?}");
    }
}
