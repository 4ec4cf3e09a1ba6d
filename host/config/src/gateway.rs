//! `[gateway]`: addresses, upstreams and limits of the gateway.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use globset::Glob;
use serde::{Deserialize, Serialize};

use super::closest_name::closest_name;
use super::error::ConfigDiagnostic;
use super::{Config, all_settings, spans};
use ctxhost_dialects::DialectName;

ctxhost_engine_api::settings! {
    /// `[gateway]`.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct GatewaySettings {
        /// Address and port to listen on; this machine only, because any client that reaches it can spend
        /// your money.
        pub listen: String = "127.0.0.1:8787".into(), Text;
        /// Environment variable with the token that clients must send; if it is not set, no token is
        /// required.
        pub token_env: String = "CTXHOST_TOKEN".into(), Variable;
        /// Certificate chain as one PEM file, the gateway's own first; without it the gateway
        /// serves plain HTTP, which is safe within one machine.
        pub tls_cert: Option<PathBuf> = None, Text;
        /// Private key of the first certificate, as PEM.
        pub tls_key: Option<PathBuf> = None, Text;
        /// Accepted host names beside localhost and the gateway's own addresses; none, which prevents DNS
        /// rebinding.
        pub hosts: Vec<String> = Vec::new(), List;
        /// Web origins that may call it, such as https://app.example; none, because a web page should not
        /// spend your money.
        pub origins: Vec<String> = Vec::new(), List;
        /// Upstream of each dialect: a name from [providers] or an address; unset, the dialect's
        /// own provider, with the client's key.
        pub upstreams: BTreeMap<String, String> = BTreeMap::new(), Upstreams;
        /// Upstream by model name pattern, such as "qwen*"; overrides upstreams, and the pattern with the
        /// most literal characters wins.
        pub models: BTreeMap<String, String> = BTreeMap::new(), Upstreams;
        /// Whether to forward all requests without calling the engine.
        pub pass_through: bool = false, Flag;
        /// Largest request body that the engine reads; larger ones get 413. Twice what the largest provider
        /// accepts.
        pub max_body_bytes: u64 = 64 * 1024 * 1024, Whole(1_024), "bytes";
        /// Memory for the bodies of all requests together, decompressed ones included; above it
        /// requests get 503 with `retry-after`, one larger than the whole gets 413. Four of the
        /// largest.
        pub max_bodies_bytes: u64 = 256 * 1024 * 1024, Whole(1_024), "bytes";
        /// Largest request headers; those of agents take a tenth.
        pub max_header_bytes: u32 = 64 * 1024, Whole(8_192), "bytes";
        /// Concurrent connections; further ones wait. An agent opens a handful.
        pub max_connections: usize = 2_048, Whole(1), "connections";
        /// Concurrent requests; further ones get 503 with `retry-after: 1`, since each holds its body in
        /// memory until it is sent.
        pub max_requests: usize = 1_024, Whole(1), "requests";
        /// Longest wait for the request headers, and longest pause within a body; a slow client
        /// occupies a connection.
        pub client_timeout_ms: u64 = 60_000, Whole(1), "ms";
        /// Least average rate of a body after the first client_timeout_ms; stops a client that sends byte
        /// by byte.
        pub client_min_bytes_per_s: u64 = 16_384, Whole(1), "bytes per second";
        /// How long a client may stop reading its response, which occupies a request here
        /// and at the upstream; a suspended agent may return.
        pub client_stall_ms: u64 = 600_000, Whole(1), "ms";
        /// How long the start of a stream is held until it has content; an error before that can be
        /// answered by a smaller request.
        pub hold_ms: u64 = 2_000, Whole(0), "ms";
        /// Time for open streams at shutdown; most responses finish within it.
        pub drain_ms: u64 = 30_000, Whole(0), "ms";
        /// Retries with a smaller request after the upstream refused one as too large; what still
        /// does not fit contains an entry that must stay.
        pub too_large_tries: u32 = 3, Whole(0), "requests";
        /// Largest share of the window that the requested answer may reserve; clients ask for a
        /// model's longest answer, and the conversation needs room too.
        pub reserve_max_share: f64 = 0.25, Number(0.05, 0.95), "share";
        /// Whether to lower a `max_tokens` that does not fit beside the prompt (header
        /// `x-ctxhost-max-tokens`); strict providers refuse it otherwise.
        pub lower_max_tokens: bool = true, Flag;
        /// Smallest `max_tokens` that a request is lowered to; a shorter answer cannot hold a tool call.
        pub min_output_tokens: u64 = 256, Whole(1), "provider tokens";
        /// Smallest window to learn from an upstream's error, whose text may quote a client.
        pub learned_min_tokens: u64 = 1_024, Whole(1), "provider tokens";
        /// The same as a share of the known window, for other conversations; no server offers a
        /// sixteenth of its model's window.
        pub learned_min_share: f64 = 0.0625, Number(0.0, 1.0), "share";
        /// Models whose learned windows are kept; bounded, because clients can invent names.
        pub learned_models: usize = 1_024, Whole(1), "models";
        /// Longest model name that the engine sees; a request with a longer one is forwarded.
        pub model_name_max_bytes: usize = 256, Whole(1), "bytes";
        /// Attempts to shape messages of `POST /v1/compress` with a smaller budget when the
        /// references to originals do not fit.
        pub compress_tries: u32 = 4, Whole(1), "shapings";
        /// Share of the window below which a compaction that a client requests returns the conversation
        /// unchanged.
        pub compacted_min_share: f64 = 0.1, Number(0.0, 0.9), "share";
        /// Largest share of the window that such a compaction may take; the rest is room for the client to
        /// continue.
        pub compacted_max_share: f64 = 0.5, Number(0.05, 0.95), "share";
        /// Conversations kept in memory, the most recent; others are read from their files.
        pub conversations: usize = 256, Whole(1), "conversations";
        /// Memory for all of them together, as estimated; above it the oldest leave memory too. 256 long
        /// ones of agents take less.
        pub max_conversations_bytes: u64 = 512 * 1024 * 1024, Whole(1_024), "bytes";
        /// Messages in a request that is shaped, as many as the largest provider takes; a request with more is
        /// forwarded as it is, because each message costs memory, even an empty one.
        pub max_messages: usize = 100_000, Whole(1), "messages";
        /// Time after which an idle conversation leaves memory; a quarter of an hour is a long pause.
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

/// What an upstream is.
pub(super) const UPSTREAM_HELP: &str =
    "write a name from [providers], or an address that begins with http:// or https://";

/// Checks that every upstream exists and every pattern is valid.
pub(super) fn check_gateway(config: &Config, found: &mut Vec<ConfigDiagnostic>) {
    let gateway = &config.gateway;
    for dialect in gateway.upstreams.keys() {
        let name = DialectName::parse(dialect);
        if !name.is_some_and(|name| DialectName::INBOUND.contains(&name)) {
            let key = spans::join_path(&["gateway", "upstreams", dialect]);
            let message = format!("unknown dialect `{dialect}`");
            let names: Vec<&str> = DialectName::INBOUND.iter().map(|name| name.as_str()).collect();
            let help = match closest_name(dialect, DialectName::NAMES) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("write {}", all_settings::quote_list(&names)),
            };
            found.push(ConfigDiagnostic::conflict(config, &[&key], message, &help));
        }
    }
    for pattern in gateway.models.keys() {
        if let Err(error) = Glob::new(pattern) {
            let key = spans::join_path(&["gateway", "models", pattern]);
            let help = "`*` matches anything, as in `claude-*`";
            found.push(ConfigDiagnostic::conflict(config, &[&key], error.to_string(), help));
        }
    }
    let upstreams = gateway.upstreams.iter().map(|(key, value)| ("upstreams", key, value));
    let models = gateway.models.iter().map(|(key, value)| ("models", key, value));
    for (table, name, upstream) in upstreams.chain(models) {
        if !is_url(upstream) && config.provider(upstream).is_none() {
            let key = spans::join_path(&["gateway", table, name]);
            let message = format!("unknown provider `{upstream}`");
            found.push(ConfigDiagnostic::conflict(config, &[&key], message, UPSTREAM_HELP));
        }
    }
    check_addresses(config, found);
    // With one of them the gateway would silently serve plain HTTP.
    if gateway.tls_cert.is_some() != gateway.tls_key.is_some() {
        let keys = ["gateway.tls_cert", "gateway.tls_key"];
        let message = "tls_cert and tls_key must be set together".to_owned();
        found.push(ConfigDiagnostic::conflict(config, &keys, message, "set both, or neither"));
    }
}

