//! The files of a new engine, by language: paths in its folder and texts, with places left for its words.

use super::ScaffoldLanguage;

/// One file.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileTemplate {
    /// Where it goes in the folder.
    pub(super) path: &'static str,
    /// What it says.
    pub(super) text: &'static str,
}

/// The files of a language.
pub(super) fn files_for(language: ScaffoldLanguage) -> &'static [FileTemplate] {
    match language {
        ScaffoldLanguage::Rust => RUST,
        ScaffoldLanguage::C => C,
    }
}

// Some have another name here: cargo would take a Cargo.toml for a package of its own, and git would
// obey a .gitignore.
macro_rules! templates {
    ($($path:literal = $file:literal,)*) => {
        &[$(FileTemplate { path: $path, text: include_str!(concat!("templates/", $file)) }),*]
    };
}

const RUST: &[FileTemplate] = templates! {
    "Cargo.toml" = "rust/Cargo.toml.in",
    "src/lib.rs" = "rust/lib.rs",
    "src/choice.rs" = "rust/choice.rs",
    "tests/conformance.rs" = "rust/conformance.rs",
    "tests/properties.rs" = "rust/properties.rs",
    "README.md" = "rust/README.md",
    ".github/workflows/engine.yml" = "rust/engine.yml",
    ".gitignore" = "rust/gitignore",
    "rustfmt.toml" = "rust/rustfmt.toml",
};

const C: &[FileTemplate] = templates! {
    "Makefile" = "c/Makefile",
    "src/@lib@.c" = "c/engine.c",
    "README.md" = "c/README.md",
    ".github/workflows/engine.yml" = "c/engine.yml",
    ".gitignore" = "c/gitignore",
};
