//! Finds names in a text: paths, files, URLs, hashes, tickets, ports, versions and code symbols.

use std::borrow::Cow;

use crate::redact;

/// The kind of a name, judged by its characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NameKind {
    /// A path or file name.
    File,
    /// A URL, or a host with its port.
    Address,
    /// A hash, a long number, a ticket, a version.
    Code,
    /// A code symbol: `parse_body`, `parseBody`, `http::Body`.
    Symbol,
}

/// Length of a name, in bytes; a longer one is data.
const NAME_BYTES: std::ops::RangeInclusive<usize> = 3..=160;
/// Minimum length of a symbol, in bytes; shorter ones are found in any text.
const SYMBOL_BYTES: usize = 5;
/// Of a longer text, in bytes, only head and end are searched: results and pasted files.
const SEARCHED_BYTES: usize = 24_000;

/// Part of the first and the last line of a private key.
const KEY_BLOCK: &str = "PRIVATE KEY-----";

/// File extensions.
// A list, because any suffix would make `self.state` a file.
const FILE_ENDINGS: &str = " rs toml lock md txt json jsonl yaml yml py pyi ipynb js jsx mjs cjs ts tsx mts css scss less html htm vue svelte go mod sum c h cc cpp hpp cxx java kt kts gradle rb erb php sh bash zsh fish ps1 bat sql csv tsv xml svg png jpg jpeg gif webp ico pdf zip tar gz tgz bz2 xz 7z log ini cfg conf env properties proto graphql lua swift scala ex exs erl hs ml clj r jl dart tf tfvars hcl nix cmake mk patch diff snap test spec wasm so dll dylib exe bin dat db sqlite pem crt key pub tmp bak example sample template tpl j2 ";

/// Calls `found` with each name of a text and its kind. Secrets are skipped, but a name does not show
/// that it is one without its context: redact a text of unknown origin first.
pub fn for_each_name<'t>(text: &'t str, mut found: impl FnMut(&'t str, NameKind)) {
    searched_parts(text).for_each(|part| search(part, &mut found));
}

/// Calls `found` with each name of a text without its secrets. Returns whether all of the text was read
/// and has no secret.
pub fn for_each_clean_name(text: &str, mut found: impl FnMut(&str, NameKind)) -> bool {
    // The end of a key block is recognised only with its beginning.
    if text.contains(KEY_BLOCK) {
        for_each_name(&redact::redact(text), &mut found);
        return false;
    }
    let mut is_clean = text.len() <= SEARCHED_BYTES;
    // Redaction takes most of the time, so it reads what is searched.
    for part in searched_parts(text) {
        let part = redact::redact(part);
        is_clean &= matches!(part, Cow::Borrowed(_));
        search(&part, &mut found);
    }
    is_clean
}

/// Head and end of a long text, up to whole words: half a secret would not be recognised.
fn searched_parts(text: &str) -> impl Iterator<Item = &str> {
    let (head, tail) = if text.len() <= SEARCHED_BYTES {
        (text, "")
    } else {
        // Names in the middle of a long result are rarely used again.
        let head = text.get(..text.floor_char_boundary(SEARCHED_BYTES / 2)).unwrap_or_default();
        let from = text.ceil_char_boundary(text.len() - SEARCHED_BYTES / 2);
        let tail = text.get(from..).unwrap_or_default();
        let head = head.rsplit_once(char::is_whitespace).map_or("", |(head, _)| head);
        let tail = tail.split_once(char::is_whitespace).map_or("", |(_, tail)| tail);
        (head, tail)
    };
    [head, tail].into_iter()
}

fn search<'t>(text: &'t str, found: &mut impl FnMut(&'t str, NameKind)) {
    let mut previous = "";
    for word in text.split(is_break) {
        if word.is_empty() {
            continue;
        }
        for part in parts_of(word) {
            let mut add = |name, kind| {
                if !is_secret(name, previous) {
                    found(name, kind);
                }
            };
            match name_in(part, previous) {
                Some((name, kind)) => add(name, kind),
                None => symbols_in(part).for_each(|name| add(name, NameKind::Symbol)),
            }
        }
        previous = word;
    }
}

