//! The loader: checks a library file and loads it as an engine factory.
//!
//! The order matters: constructors of a library run at `dlopen`, and a truncated file kills the
//! process inside it, so the file is checked completely before.
//!
//! ```text
//!  path ─► regular file, neither it nor its folder writable by all ─► read once ─► sha256
//!       ─► complete object file ─► metadata ─► private copy ─► dlopen (now, local) ─► symbol
//!       ─► layouts, or the table of a C engine ─► id
//! ```
//!
//! The checks cannot restrict what a loaded library does: its code has all the rights of the
//! process.

#![allow(unsafe_code)]

use std::error::Error as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

use ctxhost_engine_api::border::{
    ABI_MAJOR, C_ROOT_SYMBOL, EngineFactory, EngineMetadata, EntryPoint, META_BYTES, ROOT_SYMBOL,
    ValidateError, decode_meta, is_engine_id, metadata_magic,
};
use ctxhost_engine_api::transcript::tokens::group_thousands;
use ctxhost_platform::files::{self, LinkPolicy, open_options};
use libloading::Library;
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

use crate::object_file::check_object;

/// The largest library in bytes. A debug build of a large engine has some 30 MB.
const MAX_LIBRARY_BYTES: u64 = 512 * 1024 * 1024;

/// Why a file was not loaded. None of its code has run, unless the variant says so.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// `ctxhost.lock` names it, and it is not there.
    #[error("{} is missing; {}", path.display(), crate::spec::missing_remedy(*has_source))]
    NotInstalled {
        /// The file.
        path: PathBuf,
        /// Whether `ctxhost.lock` names where its bytes come from.
        has_source: bool,
    },
    /// It is a folder, a pipe or a device.
    #[error("{} is not a regular file; name the engine's .so", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// Every user of this machine could replace it.
    #[error("{} can be written by every user; run `chmod o-w` on it first", path.display())]
    WorldWritable {
        /// The file.
        path: PathBuf,
    },
    /// Every user of this machine could replace it, by way of its folder.
    #[error(
        "{} is in {}, which every user can write to; run `chmod o-w` on that folder first",
        path.display(),
        folder.display()
    )]
    WorldWritableFolder {
        /// The file.
        path: PathBuf,
        /// The folder.
        folder: PathBuf,
    },
    /// It is too large.
    #[error("{} has {} bytes; engines of more than {} are not loaded", path.display(), group_thousands(*bytes), group_thousands(MAX_LIBRARY_BYTES))]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// Its bytes are not those that were pinned.
    #[error(
        "{}: file hash {} does not match the pinned {}; not loaded",
        path.display(),
        short_digest(found),
        short_digest(expected)
    )]
    HashMismatch {
        /// The file.
        path: PathBuf,
        /// The pinned hash.
        expected: String,
        /// The hash of the file.
        found: String,
    },
    /// It is not a shared library.
    #[error("{} is not a shared library ({reason})", path.display())]
    NotALibrary {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// It is not a library of this kind of system.
    #[error("{} is {what}; this host needs {needed}", path.display())]
    ForeignFile {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: &'static str,
        /// The format and the machine of this host.
        needed: String,
    },
    /// It is truncated.
    #[error("{} is cut short: it has {} bytes and its headers speak of {}; copy it again", path.display(), group_thousands(*bytes), group_thousands(*needed))]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// The size that its headers require.
        needed: u64,
    },
    /// It is a library, but not an engine.
    #[error("{} is a library but no engine: it has no engine metadata; does it call export_engine!, or CTXHOST_ENGINE_META in C?", path.display())]
    NoMetadata {
        /// The file.
        path: PathBuf,
    },
    /// The id of its engine is invalid. Ids become parts of paths.
    #[error(
        "{} calls its engine {id:?}, which is not a valid id; an id has a-z, 0-9 and hyphens, 64 characters at most, and does not begin with a hyphen",
        path.display()
    )]
    BadId {
        /// The file.
        path: PathBuf,
        /// The id in its metadata.
        id: String,
    },
    /// It holds more than one engine.
    #[error("{} holds {count} engines; a library exports exactly one", path.display())]
    SeveralEngines {
        /// The file.
        path: PathBuf,
        /// Their number.
        count: usize,
    },
    /// It was built for another major of the ABI.
    #[error(
        "{} was built for engine ABI {theirs}, this host supports {ABI_MAJOR}; rebuild it with ctxhost-engine-api {ABI_MAJOR}.x",
        path.display()
    )]
    WrongMajor {
        /// The file.
        path: PathBuf,
        /// Its ABI version.
        theirs: u32,
    },
    /// It was built for another machine or with the wrong panic strategy.
    #[error("{} was built for {what}, this host needs {needed}", path.display())]
    WrongBuild {
        /// The file.
        path: PathBuf,
        /// What it was built for.
        what: String,
        /// What this host requires.
        needed: String,
    },
    /// The private copy could not be written.
    #[error("cannot write a private copy into {}: {source}", folder.display())]
    NoCopy {
        /// The folder.
        folder: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The dynamic linker refused it.
    #[error("the system did not load {}: {reason}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// The linker's error.
        reason: String,
    },
    /// It does not export the entry point.
    #[error("{} does not export {symbol}; was it stripped?", path.display())]
    NoSymbol {
        /// The file.
        path: PathBuf,
        /// The missing symbol.
        symbol: &'static str,
    },
    /// Its entry point is not compatible. Its constructors have run.
    #[error("{} is not compatible: {source}", path.display())]
    NotAdmitted {
        /// The file.
        path: PathBuf,
        /// Why.
        source: ValidateError,
    },
    /// Its metadata and its code name different ids.
    #[error("{} calls itself {running:?} but its metadata says {written:?}", path.display())]
    IdMismatch {
        /// The file.
        path: PathBuf,
        /// The id in its metadata.
        written: String,
        /// The id in its code.
        running: String,
    },
}

