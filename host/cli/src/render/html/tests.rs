//! Tests of the page: required content, and injection.

use ctxhost_quality::report::{
    EvidenceRow, QualityReport, RecordingRow, RuleRow, RunTotals, UtilityRow,
};

use super::super::sample;
use super::*;

/// Writes the page to look at it: `CTXHOST_PAGE=out.html cargo test`.
#[test]
fn write_a_page_to_look_at() {
    let Some(path) = std::env::var_os("CTXHOST_PAGE") else { return };
    std::fs::write(&path, page(&sample::compared())).unwrap();
    let mut one = sample::troubled();
    one.runs[0].curve = sample::compared().runs.swap_remove(0).curve;
    let path = std::path::Path::new(&path).with_extension("one.html");
    std::fs::write(path, page(&one)).unwrap();
}

#[test]
fn no_text_of_a_session_becomes_markup() {
    const HOSTILE: &str = "</script><img src=x onerror=\"alert(1)\">'\u{0}&amp;";
    let mut report = sample::troubled();
    report.session.name = HOSTILE.into();
    report.session.format = HOSTILE.into();
    report.session.model = HOSTILE.into();
    report.session.problems[0].message = HOSTILE.into();
    report.window.source = HOSTILE.into();
    let run = &mut report.runs[0];
    run.curve = sample::compared().runs.swap_remove(0).curve;
    run.engine.id = HOSTILE.into();
    run.engine.version = HOSTILE.into();
    run.engine.source = HOSTILE.into();
    run.totals.quarantine = HOSTILE.into();
    run.totals.layers.insert(HOSTILE.into(), 1);
    for turn in &mut run.turns {
        turn.prompt = HOSTILE.into();
        turn.shaped_by = vec![HOSTILE.into()];
        turn.layers.insert(HOSTILE.into(), 1);
    }
    for row in &mut run.compactions {
        for text in [&mut row.trigger, &mut row.engine, &mut row.reason, &mut row.summary] {
            *text = HOSTILE.into();
        }
    }
    for row in &mut run.dropped {
        for text in [&mut row.id, &mut row.role, &mut row.layer, &mut row.detail, &mut row.excerpt]
        {
            *text = HOSTILE.into();
        }
    }
    let html = page(&report);
    assert!(!html.contains("<img"), "a tag came through");
    assert_eq!(html.matches("</script>").count(), 1, "only our own script ends");
    assert!(!html.contains('\u{0}'), "control characters are not HTML");
    assert!(
        html.matches("&lt;/script&gt;&lt;img src=x onerror=&quot;alert(1)&quot;&gt;&#39;").count()
            > 20
    );
    assert!(html.contains("&amp;amp;"), "an entity in a text stays a text");
}

#[test]
fn a_page_loads_nothing() {
    let html = page(&sample::compared());
    for address in ["http:", "https:", "src=", "href=", "url(", "@import"] {
        assert!(!html.contains(address), "{address}");
    }
}

