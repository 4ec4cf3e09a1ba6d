//! How the gateway listens, whom it asks, and how much it takes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use globset::Glob;
use serde::{Deserialize, Serialize};

use super::check::clash;
use super::{Config, ConfigError, places};
use ctxhost_dialects::DialectName;

/// `[gateway]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GatewaySettings {
    /// Address and port. Default `127.0.0.1:8787`: of this machine alone.
    pub listen: String,
    /// The variable that holds the token clients have to show. Default `CTXHOST_TOKEN`; where it is not
    /// set, no token is asked for.
    pub token_env: String,
    /// The certificates of the gateway itself, PEM, its own first.
    pub tls_cert: Option<PathBuf>,
    /// The key of the first of them, PEM.
    pub tls_key: Option<PathBuf>,
    /// Names under which clients may call it, beside those of this machine.
    pub hosts: Vec<String>,
    /// Web pages that may call it, as their browser writes them: `https://app.example`.
    pub origins: Vec<String>,
    /// Who is asked, by dialect: a provider below `[providers]`, or an address.
    pub upstreams: BTreeMap<String, String>,
    /// Who is asked for models whose names fit a pattern; goes before `upstreams`.
    pub models: BTreeMap<String, String>,
    /// Whether requests are only passed on, and no engine sees them. Default false.
    pub pass_through: bool,
    /// The largest body of a request that an engine sees, in bytes. Default 67,108,864: twice what the
    /// largest provider takes.
    pub max_body_bytes: u64,
    /// What the bodies of all requests that are read or on their way may take together, in bytes, compressed or not;
    /// requests that find no room are told to come again. Default 268,435,456: four of the largest bodies.
    pub max_bodies_bytes: u64,
    /// The most that the headers of a request may take, in bytes. Default 65,536: cookies and traces of
    /// other proxies are a tenth of it.
    pub max_header_bytes: u32,
    /// Connections at the same time; more wait at the door. Default 2,048.
    pub max_connections: usize,
    /// Requests at the same time; more are told to come again. Default 1,024: each may hold its body.
    pub max_requests: usize,
    /// How long a client may take for its headers, or pause within its body, in milliseconds. Default
    /// 60,000: a request of an agent takes a second on a slow line.
    pub client_timeout_ms: u64,
    /// What its body has to bring on the whole, in bytes a second. Default 16,384: a hundredth of a slow
    /// line.
    pub client_min_bytes_per_s: u64,
    /// How long a client that speaks HTTP/1 may take nothing of its answer, in milliseconds. Default
    /// 600,000: an agent that somebody has suspended for a moment goes on.
    pub client_stall_ms: u64,
    /// How long the beginning of a stream is held back in which nothing is said yet, in milliseconds.
    /// Default 2,000: a refusal comes within, and can still be answered by a smaller request.
    pub hold_ms: u64,
    /// How long streams may go on when the gateway is told to end, in milliseconds. Default 30,000.
    pub drain_ms: u64,
    /// How often a request is made smaller that its upstream found too large. Default 3: what does not
    /// fit then has something in it that nobody may leave out.
    pub too_large_tries: u32,
    /// The largest share of a window that an answer may hold free. Default 0.25: clients ask for the
    /// longest answer of the model, whatever its window, and few answers are a tenth of that.
    pub reserve_max_share: f64,
    /// Whether a request that asks for a longer answer than fits beside its prompt is sent with what fits.
    /// Default true: strict providers refuse it otherwise.
    pub lower_max_tokens: bool,
    /// The shortest answer that a request is lowered to, in provider tokens. Default 256: a shorter one
    /// holds no tool call.
    pub min_output_tokens: u64,
    /// The smallest window that a refusal is believed, in provider tokens. Default 1,024: no model of an
    /// agent has less.
    pub learned_min_tokens: u64,
    /// The same as a share of the window that is known, for all conversations at once. Default 0.0625: no
    /// server gives a sixteenth of what its model has.
    pub learned_min_share: f64,
    /// Models of which such windows are kept. Default 1,024: more than anybody asks.
    pub learned_models: usize,
    /// The longest name of a model that an engine sees, in bytes. Default 256: names are kept.
    pub model_name_max_bytes: usize,
    /// How often messages of `POST /v1/compress` are shaped at the most, because what stands for the
    /// originals did not fit beside the rest. Default 4: each time they get smaller by what was too much.
    pub compress_tries: u32,
    /// The share of a window from which on a conversation is compacted when its client asks for that.
    /// Default 0.1: a smaller one is told word for word, which loses nothing.
    pub compacted_min_share: f64,
    /// The largest share of a window that such a compaction takes. Default 0.5: whoever asked goes on in
    /// what is left.
    pub compacted_max_share: f64,
    /// Conversations that stay in memory; the others stand in their files and are found there. Default 256: each takes some
    /// hundred kilobytes to some megabytes.
    pub conversations: usize,
    /// How long one stays there that nobody goes on with, in milliseconds. Default 900,000: a quarter of
    /// an hour is a long pause.
    pub conversation_idle_ms: u64,
}