/// The part of a digest that people compare.
pub fn short_digest(sha256: &str) -> &str {
    sha256.get(..12).unwrap_or(sha256)
}

/// A library that was read and checked, but not loaded.
#[derive(Debug)]
pub struct EngineFile {
    /// The canonical path.
    pub path: PathBuf,
    /// Its metadata.
    pub meta: EngineMetadata,
    /// SHA-256 of its bytes, in hex.
    pub sha256: String,
    /// Its size.
    pub bytes: u64,
    image: Vec<u8>,
}

/// Reads and checks a library without running its code.
///
/// # Errors
///
/// [`LoadError`], one sentence with what to do.
pub fn inspect(path: &Path) -> Result<EngineFile, LoadError> {
    inspect_pinned(path, None)
}

/// Like [`inspect`], and refuses a file without the pinned SHA-256 (in hex) before any other check
/// of its contents. Symbolic links are resolved, and messages name the real file.
///
/// # Errors
///
/// [`LoadError`], one sentence with what to do.
pub fn inspect_pinned(path: &Path, pinned: Option<&str>) -> Result<EngineFile, LoadError> {
    let unreadable = |source| LoadError::Unreadable { path: path.into(), source };
    let path = path.canonicalize().map_err(unreadable)?;
    let image = read_image(&path)?;
    let sha256: String = Sha256::digest(&image).iter().map(|byte| format!("{byte:02x}")).collect();
    // Before the contents are parsed, so that a changed file is reported as changed and not as
    // damaged.
    if let Some(expected) = pinned.filter(|pinned| !pinned.eq_ignore_ascii_case(&sha256)) {
        return Err(LoadError::HashMismatch { path, expected: expected.into(), found: sha256 });
    }
    check_object(&path, &image)?;
    let meta = find_meta(&path, &image)?;
    check_build(&path, &meta)?;
    Ok(EngineFile { path, meta, sha256, bytes: image.len() as u64, image })
}

impl EngineFile {
    /// The bytes that were checked and that would be loaded.
    pub fn image(&self) -> &[u8] {
        &self.image
    }

    /// Loads the bytes that were checked. `copies` is a private folder for a copy.
    ///
    /// The library stays loaded: unloading Rust code has no effect or kills the process.
    ///
    /// # Errors
    ///
    /// [`LoadError`].
    pub fn load(self, copies: &Path) -> Result<EngineFactory, LoadError> {
        self.copy(copies)?.load()
    }

