//! Links between answers beside calls and results, such as a tool that the provider runs and its later output.

use serde::{Deserialize, Serialize};

/// The links of an answer, in its JSON as `links`. Linked answers share a frame: no plan separates them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AnswerLinks {
    /// The ids under which later answers refer to this one. Ids of its calls are known without this.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<String>,
    /// The ids of calls and links of earlier answers without which this one is invalid.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refers_to: Vec<String>,
}

impl AnswerLinks {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty() && self.refers_to.is_empty()
    }

    /// The links in the JSON of an answer.
    pub(crate) fn parse(raw: &str) -> AnswerLinks {
        #[derive(Deserialize)]
        struct LinkedMessage {
            #[serde(default)]
            links: AnswerLinks,
        }
        // Nearly all answers have none, and this is cheaper than to parse them.
        if !raw.contains("\"links\":") {
            return AnswerLinks::default();
        }
        serde_json::from_str::<LinkedMessage>(raw).map(|message| message.links).unwrap_or_default()
    }
}
