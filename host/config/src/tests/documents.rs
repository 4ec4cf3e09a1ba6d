//! The catalogue, the types, the document and the example say the same.

use std::collections::BTreeSet;

use super::*;

fn text_of(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The example with everything that it only shows switched on.
fn everything_on(text: &str) -> String {
    let is_shown_only = |line: &str| {
        let Some(rest) = line.strip_prefix("# ") else { return false };
        let is_table = rest.starts_with('[') && rest.trim_end().ends_with(']');
        let key = rest.split(" = ").next().unwrap_or_default();
        is_table || (key != rest && !key.contains(' '))
    };
    let on = |line: &str| match is_shown_only(line) {
        true => line.replacen("# ", "", 1),
        false => line.to_owned(),
    };
    text.lines().map(on).collect::<Vec<_>>().join("\n")
}

/// A file in which every setting is written, by way of the types themselves.
fn every_default() -> Config {
    parse(
        "[plugins.entries.x]\n[models.x]\nwindow_tokens = 1\n\
         [providers.x]\ndialect = \"openai-completions\"\n\
         [summariser]\nbase_url = \"http://x\"\nmodel = \"x\"\n\
         [mcp.x]\ncommand = \"x\"\n",
    )
}

#[test]
fn the_catalogue_holds_every_field_and_no_other() {
    fn leaves(path: &str, value: &serde_json::Value, found: &mut BTreeSet<String>) {
        match value {
            serde_json::Value::Object(table) if !table.is_empty() => {
                for (name, value) in table {
                    let name = if name == "x" { "*" } else { name };
                    leaves(&format!("{path}.{name}"), value, found);
                }
            }
            _ => drop(found.insert(path.trim_start_matches('.').to_owned())),
        }
    }
    let config = every_default();
    let document = serde_json::json!({
        "plugins": config.plugins, "budget": config.budget,
        "law": config.law, "timeouts": config.timeouts, "models": config.models,
        "model": config.model, "swap": config.swap, "agent": config.agent,
        "session": config.session, "retention": config.retention, "compaction": config.compaction, "failover": config.failover, "shadow": config.shadow,
        "accounting": config.accounting, "store": config.store, "summariser": config.summariser,
        "gateway": config.gateway, "tools": config.tools, "mcp": config.mcp, "providers": config.providers,
        "telemetry": config.telemetry,
    });
    let mut fields = BTreeSet::new();
    leaves("", &document, &mut fields);
    let catalogue = SETTINGS.iter().map(|setting| setting.key.to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(fields, catalogue);
}

#[test]
fn every_setting_is_read() {
    for setting in SETTINGS.iter() {
        let value = match setting.allowed {
            Allowed::Flag => {
                let key = setting.key.replace('*', "x");
                let defaults = explain(&every_default());
                let is_off = defaults.iter().any(|row| row.key == key && row.value == "false");
                is_off.to_string()
            }
            Allowed::Word(words) => {
                let defaults = explain(&every_default());
                let is_default = |word: &&&str| defaults.iter().any(|row| row.value == **word);
                format!("{:?}", words.iter().find(|word| !is_default(word)).unwrap())
            }
            Allowed::Text | Allowed::Slot => "\"x\"".into(),
            Allowed::Url => "\"https://x/v1\"".into(),
            Allowed::Digest => format!("{:?}", "ab".repeat(32)),
            Allowed::List => "[\"x\"]".into(),
            Allowed::Keys => {
                "[\"RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3\"]".into()
            }
            Allowed::Rules => "[\"paths >= 0.5\"]".into(),
            Allowed::Window => "500000".into(),
            Allowed::Whole(least) => (least + 500_000).to_string(),
            Allowed::Number(least, most) => {
                let defaults = explain(&every_default());
                let key = setting.key.replace('*', "x");
                let is_most = |row: &ExplainRow| row.key == key && row.value == format!("{most:?}");
                format!("{:?}", if defaults.iter().any(is_most) { least } else { most })
            }
            Allowed::Texts => "{ a = \"x\" }".into(),
            Allowed::Upstreams => "{ openai = \"https://x\" }".into(),
            Allowed::Foreign => "{ a = 1 }".into(),
        };
        let key = setting.key.replace('*', "x");
        let required = required(setting.key)
            .iter()
            .filter(|line| !line.starts_with(&key))
            .map(|line| format!("{line}\n"))
            .collect::<String>();
        let required = match setting.key {
            "mcp.*.command" | "mcp.*.url" => required,
            "mcp.*.headers" => "mcp.x.url = \"http://x\"\n".into(),
            key if key.starts_with("mcp.") => "mcp.x.command = \"x\"\n".into(),
            _ => required,
        };
        let config = parse(&format!("{required}{key} = {value}\n"));
        let is_read = |row: &ExplainRow| row.key.starts_with(&key) && row.source != "default";
        assert!(explain(&config).iter().any(is_read), "{key} = {value}");
        let defaults = explain(&every_default());
        if let Some(default) = defaults.iter().find(|row| row.key == key) {
            let changed = explain(&config).into_iter().find(|row| row.key == key).unwrap();
            let same_by_chance = ["x", "1"].contains(&default.value.as_str());
            assert!(changed.value != default.value || same_by_chance, "{key} = {value}");
        }
    }
}

/// What must stand beside a setting.
fn required(key: &str) -> &'static [&'static str] {
    const PROVIDER: &str = "providers.x.dialect = \"openai-completions\"";
    const ANTHROPIC: &str = "providers.x.dialect = \"anthropic-messages\"";
    const MODEL: &str = "summariser.model = \"x\"";
    match key {
        key if key.ends_with("one_hour_cache") || key.ends_with("context_editing") => &[ANTHROPIC],
        "summariser.provider" => &[PROVIDER, MODEL],
        "gateway.tls_cert" | "gateway.tls_key" => {
            &["gateway.tls_cert = \"y\"", "gateway.tls_key = \"y\""]
        }
        key if key.starts_with("summariser") => &["summariser.base_url = \"http://x\"", MODEL],
        key if key.starts_with("providers") => &[PROVIDER],
        _ => &[],
    }
}

#[test]
fn the_document_has_a_row_for_every_setting() {
    let document = text_of("docs/configuration.md");
    let defaults = explain(&every_default());
    let mut missing = Vec::new();
    for setting in SETTINGS.iter() {
        let key = setting.key.replace('*', "x");
        let default = match setting.key {
            // Required where its table stands, so there is no default.
            "models.*.window_tokens" | "summariser.model" | "providers.*.dialect" => "required",
            // One of two has to stand there.
            "summariser.base_url" | "mcp.*.command" => "not set",
            _ => defaults.iter().find(|row| row.key == key).map_or("{}", |row| &row.value),
        };
        let row = document_row(setting, default);
        if !document.contains(&row) {
            missing.push(row);
        }
    }
    assert!(missing.is_empty(), "docs/configuration.md lacks these rows:\n{}", missing.join("\n"));
}

fn document_row(setting: &Setting, default: &str) -> String {
    let key = setting.key.replace(
        '*',
        match setting.key.split('.').next() {
            Some("models") => "\"provider/model\"",
            Some("providers") => "<name>",
            _ => "<id>",
        },
    );
    let default = match default {
        "not set" | "required" => default.to_owned(),
        default => format!("`{default}`"),
    };
    let allowed = setting.allowed.expectation(setting.unit);
    format!("| `{key}` | {default} | {allowed} | {} |", setting.reason)
}

#[test]
fn the_example_is_the_default_with_pruning_on() {
    let config = parse(&text_of("examples/ctxhost.toml"));
    assert_eq!(config.engine_config("legacy")["pruning"]["mode"], "cache-ttl");
    let defaults = explain(&Config::default());
    for default in defaults.iter().filter(|row| row.value != "not set") {
        let rows = explain(&config);
        let row = rows.iter().find(|row| row.key == default.key).unwrap();
        assert_eq!(row.value, default.value, "{}", row.key);
        // Written down, this one would go before the built-in table, so the example only names it.
        if row.key != "model.default_window_tokens" {
            assert_ne!(row.source, "default", "{} does not stand in the example", row.key);
        }
    }
}

#[test]
fn the_example_shows_every_setting_with_its_unit() {
    let example = text_of("examples/ctxhost.toml");
    let config = parse(&everything_on(&example));
    let mut rows = explain(&config);
    rows.retain(|row| row.source != "default");
    for setting in SETTINGS.iter() {
        let pattern = setting.path();
        let stands = rows.iter().any(|row| {
            let path = places::segments(&row.key);
            path.len() >= pattern.len()
                && pattern.iter().zip(&path).all(|(name, written)| *name == "*" || name == written)
        });
        // It excludes base_url, which is switched on, so that it stands in a remark.
        let stands =
            stands || setting.key == "summariser.provider" && example.contains("(provider = ");
        assert!(stands, "{} does not stand in the example", setting.key);
        let example = example.to_lowercase();
        assert!(example.contains(setting.unit), "the example does not speak of {}", setting.unit);
    }
}
