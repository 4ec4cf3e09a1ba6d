//! OpenAI's chat completions (`openai-completions`) and compatible servers.
//!
//! | rule | where |
//! |---|---|
//! | O-1 … O-3 | the invariants and `cross_model`; this folder keeps the order and puts images
//! after results |
//! | O-4, O-5, O-8, O-9 | `request/messages` |
//! | O-6, O-7, O-10, O-11 | `request` |
//! | user and assistant alternate (templates of Gemma, Mistral, Llama 2) | `alternation` |

mod alternation;
mod compat;
pub(crate) mod errors;
mod inbound;
mod request;
mod stream;
pub(crate) mod usage;

use serde_json::Value;

pub use compat::{Compat, CompatSettings, MaxTokensField};
pub use inbound::OpenAiChatInbound;
pub(crate) use inbound::detached_result;

use crate::dialect::{Decoder, Dialect};
use crate::request::ModelRequest;

/// The dialect's name in sessions.
pub const API: &str = "openai-completions";

/// The dialect with the options of one server.
#[derive(Clone, Debug, Default)]
pub struct OpenAiChat {
    compat: Compat,
}

impl OpenAiChat {
    /// The dialect for a server with these options.
    pub fn new(compat: Compat) -> OpenAiChat {
        OpenAiChat { compat }
    }
}

impl Dialect for OpenAiChat {
    fn api(&self) -> &'static str {
        API
    }

    fn path(&self, _request: &ModelRequest) -> String {
        "/chat/completions".to_owned()
    }

    fn window_query(&self, _model: &str) -> Option<(String, Option<Value>)> {
        Some(("/models".to_owned(), None))
    }

    fn encode(&self, request: &ModelRequest) -> Value {
        request::request_body(request, &self.compat)
    }

    fn new_decoder(&self) -> Box<dyn Decoder> {
        Box::new(stream::ChatDecoder::default())
    }
}

#[cfg(test)]
mod tests;
