//! Tests of error messages: file, line and column, the error, the suggestion.

use miette::{GraphicalReportHandler, GraphicalTheme};
use proptest::prelude::*;

use super::*;

fn shown(error: &ConfigError) -> String {
    let handler = GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor());
    let mut text = String::new();
    handler.with_width(100).render_report(&mut text, error).unwrap();
    text
}

fn refusal(text: &str) -> ConfigError {
    Config::parse("ctxhost.toml", text).expect_err(text)
}

/// `line:column`, message and help in one line.
fn line(text: &str) -> String {
    let error = refusal(text);
    let ConfigError::Invalid(mistake) = &error else { panic!("{error:?}") };
    let location = error.location().unwrap_or_default();
    format!("{location} {mistake} => {}", mistake.help_text().unwrap_or("-"))
}

#[test]
fn a_misspelt_key_gets_a_suggestion() {
    insta::assert_snapshot!(shown(&refusal("# budget\n[budget]\nreserve_token = 9000\n")));
}

#[test]
fn a_list_where_a_table_belongs_is_one_mistake() {
    let text = shown(&refusal("[[budget]]\nreserve_tokens = 5\n"));
    assert!(text.contains("budget must be a table") && text.contains("this is a list"), "{text}");
    assert!(!text.contains("unknown key") && !text.contains("is text"), "{text}");
}

#[test]
fn unknown_keys_get_a_suggestion() {
    let lines = [
        "[plugin]\n",
        "[plugins.slots]\ncontextEngine = \"mask\"\n",
        "[budget]\nwindow_tokens = 9\n",
        "[model]\nzzz = 1\n",
        "qqq = 1\n",
        "[models.\"a/b\"]\nwindow = 9\n",
        "[plugins.entries.mask]\nhash = \"00\"\n",
        "[timeouts]\ncompact = 5\n",
    ];
    insta::assert_snapshot!(lines.map(line).join("\n"));
}

#[test]
fn a_suggestion_would_be_accepted_with_this_value() {
    let cases = [
        ("[gateway]\nupstream = \"http://127.0.0.1:1\"\n", "did you mean `upstreams`? It must be "),
        ("[gateway.upstreams]\nopenia = \"http://127.0.0.1:1\"\n", "did you mean `openai`?"),
        ("[gateway.upstreams]\nzzz = \"http://127.0.0.1:1\"\n", "`openai-completions`"),
        ("[summariser]\nmodel = \"m\"\nurl = \"http://127.0.0.1:1\"\n", "did you mean `base_url`?"),
        ("[providers.x]\ndialect = \"openai\"\napi = \"openai\"\n", "did you mean `dialect`?"),
    ];
    for (text, help) in cases {
        let found = line(text);
        assert!(found.contains(help), "{found}");
    }
}

#[test]
fn renamed_keys_and_values_name_the_new_ones() {
    let lines = [
        "[law]\nprogress_margin = 0.1\n",
        "law.progress_margin = 0.1\n",
        "[swap]\nproving_requests = 3\n",
        "[plugins.worker]\nmemory_mib = 512\n",
        "[plugins.sandbox]\nletting_go_ms = 50\n",
        "[plugins]\nisolation = \"lane\"\n",
        "[plugins.entries.mine]\nisolation = \"lane\"\n",
    ];
    let expected = "\
        ctxhost.toml:1:2 law was renamed to invariants => write [invariants]\n\
        ctxhost.toml:1:1 law was renamed to invariants => write [invariants]\n\
        ctxhost.toml:2:1 swap.proving_requests was renamed to swap.trial_requests => write `trial_requests`\n\
        ctxhost.toml:1:10 plugins.worker was renamed to plugins.sandbox => write [plugins.sandbox]\n\
        ctxhost.toml:2:1 plugins.sandbox.letting_go_ms was renamed to plugins.sandbox.cancel_grace_ms => write `cancel_grace_ms`\n\
        ctxhost.toml:2:13 plugins.isolation = \"lane\" was renamed to \"thread\" => write \"thread\"\n\
        ctxhost.toml:2:13 plugins.entries.mine.isolation = \"lane\" was renamed to \"thread\" => write \"thread\"";
    assert_eq!(lines.map(line).join("\n"), expected);
    let is_known = |path: &str| {
        let kind = all_settings::classify_path(&spans::split_path(path));
        !matches!(kind, all_settings::PathKind::Unknown)
    };
    for (old, new) in renamed::KEYS {
        assert!(!is_known(old) && is_known(new), "{old} -> {new}");
    }
    assert!(renamed::VALUES.iter().all(|(key, _, _)| is_known(&key.replace('*', "x"))));
}

