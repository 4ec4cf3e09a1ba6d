//! The tools of a request that take space in its prompt: those with `defer_loading` are loaded after a search only.

use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::optional::is_true;

/// The field of a tool that is loaded later.
const FIELD: &[u8] = b"\"defer_loading\"";

/// What a model sees of a tool before it has searched for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeferredTools {
    /// Nothing (Anthropic).
    Hidden,
    /// Its name and its description (OpenAI). Functions in a namespace are hidden behind those of the namespace.
    Named,
}

/// A tool, a server of tools, or a namespace.
#[derive(Deserialize)]
struct WireTool<'a> {
    #[serde(default, deserialize_with = "is_true")]
    defer_loading: bool,
    /// The settings of all tools of an MCP server (Anthropic).
    #[serde(borrow, default)]
    default_config: Option<&'a RawValue>,
    #[serde(borrow, default)]
    name: Option<&'a RawValue>,
    #[serde(borrow, default)]
    description: Option<&'a RawValue>,
    #[serde(borrow, default)]
    server_label: Option<&'a RawValue>,
    #[serde(borrow, default)]
    server_description: Option<&'a RawValue>,
    /// The functions of a namespace.
    #[serde(borrow, default)]
    tools: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WireToolConfig {
    #[serde(default, deserialize_with = "is_true")]
    defer_loading: bool,
}

impl<'a> WireTool<'a> {
    fn is_deferred(&self) -> bool {
        let config = self.default_config.map(|config| serde_json::from_str(config.get()));
        self.defer_loading
            || config.is_some_and(|config| {
                config.is_ok_and(|config: WireToolConfig| config.defer_loading)
            })
    }

    /// What describes it without its parameters.
    fn names(&self) -> impl Iterator<Item = &'a str> {
        let names = [self.name, self.description, self.server_label, self.server_description];
        names.into_iter().flatten().map(RawValue::get)
    }
}

/// The parts of `tools`, a list of tools, that are in the prompt. A list that cannot be read is one part.
pub(crate) fn loaded_tools(tools: &RawValue, deferred: DeferredTools) -> Vec<&str> {
    if !may_be_deferred(tools) {
        // One part, which is measured once for all requests that have it.
        return vec![tools.get()];
    }
    let Ok(list) = serde_json::from_str::<Vec<&RawValue>>(tools.get()) else {
        return vec![tools.get()];
    };
    list.into_iter().flat_map(|tool| loaded_parts(tool, deferred)).collect()
}

fn loaded_parts(tool: &RawValue, deferred: DeferredTools) -> Vec<&str> {
    if !may_be_deferred(tool) {
        return vec![tool.get()];
    }
    let Ok(wire) = serde_json::from_str::<WireTool<'_>>(tool.get()) else {
        return vec![tool.get()];
    };
    if wire.is_deferred() {
        return match deferred {
            DeferredTools::Hidden => Vec::new(),
            DeferredTools::Named => wire.names().collect(),
        };
    }
    let nested = wire.tools.filter(|nested| may_be_deferred(nested));
    match nested {
        Some(nested) => wire.names().chain(loaded_tools(nested, DeferredTools::Hidden)).collect(),
        // The word is in a text or a parameter, or it is `false`.
        None => vec![tool.get()],
    }
}

fn may_be_deferred(json: &RawValue) -> bool {
    memmem::find(json.get().as_bytes(), FIELD).is_some()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn loaded(tools: &Value, deferred: DeferredTools) -> Vec<String> {
        let raw = RawValue::from_string(tools.to_string()).unwrap();
        loaded_tools(&raw, deferred).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn tools_that_are_loaded_later_are_left_out() {
        let tool = |name: &str| json!({ "name": name, "description": "does", "input_schema": {} });
        let with = |mut tool: Value, field: &str, value: Value| {
            tool[field] = value;
            tool
        };
        let later = || with(tool("later"), "defer_loading", true.into());
        let now = with(tool("now"), "defer_loading", false.into());
        let text = with(tool("text"), "description", "set \"defer_loading\": true".into());
        let odd = with(tool("odd"), "defer_loading", "true".into());
        let toolset = json!({ "type": "mcp_toolset", "mcp_server_name": "s",
            "default_config": { "defer_loading": true } });
        let whole = json!({ "type": "mcp_toolset", "mcp_server_name": "s",
            "default_config": { "defer_loading": false } });
        let tools = json!([tool("a"), later(), now, text, odd, toolset, whole, later()]);
        let kept = [&tools[0], &tools[2], &tools[3], &tools[4], &tools[6]].map(Value::to_string);
        assert_eq!(loaded(&tools, DeferredTools::Hidden), kept);
        let none = json!([tool("a"), tool("b")]);
        assert_eq!(loaded(&none, DeferredTools::Hidden), [none.to_string()]);
        let not_a_list = json!({ "defer_loading": true });
        assert_eq!(loaded(&not_a_list, DeferredTools::Hidden), [not_a_list.to_string()]);
    }

    #[test]
    fn openai_shows_names_and_descriptions_of_what_is_searched() {
        let function = |name: &str, is_deferred: bool| {
            json!({ "type": "function", "name": name, "description": "does",
                "parameters": { "type": "object" }, "defer_loading": is_deferred })
        };
        let tools = json!([
            { "type": "tool_search" },
            function("later", true),
            { "type": "namespace", "name": "crm", "description": "customers",
              "tools": [function("find", true), function("list", false)] },
            { "type": "mcp", "server_label": "s", "server_description": "shop",
              "server_url": "https://mcp.invalid", "defer_loading": true },
        ]);
        let expected = [
            tools[0].to_string(),
            "\"later\"".to_owned(),
            "\"does\"".to_owned(),
            "\"crm\"".to_owned(),
            "\"customers\"".to_owned(),
            tools[2]["tools"][1].to_string(),
            "\"s\"".to_owned(),
            "\"shop\"".to_owned(),
        ];
        assert_eq!(loaded(&tools, DeferredTools::Named), expected);
    }
}
