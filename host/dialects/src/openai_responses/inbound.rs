//! OpenAI's Responses API as clients speak it.
//!
//! An answer of the model is a run of items: reasoning, messages, calls. Each run is one entry.

mod compaction;
mod edit;
mod input;

pub use compaction::SUMMARY_MARK;

use std::borrow::Cow;

use ctxhost_engine_api::transcript::links::AnswerLinks;
use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::API;
use crate::inbound::{
    CompactedItem, DeferredTools, InboundDialect, InboundError, ItemCalls, ItemEdit, ItemGroup,
    LoweredBody, NamedCall, ParseContext, ParsedBody, ParsedCalls, ParsedEntry, ProviderEdits,
    StoredOverflow, SystemPlace, client_id, inline_image, invalid_request, is_true, linked_entry,
    links_of, list_span, loaded_tools, object_item, optional_count, optional_text, output_limit,
    parse_content, raw_fields, replace_spans, result_entry, session_id, span_of,
    split_instructions, user_entry,
};
use crate::json::{parse_object, parse_or_string, string, take, take_text, text, text_of};
use crate::message::{ChatBlock, ChatMessage, ToolCallBlock};
use input::InputField;

/// `POST /v1/responses` and `/v1/responses/compact`.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenAiResponsesInbound;

#[derive(Deserialize)]
struct ResponsesBody<'a> {
    #[serde(borrow, default)]
    prompt_cache_key: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "optional_text")]
    model: Cow<'a, str>,
    #[serde(default, deserialize_with = "is_true")]
    stream: bool,
    #[serde(default, deserialize_with = "optional_count")]
    max_output_tokens: Option<u64>,
    #[serde(borrow, default)]
    instructions: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tools: Option<&'a RawValue>,
    #[serde(borrow, default)]
    previous_response_id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    conversation: Option<&'a RawValue>,
    #[serde(borrow, default)]
    truncation: Option<&'a RawValue>,
    #[serde(borrow, default)]
    context_management: Option<&'a RawValue>,
    #[serde(borrow, default)]
    input: InputField<'a>,
}

/// The prompt with its bytes.
#[derive(Deserialize)]
struct PromptField<'a> {
    #[serde(borrow)]
    input: &'a RawValue,
}

impl ResponsesBody<'_> {
    /// Whether a part of the history is stored by the server, so that it cannot be shortened here.
    fn is_stored(&self) -> bool {
        self.stored_history().is_some() || has_stored_questions(&self.input.items)
    }

    /// What the provider may do to the prompt.
    fn provider_edits(&self) -> ProviderEdits {
        let edits = ProviderEdits::of_list(self.context_management);
        let truncates = self.truncation.is_some_and(|field| field.get() == "\"auto\"");
        ProviderEdits { may_shorten: edits.may_shorten || truncates, ..edits }
    }

    /// The field that names a stored history.
    fn stored_history(&self) -> Option<&RawValue> {
        let fields = [self.previous_response_id, self.conversation].into_iter().flatten();
        fields.into_iter().find(|field| field.get() != "\"\"")
    }

    /// The id of a stored history. A conversation is named by its id or by an object with that.
    fn history_id(&self) -> Option<String> {
        let field: Value = serde_json::from_str(self.stored_history()?.get()).ok()?;
        let id = field.get("id").unwrap_or(&field);
        id.as_str().map(str::to_owned)
    }
}

/// The kind of an item, by its type and role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ItemKind {
    /// A user message.
    User,
    /// A system or developer message.
    Instruction,
    /// Part of an answer.
    Answer,
    /// A tool result.
    Result,
    /// What the provider reads instead of the items before it, or the request for it. Never dropped.
    Compaction,
}

/// What the next item may continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ItemRun {
    /// Nothing.
    None,
    /// An answer.
    Answer {
        /// Whether it has an item by reference, which may be a call.
        has_reference: bool,
    },
    /// The results of calls that are references. They are part of the answer: nothing says which result is that of
    /// which call.
    Results,
}

impl ItemRun {
    fn continues_with(self, item: &Value, calls: &ParsedCalls<'_>) -> bool {
        match kind_of(item) {
            ItemKind::Answer => matches!(self, ItemRun::Answer { .. }),
            ItemKind::Result => {
                matches!(self, ItemRun::Answer { has_reference: true } | ItemRun::Results)
                    && calls.tool_of(&result_call_id(item)).is_none()
            }
            ItemKind::User | ItemKind::Instruction | ItemKind::Compaction => false,
        }
    }

    fn after(self, item: &Value, is_continued: bool) -> ItemRun {
        match kind_of(item) {
            ItemKind::Answer => {
                let before = matches!(self, ItemRun::Answer { has_reference: true });
                ItemRun::Answer { has_reference: before || is_reference(item) }
            }
            ItemKind::Result if is_continued => ItemRun::Results,
            _ => ItemRun::None,
        }
    }
}

