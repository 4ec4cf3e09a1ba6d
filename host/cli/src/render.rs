//! Reports as people read them: text for a terminal, one page for a browser.

pub(crate) mod html;
pub(crate) mod table;

pub(crate) mod dev;
pub(crate) mod diff;
pub(crate) mod filling;
pub(crate) mod grid;
pub(crate) mod harmless;
pub(crate) mod markdown;
pub(crate) mod paint;
pub(crate) mod phrase;
pub(crate) mod quality;
#[cfg(test)]
mod sample;
pub(crate) mod survival;
