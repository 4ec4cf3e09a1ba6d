//! Tests: a case for every row of both mapping tables, and for invalid files.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::Config;

/// A key with a value, and the expected result: `Ok` our TOML, `Err` words of the reason.
type Case = (&'static str, Value, Result<&'static str, &'static str>);

const LEGACY: &str = "plugins.entries.legacy.config";
const HEAD_TAIL: &str = "plugins.entries.head-tail.config";

fn openclaw_cases() -> Vec<Case> {
    vec![
        ("agents.defaults.compaction.enabled", json!(false), Err("cannot be disabled")),
        (
            "agents.defaults.compaction.mode",
            json!("default"),
            Ok("L.compaction.quality_guard = false"),
        ),
        (
            "agents.defaults.compaction.mode",
            json!("safeguard"),
            Ok("L.compaction.quality_guard = true"),
        ),
        ("agents.defaults.compaction.mode", json!("other"), Err("only default and safeguard")),
        ("agents.defaults.compaction.provider", json!("mine"), Err("context_engine")),
        (
            "agents.defaults.compaction.model",
            json!("openai/x"),
            Ok("L.compaction.model = \"openai/x\""),
        ),
        ("agents.defaults.compaction.thinkingLevel", json!("low"), Err("reasoning")),
        (
            "agents.defaults.compaction.keepRecentTokens",
            json!(9_000),
            Ok("L.compaction.keep_recent_tokens = 9000"),
        ),
        (
            "agents.defaults.compaction.identifierPolicy",
            json!("off"),
            Ok("L.compaction.identifier_policy = \"off\""),
        ),
        (
            "agents.defaults.compaction.identifierPolicy",
            json!("custom"),
            Ok("L.compaction.identifier_policy = \"custom\""),
        ),
        (
            "agents.defaults.compaction.identifierInstructions",
            json!("x"),
            Ok("L.compaction.identifier_instructions = \"x\""),
        ),
        (
            "agents.defaults.compaction.recentTurnsPreserve",
            json!(5),
            Ok("L.compaction.recent_turns = 5"),
        ),
        (
            "agents.defaults.compaction.qualityGuard.enabled",
            json!(false),
            Ok("L.compaction.quality_guard = false"),
        ),
        (
            "agents.defaults.compaction.qualityGuard.maxRetries",
            json!(9),
            Ok("L.compaction.quality_retries = 3"),
        ),
        ("agents.defaults.compaction.midTurnPrecheck.enabled", json!(true), Err("every request")),
        ("agents.defaults.compaction.postIndexSync", json!("async"), Err("memory index")),
        (
            "agents.defaults.compaction.postCompactionSections",
            json!(["Red Lines"]),
            Ok("L.compaction.workspace_sections = [\"Red Lines\"]"),
        ),
        (
            "agents.defaults.compaction.timeoutSeconds",
            json!(180),
            Ok("timeouts.compact_ms = 180000"),
        ),
        ("agents.defaults.compaction.maxActiveTranscriptBytes", json!("20mb"), Err("may grow")),
        ("agents.defaults.compaction.memoryFlush.enabled", json!(true), Err("no extra turn")),
        ("agents.defaults.compaction.notifyUser", json!(true), Err("every result")),
        (
            "agents.defaults.compaction.reserveTokens",
            json!(30_000),
            Ok("budget.reserve_tokens = 30000"),
        ),
        (
            "agents.defaults.compaction.reserveTokensFloor",
            json!(25_000),
            Ok("budget.reserve_tokens = 25000"),
        ),
        (
            "agents.defaults.compaction.maxHistoryShare",
            json!(0.5),
            Ok("L.compaction.history_share = 0.5"),
        ),
        (
            "agents.defaults.compaction.customInstructions",
            json!("the API"),
            Ok("L.compaction.custom_instructions = \"the API\""),
        ),
        (
            "agents.defaults.contextPruning.mode",
            json!("cache-ttl"),
            Ok("L.pruning.mode = \"cache-ttl\""),
        ),
        ("agents.defaults.contextPruning.ttl", json!("1h30m"), Ok("L.pruning.ttl = \"90m\"")),
        ("agents.defaults.contextPruning.ttl", json!("soon"), Err("5m")),
        (
            "agents.defaults.contextPruning.tools.allow",
            json!(["exec*"]),
            Ok("L.pruning.allow = [\"exec*\"]"),
        ),
        ("agents.defaults.contextPruning.tools.deny", json!([]), Ok("L.pruning.deny = []")),
        (
            "agents.defaults.contextPruning.hardClear.enabled",
            json!(false),
            Ok("L.pruning.hard_clear = false"),
        ),
        (
            "agents.defaults.contextPruning.hardClear.placeholder",
            json!("[gone]"),
            Ok("L.pruning.placeholder = \"[gone]\""),
        ),
        (
            "agents.defaults.contextPruning.keepLastAssistants",
            json!(2),
            Ok("L.pruning.keep_last_assistants = 2"),
        ),
        (
            "agents.defaults.contextPruning.softTrimRatio",
            json!(0.2),
            Ok("L.pruning.soft_share = 0.2"),
        ),
        (
            "agents.defaults.contextPruning.hardClearRatio",
            json!(0.6),
            Ok("L.pruning.hard_share = 0.6"),
        ),
        (
            "agents.defaults.contextPruning.minPrunableToolChars",
            json!(10_000),
            Ok("L.pruning.hard_min_chars = 10000"),
        ),
        (
            "agents.defaults.contextPruning.softTrim.maxChars",
            json!(3_000),
            Ok("L.pruning.soft_over_chars = 3000"),
        ),
        (
            "agents.defaults.contextPruning.softTrim.headChars",
            json!(1_000),
            Ok("L.pruning.soft_head_chars = 1000"),
        ),
        (
            "agents.defaults.contextPruning.softTrim.tailChars",
            json!(900),
            Ok("L.pruning.soft_tail_chars = 900"),
        ),
        (
            "agents.defaults.contextLimits.postCompactionMaxChars",
            json!(1_800),
            Ok("L.compaction.workspace_rules_chars = 1800"),
        ),
        ("agents.defaults.contextTokens", json!(90_000), Ok("model.default_window_tokens = 90000")),
        (
            "models.providers.p.models.m.contextWindow",
            json!(128_000),
            Ok("models.p/m.window_tokens = 128000"),
        ),
        (
            "models.providers.p.models.m.contextTokens",
            json!(64_000),
            Ok("models.p/m.window_tokens = 64000"),
        ),
        ("plugins.enabled", json!(false), Ok("plugins.enabled = false")),
        (
            "plugins.slots.contextEngine",
            json!("legacy"),
            Ok("plugins.slots.context_engine = \"legacy\""),
        ),
        (
            "plugins.slots.contextEngine",
            json!("None"),
            Ok("plugins.slots.context_engine = \"legacy\""),
        ),
        ("plugins.slots.contextEngine", json!("lossless-claw"), Err("not available")),
        ("plugins.slots.memory", json!("none"), Ok("plugins.slots.memory = \"none\"")),
        ("plugins.slots.memory", json!("memory-core"), Err("not available")),
        ("plugins.allow", json!(["x"]), Err("cannot run here")),
        ("plugins.deny", json!(["x"]), Err("cannot run here")),
        ("plugins.entries.lossless-claw.config.depth", json!(3), Err("cannot run here")),
        ("agents.defaults.compaction.keepRecentToken", json!(1), Err("unknown key")),
        ("channels.telegram.token", json!("secret"), Err("not a context setting")),
    ]
}

fn hermes_cases() -> Vec<Case> {
    vec![
        ("context.engine", json!("compressor"), Ok("plugins.slots.context_engine = \"head-tail\"")),
        ("context.engine", json!("lcm"), Err("only compressor")),
        ("compression.enabled", json!(true), Err("cannot be disabled")),
        ("compression.threshold", json!(0.75), Ok("H.threshold_share = 0.75")),
        ("compression.threshold", json!(75), Err("at most 1")),
        ("compression.target_ratio", json!(0.95), Ok("H.tail_share = 0.8")),
        ("compression.protect_last_n", json!(20), Ok("H.tail_messages = 8")),
        ("compression.protect_last_n", json!(1), Ok("H.tail_messages = 3")),
        ("compression.protect_first_n", json!(0), Ok("H.head_messages = 0")),
        ("compression.hygiene_hard_message_limit", json!(5_000), Err("limits are in tokens")),
        (
            "compression.abort_on_summary_failure",
            json!(true),
            Ok("H.abort_on_summary_failure = true"),
        ),
        ("compression.in_place", json!(true), Err("keeps every entry")),
        ("auxiliary.compression.model", json!("small"), Ok("H.model = \"small\"")),
        ("auxiliary.compression.timeout", json!(120), Ok("timeouts.compact_ms = 120000")),
        ("auxiliary.compression.provider", json!("openrouter"), Err("[summariser]")),
        ("auxiliary.compression.base_url", json!("http://x"), Err("[summariser]")),
        ("auxiliary.compression.api_key", json!("secret"), Err("never imported")),
        ("compression.treshold", json!(1), Err("unknown key")),
        ("terminal.backend", json!("local"), Err("not a context setting")),
    ]
}

/// A document with one value in it.
fn nested(key: &str, value: &Value) -> Value {
    key.rsplit('.').fold(value.clone(), |inner, name| json!({ name: inner }))
}

fn imported(agent: SourceAgent, document: &Value) -> SettingsImport {
    // JSON is YAML as well.
    import(agent, "theirs", &document.to_string()).unwrap()
}

fn line(setting: &ImportedSetting) -> String {
    format!("{} = {}", setting.path.join("."), setting.value)
}

fn check(agent: SourceAgent, (key, value, expected): &Case) {
    let import = imported(agent, &nested(key, value));
    let ours = import.settings.iter().find(|setting| setting.from == *key).map(line);
    let reason = import.skipped.first().map(|left_out| left_out.reason.as_str());
    match expected {
        Ok(text) => {
            let text =
                text.replace("L.", &format!("{LEGACY}.")).replace("H.", &format!("{HEAD_TAIL}."));
            assert_eq!(ours.as_deref(), Some(text.as_str()), "{key}");
            assert_eq!(reason, None, "{key}");
        }
        Err(words) => {
            assert_eq!(ours, None, "{key}");
            assert!(reason.is_some_and(|reason| reason.contains(words)), "{key}: {reason:?}");
            let left_out = &import.skipped[0].key;
            assert!(key.starts_with(left_out.as_str()), "{left_out}");
        }
    }
    Config::parse("ctxhost.toml", &render(&import)).unwrap();
}

#[test]
fn every_row_of_openclaw() {
    openclaw_cases().iter().for_each(|case| check(SourceAgent::OpenClaw, case));
    every_row_has_a_case(openclaw::TABLE.rows, &openclaw_cases());
}

#[test]
fn every_row_of_hermes() {
    hermes_cases().iter().for_each(|case| check(SourceAgent::Hermes, case));
    every_row_has_a_case(hermes::TABLE.rows, &hermes_cases());
}

fn every_row_has_a_case(rows: &[MappingRow], cases: &[Case]) {
    let path = |key: &str| key.split('.').map(str::to_owned).collect::<Vec<_>>();
    let covers = |row: &&MappingRow| {
        cases.iter().any(|(key, ..)| KeyMatch::of(row.key, &path(key)).is_some())
    };
    let missing: Vec<&str> = rows.iter().filter(|row| !covers(row)).map(|row| row.key).collect();
    assert!(missing.is_empty(), "no case for {missing:?}");
    let keys: BTreeSet<&str> = rows.iter().map(|row| row.key).collect();
    assert_eq!(keys.len(), rows.len(), "a key has two rows");
}

#[test]
fn every_engine_takes_what_was_imported_for_it() {
    use ctxhost_engine_api::testing::ScriptedHost;
    for (agent, id, cases) in [
        (SourceAgent::OpenClaw, "legacy", openclaw_cases()),
        (SourceAgent::Hermes, "head-tail", hermes_cases()),
    ] {
        let factory = ctxhost_engine::bundled(id).unwrap();
        for (key, value, _) in cases {
            let import = imported(agent, &nested(key, &value));
            let config = Config::parse("ctxhost.toml", &render(&import)).unwrap();
            let host = std::sync::Arc::new(ScriptedHost::new());
            let created = factory.create(host, &config.engine_config(id));
            assert!(created.is_ok(), "{key}: {:?}", created.err());
        }
    }
}

#[test]
fn a_whole_file_with_comments_and_trailing_commas() {
    let text = r#"{
  // the agent
  agents: { defaults: { compaction: { reserveTokensFloor: 40000, reserveTokens: 30000, mode: "default",
    qualityGuard: { enabled: true }, }, model: { primary: "a/b" } } },
  models: { providers: { anthropic: { apiKey: "secret", models: [
    { id: "opus", contextTokens: 150000, contextWindow: 200000 }, ] } } },
  gateway: { port: 1, bind: "lan" },
}"#;
    let import = import(SourceAgent::OpenClaw, "openclaw.json", text).unwrap();
    assert_eq!(
        render(&import).strip_prefix(crate::SCHEMA_LINE).unwrap(),
        r#"[plugins.entries.legacy.config.compaction]
# from agents.defaults.compaction.qualityGuard.enabled
quality_guard = true

[budget]
# from agents.defaults.compaction.reserveTokensFloor
reserve_tokens = 40000

[models."anthropic/opus"]
# from models.providers.anthropic.models.opus.contextTokens
window_tokens = 150000
"#
    );
    let left: Vec<&str> = import.skipped.iter().map(|left_out| left_out.key.as_str()).collect();
    assert_eq!(left, ["agents.defaults.model", "models", "gateway"]);
    assert!(!format!("{import:?}").contains("secret"));
}

