//! The last word of a process that dies inside an engine: one line in the engine's note.
//!
//! Fatal signals are raised on the thread that earned them. Threads that run an engine carry the
//! descriptor of its note, the handler writes the signal there, and what was to happen without us
//! happens then. A process that is killed from outside writes nothing, and so is not blamed on an
//! engine. An engine that calls `exit` would end the host as if all were well: the same threads carry its
//! name, so that the end is told and the code is an error's. What this does not see: an engine that
//! crashes or exits on a thread it made itself, and `_exit`, which runs no handler.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::fs::File;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd as _, BorrowedFd, RawFd};
use std::sync::{Arc, Once, OnceLock};

use ctxhost_engine_api::border::{ThreadInit, set_thread_init};

/// What a line about the end of a process begins with.
pub(super) const DEATH_PREFIX: &str = "died:";

/// The signals that code brings upon itself.
const FATAL: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGABRT];

/// The code of a host that an engine ended: `EX_SOFTWARE` of `sysexits.h`.
const ENDED_BY_ENGINE: c_int = 70;

/// The id of an engine where no memory can be had and nothing may be locked: at the end of the process.
#[derive(Clone, Copy, Debug)]
pub(super) struct FixedName {
    bytes: [u8; FixedName::LONGEST],
    length: usize,
}

impl FixedName {
    /// What is longer is cut.
    const LONGEST: usize = 64;

    /// Nobody's.
    const NONE: FixedName = FixedName { bytes: [0; FixedName::LONGEST], length: 0 };

    pub(super) fn new(id: &str) -> FixedName {
        let mut name = FixedName::NONE;
        for (to, byte) in name.bytes.iter_mut().zip(id.bytes()) {
            // It goes to a terminal as it is.
            *to = if byte.is_ascii_graphic() { byte } else { b'?' };
            name.length += 1;
        }
        name
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// No note.
const NONE: RawFd = -1;

thread_local! {
    /// The note of the engine that runs on this thread.
    static NOTE: Cell<RawFd> = const { Cell::new(NONE) };
    /// The engine of a file that runs on this thread, noted or not.
    static NAME: Cell<FixedName> = const { Cell::new(FixedName::NONE) };
}

/// What was to happen at each of [`FATAL`] before us.
static BEFORE: [OnceLock<libc::sigaction>; FATAL.len()] = [const { OnceLock::new() }; FATAL.len()];

/// Watches over this process. The first call counts.
pub(super) fn install_signal_handlers() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for (signal, before) in FATAL.iter().zip(&BEFORE) {
            install(*signal, before);
        }
    });
}

/// From here on an engine that ends this process does not do so in silence. The first call counts.
pub(super) fn install_exit_handlers() {
    unsafe extern "C" {
        fn at_quick_exit(handler: extern "C" fn()) -> c_int;
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        set_thread_init(inherit);
        // SAFETY: `on_exit` is a function of this program, which is never unloaded; both C libraries of
        // Linux have `at_quick_exit` with this signature.
        let _ = unsafe { (libc::atexit(on_exit), at_quick_exit(on_exit)) };
    });
}

/// While this lives, its thread runs an engine.
#[derive(Debug)]
pub(super) struct EngineScope {
    before: (RawFd, FixedName),
    /// Keeps the descriptor from meaning another file.
    _note: Option<Arc<File>>,
    _of_this_thread: PhantomData<*const ()>,
}

/// This thread runs an engine from here on.
pub(super) fn enter_engine(name: FixedName, note: Option<Arc<File>>) -> EngineScope {
    let descriptor = note.as_ref().map_or(NONE, |note| note.as_raw_fd());
    let before = (NOTE.replace(descriptor), NAME.replace(name));
    EngineScope { before, _note: note, _of_this_thread: PhantomData }
}

impl Drop for EngineScope {
    fn drop(&mut self) {
        let (note, name) = self.before;
        NOTE.set(note);
        NAME.set(name);
    }
}

/// This thread runs nothing but an engine. The caller keeps the note open until [`unbind_thread`].
pub(super) fn bind_thread(name: FixedName, note: Option<&File>) {
    NOTE.set(note.map_or(NONE, |note| note.as_raw_fd()));
    NAME.set(name);
}

/// This thread runs no engine any more.
pub(super) fn unbind_thread() {
    NOTE.set(NONE);
    NAME.set(FixedName::NONE);
}

