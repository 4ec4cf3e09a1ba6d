//! Tests of slot selection.

use super::*;

#[track_caller]
fn check(text: &str, configured: &str, engine: &str, reason: Option<&str>) {
    let choice = parse(text).slot();
    let expected = SlotChoice {
        configured: configured.into(),
        engine: engine.into(),
        reason: reason.map(str::to_owned),
    };
    assert_eq!(choice, expected, "{text}");
}

fn slot(value: &str) -> String {
    format!("[plugins.slots]\ncontext_engine = {value}\n")
}

#[test]
fn an_invalid_slot_falls_back_to_legacy() {
    check("", "legacy", "legacy", None);
    check(&slot("\"legacy\""), "legacy", "legacy", None);
    check(&slot("\"  \""), "  ", "legacy", Some("the slot is blank"));
    check(&slot("42"), "42", "legacy", Some("the slot holds a number, not an engine id"));
    check(&slot("[]"), "", "legacy", Some("the slot's list is empty"));
    let odd = "the slot's list holds a value that is not an engine id";
    check(&slot("[\"mask\", 7]"), "[\"mask\", 7]", "legacy", Some(odd));
    for none in ["none", "None", "NONE"] {
        let reason = format!("`{none}` disables the slot, and a host needs an engine");
        check(&slot(&format!("{none:?}")), none, "legacy", Some(&reason));
    }
}

#[test]
fn a_disabled_engine_falls_back_to_legacy() {
    let mask = slot("\"mask\"");
    check(&mask, "mask", "mask", None);
    check(&slot("\" mask \""), " mask ", "mask", None);
    let with = |more: &str, reason| {
        check(&format!("{more}\n{mask}"), "mask", "legacy", Some(reason));
    };
    with("[plugins]\nenabled = false", "plugins.enabled is false");
    with("[plugins]\ndeny = [\"mask\"]", "plugins.deny lists `mask`");
    with("[plugins.entries.mask]\nenabled = false", "plugins.entries.mask.enabled is false");
}

#[test]
fn chains_are_one_word() {
    let chain = slot("[\"mask\", \" legacy\"]");
    check(&chain, "mask+legacy", "mask+legacy", None);
    check(&slot("[\"mask\"]"), "mask", "mask", None);
    let denied = format!("[plugins]\ndeny = [\"mask\"]\n{chain}");
    check(&denied, "mask+legacy", "legacy", Some("plugins.deny lists `mask`"));
    let off = format!("[plugins]\nenabled = false\n{}", slot("[\"mask\", \"window\"]"));
    check(&off, "mask+window", "legacy", Some("plugins.enabled is false"));
    let blank = slot("[\"mask\", \"none\"]");
    check(&blank, "mask+none", "mask", Some("\"none\" in the slot's list is not an engine"));
}

#[test]
fn disabled_shadows_are_left_out() {
    let shadow = "[plugins.slots]\nshadow = [\"mask\", \"mask+legacy\", \"window\"]\n";
    assert_eq!(parse("").shadows(), Vec::<String>::new());
    assert_eq!(parse(shadow).shadows(), ["mask", "mask+legacy", "window"]);
    let denied = format!("[plugins]\ndeny = [\"mask\"]\n{shadow}");
    assert_eq!(parse(&denied).shadows(), ["window"]);
}

#[test]
fn a_list_of_allowed_engines_does_not_disable_the_slot() {
    check(&format!("[plugins]\nallow = [\"window\"]\n{}", slot("\"mask\"")), "mask", "mask", None);
    let config = parse("[plugins]\nallow = [\"window\"]\n");
    assert!(config.plugins.allows("window"));
    assert!(!config.plugins.allows("mask"));
}

#[test]
fn legacy_cannot_be_disabled() {
    check(&format!("[plugins]\nenabled = false\n{}", slot("\"legacy\"")), "legacy", "legacy", None);
    check("[plugins]\ndeny = [\"legacy\"]\n", "legacy", "legacy", None);
}

#[test]
fn memory_is_off_by_default() {
    let memory = |value: &str| parse(&format!("[plugins.slots]\nmemory = {value}\n")).memory();
    assert_eq!(parse("").memory(), None);
    assert_eq!(memory("\"None\""), None);
    assert_eq!(memory("7"), None);
    assert_eq!(memory("\"notes\""), Some("notes".into()));
}
