//! How the gateway listens, whom it asks, and how much it takes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use globset::Glob;
use serde::{Deserialize, Serialize};

use super::check::conflict_error;
use super::{Config, ConfigError, spans};
use ctxhost_dialects::DialectName;

ctxhost_engine_api::settings! {
    /// `[gateway]`.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct GatewaySettings {
        /// Address and port; of this machine alone, because whoever reaches it may spend your
        /// money.
        pub listen: String = "127.0.0.1:8787".into(), Text;
        /// The variable that holds the token clients have to show; where it is not set, no token is
        /// asked for.
        pub token_env: String = "CTXHOST_TOKEN".into(), Text;
        /// The certificates of the gateway itself in one PEM file, its own first; without them it
        /// speaks plain HTTP, which is no risk within one machine.
        pub tls_cert: Option<PathBuf> = None, Text;
        /// The key of the first of them, as PEM.
        pub tls_key: Option<PathBuf> = None, Text;
        /// Names under which clients may call it, beside localhost and its own addresses; none, so
        /// that no name that somebody bends to this machine opens the door.
        pub hosts: Vec<String> = Vec::new(), List;
        /// Web pages that may call it, as their browser writes them, such as https://app.example;
        /// none, because a page you look at should not spend your money.
        pub origins: Vec<String> = Vec::new(), List;
        /// Who is asked, by dialect: a provider below [providers], or an address; without it each
        /// dialect's owner, with the client's own key.
        pub upstreams: BTreeMap<String, String> = BTreeMap::new(), Upstreams;
        /// Who is asked for models whose names fit a pattern, such as "qwen*"; goes before
        /// upstreams, and of several that fit the one with the most letters of its own counts.
        pub models: BTreeMap<String, String> = BTreeMap::new(), Upstreams;
        /// Whether requests are only passed on and no engine sees them; false, since the engine is
        /// what the gateway is for.
        pub pass_through: bool = false, Flag;
        /// The largest body that an engine sees, larger ones get 413; twice what the largest
        /// provider takes.
        pub max_body_bytes: u64 = 64 * 1024 * 1024, Whole(1_024), "bytes";
        /// What the bodies of all requests may take together, as they came and decompressed; a
        /// request that finds no room is told to come again, and one that is larger than all of it
        /// gets 413; four of the largest.
        pub max_bodies_bytes: u64 = 256 * 1024 * 1024, Whole(1_024), "bytes";
        /// The most that the headers of a request may take; those of agents are a tenth of it.
        pub max_header_bytes: u32 = 64 * 1024, Whole(8_192), "bytes";
        /// At the same time, more wait at the door; an agent has a handful.
        pub max_connections: usize = 2_048, Whole(1), "connections";
        /// At the same time, more are told to come again in a second; each holds its body until it
        /// is sent.
        pub max_requests: usize = 1_024, Whole(1), "requests";
        /// How long a client may take for its headers, or pause within its body; whoever is slower
        /// holds a place for nothing.
        pub client_timeout_ms: u64 = 60_000, Whole(1), "ms";
        /// What a body has to bring on the whole, after the first client_timeout_ms; drop by drop
        /// it would hold its place for ever.
        pub client_min_bytes_per_s: u64 = 16_384, Whole(1), "bytes per second";
        /// How long a client that speaks HTTP/1 may take nothing of its answer, which holds a place
        /// among the requests here and at the upstream; ten minutes let an agent go on that
        /// somebody has suspended for a moment.
        pub client_stall_ms: u64 = 600_000, Whole(1), "ms";
        /// How long the beginning of a stream is held back in which nothing is said yet; a refusal
        /// in it can then still be answered by a smaller request.
        pub hold_ms: u64 = 2_000, Whole(0), "ms";
        /// How long streams may go on when the gateway is told to end; most answers are whole
        /// within.
        pub drain_ms: u64 = 30_000, Whole(0), "ms";
        /// How often a request is made smaller that its upstream found too large; what does not fit
        /// then has something in it that nobody may leave out.
        pub too_large_tries: u32 = 3, Whole(0), "requests";
        /// The largest share of a window that an answer may hold free; clients ask for the longest
        /// answer of a model, whatever its window, and a conversation needs room as well.
        pub reserve_max_share: f64 = 0.25, Number(0.05, 0.95), "share";
        /// Whether a request for a longer answer than fits beside its prompt is sent with what fits
        /// (header `x-ctxhost-max-tokens`); strict providers refuse it otherwise.
        pub lower_max_tokens: bool = true, Flag;
        /// The shortest answer that a request is lowered to; a shorter one holds no tool call.
        pub min_output_tokens: u64 = 256, Whole(1), "provider tokens";
        /// The smallest window that the refusal of an upstream is believed; a text may quote what a
        /// client wrote.
        pub learned_min_tokens: u64 = 1_024, Whole(1), "provider tokens";
        /// The same as a share of the window that the config or the model's name tells, before
        /// other conversations believe it; no server gives a sixteenth of what its model has.
        pub learned_min_share: f64 = 0.0625, Number(0.0, 1.0), "share";
        /// Of which such windows are kept; more than anybody asks, and clients may make names up.
        pub learned_models: usize = 1_024, Whole(1), "models";
        /// The longest name of a model that an engine sees, a request with a longer one is only
        /// passed on; such names are kept.
        pub model_name_max_bytes: usize = 256, Whole(1), "bytes";
        /// How often messages of `POST /v1/compress` are shaped at the most, because what stands
        /// for the originals did not fit beside the rest; each time they get smaller by what was
        /// too much.
        pub compress_tries: u32 = 4, Whole(1), "shapings";
        /// The share of a window from which on a conversation is compacted when its client asks for
        /// that; a smaller one is told word for word, which loses nothing.
        pub compacted_min_share: f64 = 0.1, Number(0.0, 0.9), "share";
        /// The largest share of a window that such a compaction takes; whoever asked goes on in
        /// what is left.
        pub compacted_max_share: f64 = 0.5, Number(0.05, 0.95), "share";
        /// That stay in memory, the newest; the others stand in their files and are found there,
        /// however many are at work.
        pub conversations: usize = 256, Whole(1), "conversations";
        /// How long one stays there that nobody goes on with; a quarter of an hour is a long pause.
        pub conversation_idle_ms: u64 = 900_000, Whole(1), "ms";
    }
}

