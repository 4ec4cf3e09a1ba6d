//! What a compaction kept, in words.

use ctxhost_retention::{Category, CategoryShare, Shares};

use super::format::format_percent;

/// All categories in one line: `asks 3/3 · paths 31/40 · …`; those of which nothing was said left out.
pub(crate) fn category_line(shares: &Shares) -> String {
    let told = Category::ALL.map(|category| (category, shares.of(category)));
    let told = told.into_iter().filter(|(_, share)| share.total > 0);
    let told: Vec<String> = told
        .map(|(category, CategoryShare { kept, total })| {
            format!("{} {kept}/{total}", category.name())
        })
        .collect();
    if told.is_empty() { "nothing that is counted was said".into() } else { told.join(" · ") }
}

/// The mean of the categories: `72.5%`.
pub(crate) fn format_mean(shares: &Shares) -> String {
    format_percent(shares.mean() * 100.0)
}