#[test]
fn a_long_time_for_compactions_raises_the_cap_for_all_of_it() {
    let import =
        imported(SourceAgent::Hermes, &nested("auxiliary.compression.timeout", &json!(2_000)));
    let config = Config::parse("ctxhost.toml", &render(&import)).unwrap();
    assert_eq!(config.timeouts.compact_ms, 2_000_000);
    assert_eq!(config.timeouts.compact_cap_ms, 2_000_000);
}

#[test]
fn hermes_fills_the_slot_by_default() {
    for text in ["", "# nothing\n", "compression:\n  threshold: 0.6 # early\n"] {
        let import = import(SourceAgent::Hermes, "config.yaml", text).unwrap();
        let config = Config::parse("ctxhost.toml", &render(&import)).unwrap();
        assert_eq!(config.slot().engine, "head-tail");
    }
}

#[test]
fn a_broken_file_is_shown_at_its_place() {
    for (agent, text, place) in [
        (SourceAgent::OpenClaw, "{\n  a: 1,\n  b }", "theirs:3:5"),
        (SourceAgent::OpenClaw, "", "theirs:1:1"),
        (SourceAgent::Hermes, "a: 1\nb: [1, 2\nc: 3\n", "theirs:3:2"),
        (SourceAgent::Hermes, "é: \"open\n", "theirs:1:4"),
    ] {
        let error = import(agent, "theirs", text).unwrap_err();
        assert_eq!(error.location().as_deref(), Some(place), "{error}");
    }
    let brackets = "[".repeat(100_000);
    for agent in [SourceAgent::OpenClaw, SourceAgent::Hermes] {
        assert!(import(agent, "theirs", &brackets).is_err());
        assert!(import(agent, "theirs", &format!("a: {brackets}")).is_err());
    }
    for (agent, text) in [(SourceAgent::OpenClaw, "[1]"), (SourceAgent::Hermes, "just text")] {
        let error = import(agent, "theirs", text).unwrap_err();
        assert_eq!(error.to_string(), "theirs is not a table of settings");
    }
}

