//! Signal and exit handlers that write the death of the process to the marker of the running engine.
//!
//! A fatal signal is raised on the thread that caused it. Threads that run an engine carry the descriptor of
//! its marker; the handler writes the signal there and then lets the previous action happen. A kill from
//! outside writes nothing and is not attributed to an engine. An engine that calls `exit` would end the host
//! with its own code, so the same threads carry its name for a message and an error code. Not covered:
//! crashes and exits on threads that the engine started itself, and `_exit`, which runs no handlers.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::fs::File;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd as _, BorrowedFd, RawFd};
use std::sync::{Arc, Once, OnceLock};

use ctxhost_engine_api::border::{ThreadInit, set_thread_init};

/// The prefix of a line about the death of a process.
pub(super) const DEATH_PREFIX: &str = "died:";

/// The signals that code raises by its own fault.
const FATAL: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGABRT];

/// The exit code of a host that an engine ended: `EX_SOFTWARE` of `sysexits.h`.
const ENDED_BY_ENGINE: c_int = 70;

/// The id of an engine without allocation or locks, for use in handlers.
#[derive(Clone, Copy, Debug)]
pub(super) struct FixedName {
    bytes: [u8; FixedName::LONGEST],
    length: usize,
}

impl FixedName {
    /// Longer ids are truncated.
    const LONGEST: usize = 64;

    /// No engine.
    const NONE: FixedName = FixedName { bytes: [0; FixedName::LONGEST], length: 0 };

    pub(super) fn new(id: &str) -> FixedName {
        let mut name = FixedName::NONE;
        for (to, byte) in name.bytes.iter_mut().zip(id.bytes()) {
            // Printed to a terminal without escaping.
            *to = if byte.is_ascii_graphic() { byte } else { b'?' };
            name.length += 1;
        }
        name
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// No marker.
const NONE: RawFd = -1;

thread_local! {
    /// The descriptor of the marker of the engine on this thread.
    static MARKER: Cell<RawFd> = const { Cell::new(NONE) };
    /// The loaded engine on this thread, with or without a marker.
    static NAME: Cell<FixedName> = const { Cell::new(FixedName::NONE) };
}

/// The previous action of each signal in [`FATAL`].
static BEFORE: [OnceLock<libc::sigaction>; FATAL.len()] = [const { OnceLock::new() }; FATAL.len()];

/// Installs the signal handlers. Only the first call has an effect.
pub(super) fn install_signal_handlers() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for (signal, before) in FATAL.iter().zip(&BEFORE) {
            install(*signal, before);
        }
    });
}

/// Installs the exit handlers. Only the first call has an effect.
pub(super) fn install_exit_handlers() {
    #[cfg(target_os = "linux")]
    unsafe extern "C" {
        fn at_quick_exit(handler: extern "C" fn()) -> c_int;
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        set_thread_init(inherit);
        // SAFETY: `on_exit` is a function of this program, which is never unloaded.
        let _ = unsafe { libc::atexit(on_exit) };
        // SAFETY: as above; both C libraries of Linux have `at_quick_exit` with this signature.
        #[cfg(target_os = "linux")]
        let _ = unsafe { at_quick_exit(on_exit) };
    });
}

/// Attributes its thread to an engine until it is dropped.
#[derive(Debug)]
pub(super) struct EngineScope {
    before: (RawFd, FixedName),
    /// Keeps the descriptor open, so that it is not reused for another file.
    _marker: Option<Arc<File>>,
    _of_this_thread: PhantomData<*const ()>,
}

/// Attributes this thread to an engine.
pub(super) fn enter_engine(name: FixedName, marker: Option<Arc<File>>) -> EngineScope {
    let descriptor = marker.as_ref().map_or(NONE, |marker| marker.as_raw_fd());
    let before = (MARKER.replace(descriptor), NAME.replace(name));
    EngineScope { before, _marker: marker, _of_this_thread: PhantomData }
}

impl Drop for EngineScope {
    fn drop(&mut self) {
        let (marker, name) = self.before;
        MARKER.set(marker);
        NAME.set(name);
    }
}

/// Attributes this thread to an engine until [`unbind_thread`]. The caller keeps the marker open.
pub(super) fn bind_thread(name: FixedName, marker: Option<&File>) {
    MARKER.set(marker.map_or(NONE, |marker| marker.as_raw_fd()));
    NAME.set(name);
}

/// Ends the attribution of this thread.
pub(super) fn unbind_thread() {
    MARKER.set(NONE);
    NAME.set(FixedName::NONE);
}