fn is_break(character: char) -> bool {
    character.is_whitespace()
        || character.is_control()
        || "\"'`()[]{}<>|;,*!^\\".contains(character)
}

/// A word, or both sides of its `=`; an address keeps its query.
fn parts_of(word: &str) -> impl Iterator<Item = &str> {
    // `KEY=value` are two names, but a URL keeps its query.
    let cut = if word.contains("://") { None } else { word.split_once('=') };
    let (left, right) = cut.unwrap_or((word, ""));
    [left, right].into_iter().filter(|part| !part.is_empty())
}

fn name_in<'t>(word: &'t str, previous: &str) -> Option<(&'t str, NameKind)> {
    let bare = word.trim_end_matches(|c: char| ".:,?~$%&-+/".contains(c));
    let bare = bare.trim_start_matches(|c: char| ":,?$%&-+@".contains(c));
    let bare = bare.strip_prefix("./").unwrap_or(bare);
    if bare.contains("://") {
        return NAME_BYTES.contains(&bare.len()).then_some((bare, NameKind::Address));
    }
    if let Some(port) = port_in(bare, previous) {
        return Some((port, NameKind::Address));
    }
    // `src/main.rs:120:4` names the file.
    let name = bare.split(':').next().unwrap_or(bare);
    if !NAME_BYTES.contains(&name.len()) || !name.is_ascii() {
        return None;
    }
    kind_of(name).map(|kind| (name, kind))
}

fn kind_of(name: &str) -> Option<NameKind> {
    let has_letter = name.bytes().any(|byte| byte.is_ascii_alphabetic());
    if name.contains('/') {
        return (has_letter && is_path(name)).then_some(NameKind::File);
    }
    if is_file(name) {
        return Some(NameKind::File);
    }
    is_code(name).then_some(NameKind::Code)
}

/// The symbols of an expression: `this.agent?.setModel:` names `setModel`, `http::Body` is one name.
fn symbols_in(word: &str) -> impl Iterator<Item = &str> {
    let is_part = |character: char| character.is_ascii_alphanumeric() || "_:".contains(character);
    let runs = word.split(move |character| !is_part(character));
    let parts = runs.flat_map(|run| {
        // A single colon separates a name from its type, a double one belongs to the name.
        let is_path = run.contains("::");
        run.split(move |character| character == ':' && !is_path)
    });
    let parts = parts.map(|part| part.trim_matches(':'));
    parts.filter(|part| NAME_BYTES.contains(&part.len()) && is_symbol(part))
}

/// `and/or` is not a path; `src/main.rs`, `/srv/app`, `~/notes` and `host/cli/src` are.
fn is_path(name: &str) -> bool {
    let steps = name.split('/').filter(|step| !step.is_empty()).count();
    let is_rooted = name.starts_with(['/', '~', '.']);
    let last = name.rsplit('/').next().unwrap_or_default();
    steps >= 3 || is_file(last) || (is_rooted && steps >= 2)
}

fn is_file(name: &str) -> bool {
    let Some((stem, ending)) = name.rsplit_once('.') else { return false };
    let is_stem = stem.is_empty() || stem.bytes().any(|byte| byte.is_ascii_alphanumeric());
    let known = |ending: &str| FILE_ENDINGS.split(' ').any(|known| known == ending);
    is_stem && !ending.is_empty() && known(&ending.to_ascii_lowercase())
}

fn is_code(name: &str) -> bool {
    let bytes = name.as_bytes();
    let digits = bytes.iter().filter(|byte| byte.is_ascii_digit()).count();
    if digits == 0 {
        return false;
    }
    let is_hex = |byte: &u8| byte.is_ascii_hexdigit() || *byte == b'-';
    let letters = bytes.iter().filter(|byte| byte.is_ascii_alphabetic()).count();
    if bytes.iter().all(is_hex) && bytes.len() >= 7 && letters > 0 {
        return true;
    }
    if letters == 0 {
        // Dates are everywhere in logs.
        let is_date = name.contains('-') && digits <= 8;
        return digits >= 5 && name.bytes().all(|b| b.is_ascii_digit() || b == b'-') && !is_date;
    }
    is_ticket(name) || is_version(name)
}

