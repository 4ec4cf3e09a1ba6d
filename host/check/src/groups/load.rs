//! The group `load`: symbols, metadata and loading of the library.

use ctxhost_engine_api::border::EngineMetadata;
use ctxhost_engine_api::capability;
use object::read::elf::{Dyn as _, ElfFile64, FileHeader as _};
use object::{Endianness, Object as _, ObjectSymbol as _, elf};

use super::NamedCase;
use crate::fault::{CaseOutcome, CaseStats, CheckFault};
use crate::harness::CaseHarness;
use ctxhost_engine::LibraryCopy;

pub(super) const CASES: [NamedCase; 3] =
    [("symbols and needs", symbols), ("info", info), ("load, create, retire", retire)];

/// All capabilities that a host can offer, with every setting for them.
const CAPABILITIES: [&str; 8] = [
    capability::COMPLETE,
    capability::KV,
    capability::BLOB,
    capability::HISTORY,
    capability::PROMPT_CACHE,
    capability::DELEGATE_COMPACT,
    capability::SPAWN,
    capability::EMBED,
];

/// The prefix of the symbols of an engine (entry points and metadata), in any case.
const PREFIX: &str = "context_engine";

/// The file exports an entry point. Other exports and required libraries are reported.
fn symbols(harness: &CaseHarness<'_>) -> CaseOutcome {
    let unreadable =
        |reason: String| CheckFault::new("symbols", format!("the file cannot be read: {reason}"));
    let image = harness.library.image();
    let file = object::File::parse(image).map_err(|error| unreadable(error.to_string()))?;
    let exports = file.dynamic_symbols().filter(|symbol| symbol.is_definition());
    let is_own = |name: &str| name.to_ascii_lowercase().starts_with(PREFIX);
    let (own, more): (Vec<&str>, Vec<&str>) =
        exports.filter_map(|symbol| symbol.name().ok()).partition(|name| is_own(name));
    // The metadata is found by its magic bytes, so a stripped library gets this far.
    if own.is_empty() {
        let message = "the library exports no entry point of an engine; was it stripped?";
        return Err(CheckFault::new("symbols", message));
    }
    let symbols = match more.len() {
        0 => "symbols".to_owned(),
        more => format!("symbols (and {more} unused exports)"),
    };
    let required_libraries = required_libraries(image);
    let needs = if required_libraries.is_empty() {
        "nothing".to_owned()
    } else {
        required_libraries.join(" ")
    };
    let kib = image.len().div_ceil(1024);
    let note = format!("{symbols}, {kib} KiB, needs {needs}");
    Ok(CaseStats { checks: 2, note, ..CaseStats::default() })
}

/// The libraries that the dynamic linker loads with it.
fn required_libraries(image: &[u8]) -> Vec<String> {
    let read = || {
        // Only ELF: on other systems the line of the report omits the libraries.
        let file = ElfFile64::<Endianness>::parse(image).ok()?;
        let (endian, data) = (file.endian(), file.data());
        let sections = file.elf_header().sections(endian, data).ok()?;
        let (entries, strings) = sections.dynamic(endian, data).ok()??;
        let strings = sections.strings(endian, data, strings).ok()?;
        let required_libraries =
            entries.iter().filter(|entry| entry.d_tag(endian) == elf::DT_NEEDED);
        let names = required_libraries.filter_map(|entry| entry.string(endian, strings).ok());
        Some(names.map(|name| String::from_utf8_lossy(name).into_owned()).collect())
    };
    read().unwrap_or_default()
}

/// `info` is constant and equals the metadata.
fn info(harness: &CaseHarness<'_>) -> CaseOutcome {
    let call_info = |what: &str| {
        let scope = harness.trace.start_call("info");
        let info = harness.factory.info();
        drop(scope);
        info.map_err(|error| CheckFault::new("info", format!("{what} failed: {error}")))
    };
    let (first, second) = (call_info("info")?, call_info("the second call of info")?);
    if first != second {
        let message = format!("info changed from {first:?} to {second:?}");
        return Err(CheckFault::new("info", message));
    }
    let meta = &harness.library.meta;
    if (&first.id, &first.version) != (&meta.id, &meta.version) {
        let message = format!(
            "info returned {} {}, but the metadata has {} {}",
            first.id, first.version, meta.id, meta.version
        );
        return Err(CheckFault::new("info", message));
    }
    if let Some(message) = describe_unknown(&first.requires) {
        return Err(CheckFault::new("requires", message));
    }
    let note = format!("built for API {}, host {}: fine", meta.api, EngineMetadata::current().api);
    Ok(CaseStats { checks: 4, note, ..CaseStats::default() })
}

/// The message about required capabilities that this version of the host does not know; `None` if it knows all.
fn describe_unknown(requires: &[String]) -> Option<String> {
    let unknown: Vec<String> = requires
        .iter()
        .filter(|name| !CAPABILITIES.contains(&name.as_str()))
        .map(|name| format!("{name:?}"))
        .collect();
    (!unknown.is_empty()).then(|| {
        format!(
            "info requires {}, which no host of version {} offers, so none opens this engine; the \
             capabilities are {}",
            unknown.join(", "),
            env!("CARGO_PKG_VERSION"),
            CAPABILITIES.join(", ")
        )
    })
}

/// The file can be loaded twice in one process, and both engines can be disposed.
fn retire(harness: &CaseHarness<'_>) -> CaseOutcome {
    harness.open(harness.host())?.dispose()?;
    let scope = harness.trace.start_call("the second load of the library");
    let second = harness.second_copy.map(LibraryCopy::load).transpose();
    drop(scope);
    let second = second
        .map_err(|error| CheckFault::new("load", format!("the second load failed: {error}")))?;
    let factory = second.unwrap_or(harness.factory);
    let second = CaseHarness { factory, ..CaseHarness { ..*harness } };
    let (one, other) = (harness.open(harness.host())?, second.open(second.host())?);
    one.dispose()?;
    other.dispose()?;
    Ok(CaseStats { checks: 3, note: "load twice, retire".into(), ..CaseStats::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_that_no_host_offers_are_named() {
        let names =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(describe_unknown(&names(&CAPABILITIES)), None);
        assert_eq!(describe_unknown(&[]), None);
        let message = describe_unknown(&names(&["kv", "model.complet", "time"])).unwrap();
        assert!(
            message.starts_with("info requires \"model.complet\", \"time\", which"),
            "{message}"
        );
        assert!(message.ends_with("compact.delegate, spawn, model.embed"), "{message}");
    }
}
