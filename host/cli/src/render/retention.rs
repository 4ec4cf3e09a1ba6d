//! Formats retention figures.

use ctxhost_retention::{Category, CategoryShare, Shares};

use super::format::format_percent;

/// All categories in one line: `asks 3/3 · paths 31/40 · …`, without empty ones.
pub(crate) fn category_line(shares: &Shares) -> String {
    let measured = Category::ALL.map(|category| (category, shares.of(category)));
    let measured = measured.into_iter().filter(|(_, share)| share.total > 0);
    let parts: Vec<String> = measured
        .map(|(category, CategoryShare { kept, total })| {
            format!("{} {kept}/{total}", category.name())
        })
        .collect();
    if parts.is_empty() { "nothing to measure".into() } else { parts.join(" · ") }
}

/// The mean of the categories: `72.5%`.
pub(crate) fn format_mean(shares: &Shares) -> String {
    format_percent(shares.mean() * 100.0)
}