impl GatewaySettings {
    pub(super) fn with_paths_from(mut self, folder: &Path) -> Self {
        for path in [&mut self.tls_cert, &mut self.tls_key].into_iter().flatten() {
            *path = folder.join(&*path);
        }
        self
    }
}

/// Checks that every upstream is a provider of this file or an address, and that every key is known.
pub(super) fn check_gateway(config: &Config) -> Result<(), ConfigError> {
    let gateway = &config.gateway;
    for dialect in gateway.upstreams.keys() {
        if !DialectName::NAMES.contains(&dialect.as_str()) || dialect == "ollama" {
            let key = spans::join_path(&["gateway", "upstreams", dialect]);
            let message = format!("`{dialect}` is no dialect of the gateway");
            let help = "write `anthropic-messages`, `openai-completions`, `openai-responses` or `google-generative-ai`";
            return Err(conflict_error(config, &[&key], message, help));
        }
    }
    for pattern in gateway.models.keys() {
        if let Err(error) = Glob::new(pattern) {
            let key = spans::join_path(&["gateway", "models", pattern]);
            let help = "`*` stands for anything, as in `claude-*`";
            return Err(conflict_error(config, &[&key], error.to_string(), help));
        }
    }
    let upstreams = gateway.upstreams.iter().map(|(key, value)| ("upstreams", key, value));
    let models = gateway.models.iter().map(|(key, value)| ("models", key, value));
    for (table, name, upstream) in upstreams.chain(models) {
        if !is_url(upstream) && config.provider(upstream).is_none() {
            let key = spans::join_path(&["gateway", table, name]);
            let message = format!("there is no provider `{upstream}`");
            let help =
                "name one of [providers], or give an address that begins with http:// or https://";
            return Err(conflict_error(config, &[&key], message, help));
        }
    }
    if gateway.tls_cert.is_some() != gateway.tls_key.is_some() {
        let keys = ["gateway.tls_cert", "gateway.tls_key"];
        let message = "a certificate is of no use without its key".to_owned();
        return Err(conflict_error(
            config,
            &keys,
            message,
            "write tls_cert and tls_key, or neither",
        ));
    }
    Ok(())
}

/// Whether an upstream is written as an address.
pub fn is_url(upstream: &str) -> bool {
    upstream.starts_with("http://") || upstream.starts_with("https://")
}