#[test]
fn merging_keeps_existing_values_and_reports_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ctxhost.toml");
    let before =
        "# mine\n[budget]\nreserve_tokens = 50000 # a lot\n\n[timeouts]\ncompact_ms = 180000\n";
    std::fs::write(&path, before).unwrap();
    let compaction =
        json!({ "reserveTokens": 30_000, "timeoutSeconds": 180, "recentTurnsPreserve": 4 });
    let import =
        imported(SourceAgent::OpenClaw, &nested("agents.defaults.compaction", &compaction));
    let merged = merge(&import, &path).unwrap();
    assert_eq!((merged.written, merged.unchanged), (1, 1));
    assert_eq!(
        merged.conflicts,
        [("budget.reserve_tokens".into(), "50000".into(), "30000".into())]
    );
    let after = std::fs::read_to_string(&path).unwrap();
    assert!(after.starts_with(before), "{after}");
    assert!(after.ends_with("recent_turns = 4\n"), "{after}");
    let again = merge(&import, &path).unwrap();
    assert_eq!((again.written, again.unchanged), (0, 2));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), after);
}

#[test]
fn merging_creates_a_missing_file_and_skips_a_broken_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ctxhost.toml");
    let import = imported(SourceAgent::Hermes, &json!({}));
    assert_eq!(merge(&import, &path).unwrap().written, 1);
    for broken in ["[budget\n", "nonsense = 1\n"] {
        std::fs::write(&path, broken).unwrap();
        assert!(merge(&import, &path).is_err(), "{broken}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), broken);
    }
}

