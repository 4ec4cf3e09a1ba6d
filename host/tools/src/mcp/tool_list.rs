//! Reads the tool list of a server, without the tools that are not valid.

use rmcp::model::{ListToolsResult, Tool as RemoteTool};
use serde_json::{Map, Value};

/// A tool as its server describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedTool {
    /// The server's name for it.
    pub name: String,
    /// The description.
    pub description: String,
    /// The schema of its arguments.
    pub input_schema: Value,
}

impl ListedTool {
    pub(super) fn size_bytes(&self) -> usize {
        self.name.len() + self.description.len() + self.input_schema.to_string().len()
    }
}

/// A page of a tool list.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ToolPage {
    pub(super) tools: Vec<ListedTool>,
    pub(super) next_cursor: Option<String>,
    /// What is wrong with the other tools, each with its name and field.
    pub(super) faults: Vec<String>,
}

impl From<ListToolsResult> for ToolPage {
    fn from(page: ListToolsResult) -> ToolPage {
        let ListToolsResult { tools, next_cursor, .. } = page;
        ToolPage { tools: tools.into_iter().map(listed).collect(), next_cursor, faults: Vec::new() }
    }
}

fn listed(tool: RemoteTool) -> ListedTool {
    let title = tool.title.map(Into::into);
    ListedTool {
        name: tool.name.into_owned(),
        description: tool.description.or(title).unwrap_or_default().into_owned(),
        input_schema: Value::Object(Map::clone(&tool.input_schema)),
    }
}

/// Reads a page that the SDK could not read as a whole. `None` if it is not a tool list.
pub(super) fn read_page(page: &Value) -> Option<ToolPage> {
    let mut read = ToolPage::default();
    for (index, tool) in page.get("tools")?.as_array()?.iter().enumerate() {
        match read_tool(index, tool) {
            Ok(tool) => read.tools.push(tool),
            Err(fault) => read.faults.push(fault),
        }
    }
    read.next_cursor = page.get("nextCursor").and_then(Value::as_str).map(str::to_owned);
    Some(read)
}

/// Reads the fields that are used here. Faults in other fields, such as annotations, do no harm.
fn read_tool(index: usize, tool: &Value) -> Result<ListedTool, String> {
    let Some(name) = tool.get("name").and_then(Value::as_str) else {
        let found = kind(tool.get("name"));
        return Err(format!("tool {} of the list: `name` is {found}, not a string", index + 1));
    };
    let fault = |field: &str, expected: &str| {
        format!("tool `{name}`: `{field}` is {}, not {expected}", kind(tool.get(field)))
    };
    let text = |field: &str| match tool.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(fault(field, "a string")),
    };
    let input_schema = tool.get("inputSchema").filter(|schema| schema.is_object());
    let input_schema = input_schema.ok_or_else(|| fault("inputSchema", "an object"))?.clone();
    let description = text("description")?.or(text("title")?).unwrap_or_default();
    Ok(ListedTool { name: name.to_owned(), description, input_schema })
}

fn kind(value: Option<&Value>) -> &'static str {
    match value {
        None => "missing",
        Some(Value::Null) => "null",
        Some(Value::Bool(_)) => "a boolean",
        Some(Value::Number(_)) => "a number",
        Some(Value::String(_)) => "a string",
        Some(Value::Array(_)) => "a list",
        Some(Value::Object(_)) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tools_that_are_not_valid_are_left_out_with_their_field() {
        let page = json!({"nextCursor": "2", "tools": [
            {"name": "good", "title": "Good", "inputSchema": {"type": "object"}},
            {"name": "hint", "inputSchema": {}, "annotations": {"readOnlyHint": "yes"}},
            {"name": "none"},
            {"name": "null", "inputSchema": null},
            {"name": "true", "inputSchema": true},
            {"name": "text", "inputSchema": {}, "description": ["a"]},
            {"inputSchema": {}},
        ]});
        let read = read_page(&page).unwrap();
        let names = read.tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>();
        assert_eq!(names, ["good", "hint"]);
        assert_eq!(read.tools[0].description, "Good");
        assert_eq!(
            read.faults,
            [
                "tool `none`: `inputSchema` is missing, not an object",
                "tool `null`: `inputSchema` is null, not an object",
                "tool `true`: `inputSchema` is a boolean, not an object",
                "tool `text`: `description` is a list, not a string",
                "tool 7 of the list: `name` is missing, not a string",
            ]
        );
        assert_eq!(read.next_cursor.as_deref(), Some("2"));
        assert_eq!(read_page(&json!({"tools": {}})), None);
    }
}
