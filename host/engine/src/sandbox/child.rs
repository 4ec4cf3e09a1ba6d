//! The child side of a sandbox: confines itself, loads the engine, serves its calls.

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
use super::program::{COMMAND, allow_self_launch};
use super::wire::{self, FromSandbox, Hello, ToSandbox};
use super::{confine, detach_from_host};
use crate::library::load_copy;

/// Runs the sandbox where the program was started as one, and does not return then.
///
/// A program that embeds the host calls this first in `main`, before it starts threads or reads its
/// arguments. Engines with `isolation = "process"` then run in further processes of the program;
/// without the call they need a `ctxhost` beside the program or in `PATH`.
pub fn sandbox_main() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_none_or(|command| command != COMMAND) {
        allow_self_launch();
        return;
    }
    let code = match run_sandbox(arguments.next()) {
        Ok(()) => 0,
        Err(reason) => {
            let _ = writeln!(io::stderr(), "engine sandbox: {reason}");
            2
        }
    };
    // Without waiting for threads of the engine.
    std::process::exit(code);
}

/// Serves the engine until the host closes the connection.
fn run_sandbox(host: Option<OsString>) -> Result<(), String> {
    let host = host.as_deref().and_then(|pid| pid.to_str()?.parse().ok());
    detach_from_host(host.ok_or("this is started by ctxhost itself")?)?;
    let wire =
        take_wire().map_err(|error| format!("started without a socket to the host: {error}"))?;
    let writer = FrameWriter::new(wire.try_clone().map_err(|error| error.to_string())?);
    let mut buffer = Vec::new();
    let hello = receive_hello(&wire, &mut buffer)?;
    // Before `confine`, which makes the folder of the copy inaccessible for root.
    let library = LibraryFile::open(&hello.library);
    writer.write(&FromSandbox::Confined(confine(&hello.limits)));
    let refused = |reason: String| {
        writer.write(&FromSandbox::Refused { reason: reason.clone() });
        reason
    };
    if (hello.wire, hello.version.as_str()) != (wire::WIRE_VERSION, env!("CARGO_PKG_VERSION")) {
        let ours = env!("CARGO_PKG_VERSION");
        let version = hello.version;
        return Err(refused(format!("the sandbox is ctxhost {ours}, the host is {version}")));
    }
    let factory = load_copy(library.path(), &hello.origin, &hello.id, hello.entry_point());
    let factory = factory.map_err(|error| refused(error.to_string()))?;
    drop(library);
    let info = factory.info().map_err(|error| refused(error.to_string()))?;
    writer.write(&FromSandbox::Loaded(info));
    let server = SandboxServer::new(factory, hello, writer).map_err(|error| error.to_string())?;
    server.serve(&wire, buffer).map_err(|error| error.to_string())
}

/// The library, opened before capabilities are dropped: without them root cannot enter folders of other
/// users above its copy.
struct LibraryFile {
    path: PathBuf,
    _file: Option<File>,
}

impl LibraryFile {
    fn open(library: &Path) -> LibraryFile {
        let file = File::open(library).ok();
        let link = file.as_ref().map(|file| format!("/proc/self/fd/{}", file.as_raw_fd()));
        // Without `/proc` only the path is left.
        let link = link.map(PathBuf::from).filter(|link| link.exists());
        LibraryFile { path: link.unwrap_or_else(|| library.to_owned()), _file: file }
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// Takes the socket, which is standard input, and replaces that by `/dev/null`.
fn take_wire() -> io::Result<UnixStream> {
    let wire = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    wire.peer_addr()?;
    // Engine code that reads standard input must not consume frames.
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    Ok(wire)
}

fn receive_hello(wire: &UnixStream, buffer: &mut Vec<u8>) -> Result<Hello, String> {
    let received =
        wire::receive(wire, wire::ANY_LENGTH, buffer).map_err(|error| error.to_string())?;
    match received.then(|| wire::decode(buffer)).transpose() {
        Ok(Some(ToSandbox::Hello(hello))) => Ok(hello),
        Ok(_) => Err("the host sent an unexpected first frame".into()),
        Err(error) => Err(error.to_string()),
    }
}
