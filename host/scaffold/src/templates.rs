//! The template files for each language.

use super::ScaffoldLanguage;

/// A template file.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileTemplate {
    /// The path in the new folder.
    pub(super) path: &'static str,
    /// The content.
    pub(super) text: &'static str,
}

/// The template files of a language.
pub(super) fn files_for(language: ScaffoldLanguage) -> &'static [FileTemplate] {
    match language {
        ScaffoldLanguage::Rust => RUST,
        ScaffoldLanguage::C => C,
    }
}

// Some files have another name in this repository: cargo would treat a Cargo.toml as a package, and git
// would apply a .gitignore.
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
