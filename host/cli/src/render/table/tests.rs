//! Tests of the terminal report.

use super::super::sample;
use super::super::sanitize::sanitize;
use super::super::wrap::{widest_line, wrap};
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
fn every_width_is_kept_and_no_figure_is_lost() {
    let figures = |text: &str| {
        let text = text.replace(DASH, " ");
        let words = text
            .split_whitespace()
            .filter(|word| word.contains(|char: char| char.is_ascii_digit()));
        // Each block of stacked rows repeats the names of the columns.
        let words = words.filter(|word| !word.starts_with("p50") && !word.starts_with("p99"));
        let mut words: Vec<String> = words.map(str::to_owned).collect();
        words.sort();
        words
    };
    for width in [40, 60, 80, 100, 140, 160, 300] {
        let narrow = TextStyle { color: false, width: Some(width) };
        for report in [sample::troubled(), sample::compared()] {
            let text = wrap(&render(&report, narrow), width.into());
            assert!(widest_line(&text) <= width.into(), "{width} columns:\n{text}");
            let wide = render(&report, TextStyle::default());
            assert_eq!(figures(&text), figures(&wide), "{width} columns");
        }
    }
}

#[test]
fn a_failed_engine_shows_no_figures() {
    let mut report = sample::compared();
    let totals = &mut report.runs[1].totals;
    (totals.failed, totals.fallbacks, totals.sent_tokens) = (300, 300, 777);
    totals.quarantine = "assemble exceeded 5,000 ms (timeouts.assemble_ms)".into();
    let text = render(&report, TextStyle::default());
    assert!(!text.contains("777"), "{text}");
    insta::assert_snapshot!("failed", text);
}

#[test]
fn rows_are_stacked_at_sixty_columns() {
    let narrow = TextStyle { color: false, width: Some(60) };
    insta::assert_snapshot!("stacked", wrap(&render(&sample::troubled(), narrow), 60));
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
    let colored = sanitize(&colored, true);
    assert!(colored.contains("\u{1b}[1m\u{1b}[31m"), "a violation is red");
    let plain = anstream::adapter::strip_str(&colored).to_string();
    assert_eq!(plain, render(&sample::troubled(), TextStyle::default()));
}
