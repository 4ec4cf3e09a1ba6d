//! How sessions are kept, and for how long.

use serde::{Deserialize, Serialize};

use ctxhost_session::SyncPolicy;

/// `[session]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SessionSettings {
    /// When what is appended is made durable. Default `always`: what was acknowledged survives a power
    /// cut.
    pub sync: SyncPolicy,
    /// Where images of new messages are kept. Default `inline`: Pi and every other reader sees them.
    pub media: MediaPlace,
    /// With `store`, what an image may take in its line, in bytes of base64. Default 16,384: a smaller
    /// one gains little from a file of its own.
    pub media_inline_bytes: u64,
}

impl Default for SessionSettings {
    fn default() -> Self {
        let (sync, media) = (SyncPolicy::default(), MediaPlace::default());
        SessionSettings { sync, media, media_inline_bytes: 16_384 }
    }
}

/// Where images are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MediaPlace {
    /// In the lines of the session.
    #[default]
    Inline,
    /// Each once, under the hash of its bytes, with all else that is put away.
    Store,
}

/// `[retention]`: what `ctxhost gc` may clear away.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetentionSettings {
    /// How long bytes are kept that no session names, in days. Default 90: a session that somebody moved
    /// away for a quarter still finds them when it comes back.
    pub blob_days: u64,
    /// How long a session is kept that nobody touches, in days, before it goes to the trash; 0 keeps all.
    /// Default 0: a session is somebody's work.
    pub session_days: u64,
}

impl Default for RetentionSettings {
    fn default() -> Self {
        RetentionSettings { blob_days: 90, session_days: 0 }
    }
}
