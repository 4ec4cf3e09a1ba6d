//! Errors of the config file, shown at their line.

use std::ops::Range;
use std::path::PathBuf;
use std::string::FromUtf8Error;

use miette::{Diagnostic, NamedSource, SourceSpan};

use super::Config;
use super::spans::{self, KeySpan};
use ctxhost_retention::replace_secrets;

/// Why a config cannot be used or written.
#[derive(Debug, thiserror::Error, Diagnostic)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("could not read {}", path.display())]
    #[diagnostic(help("give another file with --config, or check its permissions"))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        cause: std::io::Error,
    },
    /// The file is invalid.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Invalid(#[from] Box<ConfigDiagnostic>),
    /// The file cannot be replaced; it is unchanged.
    #[error("could not write {}; it is unchanged", path.display())]
    #[diagnostic(help("check that its folder is writable and has space"))]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        cause: std::io::Error,
    },
}

/// An error at a position of a file.
#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("{message}")]
pub struct ConfigDiagnostic {
    message: String,
    label: String,
    #[help]
    help: Option<String>,
    #[source_code]
    file: NamedSource<String>,
    #[label("{label}")]
    span: Option<SourceSpan>,
    /// The other errors of the file.
    #[related]
    others: Vec<ConfigDiagnostic>,
}

impl ConfigError {
    /// An engine rejected a setting of its own table; `dotted_key` is the path in that table.
    pub fn engine_setting(config: &Config, id: &str, dotted_key: &str, message: &str) -> Self {
        let table = ["plugins", "entries", id, "config"];
        let inner = if dotted_key.is_empty() { Vec::new() } else { spans::split_path(dotted_key) };
        let path: Vec<String> = table.iter().map(|&name| name.to_owned()).chain(inner).collect();
        let title = match dotted_key {
            "" => format!("engine `{id}` rejects its settings: {message}"),
            key => format!("engine `{id}` rejects its setting `{key}`: {message}"),
        };
        let error = ConfigDiagnostic::new(&config.origin.name, &config.origin.text, title)
            .with_help(format!("the settings of `{id}` are in [{}]", spans::join_path(&table)));
        Box::new(match config.origin.spans.nearest(&path) {
            Some(span) if span.path == path => error.with_label(span.assignment(), message),
            // An error outside of the engine's entry has no position in the file.
            Some(span) if span.path.len() >= 3 => {
                error.with_label(span.assignment(), "in this table")
            }
            _ => error,
        })
        .into()
    }

    /// `file:line:column`, if the error has a position.
    pub fn location(&self) -> Option<String> {
        match self {
            ConfigError::Invalid(error) => error.location(),
            ConfigError::Unreadable { .. } | ConfigError::Unwritable { .. } => None,
        }
    }
}

impl ConfigDiagnostic {
    /// Succeeds without errors; else all of them as one, in the order of the file.
    pub(super) fn combine(mut found: Vec<ConfigDiagnostic>) -> Result<(), ConfigError> {
        found.sort_by_key(|error| error.offset().unwrap_or(usize::MAX));
        let mut errors = found.into_iter();
        match errors.next() {
            None => Ok(()),
            Some(first) => {
                Err(Box::new(ConfigDiagnostic { others: errors.collect(), ..first }).into())
            }
        }
    }

    /// The other errors of the same file.
    pub fn others(&self) -> &[ConfigDiagnostic] {
        &self.others
    }

    /// The first byte of its position.
    pub(super) fn offset(&self) -> Option<usize> {
        self.span.map(|span| span.offset())
    }

    /// An error without a position.
    pub(super) fn new(name: &str, text: &str, message: impl Into<String>) -> Self {
        ConfigDiagnostic {
            message: message.into(),
            label: String::new(),
            help: None,
            file: NamedSource::new(name, without_secrets(text)),
            span: None,
            others: Vec::new(),
        }
    }

    /// An error at the first of `keys` that the file contains.
    pub(super) fn conflict(config: &Config, keys: &[&str], message: String, help: &str) -> Self {
        let error = ConfigDiagnostic::new(&config.origin.name, &config.origin.text, message);
        let error = error.with_help(help);
        match keys.iter().find_map(|key| config.setting_span(key)) {
            Some(span) => error.with_label(span, "here"),
            None => error,
        }
    }

    /// An error of the TOML parser or of serde.
    pub(super) fn from_toml(name: &str, text: &str, error: &toml::de::Error) -> Self {
        let diagnostic =
            ConfigDiagnostic::new(name, text, format!("{name} is not valid: {}", error.message()));
        match error.span() {
            Some(span) => diagnostic.with_label(span, "here"),
            None => diagnostic,
        }
    }

    /// The error of a file that is not UTF-8 text, with line and byte.
    pub(super) fn from_bytes(name: &str, error: &FromUtf8Error) -> Box<Self> {
        let at = error.utf8_error().valid_up_to();
        let bytes = error.as_bytes();
        let before = bytes.get(..at).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let found = bytes.get(at).map(|byte| format!(" (0x{byte:02X})")).unwrap_or_default();
        let message =
            format!("{name} is not UTF-8 text: line {line}, byte {at} of the file{found}");
        let text = String::from_utf8_lossy(bytes);
        let diagnostic = ConfigDiagnostic::new(name, &text, message)
            .with_help("save the file as UTF-8, for example with `iconv -f LATIN1 -t UTF-8`");
        // The text has U+FFFD there.
        let span = at..at + char::REPLACEMENT_CHARACTER.len_utf8();
        Box::new(diagnostic.with_label(span, "not UTF-8"))
    }

    /// An error of the TOML editor.
    pub(super) fn from_edit(name: &str, text: &str, error: &toml_edit::TomlError) -> Box<Self> {
        let diagnostic =
            ConfigDiagnostic::new(name, text, format!("{name} is not valid: {}", error.message()))
                .with_help("correct the file first; it is unchanged");
        Box::new(match error.span() {
            Some(span) => diagnostic.with_label(span, "here"),
            None => diagnostic,
        })
    }

    pub(super) fn with_label(mut self, span: Range<usize>, label: impl Into<String>) -> Self {
        self.span = Some(span.into());
        self.label = label.into();
        self
    }

    pub(super) fn with_key_label(self, span: &KeySpan, label: impl Into<String>) -> Self {
        self.with_label(span.key.clone(), label)
    }

    pub(super) fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// `file:line:column`.
    pub fn location(&self) -> Option<String> {
        let (line, column) = spans::line_and_column(self.file.inner(), self.span?.offset());
        Some(format!("{}:{line}:{column}", self.file.name()))
    }

    /// What to do about it.
    pub fn help_text(&self) -> Option<&str> {
        self.help.as_deref()
    }
}

/// The text of a file for its messages, which land in logs and issues: a key in it becomes as many bytes of stars, so that all
/// positions stay.
fn without_secrets(text: &str) -> String {
    let star =
        |char: char| if char == '\n' { char.to_string() } else { "*".repeat(char.len_utf8()) };
    replace_secrets(text, |_, secret| secret.chars().map(star).collect()).into_owned()
}
