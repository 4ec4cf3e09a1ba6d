//! Paths and file names, in any script, of Unix and of Windows.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use super::characters::{bare, is_unspaced};

/// File extensions.
// A list, because any suffix would make `self.state` a file.
const FILE_ENDINGS: &str = "rs toml lock md txt json jsonl yaml yml py pyi ipynb js jsx mjs cjs ts tsx mts css scss less html htm vue svelte go mod sum c h cc cpp hpp cxx java kt kts gradle rb erb php sh bash zsh fish ps1 bat cmd sql csv tsv xml svg png jpg jpeg gif webp ico pdf zip tar gz tgz bz2 xz 7z rar zst log ini cfg conf env properties proto graphql lua swift scala ex exs erl hs ml clj r jl dart tf tfvars hcl nix cmake mk patch diff snap test spec wasm so dll dylib exe bin dat db sqlite pem crt key pub tmp bak example sample template tpl j2 doc docx xls xlsx xlsm ppt pptx odt ods odp rtf epub eml ics vcf mp3 mp4 wav flac ogg mov avi mkv webm heic tiff bmp psd dwg iso apk dmg deb rpm parquet";

/// Extensions of files that an agent works on: which of them matter, their use shows.
const WORK_ENDINGS: &str = "rs toml lock md json jsonl yaml yml py pyi ipynb js jsx mjs cjs ts tsx mts css scss less html htm vue svelte go mod sum c h cc cpp hpp cxx java kt kts gradle rb erb php sh bash zsh fish ps1 sql svg proto graphql lua swift scala ex exs erl hs ml clj r jl dart tf hcl nix cmake mk patch diff snap test spec wasm so dll dylib tmp";

/// Each extension, and whether an agent works on such files.
static ENDINGS: LazyLock<HashMap<&'static str, bool>> = LazyLock::new(|| {
    let works: HashSet<&str> = WORK_ENDINGS.split_whitespace().collect();
    FILE_ENDINGS.split_whitespace().map(|ending| (ending, works.contains(ending))).collect()
});

/// Length of the longest extension, in bytes.
const LONGEST_ENDING_BYTES: usize = 10;
/// Folders above a file from which a path without a file name counts.
const MIN_STEPS: usize = 3;

/// The path or file name that a word is, without a line number behind it.
pub(super) fn file_in(word: &str) -> Option<&str> {
    let bare = bare(word);
    if is_windows_path(bare) {
        return Some(bare);
    }
    let bare = bare.strip_prefix("./").unwrap_or(bare);
    // `src/main.rs:120:4` names the file.
    let name = bare.split(':').next().unwrap_or(bare);
    is_file_or_path(name).then_some(name)
}

/// The file that a run of a script without spaces begins with: a particle may follow its ending.
pub(super) fn unspaced_file_in(word: &str) -> Option<&str> {
    let mut found = None;
    for (at, _) in word.match_indices('.') {
        let behind = word.get(at + 1..).unwrap_or_default();
        let ending_len = behind.bytes().take_while(u8::is_ascii_alphanumeric).count();
        let rest = behind.get(ending_len..).unwrap_or_default();
        let ends =
            rest.chars().next().is_none_or(|next| is_unspaced(next) || ":,.?".contains(next));
        if ends && is_ending(behind.get(..ending_len).unwrap_or_default()) {
            found = word.get(..at + 1 + ending_len);
        }
    }
    let found = bare(found?);
    // `ファイルはsrc/main.rs`: a sentence runs into a path that has none of its characters.
    let border = found.char_indices().rev().find(|(_, character)| is_unspaced(*character));
    let rest = border.and_then(|(at, character)| found.get(at + character.len_utf8()..));
    let is_ascii_path = |rest: &&str| {
        rest.contains('/') && rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '~')
    };
    match rest.filter(is_ascii_path) {
        Some(path) if !found.get(..found.len() - path.len())?.contains('/') => file_in(path),
        _ => is_file_or_path(found).then_some(found),
    }
}

