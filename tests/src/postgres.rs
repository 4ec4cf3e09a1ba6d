//! A real PostgreSQL server in a folder of its own, on the loopback; it ends with the test.

use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ctxhost_store::{StoreKind, StoreSettings, migrate};

/// How long the server may take to come up on a busy machine.
const MAX_START: Duration = Duration::from_secs(60);

/// The user that the server runs as where the test is root: it refuses to be root.
const USER: &str = "postgres";

/// A running server.
#[derive(Debug)]
pub struct PostgresServer {
    programs: PathBuf,
    port: u16,
    schemas: AtomicU32,
    /// Its standard input is open as long as the server is wanted.
    _keeper: Child,
}

impl PostgresServer {
    /// The server of this test program, started at the first call; `None`, loudly, where PostgreSQL is
    /// not installed.
    pub fn shared() -> Option<&'static PostgresServer> {
        static SERVER: OnceLock<Option<PostgresServer>> = OnceLock::new();
        let server =
            SERVER.get_or_init(|| programs().map(|it| PostgresServer::start(&it))).as_ref();
        if server.is_none() {
            eprintln!(
                "SKIPPED: no PostgreSQL on this machine, so nothing about it was tested; \
                 install the package `postgresql`, or set CTXHOST_PG_BIN to the folder of initdb"
            );
        }
        server
    }

    fn start(programs: &Path) -> PostgresServer {
        let folder = tempfile::Builder::new().prefix("ctxhost-pg-").tempdir().expect("a folder");
        // Removed by the keeper, after the server has ended.
        let folder = folder.keep();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777))
            .expect("a folder of ours");
        let data = folder.join("data");
        let initdb = programs.join("initdb").display().to_string();
        let data_name = data.display().to_string();
        let arguments = ["-D", &data_name, "-U", USER, "--auth=trust", "-E", "UTF8", "-N"];
        let output = as_user(&initdb, &arguments).current_dir("/").output().expect("initdb runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let port = free_port();
        let keeper = keep(programs, &folder, &data_name, port);
        let server = PostgresServer {
            programs: programs.to_owned(),
            port,
            schemas: AtomicU32::default(),
            _keeper: keeper,
        };
        server.wait_until_ready();
        server
    }

    fn wait_until_ready(&self) {
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() || !self.answers() {
            assert!(begun.elapsed() < MAX_START, "PostgreSQL does not come up");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn answers(&self) -> bool {
        self.psql("select 1").output().is_ok_and(|output| output.status.success())
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address of a database behind a port of the loopback, this server's or that of a proxy.
    pub fn url_at(&self, port: u16) -> String {
        format!("postgres://{USER}@127.0.0.1:{port}/postgres")
    }

    /// The address of its database.
    pub fn url(&self) -> String {
        self.url_at(self.port)
    }

    /// Settings for a schema that is empty.
    pub fn empty_schema(&self) -> StoreSettings {
        let number = self.schemas.fetch_add(1, Ordering::Relaxed);
        StoreSettings {
            kind: StoreKind::Postgres,
            url: Some(self.url()),
            schema: format!("test_{number}"),
            ..StoreSettings::default()
        }
    }

    /// Settings for a schema with all tables and nothing in them.
    pub fn schema(&self) -> StoreSettings {
        let settings = self.empty_schema();
        migrate(&settings).unwrap_or_else(|error| panic!("{error}"));
        settings
    }

    /// What the server answers to SQL, as lines.
    pub fn sql(&self, statements: &str) -> String {
        let output = self.psql(statements).output().expect("psql runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn psql(&self, statements: &str) -> Command {
        let mut command = Command::new(self.programs.join("psql"));
        let port = self.port.to_string();
        command.args(["-X", "-q", "-t", "-A", "-h", "127.0.0.1", "-p", &port, "-U", USER]);
        command.args(["-d", "postgres", "-v", "ON_ERROR_STOP=1", "-c", statements]);
        command.current_dir("/");
        command
    }
}

/// Starts the server and ends it when the test is gone, however that ended: the shell reads until its
/// input is closed.
fn keep(programs: &Path, folder: &Path, data: &str, port: u16) -> Child {
    let script = "\"$@\" >/dev/null 2>&1 & pid=$!; cat >/dev/null; kill -INT $pid; wait $pid; \
                  rm -rf \"$FOLDER\"";
    let postgres = programs.join("postgres").display().to_string();
    let (port, sockets) = (port.to_string(), folder.display().to_string());
    // What is tested is what happens to programs, not to disks: nobody pulls the plug.
    let fast = ["-c", "fsync=off", "-c", "full_page_writes=off", "-c", "max_connections=200"];
    let place = ["-D", data, "-p", &port, "-h", "127.0.0.1", "-k", &sockets];
    let arguments: Vec<&str> = place.into_iter().chain(fast).collect();
    let server = as_user(&postgres, &arguments);
    Command::new("sh")
        .args(["-c", script, "keeper"])
        .arg(server.get_program())
        .args(server.get_args())
        .env("FOLDER", folder)
        .current_dir("/")
        .stdin(Stdio::piped())
        .spawn()
        .expect("a shell")
}

/// A command as a user that is not root.
fn as_user(program: &str, arguments: &[&str]) -> Command {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| {
        use std::os::unix::fs::MetadataExt as _;
        own.uid() == 0
    });
    if !is_root {
        let mut command = Command::new(program);
        command.args(arguments);
        return command;
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", USER, "--regid", USER, "--clear-groups", "--", program]);
    command.args(arguments);
    command
}

fn programs() -> Option<PathBuf> {
    let named = std::env::var_os("CTXHOST_PG_BIN").map(PathBuf::from);
    let installed = || {
        let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
        versions.map(|version| version.path().join("bin")).max()
    };
    named.or_else(installed).filter(|folder| folder.join("initdb").is_file())
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port of the loopback");
    listener.local_addr().expect("a bound port has an address").port()
}
