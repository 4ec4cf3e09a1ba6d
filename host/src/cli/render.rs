//! Reports as people read them: text for a terminal, one page for a browser.
