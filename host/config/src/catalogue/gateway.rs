//! Settings of the gateway: how it listens, whom it asks, how much it takes.

use super::{Allowed, MS, SHARE, Setting, TOKENS, setting};

/// In the order in which people read about them.
pub(super) const SETTINGS: &[Setting] = &[
    setting(
        "gateway.listen",
        "",
        Allowed::Text,
        "address and port; of this machine alone, because whoever reaches it may spend your money",
    ),
    setting(
        "gateway.token_env",
        "",
        Allowed::Text,
        "the variable that holds the token clients have to show; where it is not set, no token is asked for",
    ),
    setting(
        "gateway.tls_cert",
        "",
        Allowed::Text,
        "the certificates of the gateway itself in one PEM file, its own first; without them it speaks plain HTTP, which is no risk within one machine",
    ),
    setting("gateway.tls_key", "", Allowed::Text, "the key of the first of them, as PEM"),
    setting(
        "gateway.hosts",
        "",
        Allowed::List,
        "names under which clients may call it, beside localhost and its own addresses; none, so that no name that somebody bends to this machine opens the door",
    ),
    setting(
        "gateway.origins",
        "",
        Allowed::List,
        "web pages that may call it, as their browser writes them, such as https://app.example; none, because a page you look at should not spend your money",
    ),
    setting(
        "gateway.upstreams",
        "",
        Allowed::Upstreams,
        "who is asked, by dialect: a provider below [providers], or an address; without it each dialect's owner, with the client's own key",
    ),
    setting(
        "gateway.models",
        "",
        Allowed::Upstreams,
        "who is asked for models whose names fit a pattern, such as \"qwen*\"; goes before upstreams, and of several that fit the one with the most letters of its own counts",
    ),
    setting(
        "gateway.pass_through",
        "",
        Allowed::Flag,
        "whether requests are only passed on and no engine sees them; false, since the engine is what the gateway is for",
    ),
    setting(
        "gateway.max_body_bytes",
        "bytes",
        Allowed::Whole(1_024),
        "the largest body that an engine sees, larger ones get 413; twice what the largest provider takes",
    ),
    setting(
        "gateway.max_bodies_bytes",
        "bytes",
        Allowed::Whole(1_024),
        "what the bodies of all requests may take together, as they came and decompressed; a request that finds no room is told to come again, and one that is larger than all of it gets 413; four of the largest",
    ),
    setting(
        "gateway.max_header_bytes",
        "bytes",
        Allowed::Whole(8_192),
        "the most that the headers of a request may take; those of agents are a tenth of it",
    ),
    setting(
        "gateway.max_connections",
        "connections",
        Allowed::Whole(1),
        "at the same time, more wait at the door; an agent has a handful",
    ),
    setting(
        "gateway.max_requests",
        "requests",
        Allowed::Whole(1),
        "at the same time, more are told to come again in a second; each holds its body until it is sent",
    ),
    setting(
        "gateway.client_timeout_ms",
        MS,
        Allowed::Whole(1),
        "how long a client may take for its headers, or pause within its body; whoever is slower holds a place for nothing",
    ),
    setting(
        "gateway.client_min_bytes_per_s",
        "bytes per second",
        Allowed::Whole(1),
        "what a body has to bring on the whole, after the first client_timeout_ms; drop by drop it would hold its place for ever",
    ),
    setting(
        "gateway.client_stall_ms",
        MS,
        Allowed::Whole(1),
        "how long a client that speaks HTTP/1 may take nothing of its answer, which holds a place among the requests here and at the upstream; ten minutes let an agent go on that somebody has suspended for a moment",
    ),
    setting(
        "gateway.hold_ms",
        MS,
        Allowed::Whole(0),
        "how long the beginning of a stream is held back in which nothing is said yet; a refusal in it can then still be answered by a smaller request",
    ),
    setting(
        "gateway.drain_ms",
        MS,
        Allowed::Whole(0),
        "how long streams may go on when the gateway is told to end; most answers are whole within",
    ),
    setting(
        "gateway.too_large_tries",
        "requests",
        Allowed::Whole(0),
        "how often a request is made smaller that its upstream found too large; what does not fit then has something in it that nobody may leave out",
    ),
    setting(
        "gateway.reserve_max_share",
        SHARE,
        Allowed::Number(0.05, 0.95),
        "the largest share of a window that an answer may hold free; clients ask for the longest answer of a model, whatever its window, and a conversation needs room as well",
    ),
    setting(
        "gateway.lower_max_tokens",
        "",
        Allowed::Flag,
        "whether a request for a longer answer than fits beside its prompt is sent with what fits (header `x-ctxhost-max-tokens`); strict providers refuse it otherwise",
    ),
    setting(
        "gateway.min_output_tokens",
        TOKENS,
        Allowed::Whole(1),
        "the shortest answer that a request is lowered to; a shorter one holds no tool call",
    ),
    setting(
        "gateway.learned_min_tokens",
        TOKENS,
        Allowed::Whole(1),
        "the smallest window that the refusal of an upstream is believed; a text may quote what a client wrote",
    ),
    setting(
        "gateway.learned_min_share",
        SHARE,
        Allowed::Number(0.0, 1.0),
        "the same as a share of the window that the config or the model's name tells, before other conversations believe it; no server gives a sixteenth of what its model has",
    ),
    setting(
        "gateway.learned_models",
        "models",
        Allowed::Whole(1),
        "of which such windows are kept; more than anybody asks, and clients may make names up",
    ),
    setting(
        "gateway.model_name_max_bytes",
        "bytes",
        Allowed::Whole(1),
        "the longest name of a model that an engine sees, a request with a longer one is only passed on; such names are kept",
    ),
    setting(
        "gateway.compress_tries",
        "shapings",
        Allowed::Whole(1),
        "how often messages of `POST /v1/compress` are shaped at the most, because what stands for the originals did not fit beside the rest; each time they get smaller by what was too much",
    ),
    setting(
        "gateway.compacted_min_share",
        SHARE,
        Allowed::Number(0.0, 0.9),
        "the share of a window from which on a conversation is compacted when its client asks for that; a smaller one is told word for word, which loses nothing",
    ),
    setting(
        "gateway.compacted_max_share",
        SHARE,
        Allowed::Number(0.05, 0.95),
        "the largest share of a window that such a compaction takes; whoever asked goes on in what is left",
    ),
    setting(
        "gateway.conversations",
        "conversations",
        Allowed::Whole(1),
        "that stay in memory, the newest; the others stand in their files and are found there, however many are at work",
    ),
    setting(
        "gateway.conversation_idle_ms",
        MS,
        Allowed::Whole(1),
        "how long one stays there that nobody goes on with; a quarter of an hour is a long pause",
    ),
];
