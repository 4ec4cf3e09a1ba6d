//! Edits: what is replaced, what stays, what is refused.

use std::path::Path;

use proptest::prelude::*;
use serde_json::json;

use super::stage::Stage;
use crate::builtin::replace_once;

#[tokio::test]
async fn one_match_is_replaced_and_reported() {
    let stage = Stage::new();
    stage.write("a.rs", "fn a() {}\nfn b() {}\n");
    let arguments = json!({"path": "a.rs", "old_text": "fn b() {}", "new_text": "fn c() {\n}"});
    let text = stage.call_ok("edit", arguments).await;
    assert!(text.ends_with("a.rs at line 2: 1 lines became 2"), "{text}");
    assert_eq!(stage.text_of("a.rs"), "fn a() {}\nfn c() {\n}\n");
}

#[tokio::test]
async fn a_text_without_exactly_one_match_is_refused() {
    let stage = Stage::new();
    let text = "let a = 1;\n    let b = 2;\nlet a = 1;\naaa\n";
    stage.write("a.rs", text);
    stage.write("binary", b"\xff\xfe");
    let long = "x\n".repeat(20);
    stage.write("many", &long);
    let cases = [
        ("a.rs", "let a = 1;", "2 times, at lines 1, 3"),
        ("a.rs", "aa", "2 times, at lines 4, 4"),
        ("a.rs", "let c", "is not in"),
        ("a.rs", "let b = 2;\nlet d", "but line 2 matches its first line"),
        ("a.rs", "", "old_text is empty"),
        ("a.rs", "new", "are equal"),
        ("binary", "x", "is a binary file of 2 bytes"),
        ("nowhere", "x", "does not exist"),
        (".", "x", "is a folder"),
        ("many", "x", "20 times, at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ..."),
    ];
    for (path, old, words) in cases {
        let arguments = json!({"path": path, "old_text": old, "new_text": "new"});
        let text = stage.call_error("edit", arguments).await;
        assert!(text.contains(words), "{path} {old:?}: {text}");
    }
    assert_eq!(stage.text_of("a.rs"), text);
    assert_eq!(stage.text_of("many"), long);
}

#[tokio::test]
async fn crlf_line_endings_stay() {
    let stage = Stage::new();
    stage.write("a.txt", "one\r\ntwo\r\nthree\r\n");
    let arguments = json!({"path": "a.txt", "old_text": "one\ntwo\n", "new_text": "1\n2\n2b\n"});
    stage.call_ok("edit", arguments).await;
    assert_eq!(stage.text_of("a.txt"), "1\r\n2\r\n2b\r\nthree\r\n");
    let arguments = json!({"path": "a.txt", "old_text": "three", "new_text": "3\n4"});
    stage.call_ok("edit", arguments).await;
    assert_eq!(stage.text_of("a.txt"), "1\r\n2\r\n2b\r\n3\r\n4\r\n");
}

#[tokio::test]
async fn concurrent_edits_are_all_kept() {
    let stage = Stage::new();
    let lines = (0..40).map(|number| format!("<{number}>\n")).collect::<String>();
    stage.write("a.txt", &lines);
    let edit = |number: usize| {
        let old = format!("<{number}>");
        let arguments =
            json!({"path": "a.txt", "old_text": old, "new_text": format!("{number} done")});
        stage.call_ok("edit", arguments)
    };
    futures_util::future::join_all((0..40).map(edit)).await;
    assert_eq!(stage.text_of("a.txt").matches("done").count(), 40);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// All bytes around the old text stay, with any line endings.
    #[test]
    fn bytes_around_an_edit_stay(
        before in "[ab\r\n é]{0,12}",
        old in "[xy\n]{1,6}",
        after in "[ab\r\n é]{0,12}",
        new in "[ab\nxyé]{0,8}",
    ) {
        prop_assume!(old != new);
        let text = format!("{before}{old}{after}");
        match replace_once(Path::new("a"), &text, &old, &new) {
            Ok((place, result)) => {
                prop_assert_eq!(&text[place.clone()], old.as_str());
                prop_assert!(result.starts_with(&text[..place.start]));
                prop_assert!(result.ends_with(&text[place.end..]));
                let middle = &result[place.start..result.len() - (text.len() - place.end)];
                prop_assert_eq!(middle.replace("\r\n", "\n"), new);
            }
            // Refused only with more than one match.
            Err(_) => {
                let all = (0..text.len()).filter(|&at| text.is_char_boundary(at));
                prop_assert!(all.filter(|&at| text[at..].starts_with(&old)).count() > 1);
            }
        }
    }

    #[test]
    fn a_file_without_the_old_text_is_never_changed(text in "[a-f\n]{0,40}", new in ".{0,5}") {
        prop_assert!(replace_once(Path::new("a"), &text, "X", &new).is_err());
    }
}