/// A call of a C engine runs on a thread of its own: it carries the note of the one that starts it.
fn inherit() -> ThreadInit {
    let name = NAME.get();
    let note = NOTE.get();
    // SAFETY: a descriptor that stands in NOTE is open.
    let note = (note != NONE).then(|| unsafe { BorrowedFd::borrow_raw(note) });
    // A descriptor of its own, since the call may outlive the lane.
    let own = note.and_then(|note| note.try_clone_to_owned().ok());
    let own = own.map(|own| Arc::new(File::from(own)));
    Box::new(move || Box::new(enter_engine(name, own.clone())))
}

fn install(signal: c_int, before: &OnceLock<libc::sigaction>) {
    // SAFETY: all zeros is a valid `sigaction`; every field that matters is set below.
    let mut ours: libc::sigaction = unsafe { std::mem::zeroed() };
    ours.sa_sigaction = on_signal as *const () as usize;
    // On the signal stack, because a stack that overflowed has no room for a handler.
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: as above.
    let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: both structures live through the call; the handler does what a handler may do.
    if unsafe { libc::sigaction(signal, &ours, &mut old) } == 0 {
        let _ = before.set(old);
    }
}

/// Runs on a thread that is about to die. Only calls that are safe in a handler stand here.
extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: with SA_SIGINFO the kernel hands over a valid structure.
    let code = unsafe { (*info).si_code };
    // Above 0 the kernel says that this thread did it; `abort` sends to its own thread.
    let is_own = code > 0 || code == libc::SI_TKILL;
    if is_own {
        let tens = u8::try_from(signal / 10 % 10).unwrap_or(0);
        let ones = u8::try_from(signal % 10).unwrap_or(0);
        write_marker(&[b"died: signal ", &[b'0' + tens, b'0' + ones], b"\n"]);
    }
    let before = FATAL.iter().position(|it| *it == signal).and_then(|at| BEFORE.get(at)?.get());
    if let Some(before) = before {
        // SAFETY: the structure was filled by `sigaction` itself; the call is safe in a handler.
        unsafe { libc::sigaction(signal, before, std::ptr::null_mut()) };
    }
    if code <= 0 || signal == libc::SIGTRAP {
        // A fault comes again by itself when its instruction does. What was sent does not, and behind a
        // trap the next instruction would run. It waits until we return.
        // SAFETY: `raise` is safe in a handler.
        unsafe { libc::raise(signal) };
    }
}

/// Runs at `exit`, on the thread that called it. Where that runs an engine, nothing of the host comes
/// behind this: it has locks and threads that know of no end.
extern "C" fn on_exit() {
    write_marker(&[b"died: a call of exit\n"]);
    let name = NAME.get();
    if name.bytes().is_empty() {
        return;
    }
    let says = b" called exit and ended this process; run it with isolation = \"process\", or release it when it is mended\n";
    for part in [b"ctxhost: engine ".as_slice(), name.bytes(), says] {
        // SAFETY: the bytes live through the call; standard error may be closed, which is an error alone.
        let _ = unsafe { libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len()) };
    }
    // SAFETY: it ends the process and runs nothing before that.
    unsafe { libc::_exit(ENDED_BY_ENGINE) }
}

fn write_marker(parts: &[&[u8]]) {
    let note = NOTE.get();
    if note == NONE {
        return;
    }
    for part in parts {
        // SAFETY: the descriptor is kept open while it stands in NOTE; the bytes live through the call.
        let _ = unsafe { libc::write(note, part.as_ptr().cast(), part.len()) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Command, Stdio};

    use super::*;

    /// Where the child of the test below writes its note.
    const NOTE_PATH: &str = "CTXHOST_TEST_NOTE";

    /// No test by itself: what the one below starts again, and what does not come back.
    #[test]
    fn steps_on_a_trap_where_it_is_told_to() {
        let Some(path) = std::env::var_os(NOTE_PATH) else { return };
        install_signal_handlers();
        let note = File::create(path).unwrap();
        bind_thread(FixedName::new("trap"), Some(&note));
        #[cfg(target_arch = "x86_64")]
        // SAFETY: it raises SIGTRAP on this thread, and that is what is tested.
        unsafe {
            std::arch::asm!("int3");
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        unsafe {
            std::arch::asm!("brk #0");
        }
    }

    #[test]
    fn who_steps_on_a_trap_ends_there() {
        let folder = tempfile::tempdir().unwrap();
        let note = folder.path().join("note");
        let me = "signal_handler::tests::steps_on_a_trap_where_it_is_told_to";
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", me])
            .env(NOTE_PATH, &note)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert_eq!(status.signal(), Some(libc::SIGTRAP));
        assert_eq!(std::fs::read_to_string(note).unwrap(), "died: signal 05\n");
    }
}
