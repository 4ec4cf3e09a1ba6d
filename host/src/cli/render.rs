//! Reports as people read them: text for a terminal, one page for a browser.

pub mod html;
pub mod table;

mod phrase;
#[cfg(test)]
mod sample;
