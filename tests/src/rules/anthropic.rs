//! Anthropic Messages., A-20's signature and A-21 are kept by the memory.

mod blocks;
mod tools;

use serde_json::Value;

use super::json::{has, list, text};
use super::{Notes, Request, Rule};
use blocks::{a_3, a_4, a_12, a_19, a_20};
use tools::{a_5, a_6, a_7, a_8, a_9, a_10, a_11, a_14, a_18};

pub(super) const RULES: &[Rule] = &[
    ("A-0", a_0),
    ("A-1", a_1),
    ("A-2", a_2),
    ("A-3", a_3),
    ("A-4", a_4),
    ("A-5", a_5),
    ("A-6", a_6),
    ("A-7", a_7),
    ("A-8", a_8),
    ("A-9", a_9),
    ("A-10", a_10),
    ("A-11", a_11),
    ("A-12", a_12),
    ("A-13", a_13),
    ("A-14", a_14),
    ("A-18", a_18),
    ("A-19", a_19),
    ("A-20", a_20),
    ("A-22", a_22),
];

const MAX_MESSAGES: usize = 100_000;
/// The least that a model may think, in tokens.
const MIN_THINKING_TOKENS: u64 = 1_024;

fn messages<'a>(request: &Request<'a>) -> &'a [Value] {
    list(request.body, "messages")
}

fn each<'a>(request: &Request<'a>) -> impl Iterator<Item = (usize, &'a Value)> {
    messages(request).iter().enumerate()
}

/// Messages as the server sees them: neighbours of one role are one. With the place of the first.
fn merged<'a>(request: &Request<'a>) -> Vec<(usize, &'a str, Vec<&'a Value>)> {
    let mut merged: Vec<(usize, &str, Vec<&Value>)> = Vec::new();
    for (at, message) in each(request) {
        let role = text(message, "role");
        match merged.last_mut() {
            Some((_, last, blocks)) if *last == role => blocks.extend(list(message, "content")),
            _ => merged.push((at, role, list(message, "content").iter().collect())),
        }
    }
    merged
}

/// The blocks of one type.
fn of<'a>(blocks: &[&'a Value], kind: &str) -> Vec<&'a Value> {
    blocks.iter().copied().filter(|block| text(block, "type") == kind).collect()
}

fn beta(request: &Request<'_>, word: &str) -> bool {
    let header = request.headers.get_all("anthropic-beta");
    header.iter().any(|value| value.to_str().is_ok_and(|value| value.contains(word)))
}

fn thinking_tokens(request: &Request<'_>) -> Option<u64> {
    let thinking = request.body.get("thinking")?;
    (text(thinking, "type") == "enabled")
        .then(|| thinking["budget_tokens"].as_u64().unwrap_or_default())
}

/// The version of the API is named: a day, which SDKs of this autumn put later than 2023-06-01. Clouds have it in the body.
fn a_0(request: &Request<'_>, notes: &mut Notes<'_>) {
    let version = request.headers.get("anthropic-version").and_then(|value| value.to_str().ok());
    let version = version.unwrap_or_else(|| {
        let version = text(request.body, "anthropic_version");
        let day = ["vertex-", "bedrock-"].iter().find_map(|cloud| version.strip_prefix(cloud));
        day.unwrap_or(version)
    });
    let named = is_day(version) && version >= "2023-05-31";
    notes.demand(named, "anthropic-version", "anthropic-version: header is required");
}

fn is_day(text: &str) -> bool {
    let of_day = |(at, byte): (usize, u8)| match at {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    };
    text.len() == 10 && text.bytes().enumerate().all(of_day)
}

/// There are messages; the person begins.
fn a_1(request: &Request<'_>, notes: &mut Notes<'_>) {
    let why = "messages: at least one message is required";
    notes.demand(!messages(request).is_empty(), "messages", why);
    let first = messages(request).first().map_or("user", |message| text(message, "role"));
    notes.demand(
        first == "user",
        "messages.0",
        "messages: first message must use the \"user\" role",
    );
    for (at, message) in each(request) {
        let role = text(message, "role");
        let known = ["user", "assistant"].contains(&role);
        let system = role == "system" && beta(request, "system");
        notes.demand(
            known || system,
            format!("messages.{at}.role"),
            format!("messages.{at}.role: Input should be 'user' or 'assistant'"),
        );
    }
}

/// There are not too many.
fn a_2(request: &Request<'_>, notes: &mut Notes<'_>) {
    let why = "messages: too many messages, at most 100000 are allowed";
    notes.demand(messages(request).len() <= MAX_MESSAGES, "messages", why);
}

/// Thinking leaves room for an answer and goes with no forced tool.
fn a_13(request: &Request<'_>, notes: &mut Notes<'_>) {
    let Some(budget) = thinking_tokens(request) else { return };
    let max = request.body["max_tokens"].as_u64().unwrap_or(u64::MAX);
    notes.demand(
        budget >= MIN_THINKING_TOKENS,
        "thinking",
        "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
    );
    notes.demand(
        budget < max,
        "thinking",
        "`max_tokens` must be greater than `thinking.budget_tokens`.",
    );
    let forced = ["any", "tool"].contains(&text(&request.body["tool_choice"], "type"));
    notes.demand(
        !forced,
        "tool_choice",
        "Thinking may not be enabled when tool_choice forces tool use.",
    );
    let temperature = request.body["temperature"].as_f64().unwrap_or(1.0);
    notes.demand(
        temperature == 1.0,
        "temperature",
        "`temperature` may only be set to 1 when thinking is enabled.",
    );
}

/// The limit of the answer is named.
fn a_22(request: &Request<'_>, notes: &mut Notes<'_>) {
    let counts = ["count_tokens", "count-tokens"].iter().any(|name| request.path.contains(name));
    let named = request.body["max_tokens"].as_u64().is_some_and(|tokens| tokens > 0);
    notes.demand(counts || named, "max_tokens", "max_tokens: Field required");
}