/// The path in quotation marks that has spaces.
pub(super) fn spaced_path(quoted: &str) -> Option<&str> {
    let path = quoted.trim();
    if !path.contains(' ') {
        return None;
    }
    // A command in quotation marks has options, or begins with the name of its program.
    let is_command = [" -", " /", " &", " |", "://"].iter().any(|part| path.contains(part));
    if is_command || path.contains("  ") {
        return None;
    }
    let is_titled = path.starts_with(|c: char| c.is_uppercase() || !c.is_ascii());
    let last = path.rsplit(['/', '\\']).next().unwrap_or_default();
    let is_rooted = is_windows_path(path) || (is_rooted(path) && path.matches('/').count() >= 2);
    let ends_as_file = is_file(last) && !last.ends_with('.');
    // Words before the first folder are a sentence, unless the path begins at the root.
    let is_short = path.split(' ').count() <= 6;
    ((is_rooted && is_short) || (is_titled && ends_as_file && is_short)).then_some(path)
}

/// Whether a path begins at a root, at home or with a drive.
pub(super) fn is_rooted(path: &str) -> bool {
    path.starts_with('/') || path.starts_with("~/") || is_windows_path(path)
}

/// Whether a path leads to a document and not to source code or a folder.
pub(super) fn is_document(path: &str) -> bool {
    let last = path.rsplit(['/', '\\']).next().unwrap_or_default();
    let ending = last.rsplit_once('.').map_or("", |(_, ending)| ending);
    is_work_ending(ending) == Some(false)
}

fn is_file_or_path(name: &str) -> bool {
    if !name.contains(char::is_alphabetic) {
        return false;
    }
    if name.contains('/') { is_path(name) } else { is_file(name) }
}

/// `and/or` is not a path; `src/main.rs`, `/srv/app`, `~/notes` and `host/cli/src` are.
fn is_path(name: &str) -> bool {
    let steps = name.split('/').filter(|step| !step.is_empty()).count();
    let last = name.rsplit('/').next().unwrap_or_default();
    if is_file(last) || (name.starts_with(['/', '~', '.']) && steps >= 2) {
        return true;
    }
    // `und/oder/für` is prose; folders of other scripts are named with their root or a file.
    steps >= MIN_STEPS && name.is_ascii()
}

fn is_file(name: &str) -> bool {
    let Some((stem, ending)) = name.rsplit_once('.') else { return false };
    (stem.is_empty() || stem.contains(char::is_alphanumeric)) && is_ending(ending)
}

/// Whether a name ends as source code or a document does.
pub(super) fn is_ending(ending: &str) -> bool {
    is_work_ending(ending).is_some()
}

/// Whether an agent works on files with an extension; `None` for any other text.
fn is_work_ending(ending: &str) -> Option<bool> {
    if ending.len() > LONGEST_ENDING_BYTES {
        return None;
    }
    let has_capital = ending.bytes().any(|byte| byte.is_ascii_uppercase());
    let lower =
        if has_capital { Cow::Owned(ending.to_ascii_lowercase()) } else { Cow::Borrowed(ending) };
    ENDINGS.get(lower.as_ref()).copied()
}

/// `C:\Data\Ann`, `D:/data/a.txt`, `\\server\share`.
pub(super) fn is_windows_path(text: &str) -> bool {
    let path = match text.as_bytes() {
        [drive, b':', b'\\', rest @ ..] if drive.is_ascii_alphabetic() => rest,
        [drive, b':', b'/', rest @ ..] if drive.is_ascii_uppercase() => rest,
        [b'\\', b'\\', rest @ ..] if rest.contains(&b'\\') => rest,
        _ => return false,
    };
    path.iter().any(|byte| byte.is_ascii_alphanumeric() || !byte.is_ascii())
        && !path.starts_with(b"/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_extension_is_found_in_any_case() {
        assert_eq!(ENDINGS.keys().map(|ending| ending.len()).max(), Some(LONGEST_ENDING_BYTES));
        assert!(is_ending("Properties") && !is_ending("propertiesx") && !is_ending(""));
    }
}
