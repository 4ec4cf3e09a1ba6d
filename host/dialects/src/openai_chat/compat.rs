//! Options of compatible servers: the configured value, else that of the known host, else the usual
//! one.

use serde::{Deserialize, Serialize};

ctxhost_engine_api::settings! {
    /// Options of a server in the config. Unset options follow from its address.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct CompatSettings {
        /// The field that limits an answer; unset, that of the known host, else by_model: reasoning
        /// models refuse max_tokens.
        pub max_tokens_field: Option<MaxTokensField> = None,
            Word(&["by_model", "max_tokens", "max_completion_tokens"]);
        /// Whether the system prompt has the role `developer`; unset, no: every server accepts
        /// `system`.
        pub developer_role: Option<bool> = None, Flag;
        /// Whether `store: false` is sent; unset, only to OpenAI.
        pub store: Option<bool> = None, Flag;
        /// Whether usage is requested with `stream_options`; unset, yes, except from Mistral, which
        /// always sends it.
        pub stream_usage: Option<bool> = None, Flag;
        /// Whether `reasoning_effort` is sent with a thinking level; unset, yes, except to Mistral,
        /// which refuses it.
        pub reasoning_effort: Option<bool> = None, Flag;
        /// Whether a model's thinking is sent back to it; unset, only to DeepSeek, which refuses
        /// calls without it.
        pub reasoning_content: Option<bool> = None, Flag;
        /// Whether a session's prompt cache key is sent; unset, only to OpenAI.
        pub prompt_cache_key: Option<bool> = None, Flag;
        /// Whether results carry their tool's name; unset, only for Mistral.
        pub tool_result_name: Option<bool> = None, Flag;
        /// Whether a short assistant message separates results from the next user message; unset,
        /// only for Mistral.
        pub assistant_after_results: Option<bool> = None, Flag;
        /// Whether tools that occur only in the history are declared and forbidden; unset, no.
        pub tools_with_history: Option<bool> = None, Flag;
        /// Whether call ids have nine letters and digits; unset, only for Mistral.
        pub nine_char_ids: Option<bool> = None, Flag;
    }
}

/// The field that limits the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MaxTokensField {
    /// `max_completion_tokens` for known reasoning models, `max_tokens` for all others.
    #[default]
    ByModel,
    /// `max_tokens`, supported by most servers.
    MaxTokens,
    /// `max_completion_tokens`, required by OpenAI.
    MaxCompletionTokens,
}

/// The options of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compat {
    pub(super) max_tokens_field: MaxTokensField,
    pub(super) developer_role: bool,
    pub(super) store: bool,
    pub(super) stream_usage: bool,
    pub(super) reasoning_effort: bool,
    pub(super) reasoning_content: bool,
    pub(super) prompt_cache_key: bool,
    pub(super) tool_result_name: bool,
    pub(super) assistant_after_results: bool,
    pub(super) tools_with_history: bool,
    pub(super) nine_char_ids: bool,
}

impl Default for Compat {
    /// What most servers accept.
    fn default() -> Compat {
        Compat {
            max_tokens_field: MaxTokensField::ByModel,
            developer_role: false,
            store: false,
            stream_usage: true,
            reasoning_effort: true,
            reasoning_content: false,
            prompt_cache_key: false,
            tool_result_name: false,
            assistant_after_results: false,
            tools_with_history: false,
            nine_char_ids: false,
        }
    }
}

impl Compat {
    /// The configured options, completed by those of the known host.
    pub fn new(settings: &CompatSettings, base_url: &str) -> Compat {
        let known = Compat::for_host(base_url);
        let or = |set: Option<bool>, known: bool| set.unwrap_or(known);
        Compat {
            max_tokens_field: settings.max_tokens_field.unwrap_or(known.max_tokens_field),
            developer_role: or(settings.developer_role, known.developer_role),
            store: or(settings.store, known.store),
            stream_usage: or(settings.stream_usage, known.stream_usage),
            reasoning_effort: or(settings.reasoning_effort, known.reasoning_effort),
            reasoning_content: or(settings.reasoning_content, known.reasoning_content),
            prompt_cache_key: or(settings.prompt_cache_key, known.prompt_cache_key),
            tool_result_name: or(settings.tool_result_name, known.tool_result_name),
            assistant_after_results: or(
                settings.assistant_after_results,
                known.assistant_after_results,
            ),
            tools_with_history: or(settings.tools_with_history, known.tools_with_history),
            nine_char_ids: or(settings.nine_char_ids, known.nine_char_ids),
        }
    }

    fn for_host(base_url: &str) -> Compat {
        let host = url::Url::parse(base_url).ok();
        let host = host.as_ref().and_then(|url| url.host_str()).unwrap_or_default();
        let compat = Compat::default();
        match host {
            "api.openai.com" => Compat {
                max_tokens_field: MaxTokensField::MaxCompletionTokens,
                // `true` sends `store: false`, which keeps OpenAI from storing the conversation.
                store: true,
                prompt_cache_key: true,
                ..compat
            },
            // Mistral refuses fields that it does not know, and sends usage unasked.
            "api.mistral.ai" => Compat {
                max_tokens_field: MaxTokensField::MaxTokens,
                stream_usage: false,
                reasoning_effort: false,
                tool_result_name: true,
                assistant_after_results: true,
                nine_char_ids: true,
                ..compat
            },
            // DeepSeek refuses calls in the history without their thinking.
            "api.deepseek.com" => Compat { reasoning_content: true, ..compat },
            _ => compat,
        }
    }
}
