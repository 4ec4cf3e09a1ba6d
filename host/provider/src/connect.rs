//! From settings to a provider that can be asked.

use std::sync::Arc;

use secrecy::SecretString;

use super::client::ProviderClient;
use super::http::{ApiKey, HttpClient};
use super::settings::ProviderSettings;
use ctxhost_dialects::DialectName;
use ctxhost_dialects::anthropic::{Anthropic, ContextEditing};
use ctxhost_dialects::dialect::Dialect;
use ctxhost_dialects::gemini::Gemini;
use ctxhost_dialects::ollama::Ollama;
use ctxhost_dialects::openai_chat::{Compat, OpenAiChat};
use ctxhost_dialects::openai_responses::OpenAiResponses;

/// Why a provider cannot be reached as the settings say.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The variable that should hold the key is not set, or blank.
    #[error("the key for {provider} is missing: {variable} is not set")]
    KeyNotSet {
        /// The provider.
        provider: String,
        /// The variable.
        variable: String,
    },
    /// A key from two places.
    #[error("{provider} has api_key_env and api_key_command; keep one of them")]
    TwoKeys {
        /// The provider.
        provider: String,
    },
    /// A setting that cannot be used.
    #[error("{setting} of {provider} cannot be used: {problem}")]
    Setting {
        /// The provider.
        provider: String,
        /// The setting.
        setting: &'static str,
        /// Why not; never with its value, in which a key may stand.
        problem: String,
    },
}

/// A provider by its settings. Nothing is sent yet, and a key command has not run.
///
/// # Errors
///
/// [`ConnectError`].
pub fn connect(
    name: &str,
    settings: &ProviderSettings,
) -> Result<Arc<dyn ProviderClient>, ConnectError> {
    let dialect = create_dialect(settings);
    let key = resolve_key(name, settings)?;
    Ok(Arc::new(HttpClient::new(name, dialect, key, settings)?))
}

fn create_dialect(settings: &ProviderSettings) -> Box<dyn Dialect> {
    match settings.dialect {
        DialectName::OpenAiCompletions => {
            Box::new(OpenAiChat::new(Compat::new(&settings.compat, settings.base_url())))
        }
        DialectName::OpenAiResponses => Box::new(OpenAiResponses),
        DialectName::AnthropicMessages => Box::new(Anthropic {
            one_hour_cache: settings.one_hour_cache,
            context_editing: settings.context_editing.then(ContextEditing::default),
            ..Anthropic::default()
        }),
        DialectName::GoogleGenerativeAi => Box::new(Gemini),
        DialectName::Ollama => Box::new(Ollama),
    }
}

/// The key of a provider by its settings. A key command has not run yet.
///
/// # Errors
///
/// [`ConnectError`].
pub fn resolve_key(name: &str, settings: &ProviderSettings) -> Result<ApiKey, ConnectError> {
    let command = &settings.api_key_command;
    if !command.is_empty() {
        return match settings.api_key_env {
            Some(_) => Err(ConnectError::TwoKeys { provider: name.to_owned() }),
            None => Ok(ApiKey::from_command(command.clone())),
        };
    }
    let Some(variable) = settings.key_variable() else { return Ok(ApiKey::none()) };
    match std::env::var(variable) {
        Ok(key) if !key.trim().is_empty() => {
            Ok(ApiKey::from_secret(SecretString::from(key.trim())))
        }
        _ => Err(ConnectError::KeyNotSet {
            provider: name.to_owned(),
            variable: variable.to_owned(),
        }),
    }
}
