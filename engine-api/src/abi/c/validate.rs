//! The door check for C: a function of a library becomes a table whose every field was looked at.

use super::memory::{protocol, read_sized};
use super::structs::Str;
use super::tables::{CEngine, flag};
use crate::abi::guard::catch;
use crate::abi::validate::ValidateError;
use crate::engine::EngineInfo;
use crate::error::Result;

/// The function that a C library of this major exports.
pub const C_ROOT_SYMBOL: &str = "context_engine_c_v1";

/// What an engine must bring: everything up to the first optional call.
const NEEDS_BYTES: usize = std::mem::offset_of!(CEngine, dispose);

/// The most capabilities that an engine may need.
const MAX_NEEDS: usize = 64;

/// A table that was checked, and what it says of the engine.
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

/// Calls the root function and checks what it answers.
///
/// The table stays as long as the library: for ever.
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
    // SAFETY: the caller promises that a function of this type stands at the address.
    let root = unsafe {
        std::mem::transmute::<*const (), unsafe extern "C-unwind" fn() -> *const CEngine>(symbol)
    };
    // SAFETY: as above; the function takes nothing.
    let table = catch(|| unsafe { root() })
        .map_err(|panicked| ValidateError::RootFailed { reason: panicked.message })?;
    // SAFETY: the header has the function answer NULL or a static table that begins with its size.
    let table = unsafe { read_sized("the table", table, NEEDS_BYTES) };
    let checked = table.and_then(check).map_err(|error| bad_table(&error.message))?;
    Ok(Box::leak(Box::new(checked)))
}

fn bad_table(reason: &str) -> ValidateError {
    ValidateError::BadTable { reason: reason.into() }
}

fn check(table: CEngine) -> Result<EngineTable> {
    let delegates = table.flags & flag::DELEGATES_COMPACTION != 0;
    let missing = match (table.create, table.assemble, table.compact) {
        (None, _, _) => Some("create is NULL"),
        (_, None, _) => Some("assemble is NULL"),
        (_, _, None) if !delegates => Some(
            "compact is NULL; write it, or set CTXHOST_DELEGATES_COMPACTION to have the bundled engine compact",
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
    if list.is_null() || !list.is_aligned() || len > MAX_NEEDS {
        return Err(protocol(format!("its list of {len} needs is no list")));
    }
    // SAFETY: the header has `needs` point to `needs_len` texts in static memory.
    let names = unsafe { std::slice::from_raw_parts(list, len) };
    names.iter().map(|name| word("need", name)).collect()
}
