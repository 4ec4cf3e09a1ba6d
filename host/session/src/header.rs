//! The first record of a session file.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::json_fields::{JsonFields, json_string};
use super::{clock, identity};

/// The version that this code writes.
pub const SESSION_VERSION: u32 = 3;

/// The header: id, working folder and origin of a session.
#[derive(Clone, Debug)]
pub struct SessionHeader {
    line: String,
    wire: WireHeader,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireHeader {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default = "first_version")]
    version: u32,
    #[serde(default)]
    id: String,
    #[serde(default)]
    timestamp: serde_json::Value,
    #[serde(default)]
    cwd: String,
    cwd_bytes: Option<String>,
    parent_session: Option<String>,
    branched_from: Option<String>,
    provider: Option<String>,
    model_id: Option<String>,
}

/// Version 1 has no version field.
fn first_version() -> u32 {
    1
}

impl SessionHeader {
    /// A header of the current version, with a new id if none is given.
    pub fn new(id: Option<&str>, cwd: &str, timestamp_ms: i64) -> SessionHeader {
        let id = id.map_or_else(|| identity::session_id(timestamp_ms), str::to_owned);
        let timestamp = clock::format_iso(timestamp_ms);
        let mut fields = JsonFields::default();
        fields.set("type", json_string("session"));
        fields.set("version", SESSION_VERSION.to_string());
        fields.set("id", json_string(&id));
        fields.set("timestamp", json_string(&timestamp));
        fields.set("cwd", json_string(cwd));
        let wire = WireHeader {
            kind: "session".to_owned(),
            version: SESSION_VERSION,
            id,
            timestamp: timestamp.into(),
            cwd: cwd.to_owned(),
            cwd_bytes: None,
            parent_session: None,
            branched_from: None,
            provider: None,
            model_id: None,
        };
        SessionHeader { line: fields.to_line(), wire }
    }

    /// [`new`](Self::new) for a working folder whose name need not be UTF-8. Such a name is in the header as text, in
    /// which other bytes are replaced, and with these bytes in `cwdBytes`.
    pub fn for_cwd(id: Option<&str>, cwd: &Path, timestamp_ms: i64) -> SessionHeader {
        let mut header = SessionHeader::new(id, &cwd.display().to_string(), timestamp_ms);
        if cwd.to_str().is_none()
            && let Some(mut fields) = JsonFields::parse(&header.line)
        {
            let bytes = percent_encoded(&whole_path(cwd));
            fields.set("cwdBytes", json_string(&bytes));
            header.line = fields.to_line();
            header.wire.cwd_bytes = Some(bytes);
        }
        header
    }

    /// Whether the session is of this working folder, for certain: not if the header has no folder, or a name that may be
    /// that of several.
    pub fn is_of(&self, cwd: &Path) -> bool {
        let cwd = whole_path(cwd);
        match (&self.wire.cwd_bytes, cwd.to_str()) {
            (Some(bytes), None) => *bytes == percent_encoded(&cwd),
            (None, Some(_)) => !self.wire.cwd.is_empty() && Path::new(&self.wire.cwd) == cwd,
            (Some(_), Some(_)) | (None, None) => false,
        }
    }

    /// Sets the session file that this one was forked from.
    #[must_use]
    pub fn with_parent_session(mut self, parent_session: &str) -> SessionHeader {
        if let Some(mut fields) = JsonFields::parse(&self.line) {
            fields.set("parentSession", json_string(parent_session));
            self.line = fields.to_line();
        }
        self.wire.parent_session = Some(parent_session.to_owned());
        self
    }

    /// Parses a line, or returns what is wrong with it.
    pub(super) fn parse(line: &str) -> Result<SessionHeader, String> {
        let wire: WireHeader = serde_json::from_str(line).map_err(|error| error.to_string())?;
        match wire.kind.as_str() {
            "session" if wire.version == 0 => Err("its version is 0".to_owned()),
            "session" => Ok(SessionHeader { line: line.to_owned(), wire }),
            other => Err(format!("its first record is of type `{other}`")),
        }
    }

    /// Whether a line is a header with version 0, which another program writes.
    pub(super) fn has_version_0(line: &str) -> bool {
        let wire = serde_json::from_str::<WireHeader>(line);
        wire.is_ok_and(|wire| wire.kind == "session" && wire.version == 0)
    }

    /// Sets the current version number and keeps all other bytes.
    pub(super) fn to_current_version(&self) -> SessionHeader {
        let mut header = self.clone();
        if let Some(mut fields) = JsonFields::parse(&self.line) {
            fields.set_after("type", "version", SESSION_VERSION.to_string());
            header.line = fields.to_line();
        }
        header.wire.version = SESSION_VERSION;
        header
    }

    /// The id of the session; empty if the file has none.
    pub fn id(&self) -> &str {
        &self.wire.id
    }

    /// The version of the format; 3 for a migrated session.
    pub fn version(&self) -> u32 {
        self.wire.version
    }

    /// When the session was created, in milliseconds since 1970; 0 if unknown.
    pub fn timestamp_ms(&self) -> i64 {
        clock::parse_ms(&self.wire.timestamp).unwrap_or(0)
    }

    /// The file name for this session: creation time and id.
    pub fn file_name(&self) -> String {
        let time = clock::format_iso(self.timestamp_ms()).replace([':', '.'], "-");
        // Ids of other programs may contain any character.
        let id = self.id().replace(['/', '\\', '\0'], "-");
        format!("{time}_{id}.jsonl")
    }

    /// The working folder of the agent; empty if unknown.
    pub fn cwd(&self) -> &str {
        &self.wire.cwd
    }

    /// The session file this one was forked from.
    pub fn parent_session(&self) -> Option<&str> {
        self.wire.parent_session.as_deref().or(self.wire.branched_from.as_deref())
    }

    /// Provider and model id in a header of version 1.
    pub fn model(&self) -> Option<(&str, &str)> {
        Some((self.wire.provider.as_deref()?, self.wire.model_id.as_deref()?))
    }

    /// The exact line, including unknown fields.
    pub fn line(&self) -> &str {
        &self.line
    }
}

/// The absolute path of a folder, without a separator at its end.
pub(super) fn whole_path(folder: &Path) -> PathBuf {
    let path = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    path.components().collect()
}

/// The bytes of a path, those beyond printable ASCII as `%E9`.
fn percent_encoded(path: &Path) -> String {
    let encoded = |byte: &u8| match byte {
        b'%' => "%25".to_owned(),
        byte if byte.is_ascii_graphic() => char::from(*byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    path.as_os_str().as_encoded_bytes().iter().map(encoded).collect()
}
