//! `[session]` and `[retention]`: how sessions are stored, and for how long.

use serde::{Deserialize, Serialize};

use ctxhost_session::SyncPolicy;

ctxhost_engine_api::settings! {
    /// `[session]`.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct SessionSettings {
        /// When a written line is synced to the disk: before it is acknowledged (always), at the
        /// end of the turn, or by the system (os). Always, so that messages survive a power cut;
        /// `turn` syncs compactions too.
        pub sync: SyncPolicy = SyncPolicy::default(), Word(&["always", "turn", "os"]);
        /// Where images of new messages are stored: in the session's lines, or once under their
        /// hash. Inline, because Pi and other readers then see them.
        pub media: ImageStorage = ImageStorage::default(), Word(&["inline", "store"]);
        /// With `store`: base64 images up to this size stay in their line; a file takes at least 4
        /// KiB of disk.
        pub media_inline_bytes: u64 = 16_384, Whole(0), "bytes";
    }
}

/// Where images are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageStorage {
    /// In the lines of the session.
    #[default]
    Inline,
    /// Once, under the hash of the bytes, in the blob store.
    Store,
}

ctxhost_engine_api::settings! {
    /// `[retention]`.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct RetentionSettings {
        /// How long `ctxhost gc` keeps bytes that no session references; a session may have been
        /// moved away for months.
        pub blob_days: u64 = 90, Whole(1), "days";
        /// Age at which `ctxhost gc` moves an untouched session to the trash, for 30 more days; 0
        /// keeps all, because a session is someone's work.
        pub session_days: u64 = 0, Whole(0), "days";
    }
}
