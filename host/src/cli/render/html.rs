//! A report as one page.
