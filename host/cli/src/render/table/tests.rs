//! Tests of the terminal report.

use super::super::sample;
use super::*;

#[test]
fn one_run_shows_every_turn() {
    insta::assert_snapshot!(render(&sample::troubled(), TextStyle::default()));
}

#[test]
fn several_runs_are_compared() {
    insta::assert_snapshot!(render(&sample::compared(), TextStyle::default()));
}

#[test]
fn a_narrow_terminal_wraps_and_loses_nothing() {
    let words = |text: &str| {
        let mut words: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
        // Text below its row has no column name above it.
        words.retain(|word| !word.starts_with('─') && word != "prompt" && word != "reason");
        words.sort();
        words
    };
    for width in [60, 80, 100, 140, 160, 300] {
        let narrow = TextStyle { color: false, width: Some(width) };
        for report in [sample::troubled(), sample::compared()] {
            let wide = render(&report, TextStyle::default());
            assert_eq!(words(&render(&report, narrow)), words(&wide), "{width} columns");
        }
    }
}

#[test]
fn a_narrow_terminal_puts_long_text_below_its_row() {
    let narrow = TextStyle { color: false, width: Some(100) };
    insta::assert_snapshot!("narrow", render(&sample::troubled(), narrow));
    insta::assert_snapshot!("narrow_side_by_side", render(&sample::compared(), narrow));
    let wider = TextStyle { color: false, width: Some(150) };
    insta::assert_snapshot!("wrapped", render(&sample::troubled(), wider));
}

#[test]
fn colour_changes_no_text() {
    let colored = render(&sample::troubled(), TextStyle { color: true, width: None });
    assert!(colored.contains("\u{1b}[1m\u{1b}[31m"), "a violation is red");
    let plain = anstream::adapter::strip_str(&colored).to_string();
    assert_eq!(plain, render(&sample::troubled(), TextStyle::default()));
}
