//! `[providers]` and `[summariser]`.

use serde::{Deserialize, Serialize};

use super::all_settings::quote_list;
use super::embedder::check_embedder;
use super::error::ConfigDiagnostic;
use super::spans::TomlValueKind;
use super::{Config, ConfigSource, spans};
use ctxhost_dialects::failure::ExtraPhrase;
use ctxhost_dialects::{DialectName, FailureReason};
use ctxhost_provider::ProviderSettings;

/// Name of the provider behind a `[summariser]` with its own address.
const SUMMARISER: &str = "summariser";

ctxhost_engine_api::settings! {
    /// `[summariser]`: the model for `Host::complete`.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct SummariserSettings required {
        /// Name from [providers] whose model writes summaries; instead of base_url.
        #[serde(default)]
        pub provider: Option<String> = None, Text;
        /// Base URL of an OpenAI-compatible API, up to and including /v1; instead of provider.
        #[serde(default)]
        pub base_url: Option<String> = None, Url;
        /// Model name at that provider; a small one is enough.
        pub model: String, Text;
        /// Environment variable with the key, so that no key is in a file; unset for local servers.
        #[serde(default)]
        pub api_key_env: Option<String> = None, Variable;
        /// Limit of one answer; after it the extractive summary is used.
        #[serde(default = "default::timeout_ms")]
        pub timeout_ms: u64 = 60_000, Whole(1), "ms";
        /// Longest answer; fits a summary of 16,000 characters with headings.
        #[serde(default = "default::max_output_tokens")]
        pub max_output_tokens: u64 = 4_096, Whole(1), "provider tokens";
    }
}

impl Config {
    /// The environment variables that hold secrets of this config: keys of models, the token of the gateway, and the
    /// address of the database, which has its password.
    pub fn secret_variables(&self) -> impl Iterator<Item = &str> {
        let providers = self.providers.values().filter_map(ProviderSettings::key_variable);
        let summariser =
            self.summariser.iter().filter_map(|settings| settings.api_key_env.as_deref());
        let others = [self.embedder.api_key_env.as_deref(), self.store.url_env.as_deref()];
        let others = others.into_iter().flatten().chain([self.gateway.token_env.as_str()]);
        providers.chain(summariser).chain(others)
    }

    /// The settings of a provider.
    pub fn provider(&self, name: &str) -> Option<&ProviderSettings> {
        self.providers.get(name)
    }

    /// The provider for summaries, with its name; `None` if summaries are extracted offline.
    pub fn summariser_provider(&self) -> Option<(String, ProviderSettings)> {
        let summariser = self.summariser.as_ref()?;
        if let Some(name) = &summariser.provider {
            return self.provider(name).map(|settings| (name.clone(), settings.clone()));
        }
        let settings = ProviderSettings {
            base_url: summariser.base_url.clone(),
            api_key_env: summariser.api_key_env.clone(),
            // The caller retries by itself and has the offline summary as a fallback.
            retries: 0,
            ..ProviderSettings::new(DialectName::OpenAiCompletions)
        };
        Some((SUMMARISER.to_owned(), settings))
    }
}

/// Checks rules that involve two settings.
pub(super) fn check_providers(config: &Config, found: &mut Vec<ConfigDiagnostic>) {
    for (name, settings) in &config.providers {
        found.extend(check_anthropic_only(config, name, settings));
        found.extend(check_phrases(config, name, settings));
        // Which one wins would be a guess, and the wrong key may cost money.
        if settings.api_key_env.is_some() && !settings.api_key_command.is_empty() {
            let key = spans::join_path(&["providers", name, "api_key_command"]);
            let message = format!("provider `{name}` sets both api_key_env and api_key_command");
            found.push(ConfigDiagnostic::conflict(config, &[&key], message, "keep one of them"));
        }
    }
    found.extend(check_summariser(config));
    found.extend(check_embedder(config));
}

/// Checks that every provider has a dialect: the error of serde lists none.
pub(super) fn check_dialects(origin: &ConfigSource) -> Vec<ConfigDiagnostic> {
    let mut found = Vec::new();
    for span in origin.spans.iter() {
        let [table, name] = span.path.as_slice() else { continue };
        let dialect = [table.as_str(), name, "dialect"];
        let is_provider = table == "providers" && span.value == TomlValueKind::Table;
        if !is_provider || origin.spans.find(&dialect).is_some() {
            continue;
        }
        let table = spans::join_path(&span.path);
        let message = format!("[{table}] has no dialect, the form of its API");
        let error = ConfigDiagnostic::new(&origin.name, &origin.text, message);
        let names = quote_list(DialectName::NAMES);
        let help = format!("add a line dialect = \"…\" with one of {names}");
        found.push(error.with_key_label(span, "in this table").with_help(help));
    }
    found
}

/// Checks settings that only the Anthropic dialect supports.
fn check_anthropic_only(
    config: &Config,
    name: &str,
    settings: &ProviderSettings,
) -> Vec<ConfigDiagnostic> {
    let options = [
        ("one_hour_cache", settings.one_hour_cache),
        ("context_editing", settings.context_editing),
    ];
    let is_other = settings.dialect != DialectName::AnthropicMessages;
    let used = options.into_iter().filter(|(_, is_set)| *is_set && is_other);
    used.map(|(setting, _)| {
        let key = spans::join_path(&["providers", name, setting]);
        let message =
            format!("{setting} needs dialect anthropic-messages, which `{name}` does not use");
        ConfigDiagnostic::conflict(config, &[&key], message, "remove it")
    })
    .collect()
}

fn check_phrases(
    config: &Config,
    name: &str,
    settings: &ProviderSettings,
) -> Vec<ConfigDiagnostic> {
    let error = |phrase: ExtraPhrase| {
        let bad = phrase.validate().err()?;
        let setting = match phrase.reason {
            FailureReason::ContextOverflow => "overflow_phrases",
            _ => "never_overflow_phrases",
        };
        let key = spans::join_path(&["providers", name, setting]);
        let message = format!("`{}` is not a regular expression", bad.pattern);
        let help = "escape ( ) [ ] . * + ? with a backslash";
        Some(ConfigDiagnostic::conflict(config, &[&key], message, help))
    };
    settings.phrases().into_iter().filter_map(error).collect()
}

fn check_summariser(config: &Config) -> Option<ConfigDiagnostic> {
    let summariser = config.summariser.as_ref()?;
    let fail = |keys: &[&str], message: &str, help: &str| {
        Some(ConfigDiagnostic::conflict(config, keys, message.to_owned(), help))
    };
    match (&summariser.provider, &summariser.base_url) {
        (None, None) => fail(
            &["summariser"],
            "[summariser] needs provider or base_url",
            "write provider = \"<a table of [providers]>\", or base_url",
        ),
        (Some(_), Some(_)) => fail(
            &["summariser.base_url"],
            "[summariser] sets both provider and base_url",
            "keep one of them",
        ),
        // The key would be ignored, because the provider brings its own.
        (Some(_), None) if summariser.api_key_env.is_some() => fail(
            &["summariser.api_key_env"],
            "the key belongs in the table of the provider",
            "move api_key_env there",
        ),
        (Some(name), None) if config.provider(name).is_none() => {
            let message = format!("unknown provider `{name}`");
            let help =
                format!("start one with a line [{}]", spans::join_path(&["providers", name]));
            fail(&["summariser.provider"], &message, &help)
        }
        _ => None,
    }
}