/// The attribution of a new thread for a call of a C engine: that of the thread that starts it.
fn inherit() -> ThreadInit {
    let name = NAME.get();
    let marker = MARKER.get();
    // SAFETY: a descriptor that is in MARKER is open.
    let marker = (marker != NONE).then(|| unsafe { BorrowedFd::borrow_raw(marker) });
    // A duplicate, because the call may outlive the thread that starts it.
    let own = marker.and_then(|marker| marker.try_clone_to_owned().ok());
    let own = own.map(|own| Arc::new(File::from(own)));
    Box::new(move || Box::new(enter_engine(name, own.clone())))
}

fn install(signal: c_int, before: &OnceLock<libc::sigaction>) {
    // SAFETY: all zeros is a valid `sigaction`; every field that matters is set below.
    let mut ours: libc::sigaction = unsafe { std::mem::zeroed() };
    ours.sa_sigaction = on_signal as *const () as usize;
    // On the alternate stack, because a stack that overflowed has no room for a handler.
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: as above.
    let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: both structures live through the call; the handler makes async-signal-safe calls only.
    if unsafe { libc::sigaction(signal, &ours, &mut old) } == 0 {
        let _ = before.set(old);
    }
}

/// Runs on the crashing thread. Makes only async-signal-safe calls.
extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid structure.
    let code = unsafe { (*info).si_code };
    // A code above 0 means a fault of this thread; `abort` sends the signal to its own thread.
    #[cfg(target_os = "linux")]
    let is_own = code > 0 || code == libc::SI_TKILL;
    #[cfg(not(target_os = "linux"))]
    let is_own = code > 0;
    if is_own {
        let tens = u8::try_from(signal / 10 % 10).unwrap_or(0);
        let ones = u8::try_from(signal % 10).unwrap_or(0);
        write_marker(&[b"died: signal ", &[b'0' + tens, b'0' + ones], b"\n"]);
    }
    let before =
        FATAL.iter().position(|fatal| *fatal == signal).and_then(|at| BEFORE.get(at)?.get());
    if let Some(before) = before {
        // SAFETY: the structure was filled by `sigaction` itself; the call is safe in a handler.
        unsafe { libc::sigaction(signal, before, std::ptr::null_mut()) };
    }
    if code <= 0 || signal == libc::SIGTRAP {
        // A fault is raised again when its instruction is repeated. A signal that was sent is not, and after
        // a trap the next instruction would run. The raised signal is pending until the handler returns.
        // SAFETY: `raise` is safe in a handler.
        unsafe { libc::raise(signal) };
    }
}

/// Runs at `exit`, on the calling thread. Where that runs an engine, ends the process at once: destructors of
/// the host would wait for locks and threads that are still in use.
extern "C" fn on_exit() {
    write_marker(&[b"died: a call of exit\n"]);
    let name = NAME.get();
    if name.bytes().is_empty() {
        return;
    }
    let message = b" called exit and ended this process; run it with isolation = \"process\", or release it once it is fixed\n";
    for part in [b"ctxhost: engine ".as_slice(), name.bytes(), message] {
        // SAFETY: the bytes live through the call; a closed standard error is only an error.
        let _ = unsafe { libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len()) };
    }
    // SAFETY: ends the process without running anything else.
    unsafe { libc::_exit(ENDED_BY_ENGINE) }
}

fn write_marker(parts: &[&[u8]]) {
    let marker = MARKER.get();
    if marker == NONE {
        return;
    }
    for part in parts {
        // SAFETY: the descriptor is kept open while it is in MARKER; the bytes live through the call.
        let _ = unsafe { libc::write(marker, part.as_ptr().cast(), part.len()) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Command, Stdio};

    use super::*;

    /// The marker file of the child process of the test below.
    const MARKER_PATH: &str = "CTXHOST_TEST_MARKER";

    /// Run by the test below in a child process, which it ends.
    #[test]
    fn traps_in_the_child_process() {
        let Some(path) = std::env::var_os(MARKER_PATH) else { return };
        install_signal_handlers();
        let marker = File::create(path).unwrap();
        bind_thread(FixedName::new("trap"), Some(&marker));
        #[cfg(target_arch = "x86_64")]
        // SAFETY: raises SIGTRAP on this thread, which is the subject of the test.
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
    fn a_trap_ends_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let marker = folder.path().join("marker");
        let me = "signal_handler::tests::traps_in_the_child_process";
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", me])
            .env(MARKER_PATH, &marker)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert_eq!(status.signal(), Some(libc::SIGTRAP));
        assert_eq!(std::fs::read_to_string(marker).unwrap(), "died: signal 05\n");
    }
}
