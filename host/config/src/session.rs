//! `[session]` and `[retention]`: how sessions are stored, and for how long.

use serde::{Deserialize, Serialize};

use ctxhost_session::SyncPolicy;

ctxhost_engine_api::settings! {
    /// `[session]`.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct SessionSettings {
        /// When a written line is synced to the disk: before it is acknowledged (always), at the end of the
        /// turn, or when the system does it (os); always, so that messages survive a power cut. A
        /// compaction is synced under `turn` too.
        pub sync: SyncPolicy = SyncPolicy::default(), Word(&["always", "turn", "os"]);
        /// Where images of new messages are stored: in the session's lines, or once under their hash;
        /// inline, because Pi and other readers of the session then see them. The request is the same.
        pub media: ImageStorage = ImageStorage::default(), Word(&["inline", "store"]);
        /// With `store`: images up to this size in base64 stay in their line; a file of its own takes at
        /// least 4 KiB of disk.
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
        /// How long `ctxhost gc` keeps bytes that no session references; a session that was moved away for
        /// three months still finds them.
        pub blob_days: u64 = 90, Whole(1), "days";
        /// Age at which `ctxhost gc` moves an untouched session to the trash, where it stays 30 more days;
        /// 0 keeps all, because a session is someone's work.
        pub session_days: u64 = 0, Whole(0), "days";
    }
}
