//! Renders reports as terminal text, Markdown and HTML.

pub(crate) mod html;
pub(crate) mod table;

pub(crate) mod context_usage;
pub(crate) mod dev;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod fallback;
pub(crate) mod format;
pub(crate) mod grid;
pub(crate) mod markdown;
pub(crate) mod quality;
pub(crate) mod retention;
#[cfg(test)]
pub(crate) mod sample;
pub(crate) mod sanitize;
pub(crate) mod style;
pub(crate) mod verdict;
pub(crate) mod wrap;