impl Default for GatewaySettings {
    fn default() -> Self {
        GatewaySettings {
            listen: "127.0.0.1:8787".into(),
            token_env: "CTXHOST_TOKEN".into(),
            tls_cert: None,
            tls_key: None,
            hosts: Vec::new(),
            origins: Vec::new(),
            upstreams: BTreeMap::new(),
            models: BTreeMap::new(),
            pass_through: false,
            max_body_bytes: 64 * 1024 * 1024,
            max_bodies_bytes: 256 * 1024 * 1024,
            max_header_bytes: 64 * 1024,
            max_connections: 2_048,
            max_requests: 1_024,
            client_timeout_ms: 60_000,
            client_min_bytes_per_s: 16_384,
            client_stall_ms: 600_000,
            hold_ms: 2_000,
            drain_ms: 30_000,
            too_large_tries: 3,
            reserve_max_share: 0.25,
            lower_max_tokens: true,
            min_output_tokens: 256,
            learned_min_tokens: 1_024,
            learned_min_share: 0.0625,
            learned_models: 1_024,
            model_name_max_bytes: 256,
            compress_tries: 4,
            compacted_min_share: 0.1,
            compacted_max_share: 0.5,
            conversations: 256,
            conversation_idle_ms: 900_000,
        }
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
pub(super) fn together(config: &Config) -> Result<(), ConfigError> {
    let gateway = &config.gateway;
    for dialect in gateway.upstreams.keys() {
        if !DialectName::WORDS.contains(&dialect.as_str()) || dialect == "ollama" {
            let key = places::dotted(&["gateway", "upstreams", dialect]);
            let message = format!("`{dialect}` is no dialect of the gateway");
            let help = "write `anthropic-messages`, `openai-completions`, `openai-responses` or `google-generative-ai`";
            return Err(clash(config, &[&key], message, help));
        }
    }
    for pattern in gateway.models.keys() {
        if let Err(error) = Glob::new(pattern) {
            let key = places::dotted(&["gateway", "models", pattern]);
            let help = "`*` stands for anything, as in `claude-*`";
            return Err(clash(config, &[&key], error.to_string(), help));
        }
    }
    let upstreams = gateway.upstreams.iter().map(|(key, value)| ("upstreams", key, value));
    let models = gateway.models.iter().map(|(key, value)| ("models", key, value));
    for (table, name, upstream) in upstreams.chain(models) {
        if !is_address(upstream) && config.provider(upstream).is_none() {
            let key = places::dotted(&["gateway", table, name]);
            let message = format!("there is no provider `{upstream}`");
            let help =
                "name one of [providers], or give an address that begins with http:// or https://";
            return Err(clash(config, &[&key], message, help));
        }
    }
    if gateway.tls_cert.is_some() != gateway.tls_key.is_some() {
        let keys = ["gateway.tls_cert", "gateway.tls_key"];
        let message = "a certificate is of no use without its key".to_owned();
        return Err(clash(config, &keys, message, "write tls_cert and tls_key, or neither"));
    }
    Ok(())
}

/// Whether an upstream is written as an address.
pub fn is_address(upstream: &str) -> bool {
    upstream.starts_with("http://") || upstream.starts_with("https://")
}