    /// A copy of the bytes that were checked, in the private folder `copies`. A process that confines itself
    /// makes it before.
    ///
    /// # Errors
    ///
    /// [`LoadError::NoCopy`].
    pub fn copy(&self, copies: &Path) -> Result<LibraryCopy, LoadError> {
        let file = private_copy(copies, &self.sha256, &self.image)
            .map_err(|source| LoadError::NoCopy { folder: copies.into(), source })?;
        let (origin, id) = (self.path.clone(), self.meta.id.clone());
        Ok(LibraryCopy { file, origin, id, entry_point: self.meta.entry_point })
    }
}

/// A private copy of a checked library, deleted when it is dropped.
#[derive(Debug)]
pub struct LibraryCopy {
    file: NamedTempFile,
    /// The library, for messages.
    origin: PathBuf,
    id: String,
    entry_point: EntryPoint,
}

impl LibraryCopy {
    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Loads the copy, which stays loaded as with [`EngineFile::load`].
    ///
    /// # Errors
    ///
    /// [`LoadError`].
    pub fn load(&self) -> Result<EngineFactory, LoadError> {
        load_copy(self.path(), &self.origin, &self.id, self.entry_point)
    }
}

/// Loads a private copy of a checked library with engine `id`. Messages name the `origin`.
pub(super) fn load_copy(
    copy: &Path,
    origin: &Path,
    id: &str,
    entry_point: EntryPoint,
) -> Result<EngineFactory, LoadError> {
    let path = origin.to_owned();
    // SAFETY: constructors of the library run here. The operator named this file as an engine;
    // its bytes were checked to be a complete library of this platform that carries an engine's
    // metadata, and the copy that is opened cannot change any more.
    let library = unsafe { open_library(copy) };
    // Never dropped, even on errors: unloading Rust code has no effect or kills the process.
    let library = ManuallyDrop::new(library.map_err(|error| LoadError::Refused {
        path: path.clone(),
        // The linker's words are in the source.
        reason: shorten(&error.source().map_or_else(|| error.to_string(), ToString::to_string)),
    })?);
    let name = symbol_of(entry_point);
    // SAFETY: only the address of the symbol is taken; `from_symbol` checks what it points to.
    let symbol = unsafe { library.get::<*const ()>(name.as_bytes()) };
    let missing = |_| LoadError::NoSymbol { path: path.clone(), symbol: name };
    let symbol = (*symbol.map_err(missing)?).cast();
    let factory = match entry_point {
        // SAFETY: the address is that of the root symbol of a library that was just made permanent.
        EntryPoint::Rust => unsafe { EngineFactory::from_symbol(symbol) },
        // SAFETY: as above; that the library keeps the rules of the header is the operator's trust
        // in the file.
        EntryPoint::C => unsafe { EngineFactory::from_c_symbol(symbol) },
    };
    let factory = factory.map_err(|source| {
        if let ValidateError::Incompatible { report, .. } = &source {
            // Not part of the error: the report of a layout mismatch has up to 190 kB.
            tracing::debug!(path = %path.display(), report, "layout report");
        }
        LoadError::NotAdmitted { path: path.clone(), source }
    })?;
    let running = factory.info().map(|info| info.id).unwrap_or_default();
    if running == id {
        Ok(factory)
    } else {
        Err(LoadError::IdMismatch { path, written: id.into(), running })
    }
}

/// Loads a library.
///
/// # Safety
///
/// As [`Library::new`]: its constructors run.
#[cfg(unix)]
unsafe fn open_library(path: &Path) -> Result<Library, libloading::Error> {
    use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
    // NOW: a missing symbol fails here and not during a call. LOCAL: two engines may define the
    // same symbols.
    // SAFETY: as the caller states.
    unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map(Into::into)
}

/// Loads a library.
///
/// # Safety
///
/// As [`Library::new`]: its constructors run.
#[cfg(windows)]
unsafe fn open_library(path: &Path) -> Result<Library, libloading::Error> {
    // SAFETY: as the caller states. Windows has no other ways to load one.
    unsafe { Library::new(path) }
}

/// The symbol of an entry point.
fn symbol_of(entry_point: EntryPoint) -> &'static str {
    match entry_point {
        EntryPoint::Rust => ROOT_SYMBOL,
        EntryPoint::C => C_ROOT_SYMBOL,
    }
}

