//! Renders a branch as Markdown: turns, calls with results, compactions with summaries.

use crate::compactions::{BranchCompaction, compactions};
use crate::entry_text::EntryText;
use crate::turns::turns;
use ctxhost_session::{Record, RecordKind, Session};

/// Renders the page. All content is fenced, so that it cannot be taken for a heading.
pub(super) fn render_markdown(session: &Session) -> String {
    let header = session.header();
    let compactions = compactions(session);
    let mut page = format!("# Session {}\n\nfolder `{}`\n", header.id(), header.cwd());
    if let Some((provider, model)) = session.model() {
        page.push_str(&format!("model `{provider}/{model}`\n"));
    }
    for turn in turns(session) {
        page.push_str(&format!("\n## Turn {}\n", turn.number));
        for record in turn.records {
            page.push_str(&render_record(record, &compactions));
        }
    }
    page
}

fn render_record(record: &Record, compactions: &[BranchCompaction]) -> String {
    if *record.kind() == RecordKind::Compaction {
        let compaction = compactions.iter().find(|compaction| compaction.id == record.id());
        return compaction.map(render_compaction).unwrap_or_default();
    }
    let Some(entry) = record.to_entry() else { return String::new() };
    let view = EntryText::from(&entry);
    let mut text = format!("\n**{}** `{}` {}\n", view.speaker, record.id(), record.iso_time());
    if !view.text.is_empty() {
        text.push_str(&fenced("text", &view.text));
    }
    for mime in &view.images {
        text.push_str(&format!("\n({mime})\n"));
    }
    for (tool, arguments) in &view.calls {
        text.push_str(&format!("\ncalls `{tool}`\n{}", fenced("json", arguments)));
    }
    text
}

fn render_compaction(compaction: &BranchCompaction) -> String {
    let BranchCompaction { number, id, tokens: (before, after), summary, .. } = compaction;
    let after = if *after == 0 { String::new() } else { format!(" to {after}") };
    format!(
        "\n### Compaction @{number} `{id}`\n\n{}: {before}{after} tokens\n{}",
        compaction.provenance(),
        fenced("text", summary),
    )
}

/// A fence longer than any run of backticks in the text.
fn fenced(language: &str, text: &str) -> String {
    // A text with a fence of its own would end the block early (CommonMark 4.5).
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(3.max(longest + 1));
    format!("\n{fence}{language}\n{}\n{fence}\n", text.trim_end_matches('\n'))
}