/// Checks what the gateway listens on, and the names under which browsers may call it.
fn check_addresses(config: &Config, found: &mut Vec<ConfigDiagnostic>) {
    let gateway = &config.gateway;
    let port = gateway.listen.rsplit_once(':').filter(|(host, _)| !host.is_empty());
    if port.is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
        let message =
            format!("gateway.listen = {:?} is not an address with a port", gateway.listen);
        let help = "write a host and a port from 0 to 65,535, such as 127.0.0.1:8787";
        found.push(ConfigDiagnostic::conflict(config, &["gateway.listen"], message, help));
    }
    let is_host = |host: &str| {
        !host.is_empty() && !host.contains(|c: char| "/@".contains(c) || c.is_whitespace())
    };
    for host in gateway.hosts.iter().filter(|host| !is_host(host)) {
        let message = format!("{host:?} is not a host name");
        let help = "write the name alone, such as gateway.example or gateway.example:8787";
        found.push(ConfigDiagnostic::conflict(config, &["gateway.hosts"], message, help));
    }
    // Browsers send the origin without a path, so that with one it would never match.
    let is_origin = |origin: &str| {
        origin.split_once("://").is_some_and(|(scheme, host)| !scheme.is_empty() && is_host(host))
    };
    for origin in gateway.origins.iter().filter(|origin| !is_origin(origin)) {
        let message = format!("{origin:?} is not a web origin");
        let help = "write scheme and host without a path, such as https://app.example";
        found.push(ConfigDiagnostic::conflict(config, &["gateway.origins"], message, help));
    }
}

/// Whether an upstream is an address instead of a provider's name.
pub fn is_url(upstream: &str) -> bool {
    upstream.starts_with("http://") || upstream.starts_with("https://")
}
