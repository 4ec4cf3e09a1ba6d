//! The worker's side: what the program does that was started to hold one engine.

mod host_proxy;
mod server;
mod writer;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use self::server::SandboxServer;
use self::writer::FrameWriter;
use super::confinement::{confine, detach_from_host};
use super::program::{COMMAND, allow_self_launch};
use super::wire::{self, FromSandbox, Hello, ToSandbox};
use crate::library::load_copy;

/// Becomes a worker where the program was started as one, and does not return then.
///
/// A program that embeds the host calls it first of all in `main`, before it starts threads or reads its
/// arguments; engines with `isolation = "process"` then run in the same program started again. Without
/// it they need a `ctxhost` beside the program or in `PATH`.
pub fn sandbox_main() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_none_or(|command| command != COMMAND) {
        allow_self_launch();
        return;
    }
    let code = match run_sandbox(arguments.next()) {
        Ok(()) => 0,
        Err(reason) => {
            let _ = writeln!(io::stderr(), "engine worker: {reason}");
            2
        }
    };
    // Nothing of the engine's is waited for: its threads end here.
    std::process::exit(code);
}

/// Holds the engine until the host hangs up.
fn run_sandbox(host: Option<OsString>) -> Result<(), String> {
    let host = host.as_deref().and_then(|pid| pid.to_str()?.parse().ok());
    detach_from_host(host.ok_or("this is started by ctxhost itself")?)?;
    let wire = take_wire().map_err(|error| format!("started without a wire: {error}"))?;
    let mouth = FrameWriter::new(wire.try_clone().map_err(|error| error.to_string())?);
    let mut buffer = Vec::new();
    let hello = receive_hello(&wire, &mut buffer)?;
    let library = LibraryFile::open(&hello.library);
    let confinement = confine(&hello.limits);
    let refused = |reason: String| {
        mouth.write(&FromSandbox::Refused { reason: reason.clone() });
        reason
    };
    if (hello.wire, hello.version.as_str()) != (wire::WIRE_VERSION, env!("CARGO_PKG_VERSION")) {
        let ours = env!("CARGO_PKG_VERSION");
        let version = hello.version;
        return Err(refused(format!("the worker is ctxhost {ours}, the host is {version}")));
    }
    let door = load_copy(library.path(), &hello.origin, &hello.id, hello.door());
    let door = door.map_err(|error| refused(error.to_string()))?;
    drop(library);
    let info = door.info().map_err(|error| refused(error.to_string()))?;
    mouth.write(&FromSandbox::Loaded { info, confinement });
    let desk = SandboxServer::new(door, hello, mouth).map_err(|error| error.to_string())?;
    desk.serve(&wire, buffer).map_err(|error| error.to_string())
}

/// The library, opened while there are capabilities: root without any may not pass through the folders of
/// somebody else that its copy lies below.
struct LibraryFile {
    path: PathBuf,
    _file: Option<File>,
}

impl LibraryFile {
    fn open(library: &Path) -> LibraryFile {
        let file = File::open(library).ok();
        let link = file.as_ref().map(|file| format!("/proc/self/fd/{}", file.as_raw_fd()));
        // Without `/proc` there is the path alone.
        let link = link.map(PathBuf::from).filter(|link| link.exists());
        LibraryFile { path: link.unwrap_or_else(|| library.to_owned()), _file: file }
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// The wire came as standard input, which is nothing from now on.
fn take_wire() -> io::Result<UnixStream> {
    let wire = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    wire.peer_addr()?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    Ok(wire)
}

fn receive_hello(wire: &UnixStream, buffer: &mut Vec<u8>) -> Result<Hello, String> {
    let heard = wire::receive(wire, wire::ANY_LENGTH, buffer).map_err(|error| error.to_string())?;
    match heard.then(|| wire::decode(buffer)).transpose() {
        Ok(Some(ToSandbox::Hello(hello))) => Ok(hello),
        Ok(_) => Err("the host said something else than hello".into()),
        Err(error) => Err(error.to_string()),
    }
}
