//! `load`: the file is an engine of this ABI, says what it is, and can be created and let go of.

use std::fs;

use ctxhost_engine_api::border::EngineMetadata;
use object::read::elf::{Dyn as _, ElfFile64, FileHeader as _};
use object::{Endianness, Object as _, ObjectSymbol as _, elf};

use super::NamedCase;
use crate::fault::{CaseOutcome, CaseStats, CheckFault};
use crate::harness::CaseHarness;
use ctxhost_engine::inspect;

pub(super) const CASES: [NamedCase; 3] =
    [("symbols and needs", symbols), ("info", info), ("load, create, retire", retire)];

/// How the symbols of an engine begin, in whatever case: its doors and its metadata.
const OURS: &str = "context_engine";

/// The file exports its door and no more than it must; what it needs of the system is told.
fn symbols(bench: &CaseHarness<'_>) -> CaseOutcome {
    let unreadable =
        |reason: String| CheckFault::new("symbols", format!("the file cannot be read: {reason}"));
    let image = ctxhost_files::read(bench.file, ctxhost_files::SESSION_FILE_BYTES)
        .map_err(|error| unreadable(error.to_string()))?;
    let file = object::File::parse(&*image).map_err(|error| unreadable(error.to_string()))?;
    let exports = file.dynamic_symbols().filter(|symbol| symbol.is_definition());
    let is_ours = |name: &str| name.to_ascii_lowercase().starts_with(OURS);
    let (ours, more): (Vec<&str>, Vec<&str>) =
        exports.filter_map(|symbol| symbol.name().ok()).partition(|name| is_ours(name));
    if ours.is_empty() {
        let message = "the library exports no door of an engine; was it stripped?";
        return Err(CheckFault::new("symbols", message));
    }
    let symbols = match more.len() {
        0 => "symbols".to_owned(),
        more => format!("symbols (and {more} that nobody asks for)"),
    };
    let needed = needed(&image);
    let needs = if needed.is_empty() { "nothing".to_owned() } else { needed.join(" ") };
    let kib = image.len().div_ceil(1024);
    let note = format!("{symbols}, {kib} KiB, needs {needs}");
    Ok(CaseStats { checks: 2, note, ..CaseStats::default() })
}

/// The libraries that the dynamic linker will load with it.
fn needed(image: &[u8]) -> Vec<String> {
    let read = || {
        let file = ElfFile64::<Endianness>::parse(image).ok()?;
        let (endian, data) = (file.endian(), file.data());
        let sections = file.elf_header().sections(endian, data).ok()?;
        let (entries, strings) = sections.dynamic(endian, data).ok()??;
        let strings = sections.strings(endian, data, strings).ok()?;
        let needed = entries.iter().filter(|entry| entry.d_tag(endian) == elf::DT_NEEDED);
        let names = needed.filter_map(|entry| entry.string(endian, strings).ok());
        Some(names.map(|name| String::from_utf8_lossy(name).into_owned()).collect())
    };
    read().unwrap_or_default()
}

/// What the engine says when asked is what its metadata says, every time.
fn info(bench: &CaseHarness<'_>) -> CaseOutcome {
    let asked = |what: &str| {
        let calling = bench.trace.start_call("info");
        let info = bench.factory.info();
        drop(calling);
        info.map_err(|error| CheckFault::new("info", format!("{what} failed: {error}")))
    };
    let (first, second) = (asked("info")?, asked("info, asked again,")?);
    if first != second {
        let message = format!("info changed from {first:?} to {second:?}");
        return Err(CheckFault::new("info", message));
    }
    let meta =
        inspect(bench.file).map_err(|error| CheckFault::new("info", error.to_string()))?.meta;
    if (&first.id, &first.version) != (&meta.id, &meta.version) {
        let message = format!(
            "the engine calls itself {} {}, its metadata says {} {}",
            first.id, first.version, meta.id, meta.version
        );
        return Err(CheckFault::new("info", message));
    }
    let note = format!("built for API {}, host {}: fine", meta.api, EngineMetadata::current().api);
    Ok(CaseStats { checks: 3, note, ..CaseStats::default() })
}

/// The same file a second time in the same process, and both let go of.
fn retire(bench: &CaseHarness<'_>) -> CaseOutcome {
    bench.open(bench.host())?.dispose()?;
    let calling = bench.trace.start_call("the library's own start, again,");
    let again = inspect(bench.file).and_then(|read| read.load(&bench.work_dir.join("copies")));
    drop(calling);
    let door = again.map_err(|error| CheckFault::new("load", format!("loaded again: {error}")))?;
    let _ = fs::remove_dir(bench.work_dir.join("copies"));
    let second = CaseHarness { factory: door, ..CaseHarness { ..*bench } };
    let (one, other) = (bench.open(bench.host())?, second.open(second.host())?);
    one.dispose()?;
    other.dispose()?;
    Ok(CaseStats { checks: 3, note: "load twice, retire".into(), ..CaseStats::default() })
}
