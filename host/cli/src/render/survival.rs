//! What a compaction kept, in words.

use ctxhost_survival::{Category, Share, Shares};

use super::phrase::percent;

/// All categories in one line: `asks 3/3 · paths 31/40 · …`; those of which nothing was said left out.
pub(crate) fn line(shares: &Shares) -> String {
    let told = Category::ALL.map(|category| (category, shares.of(category)));
    let told = told.into_iter().filter(|(_, share)| share.total > 0);
    let told: Vec<String> = told
        .map(|(category, Share { kept, total })| format!("{} {kept}/{total}", category.name()))
        .collect();
    if told.is_empty() { "nothing that is counted was said".into() } else { told.join(" · ") }
}

/// The mean of the categories: `72.5%`.
pub(crate) fn mean(shares: &Shares) -> String {
    percent(shares.mean() * 100.0)
}
