//! Reports as people read them: text for a terminal, one page for a browser.

pub(in crate::cli) mod html;
pub(in crate::cli) mod table;

pub(in crate::cli) mod dev;
pub(in crate::cli) mod diff;
pub(in crate::cli) mod filling;
pub(in crate::cli) mod grid;
pub(in crate::cli) mod markdown;
pub(in crate::cli) mod paint;
pub(in crate::cli) mod phrase;
#[cfg(test)]
mod sample;
pub(in crate::cli) mod survival;