impl InboundDialect for OpenAiResponsesInbound {
    fn system_place(&self) -> SystemPlace {
        SystemPlace::Field("instructions")
    }

    fn parse_body<'a>(&self, json: &'a str) -> Result<ParsedBody<'a>, InboundError> {
        let wire: ResponsesBody<'a> =
            serde_json::from_str(json).map_err(|error| invalid_request(&error, json))?;
        let provider_edits = wire.provider_edits();
        let input = if wire.is_stored() { Vec::new() } else { wire.input.items };
        let is_instruction = |item: &str| {
            parse_object(item).is_ok_and(|item| kind_of(&item) == ItemKind::Instruction)
        };
        let (leading, mut items) = split_instructions(&input, is_instruction);
        let rest = items.split_off(compaction::find_newest(&items).unwrap_or(0));
        let mut ignored_items = std::mem::replace(&mut items, rest);
        ignored_items.drain(..compaction::find_newest(&ignored_items).unwrap_or(0));
        let tools = wire.tools.map(|tools| loaded_tools(tools, DeferredTools::Named));
        Ok(ParsedBody {
            model: wire.model,
            is_stream: wire.stream,
            max_output_tokens: wire.max_output_tokens,
            window_tokens: None,
            session_hint: wire.prompt_cache_key.map(RawValue::get),
            prompt_parts: raw_fields([wire.instructions])
                .chain(tools.into_iter().flatten())
                .chain(leading)
                .chain(items.iter().copied().filter(|item| compaction::is_compaction_kind(item)))
                .collect(),
            provider_edits,
            ignored_items,
            items_span: list_span(json, &items),
            items,
        })
    }

    fn list_prompt(&self, json: &str) -> Option<String> {
        let wire: ResponsesBody<'_> = serde_json::from_str(json).ok()?;
        if wire.is_stored() {
            return None;
        }
        let PromptField { input } = serde_json::from_str(json).ok()?;
        let text = input.get();
        if !text.starts_with('"') || text == "\"\"" {
            return None;
        }
        let list = format!(r#"[{{"type":"message","role":"user","content":{text}}}]"#);
        replace_spans(json, vec![(span_of(json, text), list)])
    }

    fn parse_items(
        &self,
        items: &mut dyn Iterator<Item = Result<Value, InboundError>>,
        before: ParseContext<'_>,
    ) -> Result<Vec<ItemGroup>, InboundError> {
        let mut calls = ParsedCalls::new(before, read_calls);
        let mut groups: Vec<ItemGroup> = Vec::new();
        let mut is_start = before.is_start;
        let mut run = ItemRun::None;
        for (number, item) in items.enumerate() {
            let mut item = object_item(number, item)?;
            let kind = kind_of(&item);
            let position = before.items.len() + number;
            let continued = groups.last_mut().filter(|_| run.continues_with(&item, &calls));
            run = run.after(&item, continued.is_some());
            let entries = match kind {
                ItemKind::User => vec![user_entry(take_content(&mut item))],
                ItemKind::Instruction if is_start => Vec::new(),
                ItemKind::Instruction => vec![ParsedEntry::Instruction(instruction_text(&item))],
                ItemKind::Compaction => Vec::new(),
                ItemKind::Result if continued.is_none() => vec![parse_result(item, &mut calls)],
                ItemKind::Answer | ItemKind::Result => {
                    let links = approval_links(&item);
                    let blocks = parse_answer_item(item, position);
                    calls.add_answer(&blocks, position);
                    if let Some(group) = continued {
                        extend_answer(group, blocks, links);
                        continue;
                    }
                    vec![linked_entry(API, blocks, links)]
                }
            };
            is_start &= entries.is_empty();
            groups.push(ItemGroup::single(entries));
        }
        Ok(groups)
    }

    fn lower_output_limit(&self, json: &str, limit_tokens: u64) -> Option<LoweredBody> {
        output_limit::lower(json, &[&["max_output_tokens"]], limit_tokens)
    }

    fn edit_items(&self, items: &[&str], edits: &[ItemEdit<'_>]) -> Vec<Value> {
        edit::edit_items(items, edits)
    }

    fn user_item(&self, text: &str) -> Value {
        let content = [json!({ "type": "input_text", "text": text })];
        json!({ "type": "message", "role": "user", "content": content })
    }

    /// The same items that Codex adds for interrupted calls.
    fn assistant_item(&self, text: &str) -> Value {
        let content = [json!({ "type": "output_text", "text": text })];
        json!({ "type": "message", "role": "assistant", "content": content })
    }

    fn missing_result_item(
        &self,
        call_id: &str,
        _tool: &str,
        text: &str,
        call: Option<&str>,
    ) -> Option<Value> {
        let kind = match type_of(&parse_object(call?).ok()?) {
            "function_call" | "local_shell_call" => "function_call_output",
            "custom_tool_call" => "custom_tool_call_output",
            "mcp_approval_request" => {
                return Some(json!({
                    "type": "mcp_approval_response", "approval_request_id": call_id,
                    "approve": false, "reason": text,
                }));
            }
            "tool_search_call" => {
                return Some(json!({
                    "type": "tool_search_output", "call_id": client_id(call_id), "status": "completed",
                    "execution": "client", "tools": [],
                }));
            }
            _ => return None,
        };
        Some(json!({ "type": kind, "call_id": client_id(call_id), "output": text }))
    }

    fn split_compaction(&self, item: &str) -> Option<CompactedItem> {
        compaction::split_item(item)
    }

    fn stored_overflow(&self, json: &str) -> Option<StoredOverflow> {
        let wire: ResponsesBody<'_> = serde_json::from_str(json).ok()?;
        let fields = json.trim_start().strip_prefix('{')?;
        // A client that has set it gets what it asked for.
        let may_truncate = wire.truncation.is_none() && wire.is_stored();
        may_truncate.then(|| StoredOverflow::Resend {
            body: format!(r#"{{"truncation":"auto",{fields}"#),
            history: wire.history_id(),
        })
    }

    fn item_call_id(&self, item: &str, position: usize) -> Option<String> {
        answered_call_id(&parse_object(item).ok()?, position)
    }
}

/// The type of an item; messages may omit it.
fn type_of(item: &Value) -> &str {
    let given = item.get("type").and_then(Value::as_str);
    given.unwrap_or(if item.get("role").is_some() { "message" } else { "" })
}

/// The id of the call that an item makes or answers; `None` for tools that the provider runs.
///
/// A request to approve a call of an MCP server is a call, and the approval is its result.
fn call_id_of(item: &Value) -> Option<&str> {
    let field = match type_of(item) {
        "mcp_approval_request" => "id",
        "mcp_approval_response" => "approval_request_id",
        _ => "call_id",
    };
    Some(text(item, field)).filter(|id| !id.is_empty())
}

fn is_call(item: &Value) -> bool {
    let kind = type_of(item);
    kind.ends_with("_call") || kind == "mcp_approval_request"
}

/// The id in the session of a call that the client answers, which may have none of its own.
fn answered_call_id(item: &Value, position: usize) -> Option<String> {
    let has_call = is_call(item) && (call_id_of(item).is_some() || is_client_call(item));
    has_call.then(|| session_id(call_id_of(item).unwrap_or_default(), position, 0))
}

/// Whether the tool of a call is never the provider's.
fn is_client_call(item: &Value) -> bool {
    matches!(type_of(item), "function_call" | "custom_tool_call")
}

/// Whether a reference comes before the first question: what is asked may then be stored by the server as well.
fn has_stored_questions(input: &[&RawValue]) -> bool {
    // References are small. Larger items are not parsed only to find that out.
    const MAX_BYTES: usize = 1_024;
    let contains =
        |item: &str, word: &str| memmem::find(item.as_bytes(), word.as_bytes()).is_some();
    let may_be_reference = |item: &str| {
        item.len() <= MAX_BYTES && (contains(item, "item_reference") || !contains(item, "\"type\""))
    };
    let is = |item: &str, is: fn(&Value) -> bool| parse_object(item).is_ok_and(|item| is(&item));
    let mut items = input.iter().map(|item| item.get());
    let first_reference = items.position(|item| may_be_reference(item) && is(item, is_reference));
    first_reference.is_some_and(|at| {
        let is_user = |item: &Value| kind_of(item) == ItemKind::User;
        !input.iter().take(at).any(|item| is(item.get(), is_user))
    })
}

/// Whether an item is a reference to one stored by the server; it may omit its type.
fn is_reference(item: &Value) -> bool {
    match type_of(item) {
        "item_reference" => true,
        "" => item.get("id").is_some(),
        _ => false,
    }
}

fn kind_of(item: &Value) -> ItemKind {
    match (type_of(item), item.get("role").and_then(Value::as_str)) {
        ("message", Some("user")) => ItemKind::User,
        ("message", Some("assistant")) | ("reasoning", _) => ItemKind::Answer,
        ("message", _) | (_, Some("system" | "developer")) => ItemKind::Instruction,
        // The output of a search that the provider ran is part of the answer.
        ("tool_search_output", _) if call_id_of(item).is_none() => ItemKind::Answer,
        ("tool_search_output" | "mcp_approval_response", _) => ItemKind::Result,
        (other, _) if other.ends_with("_call_output") => ItemKind::Result,
        (other, _) if other.starts_with("compaction") => ItemKind::Compaction,
        // Calls, lists of tools, references to such items, and what newer models answer with.
        _ => ItemKind::Answer,
    }
}

fn take_content(item: &mut Value) -> Vec<ChatBlock> {
    parse_content(take(item, "content"), parse_part)
}

fn parse_part(mut part: Value) -> ChatBlock {
    if let Some(text) = take_text(&mut part, "text") {
        return ChatBlock::text(text);
    }
    let url = part.get("image_url").and_then(Value::as_str);
    url.and_then(inline_image).unwrap_or(ChatBlock::Other(part))
}

fn read_calls(item: Value, position: usize) -> ItemCalls {
    match kind_of(&item) {
        ItemKind::Answer => ItemCalls::of_answer(&parse_answer_item(item, position)),
        ItemKind::Result => ItemCalls::Results(vec![call_of_result(&item)]),
        ItemKind::User | ItemKind::Instruction | ItemKind::Compaction => ItemCalls::Other,
    }
}

/// What a result says of its call.
fn call_of_result(item: &Value) -> NamedCall {
    NamedCall { id: result_call_id(item), name: string(item, "name") }
}

/// A tool result. One of an unknown call becomes a note: a result entry without a call would be
/// dropped as an orphan.
fn parse_result(mut item: Value, calls: &mut ParsedCalls<'_>) -> ParsedEntry {
    let NamedCall { id, name } = call_of_result(&item);
    let Some(call) = calls.answered_by(&id, &name) else {
        return ParsedEntry::Note(output_text(&item));
    };
    let content = match item.get("output") {
        Some(Value::String(_) | Value::Array(_)) => {
            parse_content(take(&mut item, "output"), parse_part)
        }
        // A screenshot.
        Some(output) if output.get("image_url").is_some() => {
            vec![parse_part(take(&mut item, "output"))]
        }
        _ => vec![ChatBlock::text(output_text(&item))],
    };
    result_entry(call.id, call.name, content, false)
}

/// The id of the call that a result answers. The output of a local shell has it as `id`.
fn result_call_id(item: &Value) -> String {
    call_id_of(item).map_or_else(|| string(item, "id"), str::to_owned)
}

/// The output of a tool as text.
fn output_text(item: &Value) -> String {
    match item.get("output").or_else(|| item.get("tools")) {
        Some(output @ (Value::String(_) | Value::Array(_))) => {
            let text = text_of(Some(output));
            if text.is_empty() { output.to_string() } else { text }
        }
        Some(other) => other.to_string(),
        None if type_of(item) == "mcp_approval_response" => approval_text(item),
        None => String::new(),
    }
}

fn approval_text(item: &Value) -> String {
    let decision =
        if item.get("approve") == Some(&Value::Bool(true)) { "approved" } else { "denied" };
    match text(item, "reason") {
        "" => decision.to_owned(),
        reason => format!("{decision}: {reason}"),
    }
}

/// The text of an instruction in mid-conversation; its JSON if it has another form.
fn instruction_text(item: &Value) -> String {
    let text = text_of(item.get("content"));
    if text.is_empty() { item.to_string() } else { text }
}

fn parse_answer_item(mut item: Value, position: usize) -> Vec<ChatBlock> {
    if type_of(&item) == "message" {
        return take_content(&mut item);
    }
    match answered_call_id(&item, position) {
        Some(id) => vec![ChatBlock::ToolCall(parse_call(&item, id))],
        // No result follows what the provider's own tools did, so it is not a call here.
        None => vec![ChatBlock::ProviderItem { api: API.into(), item }],
    }
}

fn parse_call(item: &Value, id: String) -> ToolCallBlock {
    let fields = ["arguments", "input", "action", "operation"];
    let arguments = match fields.into_iter().find_map(|field| item.get(field)) {
        Some(Value::String(text)) => parse_or_string(text.clone()),
        other => other.cloned().unwrap_or_default(),
    };
    let name = Some(text(item, "name")).filter(|name| !name.is_empty());
    let name = name.unwrap_or_else(|| type_of(item)).to_owned();
    ToolCallBlock::new(id, name, arguments)
}

/// The link from a call of an MCP server to the answer that asked for its approval.
fn approval_links(item: &Value) -> AnswerLinks {
    let approval = item.get("approval_request_id").and_then(Value::as_str);
    links_of([(None, approval)].into_iter())
}

fn extend_answer(group: &mut ItemGroup, blocks: Vec<ChatBlock>, links: AnswerLinks) {
    group.item_count += 1;
    if let Some(ParsedEntry::Message(ChatMessage::Assistant(answer))) = group.entries.last_mut() {
        answer.content.extend(blocks);
        answer.links.refers_to.extend(links.refers_to);
    }
}
