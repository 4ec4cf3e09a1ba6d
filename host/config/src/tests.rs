//! Tests of parsing, defaults and error messages.

use std::path::{Path, PathBuf};

use super::*;

mod documents;
mod edit;
mod entry;
mod mistakes;
mod schema;
mod slot;
mod tools;

fn parse(text: &str) -> Config {
    Config::parse("ctxhost.toml", text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn an_unknown_setting_suggests_a_key_or_a_table_by_its_last_part() {
    let cases = [
        ("slot", Some("plugins.slots")),
        ("compact_m", Some("timeouts.compact_ms")),
        ("gateway.max_body_byte", Some("gateway.max_body_bytes")),
        ("qqqq", None),
    ];
    for (key, suggestion) in cases {
        let unknown = explain_key(&Config::default(), key).unwrap_err();
        assert_eq!(unknown.suggestion.as_deref(), suggestion, "{key}");
    }
}

#[test]
fn an_empty_file_is_the_default() {
    let values = |config: &Config| {
        let rows = explain(config).into_iter();
        rows.map(|row| (row.key, row.value, row.source)).collect::<Vec<_>>()
    };
    assert_eq!(values(&parse("")), values(&Config::default()));
}

#[test]
fn paths_are_taken_from_the_folder_of_the_file() {
    let text = "plugins.engine_dirs = [\"engines\", \"/opt/engines\"]\n\
                [plugins.entries.mine]\npath = \"target/libmine.so\"\n";
    let config = Config::parse("/etc/ctx/ctxhost.toml", text).unwrap();
    let folders = [PathBuf::from("/etc/ctx/engines"), PathBuf::from("/opt/engines")];
    assert_eq!(config.plugins.engine_dirs, folders);
    let path = config.entry("mine").and_then(|entry| entry.path.clone());
    assert_eq!(path, Some(PathBuf::from("/etc/ctx/target/libmine.so")));
}

#[test]
fn an_engine_gets_its_own_table_unread() {
    let config = parse(
        "[plugins.entries.mine.config]\nkeep = 3\nwhen = 2026-01-02\n\
         [plugins.entries.mine.config.deep]\nlist = [1, { a = true }]\n",
    );
    let expected = serde_json::json!({
        "keep": 3, "when": "2026-01-02", "deep": { "list": [1, { "a": true }] }
    });
    assert_eq!(config.engine_config("mine"), expected);
    assert_eq!(config.engine_config("other"), serde_json::json!({}));
}

#[test]
fn a_budget_is_the_window_less_reserve_and_overhead_by_the_margin() {
    let check = |settings: &BudgetSettings, window, overhead, expected| {
        assert_eq!(settings.budget(window, overhead), expected, "window {window}");
    };
    let default = BudgetSettings::default();
    check(&default, 200_000, 0, (20_000, 150_000));
    check(&default, 200_000, 12_000, (20_000, 140_000));
    check(&default, 16_000, 0, (4_000, 10_000));
    check(&default, 4_096, 0, (1_024, 2_560));
    check(&default, 1_000, 5_000, (250, 0));
    check(&default, 0, 0, (0, 0));
    check(&BudgetSettings { reserve_tokens: 1, ..default.clone() }, 200_000, 0, (20_000, 150_000));
    check(
        &BudgetSettings { reserve_tokens: 50_000, ..default.clone() },
        200_000,
        0,
        (50_000, 125_000),
    );
    check(&BudgetSettings { reserve_tokens: 90_000, ..default }, 200_000, 0, (50_000, 125_000));
}

#[test]
fn a_file_is_found_from_any_folder_below_it() {
    let root = tempfile::tempdir().unwrap();
    let deep = root.path().join("a/b/c");
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::write(root.path().join("a/ctxhost.toml"), "").unwrap();
    assert_eq!(Config::discover(&deep), Some(root.path().join("a/ctxhost.toml")));
}

#[test]
fn every_key_of_a_file_has_a_span() {
    let text = "[budget]\nreserve_tokens = 9\n\n[models.\"a/b.c\"]\nwindow_tokens = 7\n";
    let config = parse(text);
    let slice = |path: &str| config.setting_span(path).and_then(|span| text.get(span));
    assert_eq!(slice("budget.reserve_tokens"), Some("reserve_tokens = 9"));
    assert_eq!(slice("models.\"a/b.c\".window_tokens"), Some("window_tokens = 7"));
    assert_eq!(slice("models.\"a/b.c\""), Some("\"a/b.c\""));
    assert_eq!(slice("budget.safety_margin"), None);
    assert_eq!(config.setting_line("models.\"a/b.c\".window_tokens"), Some(5));
}

#[test]
fn explain_shows_value_unit_source_and_effective_value() {
    let config = parse(
        "[plugins]\ndeny = [\"mask\"]\n[plugins.slots]\ncontext_engine = \"mask\"\n\
         [budget]\nreserve_tokens = 500\n[plugins.entries.mine.config]\nservice_token = \"abc\"\nlist = [1, 2]\n",
    );
    let rows = explain(&config);
    let line = |key: &str| {
        let row = rows.iter().find(|row| row.key == key).unwrap();
        let reason = row.reason.split(". ").next().unwrap_or_default();
        format!("{} [{}] {} - {reason}", row.value, row.unit, row.source)
    };
    let keys = [
        "plugins.slots.context_engine",
        "budget.reserve_tokens",
        "timeouts.create_ms",
        "summariser.base_url",
        "plugins.entries.mine.config.service_token",
        "plugins.entries.mine.config.list",
    ];
    insta::assert_snapshot!(keys.map(line).join("\n"));
}

#[test]
fn an_embedder_is_an_endpoint_or_a_folder_beside_the_file() {
    assert_eq!(parse("").embedder.choice(), None);
    let endpoint = parse("[embedder]\nurl = \"http://x/v1\"\nmodel = \"m\"\n");
    assert_eq!(endpoint.embedder.choice(), Some(EmbedderChoice::Endpoint("http://x/v1", "m")));
    let folder =
        Config::parse("/etc/ctxhost/ctxhost.toml", "[embedder]\npath = \"model\"\n").unwrap();
    let path = Path::new("/etc/ctxhost/model");
    assert_eq!(folder.embedder.choice(), Some(EmbedderChoice::Folder(path)));
    let refusal = |text: &str| Config::parse("f", text).unwrap_err().to_string();
    for (text, part) in [
        ("url = \"http://x\"\nmodel = \"m\"\npath = \"p\"", "[embedder] sets both url and path"),
        ("url = \"http://x\"", "[embedder] sets url without model"),
        ("model = \"m\"", "[embedder] sets model or api_key_env without url"),
        ("path = \"p\"\napi_key_env = \"K\"", "[embedder] sets model or api_key_env without url"),
        ("url = \"x\"\nmodel = \"m\"", "embedder.url"),
    ] {
        let message = refusal(&format!("[embedder]\n{text}\n"));
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn a_summariser_has_a_provider_or_an_address() {
    let provider = "[providers.local]\ndialect = \"openai\"\nretries = 9\n";
    let named = parse(&format!("{provider}[summariser]\nmodel = \"m\"\nprovider = \"local\"\n"));
    let (name, settings) = named.summariser_provider().unwrap();
    assert_eq!((name.as_str(), settings.retries), ("local", 9));
    assert_eq!(settings.key_variable(), Some("OPENAI_API_KEY"));
    let address = parse("[summariser]\nmodel = \"m\"\nbase_url = \"http://x/v1\"\n");
    let (_, settings) = address.summariser_provider().unwrap();
    assert_eq!((settings.base_url(), settings.retries), ("http://x/v1", 0));
    assert_eq!(settings.key_variable(), None, "no key for a stranger");
    assert_eq!(parse("").summariser_provider(), None);
}

#[test]
fn no_key_is_explained() {
    let config = parse(
        "[providers.a]\ndialect = \"openai\"\nheaders = { x-api-key = \"sk-4711\", x-team = \"t-4711\" }\n\
         proxy = \"http://me:pw-4711@proxy:1\"\nbase_url = \"http://me:pw-4711@host/v1\"\n",
    );
    let rows = format!("{:?}", explain(&config));
    assert!(!rows.contains("4711"), "{rows}");
    assert!(rows.contains("providers.a.headers.x-api-key"), "{rows}");
    assert!(!format!("{:?}", config.providers).contains("4711"));
}
