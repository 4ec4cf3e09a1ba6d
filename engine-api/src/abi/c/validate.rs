//! Calls the root function of a C library and checks the table it returns.

use super::memory::{protocol, read_sized};
use super::structs::Str;
use super::tables::{CEngine, flag};
use crate::abi::guard::catch_panic;
use crate::abi::validate::ValidateError;
use crate::engine::EngineInfo;
use crate::error::Result;

/// The function that a C library of this major version exports.
pub const C_ROOT_SYMBOL: &str = "context_engine_c_v1";

/// The minimum size of a table, in bytes: everything before the first optional call.
const NEEDS_BYTES: usize = std::mem::offset_of!(CEngine, dispose);

/// The maximum number of required capabilities.
const MAX_NEEDS: usize = 64;

/// A checked table and the engine info it contains.
pub(crate) struct EngineTable {
    pub(super) table: CEngine,
    pub(super) info: EngineInfo,
}

// SAFETY: the pointers in the table are those of static data and functions of a library that is
// never unloaded; rule 4 of the header has its functions called from any thread.
unsafe impl Send for EngineTable {}
// SAFETY: as above; nothing writes to the table.
unsafe impl Sync for EngineTable {}

impl EngineTable {
    pub(in crate::abi) fn info(&self) -> &EngineInfo {
        &self.info
    }
}

/// Calls the root function and checks the returned table.
///
/// # Safety
///
/// `symbol` is the address of [`C_ROOT_SYMBOL`] in a library that is never unloaded, and the library
/// keeps the rules of `ctxhost_engine.h`.
pub(in crate::abi) unsafe fn load_table(
    symbol: *const (),
) -> Result<&'static EngineTable, ValidateError> {
    if symbol.is_null() {
        return Err(bad_table("its address is null"));
    }
    // SAFETY: the caller promises a function of this type at the address.
    // C-unwind: unwinding out of the call is defined behaviour and is caught below.
    let root = unsafe {
        std::mem::transmute::<*const (), unsafe extern "C-unwind" fn() -> *const CEngine>(symbol)
    };
    // SAFETY: as above; the function takes nothing.
    let table = catch_panic(|| unsafe { root() })
        .map_err(|panicked| ValidateError::RootFailed { reason: panicked.message })?;
    // SAFETY: the header requires NULL or a static table that begins with its size.
    let table = unsafe { read_sized("the table", table, NEEDS_BYTES) };
    let checked = table.and_then(check).map_err(|error| bad_table(&error.message))?;
    // Leaked on purpose: the library is never unloaded, so the table is valid for the process.
    Ok(Box::leak(Box::new(checked)))
}

fn bad_table(reason: &str) -> ValidateError {
    ValidateError::BadTable { reason: reason.into() }
}

fn check(table: CEngine) -> Result<EngineTable> {
    // The flag makes a missing `compact` explicit: forgetting it must not disable compactions
    // silently.
    let delegates = table.flags & flag::DELEGATES_COMPACTION != 0;
    let missing = match (table.create, table.assemble, table.compact) {
        (None, _, _) => Some("create is NULL"),
        (_, None, _) => Some("assemble is NULL"),
        (_, _, None) if !delegates => Some(
            "compact is NULL; implement it, or set CTXHOST_DELEGATES_COMPACTION to use the bundled engine",
        ),
        _ => None,
    };
    if let Some(missing) = missing {
        return Err(protocol(missing));
    }
    let info = EngineInfo {
        id: word("id", &table.id)?,
        name: word("name", &table.name)?,
        version: word("version", &table.version)?,
        owns_compaction: table.flags & flag::OWNS_COMPACTION != 0,
        requires: needs(&table)?,
    };
    Ok(EngineTable { table, info })
}

fn word(what: &str, text: &Str) -> Result<String> {
    match text.text() {
        Ok("") => Err(protocol(format!("its {what} is empty"))),
        Ok(text) => Ok(text.into()),
        Err(error) => Err(protocol(format!("its {what}: {}", error.message))),
    }
}

fn needs(table: &CEngine) -> Result<Vec<String>> {
    let (list, len) = (table.needs, table.needs_len);
    if len == 0 {
        return Ok(Vec::new());
    }
    // An uninitialised length would make the host read unmapped memory.
    if list.is_null() || !list.is_aligned() || len > MAX_NEEDS {
        return Err(protocol(format!(
            "its list of {len} needs is invalid (NULL, misaligned, or more than {MAX_NEEDS})"
        )));
    }
    // SAFETY: the header requires `needs` to point to `needs_len` texts in static memory.
    let names = unsafe { std::slice::from_raw_parts(list, len) };
    names.iter().map(|name| word("need", name)).collect()
}