#[test]
fn bad_values_show_what_is_expected() {
    let lines = [
        "[plugins]\nenabled = \"yes\"\n",
        "[plugins]\nallow = \"mask\"\n",
        "[plugins]\nallow = [\"mask\", 3]\n",
        "[plugins]\non_engine_error = \"fallbak\"\n",
        "[plugins.slots]\ncontext_engine = [\"mask\", \"legacy\", \"mask\"]\n",
        "[plugins.slots]\ncontext_engine = [\"a\", \"b\", \"c\", \"d\", \"e\"]\n",
        "[plugins.slots]\nshadow = \"mask\"\n",
        "[plugins.slots]\nshadow = [\"mask\", \"mask\"]\n",
        "[plugins.slots]\nshadow = [\"a\", \"b\", \"c\", \"d\", \"e\"]\n",
        "[plugins.slots]\nshadow = [\"mask+mask\"]\n",
        "[plugins.slots]\nshadow = [\"window\", \"mask+\"]\n",
        "[plugins.slots]\nshadow = [\" \"]\n",
        "[plugins.slots]\ncontext_engine = \"+mask\"\n",
        "[plugins.slots]\ncontext_engine = \"mask+mask\"\n",
        "[plugins.slots]\ncontext_engine = \"./mine.so\"\n",
        "[plugins.slots]\ncontext_engine = [\"mask\", \"lib/mine.so\"]\nshadow = [\"/srv/mine\"]\n",
        "[plugins]\nslots = \"legacy\"\n",
        "[plugins.entries.legacy]\npath = \"mine.so\"\n",
        "[plugins.entries.mask]\nsha256 = \"abc\"\n",
        "[budget]\nreserve_tokens = -5\n",
        "[budget]\nreserve_tokens = 2e4\n",
        "[budget]\nsafety_margin = 0.5\n",
        "[budget]\nsafety_margin = nan\n",
        "[timeouts]\nassemble_ms = 0\n",
        "[model]\ndefault_window_tokens = 99999999999999999999\n",
        "[summariser]\nbase_url = \"localhost:1234\"\nmodel = \"m\"\n",
        "[timeouts]\ncompact_cap_ms = 1000\n",
        "[plugins.entries.mine]\npath = \"x.so\"\nisolation = \"inline\"\n",
        "[plugins.entries.mask]\nisolation = \"process\"\n",
    ];
    insta::assert_snapshot!(lines.map(line).join("\n"));
}

#[test]
fn contradicting_providers_and_summarisers() {
    const LOCAL: &str = "[providers.local]\ndialect = \"gemini\"\n";
    let lines = [
        "[providers.a]\nbase_url = \"http://x\"\n".to_owned(),
        "[providers.a]\ndialect = \"antropic\"\n".to_owned(),
        format!("{LOCAL}retry = 3\n"),
        format!("{LOCAL}compat = {{ stor = true }}\n"),
        format!("{LOCAL}headers = {{ a = 1 }}\n"),
        format!("{LOCAL}api_key_env = \"A\"\napi_key_command = [\"b\"]\n"),
        format!("{LOCAL}one_hour_cache = true\n"),
        format!("{LOCAL}context_editing = true\n"),
        format!("{LOCAL}overflow_phrases = [\"too long\", \"(\"]\n"),
        format!("{LOCAL}never_overflow_phrases = [\"[\"]\n"),
        "[summariser]\nmodel = \"m\"\nprovider = \"local\"\n".to_owned(),
        format!(
            "{LOCAL}[summariser]\nmodel = \"m\"\nprovider = \"local\"\nbase_url = \"http://x\"\n"
        ),
        format!("{LOCAL}[summariser]\nmodel = \"m\"\nprovider = \"local\"\napi_key_env = \"A\"\n"),
    ];
    insta::assert_snapshot!(lines.map(|text| line(&text)).join("\n"));
}

#[test]
fn toml_itself() {
    insta::assert_snapshot!(shown(&refusal("[budget]\nreserve_tokens = = 3\n")));
    insta::assert_snapshot!(line("[budget]\nsafety_margin = 1.1\nsafety_margin = 1.3\n"));
    insta::assert_snapshot!(line("[summariser]\nmodel = \"m\"\n"));
}

#[test]
fn all_errors_are_reported_in_the_order_of_the_file() {
    let text = "[budget]\nsafety = 1\n[zzz]\ninner = 2\n[timeouts]\ncompact_cap_ms = 1\n\
                [plugins]\nisolation = \"lane\"\nenabled = 3\n[plugins.slots]\n\
                shadow = [\"mask\", \"mask\"]\n[compaction]\ngate = [\"x >= 1\", \"paths > 1\"]\n";
    let error = refusal(text);
    let ConfigError::Invalid(first) = &error else { panic!("{error:?}") };
    let all = std::iter::once(&**first).chain(first.others());
    let lines: Vec<String> =
        all.map(|it| format!("{} {it}", it.location().unwrap_or_default())).collect();
    insta::assert_snapshot!(lines.join("\n"));
    let text = shown(&error);
    assert_eq!(text.matches("×").count(), lines.len(), "{text}");
}