#[test]
fn a_name_with_line_ends_is_no_setting() {
    let name = "x\nwindow_tokens = 1000\n[mcp.evil]\ncommand = \"sh\"\n#";
    let providers =
        serde_json::json!({ name: { "models": [{ "id": "ok", "contextWindow": 200_000 }] } });
    let text = serde_json::json!({ "models": { "providers": providers } }).to_string();
    let imported = import(SourceAgent::OpenClaw, "openclaw.json", &text).unwrap();
    let config = render(&imported);
    let read: toml::Table = config.parse().unwrap();
    assert_eq!(read.keys().collect::<Vec<_>>(), ["models"], "{config}");
    assert_eq!(config.matches("200000").count(), 1, "{config}");
    crate::Config::parse("ctxhost.toml", &config).unwrap();
}

#[test]
fn a_value_that_our_settings_do_not_allow_is_skipped() {
    let models = json!([{ "id": "ok", "contextWindow": 200_000 }, { "id": "huge", "contextWindow": 5_000_000_000_u64 }]);
    let theirs = json!({ "models": { "providers": { "p": { "models": models } } } });
    let import = imported(SourceAgent::OpenClaw, &theirs);
    crate::Config::parse("ctxhost.toml", &render(&import)).unwrap();
    assert_eq!(import.settings.len(), 1);
    let skipped = import.skipped.last().unwrap();
    assert!(skipped.reason.starts_with("is 5000000000; models.\"p/huge\".window_tokens must be"));
}