#[test]
fn every_tag_is_closed() {
    for report in [sample::compared(), sample::troubled()] {
        let html = page(&report);
        let body = &html[html.find("<body>").unwrap()..html.find("<script>").unwrap()];
        for tag in [
            "section", "table", "tbody", "tr", "td", "th", "div", "dl", "dt", "dd", "p", "svg",
            "g", "ul", "li", "details", "summary", "pre", "figure", "span", "small", "strong",
            "h2", "circle",
        ] {
            let opened = body.matches(&format!("<{tag}>")).count()
                + body.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, body.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }
}

#[test]
fn every_fact_is_on_the_page() {
    let report = sample::compared();
    let html = page(&report);
    for run in &report.runs {
        assert!(html.contains(&group_digits(run.totals.sent_tokens)));
        assert!(html.contains(&group_digits(run.totals.peak_tokens)));
    }
    let rows: usize = report
        .runs
        .iter()
        .map(|run| run.compactions.len() + run.dropped.len() + run.turns.len())
        .sum();
    assert_eq!(html.matches("<tr").count() - html.matches("<thead><tr").count(), rows);
    let marks = report.runs.iter().flat_map(|run| &run.curve).filter(|point| point.compacted);
    assert_eq!(html.matches("<circle class=\"mark").count(), marks.count());
}

#[test]
fn violations_stand_out() {
    let html = page(&sample::troubled());
    assert!(html.contains(
        "<p class=\"verdict bad\" role=\"alert\"><strong>1 invariant violation</strong> in "
    ));
    assert!(html.contains("<tr class=\"bad\">"));
    assert!(
        page(&sample::compared())
            .contains("<strong>0 invariant violations</strong> in 900 requests")
    );
}

/// Figures of two files, with hostile names if wanted.
fn quality_sample(file: &str, subject: &str) -> QualityReport {
    let (file, subject) = (file.to_owned(), subject.to_owned());
    let run = RunTotals { requests: 4, history_tokens: 9_000, ..RunTotals::default() };
    let evidence = [2_000, 4_000, 16_000].map(|budget_tokens| EvidenceRow {
        file: file.clone(),
        subject: subject.clone(),
        budget_tokens,
        questions: 4,
        recall_percent: budget_tokens as f64 / 200.0,
        run: run.clone(),
        ..EvidenceRow::default()
    });
    let recording = RecordingRow {
        file: file.clone(),
        subject: subject.clone(),
        budget_tokens: 2_000,
        derivable_percent: 50.0,
        needed_percent: 25.0,
        run,
        ..RecordingRow::default()
    };
    let utility = UtilityRow {
        file,
        subject: subject.clone(),
        budget_tokens: 2_000,
        utility: Some(0.5),
        ..UtilityRow::default()
    };
    QualityReport {
        evidence: evidence.to_vec(),
        recordings: vec![recording],
        utility: vec![utility],
        rules: vec![RuleRow { subject, rules: 10, rules_kept: 9, ..RuleRow::default() }],
        ..QualityReport::default()
    }
    .judge()
}

#[test]
fn a_quality_page_is_whole_and_loads_nothing() {
    let html = quality_page(&quality_sample("chat.jsonl", "recall"));
    for address in ["http:", "https:", "src=", "href=", "url(", "@import"] {
        assert!(!html.contains(address), "{address}");
    }
    for fact in ["most evidence", "keep the whole history", "Context utility · chat.jsonl"] {
        assert!(html.contains(fact), "{fact}");
    }
    // Evidence, derivable, needed, utility: three, one, one and one point.
    assert_eq!(html.matches("<polyline").count(), 4);
    assert_eq!(html.matches("<circle class=\"mark").count(), 6);
    let body = &html[html.find("<body>").unwrap()..html.find("<script>").unwrap()];
    for tag in ["section", "table", "tr", "td", "figure", "svg", "h2", "h3", "ul", "header"] {
        let opened =
            body.matches(&format!("<{tag}>")).count() + body.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, body.matches(&format!("</{tag}>")).count(), "{tag}");
    }
}

#[test]
fn no_name_becomes_markup_on_a_quality_page() {
    let hostile = "</title><img src=x onerror=\"alert(1)\">";
    let html = quality_page(&quality_sample(hostile, hostile));
    assert!(!html.contains("<img"), "a tag came through");
    assert!(quality_page(&QualityReport::default()).ends_with("</html>\n"));
}

#[test]
fn the_best_engines_are_named_before_anything_else() {
    let mut report = sample::compared();
    for run in &mut report.runs {
        (run.totals.fallbacks, run.totals.sent_tokens) = (0, 500);
    }
    report.runs[1].totals.sent_tokens = 400;
    let best =
        format!("<strong>{}</strong> sent the fewest tokens (400)", report.runs[1].engine.id);
    let html = page(&report);
    assert!(html.find(&best).unwrap() < html.find("class=\"facts\"").unwrap(), "{html}");
    // Figures of an engine that another one replaced are not its own.
    report.runs[1].totals.fallbacks = 1;
    assert!(!page(&report).contains(&best));
}

#[test]
fn an_empty_report_is_a_page_too() {
    let mut report = sample::compared();
    for run in &mut report.runs {
        (run.curve, run.turns, run.compactions, run.dropped) = (vec![], vec![], vec![], vec![]);
    }
    assert!(page(&report).ends_with("</html>\n"));
    report.runs.clear();
    assert!(page(&report).contains("0 invariant violations"));
}

#[test]
fn engines_with_equal_figures_are_all_named() {
    let best = |report: &ReplayReport| {
        let html = page(report);
        let from = html.find("<p class=\"best\">").unwrap();
        html[from..].split("</p>").next().unwrap().to_owned()
    };
    let mut report = sample::compared();
    let mut third = report.runs[0].clone();
    third.engine.id = "third".into();
    report.runs.push(third);
    let second = report.runs[1].engine.id.clone();
    let ids = report.runs.iter().map(|run| run.engine.id.clone());
    let best_ids: Vec<String> = ids.filter(|id| *id != second).collect();
    for run in &mut report.runs {
        run.totals.sent_tokens = 1_000 + u64::from(run.engine.id == second);
        run.totals.stable_prefix_percent = 50.0;
    }
    let text = best(&report);
    let best_ids = best_ids.join(" and ");
    let winners = format!("<strong>{best_ids}</strong> sent the fewest tokens (1,000)");
    assert!(text.contains(&winners), "{text}");
    let tie = "<strong>no difference</strong> in which engine had the most stable prefix";
    assert!(text.contains(tie), "{text}");
}