/// `PROJ-1234`, `#88`.
fn is_ticket(name: &str) -> bool {
    let Some((left, right)) = name.rsplit_once('-') else { return false };
    let is_key = (2..=10).contains(&left.len())
        && left.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
    let is_standard = ["UTF", "ISO", "SHA", "MD", "RFC", "AES", "HTTP"].contains(&left);
    is_key && !is_standard && right.len() <= 6 && right.bytes().all(|byte| byte.is_ascii_digit())
}

/// `v2.4.1`, `1.0.0-beta.2`.
fn is_version(name: &str) -> bool {
    let core = name.strip_prefix('v').unwrap_or(name).split('-').next().unwrap_or_default();
    let numbers = core.split('.').filter(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    core.split('.').count() >= 2
        && numbers.count() == core.split('.').count()
        && (name.starts_with('v') || core.split('.').count() >= 3)
}

/// `parse_body`, `parseBody`, `ParseBody`, `http::Body`, `MAX_SIZE`.
fn is_symbol(name: &str) -> bool {
    if name.len() < SYMBOL_BYTES || !name.bytes().any(|byte| byte.is_ascii_alphabetic()) {
        return false;
    }
    let last = name.rsplit(':').next().unwrap_or_default().as_bytes();
    let has_hump = last
        .windows(2)
        .any(|pair| matches!(pair, [a, b] if a.is_ascii_lowercase() && b.is_ascii_uppercase()));
    has_hump || name.trim_matches('_').contains('_') || name.contains("::")
}

/// `localhost:8080`, `db.example.com:5432`; `8080` behind the word port.
fn port_in<'t>(bare: &'t str, previous: &str) -> Option<&'t str> {
    let is_port = |text: &str| {
        (2..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    if is_port(bare) && previous.trim_end_matches(':').eq_ignore_ascii_case("port") {
        return Some(bare);
    }
    let (host, port) = bare.split_once(':')?;
    let is_host = host == "localhost" || (host.contains('.') && !is_file(host));
    (is_host && is_port(port) && !host.contains('/')).then_some(bare)
}

/// Checks cheap features first: the secret patterns are the most expensive step.
fn is_secret(name: &str, previous: &str) -> bool {
    let is_mixed = name.bytes().any(|byte| byte.is_ascii_digit()) || name.len() > 24;
    let is_told =
        ["assword", "ecret", "oken", "earer", "passwd"].iter().any(|word| previous.contains(word));
    (is_mixed && !name.contains('/') && redact::contains_secret(name)) || (is_told && is_mixed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<&str> {
        let mut names = Vec::new();
        for_each_name(text, |name, _| names.push(name));
        names
    }

    #[test]
    fn each_sort_of_name_is_found() {
        for (text, names) in [
            ("see ./src/main.rs:12 and `Cargo.toml`.", &["src/main.rs", "Cargo.toml"][..]),
            ("in /srv/app, ~/notes/a or host/cli/src", &["/srv/app", "~/notes/a", "host/cli/src"]),
            ("at https://a.example/b?c=1, then", &["https://a.example/b?c=1"]),
            ("commit deadbeef12 fixes PROJ-1234 in v2.4.1", &["deadbeef12", "PROJ-1234", "v2.4.1"]),
            ("listens on port 8080, localhost:3000", &["8080", "localhost:3000"]),
            (
                "call parseBody, parse_body and http::Body",
                &["parseBody", "parse_body", "http::Body"],
            ),
            (
                "this.agent?.setModel(ctx:ToolContext, ...restArgs)",
                &["setModel", "ToolContext", "restArgs"],
            ),
            ("and/or 1.5 e.g. UTF-8 i.e. self.state 12 km/h", &[]),
            ("RUST_LOG=debug", &["RUST_LOG"]),
            ("order 123456 of 2026-11-23", &["123456"]),
        ] {
            assert_eq!(found(text), names, "{text}");
        }
    }

    #[test]
    fn a_secret_is_no_name() {
        for text in ["use sk-1234567890abcdef", "password: deadbeefcafe12", "AKIAIOSFODNN7EXAMPLE"]
        {
            assert_eq!(found(text), Vec::<&str>::new(), "{text}");
        }
    }
}
