//! Creates providers from settings.

use std::sync::Arc;

use secrecy::SecretString;

use super::client::ProviderClient;
use super::http::{ApiKey, HttpClient};
use super::settings::{ConnectError, ProviderSettings};
use ctxhost_dialects::DialectName;
use ctxhost_dialects::anthropic::{Anthropic, ContextEditing};
use ctxhost_dialects::dialect::Dialect;
use ctxhost_dialects::gemini::Gemini;
use ctxhost_dialects::ollama::Ollama;
use ctxhost_dialects::openai_chat::{Compat, OpenAiChat};
use ctxhost_dialects::openai_responses::OpenAiResponses;

/// A provider. Nothing is sent yet, and no key command has run.
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

/// The key of a provider. No key command has run yet.
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
        // Keys pasted into files end with a line break, which no header may hold.
        Ok(key) if !key.trim().is_empty() => {
            Ok(ApiKey::from_variable(SecretString::from(key.trim()), variable))
        }
        _ => Err(ConnectError::KeyNotSet {
            provider: name.to_owned(),
            variable: variable.to_owned(),
        }),
    }
}