/// Reads a file. Opened once, so that all checks concern the bytes that are read.
fn read_image(path: &Path) -> Result<Vec<u8>, LoadError> {
    let unreadable = |source| LoadError::Unreadable { path: path.into(), source };
    // Opening a pipe would block until it has a writer.
    let mut file = open_options(LinkPolicy::Follow).read(true).open(path).map_err(unreadable)?;
    // Of the open file: the path may lead to another one by now.
    let facts = file.metadata().map_err(unreadable)?;
    if !facts.is_file() {
        return Err(LoadError::NotAFile { path: path.into() });
    }
    if files::mode(&facts).is_some_and(|mode| mode & 0o002 != 0) {
        return Err(LoadError::WorldWritable { path: path.into() });
    }
    if facts.len() > MAX_LIBRARY_BYTES {
        return Err(LoadError::TooLarge { path: path.into(), bytes: facts.len() });
    }
    check_folder(path)?;
    let mut image = Vec::with_capacity(usize::try_from(facts.len()).unwrap_or(0));
    file.read_to_end(&mut image).map_err(unreadable)?;
    Ok(image)
}

/// Refuses a folder in which other users can replace the file. The sticky bit prevents that.
fn check_folder(path: &Path) -> Result<(), LoadError> {
    let Some(folder) = path.parent() else { return Ok(()) };
    let facts = fs::metadata(folder)
        .map_err(|source| LoadError::Unreadable { path: folder.into(), source })?;
    if files::mode(&facts).is_some_and(|mode| mode & 0o002 != 0 && mode & 0o1000 == 0) {
        return Err(LoadError::WorldWritableFolder { path: path.into(), folder: folder.into() });
    }
    Ok(())
}

fn find_meta(path: &Path, image: &[u8]) -> Result<EngineMetadata, LoadError> {
    let block = |at: usize| image.get(at..(at + META_BYTES).min(image.len()));
    let magic = metadata_magic();
    let found = memchr::memmem::find_iter(image, &magic);
    let mut metas: Vec<EngineMetadata> = found.filter_map(|at| decode_meta(block(at)?)).collect();
    match (metas.pop(), metas.len()) {
        (None, _) => Err(LoadError::NoMetadata { path: path.into() }),
        (Some(meta), 0) if is_engine_id(&meta.id) => Ok(meta),
        (Some(meta), 0) => Err(LoadError::BadId { path: path.into(), id: meta.id }),
        (Some(_), more) => Err(LoadError::SeveralEngines { path: path.into(), count: more + 1 }),
    }
}

fn check_build(path: &Path, meta: &EngineMetadata) -> Result<(), LoadError> {
    let ours = match meta.entry_point {
        EntryPoint::Rust => EngineMetadata::current(),
        EntryPoint::C => EngineMetadata::current_c(),
    };
    if let Some(theirs) = meta.majors().into_iter().find(|major| *major != ABI_MAJOR) {
        return Err(LoadError::WrongMajor { path: path.into(), theirs });
    }
    let pairs = [
        (format!("target {}", meta.target), format!("target {}", ours.target)),
        (format!("{}-bit pointers", meta.pointer), format!("{}-bit pointers", ours.pointer)),
        (format!("panic = {:?}", meta.panic), format!("panic = {:?}", ours.panic)),
    ];
    match pairs.into_iter().find(|(theirs, ours)| theirs != ours) {
        Some((what, needed)) => Err(LoadError::WrongBuild { path: path.into(), what, needed }),
        None => Ok(()),
    }
}

/// Writes a private copy, deleted when it is dropped; the mapping outlives the name.
fn private_copy(folder: &Path, sha256: &str, image: &[u8]) -> std::io::Result<NamedTempFile> {
    // A new inode and name: for a known path or link the linker returns the loaded image, and a file that is
    // overwritten in place kills the process that maps it.
    private_folder(folder)?;
    let mut builder = tempfile::Builder::new();
    builder.prefix(sha256).suffix(std::env::consts::DLL_SUFFIX);
    if let Some(permissions) = files::permissions(0o500) {
        builder.permissions(permissions);
    }
    let mut copy = builder.tempfile_in(folder)?;
    copy.write_all(image)?;
    copy.as_file().sync_all()?;
    Ok(copy)
}

/// Creates a folder that only its owner may enter, with its parents.
pub(super) use ctxhost_platform::files::create_private_folders as private_folder;

fn shorten(text: &str) -> String {
    text.chars().take(300).collect()
}