#[test]
fn a_lacking_key_gives_no_second_error() {
    let text = "[providers.a]\ndialect = \"antropic\"\none_hour_cache = true\n\
                [summariser]\nmodel = \"m\"\nprovidr = \"a\"\n";
    let ConfigError::Invalid(first) = refusal(text) else { panic!("not a mistake") };
    assert_eq!(first.others().len(), 1, "{first:?}");
}

#[test]
fn several_errors_of_toml_itself() {
    let text = "[budget]\nreserve_tokens = = 3\nsafety_margin = 1.2\nx = \"open\n[model]\n";
    let ConfigError::Invalid(first) = refusal(text) else { panic!("not a mistake") };
    let lines: Vec<Option<String>> =
        std::iter::once(&*first).chain(first.others()).map(ConfigDiagnostic::location).collect();
    assert!(lines.contains(&Some("ctxhost.toml:2:18".into())), "{lines:?}");
    assert!(lines.iter().flatten().any(|it| it.starts_with("ctxhost.toml:4:")), "{lines:?}");
}

#[test]
fn a_rejected_engine_setting_is_shown_at_its_line() {
    let text = "[plugins.entries.legacy.config.pruning]\nmode = \"cache-tll\"\n";
    let config = parse(text);
    let error = |key| ConfigError::engine_setting(&config, "legacy", key, "no such mode");
    insta::assert_snapshot!(shown(&error("pruning.mode")));
    assert_eq!(error("pruning.ttl_ms").location(), Some("ctxhost.toml:1:32".into()));
    assert_eq!(error("").location(), Some("ctxhost.toml:1:25".into()));
    let elsewhere = ConfigError::engine_setting(&config, "mask", "keep", "too small");
    assert_eq!(elsewhere.location(), None);
}

#[test]
fn a_file_that_is_not_there() {
    let error = Config::load("no-such-folder/ctxhost.toml").expect_err("there is no such file");
    assert!(matches!(error, ConfigError::Unreadable { .. }));
    assert_eq!(error.to_string(), "could not read no-such-folder/ctxhost.toml");
}

#[test]
fn a_provider_without_a_dialect_lists_the_dialects() {
    let found = line("[agent]\nmodel = \"x/m\"\n[providers.x]\nbase_url = \"http://x/v1\"\n");
    assert!(found.starts_with("ctxhost.toml:3:12 [providers.x] has no dialect"), "{found}");
    for name in ["`openai`", "`anthropic`", "`gemini`", "`ollama`"] {
        assert!(found.contains(name), "{found}");
    }
}

#[test]
fn a_file_that_is_not_utf_8_names_line_and_byte() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ctxhost.toml");
    std::fs::write(&path, b"# caf\xc3\xa9\n# caf\xe9\n").unwrap();
    let error = Config::load(&path).unwrap_err();
    assert!(error.to_string().ends_with("line 2, byte 13 of the file (0xE9)"), "{error}");
    assert!(shown(&error).contains("UTF-8"), "{}", shown(&error));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Any text is parsed or rejected with a position, without a panic.
    #[test]
    fn no_text_panics_the_parser(text in "[\\[\\]a-z=.\"'#\\n 0-9{},äΩ-]{0,120}") {
        let _ = Config::parse("ctxhost.toml", &text).map_err(|error| shown(&error));
    }

    /// Any value of any setting is accepted, or rejected at its own line with a reason.
    #[test]
    fn a_bad_value_is_refused_at_its_line(
        index in 0..all_settings().len(),
        value in prop_oneof![
            Just("-1"), Just("0"), Just("\"\""), Just("true"), Just("[1]"), Just("{}"), Just("1.5"),
            Just("2026-01-02"), Just("inf"), Just("\"fallback\""),
        ],
    ) {
        let key = all_settings()[index].key.replace('*', "\"some.name\"");
        let text = format!("# first line\n{key} = {value}\n");
        if let Err(error) = Config::parse("f", &text)
            && let Some(location) = error.location()
        {
            prop_assert!(location.starts_with("f:2:") || key.starts_with("summariser") || key.starts_with("providers"), "{location}");
        }
    }
}

