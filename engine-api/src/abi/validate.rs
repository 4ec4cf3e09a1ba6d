//! Turns the root symbol of a library into an engine module after comparing the layouts of both sides.

use abi_stable::StableAbi;
use abi_stable::abi_stability::abi_checking::{
    CheckingGlobals, check_layout_compatibility_with_globals,
};
use abi_stable::library::{AbiHeaderRef, LibHeader, RootModule as _};
use abi_stable::sabi_types::VersionStrings;
use abi_stable::type_layout::TypeLayout;

use super::engine::EngineModuleRef;
use super::metadata::ABI_MAJOR;

/// The symbol that a library of this major version exports.
pub const ROOT_SYMBOL: &str = "CONTEXT_ENGINE_ROOT_V1";

/// Why the symbol of a library was rejected.
#[derive(Debug, thiserror::Error)]
pub enum ValidateError {
    /// The symbol is not what `export_engine!` makes.
    #[error("its symbol {ROOT_SYMBOL} is not an engine header ({reason})")]
    NotAHeader {
        /// What is wrong with it.
        reason: String,
    },
    /// Neither side's layout is an extension of the other's.
    #[error(
        "its ABI is incompatible with this host; rebuild it with ctxhost-engine-api {ABI_MAJOR}.x ({reason})"
    )]
    Incompatible {
        /// The first difference, on one line.
        reason: String,
        /// The complete report: tens of kilobytes, for the debug log.
        report: String,
    },
    /// The table of a C library does not match the header.
    #[error("its table does not match ctxhost_engine.h ({reason})")]
    BadTable {
        /// What is wrong with it.
        reason: String,
    },
    /// The library's root function failed.
    #[error("its root function failed ({reason})")]
    RootFailed {
        /// The message of the failure.
        reason: String,
    },
}

/// Returns the module of the header at `symbol` after comparing both layouts.
///
/// # Safety
///
/// As for [`EngineFactory::from_symbol`](super::import::EngineFactory::from_symbol).
pub(super) unsafe fn root_module(symbol: *const ()) -> Result<EngineModuleRef, ValidateError> {
    if symbol.is_null() {
        return Err(ValidateError::NotAHeader { reason: "its address is null".into() });
    }
    // SAFETY: `AbiHeaderRef` is a transparent reference to 40 readable bytes; the caller promises that
    // the address is that of a static of a library that stays mapped. The magic in the first 32 bytes
    // is compared before anything else of it is used.
    let header = unsafe { std::mem::transmute::<*const (), AbiHeaderRef>(symbol) };
    let header = header.upgrade().map_err(|error| ValidateError::NotAHeader {
        reason: first_error_line(&error.to_string()),
    })?;
    compare_layouts(header)?;
    // SAFETY: one of the two layouts is an extension of the other, as just checked. Accessors of
    // fields and methods past the shorter one test for their presence.
    let module = unsafe { header.unchecked_layout::<EngineModuleRef>() };
    module
        .map_err(|error| ValidateError::RootFailed { reason: first_error_line(&error.to_string()) })
}

/// Accepts the header if either layout extends the other: an engine may be older or newer by any minor.
fn compare_layouts(header: &LibHeader) -> Result<(), ValidateError> {
    let no_layout = || ValidateError::NotAHeader { reason: "it carries no layout".into() };
    let (ours, theirs) = (EngineModuleRef::LAYOUT, header.layout().ok_or_else(no_layout)?);
    let Err(as_newer) = check(ours, theirs) else { return Ok(()) };
    let Err(as_older) = check(theirs, ours) else { return Ok(()) };
    let (here, there) = (EngineModuleRef::VERSION_STRINGS, header.version_strings());
    // Both directions failed. Only the direction in which the versions promise compatibility explains why.
    let report = if minor(there) < minor(here) { as_older } else { as_newer };
    let reason = format!("API {there} here {here}: {}", first_error_line(&report));
    Err(ValidateError::Incompatible { reason, report })
}

/// Checks one direction.
fn check(expected: &'static TypeLayout, found: &'static TypeLayout) -> Result<(), String> {
    // Fresh globals for each check: abi_stable's process-wide ones remember the first layout they saw, and
    // would compare every later engine with the first older one.
    check_layout_compatibility_with_globals(expected, found, &CheckingGlobals::new())
        .map_err(|errors| errors.to_string())
}

fn minor(version: VersionStrings) -> Option<(u32, u32)> {
    version.parsed().map(|version| (version.major, version.minor)).ok()
}

/// Maximum length of the reason shown to users, in characters.
const SENTENCE_CHARS: usize = 280;

/// Lines after `Error:` that contain the expected and the actual layout.
const HELPFUL_LINES: usize = 5;

/// Extracts the lines after the first `Error:`; the whole report can be 200 kB long.
fn first_error_line(report: &str) -> String {
    let mut lines = report.lines().map(str::trim).skip_while(|line| !line.starts_with("Error:"));
    let named = lines.by_ref().take(HELPFUL_LINES).collect::<Vec<_>>().join(" ");
    let fallback = report.lines().map(str::trim).find(|line| !line.is_empty());
    let line = if named.is_empty() { fallback.unwrap_or("no reason given").into() } else { named };
    line.chars().take(SENTENCE_CHARS).collect()
}
