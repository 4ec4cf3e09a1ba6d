//! How sessions are kept, and for how long.

use serde::{Deserialize, Serialize};

use ctxhost_session::SyncPolicy;

ctxhost_engine_api::settings! {
    /// `[session]`.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct SessionSettings {
        /// When a line is on the disk for certain: before it is acknowledged, at the end of the
        /// turn, or when the system likes; always, because what was said should survive a power
        /// cut. A compaction waits under `turn` too.
        pub sync: SyncPolicy = SyncPolicy::default(), Word(&["always", "turn", "os"]);
        /// Where images of new messages are kept: in the lines of the session, or each once in a
        /// file under its hash; inline, because Pi and every other reader of the session sees them
        /// then. What a model is sent is the same.
        pub media: ImageStorage = ImageStorage::default(), Word(&["inline", "store"]);
        /// With `store`, what an image may take in its line, in base64; a smaller one gains little
        /// from a file of its own, which takes 4 KiB of the disk at least.
        pub media_inline_bytes: u64 = 16_384, Whole(0), "bytes";
    }
}

/// Where images are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageStorage {
    /// In the lines of the session.
    #[default]
    Inline,
    /// Each once, under the hash of its bytes, with all else that is put away.
    Store,
}

ctxhost_engine_api::settings! {
    /// `[retention]`: what `ctxhost gc` may clear away.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct RetentionSettings {
        /// How long `ctxhost gc` keeps bytes that no session names; a session that was moved away
        /// for a quarter of a year still finds them when it comes back.
        pub blob_days: u64 = 90, Whole(1), "days";
        /// How long `ctxhost gc` leaves a session in its place that nobody touches, before it moves
        /// it to the trash, where it lies for 30 more; 0 leaves all where they are, because a
        /// session is somebody's work.
        pub session_days: u64 = 0, Whole(0), "days";
    }
}