#[test]
fn what_a_start_would_refuse_is_refused_here() {
    let refused = [
        ("[gateway]\nlisten = \"127.0.0.1:99999\"\n", "2:1"),
        ("[gateway]\nlisten = \"8787\"\n", "2:1"),
        ("[gateway]\nhosts = [\"http://x/\"]\n", "2:1"),
        ("[gateway]\norigins = [\"not an origin\"]\n", "2:1"),
        ("[gateway]\norigins = [\"https://app.example/\"]\n", "2:1"),
        ("[store]\nkind = \"postgres\"\n", "2:1"),
        ("[store]\nkind = \"postgres\"\nurl = \"mysql://x\"\n", "3:1"),
    ];
    for (text, location) in refused {
        let found = line(text);
        assert!(found.contains(&format!(":{location} ")), "{found}");
    }
    for text in [
        "[gateway]\nlisten = \"[::1]:0\"\nhosts = [\"a.example:8787\"]\norigins = [\"http://[::1]:80\"]\n",
        "[store]\nkind = \"postgres\"\nurl_env = \"DATABASE_URL\"\n",
        "[store]\nkind = \"postgres\"\nurl = \"host=db user=ctxhost\"\n",
    ] {
        Config::parse("ctxhost.toml", text).expect(text);
    }
}

#[test]
fn a_key_in_the_place_of_a_variable_is_refused_and_not_shown() {
    let check = |text: &str, key: &str| {
        let shown = shown(&refusal(text));
        assert!(shown.contains("must be the name of an environment variable"), "{shown}");
        assert!(!shown.contains(key), "{shown}");
        assert!(shown.contains("window"), "the lines around it: {shown}");
    };
    for key in [
        "sk-proj-0123",
        "sk-ant-api03-AbC",
        "AIzaSyD4f5gH6jK7lM8nB9vC0xZ1aS2dF3gH4",
        "gsk_0a1b2c3d4e5f6g7h8i9j",
    ] {
        // Beside another error, whose lines would show it.
        for quote in ['"', '\''] {
            let text = format!(
                "[models.\"a/b\"]\nwindow_tokens = 0\n[providers.p]\ndialect = \"openai\"\napi_key_env = {quote}{key}{quote}\nheader = {{}}\n"
            );
            check(&text, key);
        }
    }
    for setting in ["gateway.token_env", "store.url_env"] {
        check(&format!("model.window_query_ms = 1\n{setting} = \"not a name\"\n"), "not a name");
    }
    for name in ["OPENAI_API_KEY", "openai_key", "_K2", "MY_KEY_FOR_THE_SECOND_ACCOUNT_2"] {
        Config::parse("ctxhost.toml", &format!("gateway.token_env = {name:?}")).unwrap();
    }
}

#[test]
fn a_key_is_shown_in_no_message_about_its_file() {
    let key = "sk-proj-0123456789abcdefghij";
    for line in [
        format!("api_key_env = {key}"),
        format!("api_key_env = \"{key}"),
        format!("api_key = \"{key}\""),
        format!("headers = {{ authorization = \"Bearer {key}\" }}\nmodel = 1"),
        "password = \"correct-horse\"".to_owned(),
    ] {
        let shown = shown(&refusal(&format!("[providers.p]\n{line}\n")));
        assert!(!shown.contains("0123") && !shown.contains("horse"), "{shown}");
        assert!(shown.contains("***") && shown.contains("[providers.p]"), "{shown}");
    }
}

#[test]
fn an_address_with_a_variable_is_refused() {
    let text = "[providers.p]\ndialect = \"openai\"\nbase_url = \"http://${HOST}/v1\"\n";
    assert!(line(text).contains("${NAME} is not replaced in it"), "{}", line(text));
}

#[test]
fn errors_of_engines_and_upstreams_are_shown_beside_others() {
    let text = "[plugins.entries.legacy.config]\nwindw = 3\nmode = 5\n[gateway]\nlisten = 8787\n\
                [gateway.models]\n\"gpt-*\" = \"nowhere\"\n\"o-*\" = { provider = \"x\" }\n\
                [models.\"openai/gpt-4o\"]\nwindow = 128000\n";
    let text = shown(&refusal(text));
    for part in [
        "engine `legacy` rejects its setting `windw`: unknown setting \"windw\"",
        "gateway.listen must be",
        "unknown provider `nowhere`",
        "gateway.models.\"o-*\" must be text",
        "write a name from [providers]",
        "unknown key `window`",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_provider_with_an_error_is_not_an_unknown_one() {
    let text = "[providers.near]\ndialect = 5\n[gateway.models]\n\"gpt-*\" = \"near\"\n";
    let text = shown(&refusal(text));
    assert!(text.contains("dialect must be") && !text.contains("unknown provider"), "{text}");
}
