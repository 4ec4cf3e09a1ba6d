//! Tells `ctxhost ui` which gateways are running: a locked file for each, with its address.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use ctxhost_platform::files::{LinkPolicy, create_private_folders, open_options};

use super::login::remove_unused_links;

/// The first part of the file names.
const PREFIX: &str = "gateway-";

/// Announces a gateway until it is dropped.
#[derive(Debug)]
pub(crate) struct GatewayAnnouncement {
    path: PathBuf,
    /// Locked while the gateway runs, so that the file of a killed one is recognized.
    _lock: File,
}

impl GatewayAnnouncement {
    /// Announces a gateway of this process.
    pub(crate) fn publish(folder: &Path, url: &str) -> io::Result<GatewayAnnouncement> {
        create_private_folders(folder)?;
        let port = url.rsplit(':').next().unwrap_or_default();
        let name = format!("{PREFIX}{}-{port}", std::process::id());
        let (path, draft) = (folder.join(&name), folder.join(format!(".{name}")));
        let mut options = open_options(LinkPolicy::Follow);
        let mut lock = options.write(true).create(true).truncate(true).open(&draft)?;
        lock.lock()?;
        lock.write_all(url.as_bytes())?;
        // Renamed when it is locked: an unlocked file counts as left behind.
        fs::rename(&draft, &path)?;
        Ok(GatewayAnnouncement { path, _lock: lock })
    }
}

impl Drop for GatewayAnnouncement {
    fn drop(&mut self) {
        // Left behind, it would be recognized by its missing lock.
        let _ = fs::remove_file(&self.path);
        let Some(folder) = self.path.parent() else { return };
        if running_gateways(folder).is_empty() {
            remove_unused_links(folder);
            // `ctxhost run` leaves nothing behind. A folder that is not empty stays.
            let _ = fs::remove_dir(folder);
        }
    }
}

/// The base URLs of the running gateways that use a dashboard folder, the newest last.
pub fn running_gateways(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut running = Vec::new();
    for entry in entries.filter_map(Result::ok) {
        if !entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX)) {
            continue;
        }
        let path = entry.path();
        let Ok(file) = File::open(&path) else { continue };
        match file.try_lock_shared() {
            // Its gateway was killed.
            Ok(()) => drop(fs::remove_file(&path)),
            Err(TryLockError::WouldBlock) => {
                let began = entry.metadata().and_then(|metadata| metadata.modified()).ok();
                running.extend(fs::read_to_string(&path).ok().map(|url| (began, url)));
            }
            Err(TryLockError::Error(error)) => {
                tracing::debug!(path = %path.display(), %error, "cannot read a lock");
            }
        }
    }
    running.sort();
    running.into_iter().map(|(_, url)| url).collect()
}
