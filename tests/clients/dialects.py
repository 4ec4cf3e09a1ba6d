"""The four dialects of model providers: what a request asks, and an answer, a stream and a refusal in return."""

import json
import random
import string
from dataclasses import dataclass, field

CHARS_PER_TOKEN = 3.5
# Fields that a provider does not count as prompt text: images, and text that only the provider itself can read.
UNCOUNTED = {"data", "signature", "encrypted_content", "thoughtSignature", "thought_signature", "metadata"}
_ids = random.Random(20261122)


@dataclass
class Request:
    """One request for an answer, as the model reads it."""

    model: str
    head: list  # tools and system prompt: they come before the conversation in the provider's cache
    items: list  # the conversation, item by item, as the client wrote it
    tools: dict  # name -> JSON schema of the arguments
    is_stream: bool
    max_output: int  # tokens; 0 where the client does not say
    last_text: str = ""  # the newest text of the user's side, behind the model's last answer
    has_new_results: bool = False  # whether tool results stand behind the model's last answer
    results: int = 0  # tool results in the conversation


@dataclass
class Answer:
    """What the model answers: a text, a call of one tool, or both."""

    text: str = ""
    call: tuple | None = None  # (tool name, arguments)
    prompt_tokens: int = 0
    call_id: str = field(default_factory=lambda: new_id("call_"))

    @property
    def output_tokens(self):
        return tokens_of(self.text) + (tokens_of(self.call[1]) if self.call else 0) + 1


def new_id(prefix, chars=24):
    return prefix + "".join(_ids.choices(string.ascii_letters + string.digits, k=chars))


def chars_of(value):
    """Characters of all texts of a JSON value that a provider counts."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list):
        return sum(map(chars_of, value))
    if isinstance(value, dict):
        return sum(chars_of(item) for key, item in value.items() if key not in UNCOUNTED)
    return 0


def tokens_of(value):
    return round(chars_of(value) / CHARS_PER_TOKEN)


def text_of(content):
    """The plain text of a message's content in any dialect; results of tools are not text of a person."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(filter(None, map(text_of, content)))
    if isinstance(content, dict) and content.get("type") != "tool_result":
        return content.get("text") or ""
    return ""


def sse(frames, named=False):
    lines = ((f"event: {frame['type']}\n" if named else "") + f"data: {json.dumps(frame)}\n\n" for frame in frames)
    return "".join(lines)


def pieces(text, size=400):
    return [text[at : at + size] for at in range(0, len(text), size)]


class Chat:
    """OpenAI chat completions."""

    dialect = "openai-completions"

    @staticmethod
    def is_answer(path):
        return path.endswith("/chat/completions")

    @staticmethod
    def parse(_path, body):
        messages = body.get("messages", [])
        systems = [m for m in messages if m["role"] in ("system", "developer")]
        items = [m for m in messages if m["role"] not in ("system", "developer")]
        functions = [tool["function"] for tool in body.get("tools") or [] if "function" in tool]
        request = Request(
            body.get("model", ""),
            [body.get("tools"), systems],
            items,
            {function["name"]: function.get("parameters") or {} for function in functions},
            bool(body.get("stream")),
            body.get("max_completion_tokens") or body.get("max_tokens") or 0,
        )
        after = items[last_index(items, lambda m: m["role"] == "assistant") + 1 :]
        request.has_new_results = any(m["role"] == "tool" for m in after)
        request.last_text = "\n".join(text_of(m.get("content")) for m in after if m["role"] == "user")
        request.results = sum(m["role"] == "tool" for m in items)
        return request

    @staticmethod
    def answer(request, answer, body):
        usage = {"prompt_tokens": answer.prompt_tokens, "completion_tokens": answer.output_tokens}
        usage["total_tokens"] = sum(usage.values())
        calls = None
        if answer.call:
            function = {"name": answer.call[0], "arguments": json.dumps(answer.call[1])}
            calls = [{"id": answer.call_id, "type": "function", "function": function}]
        finish = "tool_calls" if calls else "stop"
        shared = {"id": new_id("chatcmpl-"), "created": 1_790_000_000, "model": request.model}
        if not request.is_stream:
            message = {"role": "assistant", "content": answer.text or None}
            message |= {"tool_calls": calls} if calls else {}
            choice = {"index": 0, "message": message, "finish_reason": finish}
            return "application/json", json.dumps({**shared, "object": "chat.completion", "choices": [choice], "usage": usage})

        def chunk(delta, reason=None):
            choices = [{"index": 0, "delta": delta, "finish_reason": reason}]
            return {**shared, "object": "chat.completion.chunk", "choices": choices}

        frames = [chunk({"role": "assistant", "content": ""})]
        frames += [chunk({"content": piece}) for piece in pieces(answer.text)]
        frames += [chunk({"tool_calls": [{"index": 0, **call}]}) for call in calls or []]
        frames.append(chunk({}, finish))
        if (body.get("stream_options") or {}).get("include_usage"):
            frames.append({**shared, "object": "chat.completion.chunk", "choices": [], "usage": usage})
        return "text/event-stream", sse(frames) + "data: [DONE]\n\n"

    @staticmethod
    def refusal(prompt, window, _output):
        message = f"This model's maximum context length is {window} tokens. However, your messages resulted in {prompt} tokens."
        error = {"message": message, "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}
        return 400, {"error": error}


class Responses:
    """OpenAI Responses."""

    dialect = "openai-responses"

    @staticmethod
    def is_answer(path):
        return path.endswith("/responses")

    @staticmethod
    def parse(_path, body):
        items = body.get("input") or []
        items = [{"role": "user", "content": items}] if isinstance(items, str) else items
        tools = {}
        for tool in body.get("tools") or []:
            if tool.get("type") == "function":
                tools[tool["name"]] = tool.get("parameters") or {}
        systems = [item for item in items if item.get("role") in ("system", "developer")]
        items = [item for item in items if item.get("role") not in ("system", "developer")]
        request = Request(
            body.get("model", ""),
            [body.get("tools"), body.get("instructions"), systems],
            items,
            tools,
            bool(body.get("stream")),
            body.get("max_output_tokens") or 0,
        )
        by_model = ("function_call", "custom_tool_call", "reasoning", "local_shell_call")
        after = items[last_index(items, lambda i: i.get("role") == "assistant" or i.get("type") in by_model) + 1 :]
        request.has_new_results = any(str(i.get("type")).endswith("_call_output") for i in after)
        request.last_text = "\n".join(text_of(i.get("content")) for i in after if i.get("role") == "user")
        request.results = sum(str(i.get("type")).endswith("_call_output") for i in items)
        return request

    @staticmethod
    def answer(request, answer, _body):
        usage = {"input_tokens": answer.prompt_tokens, "output_tokens": answer.output_tokens}
        usage["total_tokens"] = sum(usage.values())
        usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        output = []
        if answer.text:
            part = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
            output.append({"id": new_id("msg_"), "type": "message", "role": "assistant", "status": "completed", "content": [part]})
        if answer.call:
            call = {"call_id": answer.call_id, "name": answer.call[0], "arguments": json.dumps(answer.call[1])}
            output.append({"id": new_id("fc_"), "type": "function_call", "status": "completed", **call})
        whole = {"id": new_id("resp_"), "object": "response", "created_at": 1_790_000_000, "status": "completed"}
        whole |= {"model": request.model, "output": output, "usage": usage, "error": None, "incomplete_details": None}
        whole |= {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "metadata": {}, "instructions": None}
        if not request.is_stream:
            return "application/json", json.dumps(whole)
        begun = {**whole, "status": "in_progress", "output": [], "usage": None}
        frames = [{"type": "response.created", "response": begun}, {"type": "response.in_progress", "response": begun}]
        for index, item in enumerate(output):
            place = {"output_index": index, "item_id": item["id"]}
            if item["type"] == "message":
                part = {**place, "content_index": 0}
                frames.append({"type": "response.output_item.added", "output_index": index, "item": {**item, "content": [], "status": "in_progress"}})
                frames.append({"type": "response.content_part.added", **part, "part": {"type": "output_text", "text": "", "annotations": []}})
                frames += [{"type": "response.output_text.delta", **part, "delta": piece, "logprobs": []} for piece in pieces(answer.text)]
                frames.append({"type": "response.output_text.done", **part, "text": answer.text, "logprobs": []})
                frames.append({"type": "response.content_part.done", **part, "part": item["content"][0]})
            else:
                frames.append({"type": "response.output_item.added", "output_index": index, "item": {**item, "arguments": "", "status": "in_progress"}})
                frames.append({"type": "response.function_call_arguments.delta", **place, "delta": item["arguments"]})
                frames.append({"type": "response.function_call_arguments.done", **place, "name": item["name"], "arguments": item["arguments"]})
            frames.append({"type": "response.output_item.done", "output_index": index, "item": item})
        frames.append({"type": "response.completed", "response": whole})
        for number, frame in enumerate(frames):
            frame["sequence_number"] = number
        return "text/event-stream", sse(frames, named=True)

    @staticmethod
    def refusal(_prompt, _window, _output):
        message = "Your input exceeds the context window of this model. Please adjust your input and try again."
        error = {"message": message, "type": "invalid_request_error", "param": "input", "code": "context_length_exceeded"}
        return 400, {"error": error}


class Anthropic:
    """Anthropic messages."""

    dialect = "anthropic-messages"

    @staticmethod
    def is_answer(path):
        return path.endswith("/messages")

    @staticmethod
    def parse(_path, body):
        items = body.get("messages", [])
        request = Request(
            body.get("model", ""),
            [body.get("tools"), body.get("system")],
            items,
            {tool["name"]: tool.get("input_schema") or {} for tool in body.get("tools") or []},
            bool(body.get("stream")),
            body.get("max_tokens") or 0,
        )

        def results(message):
            content = message.get("content")
            return sum(block.get("type") == "tool_result" for block in content) if isinstance(content, list) else 0

        after = items[last_index(items, lambda m: m["role"] == "assistant") + 1 :]
        request.has_new_results = any(map(results, after))
        request.last_text = "\n".join(text_of(m.get("content")) for m in after if m["role"] == "user")
        request.results = sum(map(results, items))
        return request

    @staticmethod
    def answer(request, answer, _body):
        content = [{"type": "text", "text": answer.text}] if answer.text else []
        if answer.call:
            content.append({"type": "tool_use", "id": answer.call_id, "name": answer.call[0], "input": answer.call[1]})
        stop = "tool_use" if answer.call else "end_turn"
        usage = {"input_tokens": answer.prompt_tokens, "output_tokens": answer.output_tokens}
        usage |= {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
        whole = {"id": new_id("msg_"), "type": "message", "role": "assistant", "model": request.model, "content": content}
        whole |= {"stop_reason": stop, "stop_sequence": None, "usage": usage}
        if not request.is_stream:
            return "application/json", json.dumps(whole)
        frames = [{"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}}]
        for index, block in enumerate(content):
            empty = {**block, "text": ""} if block["type"] == "text" else {**block, "input": {}}
            frames.append({"type": "content_block_start", "index": index, "content_block": empty})
            deltas = [{"type": "text_delta", "text": piece} for piece in pieces(block.get("text", ""))]
            if block["type"] == "tool_use":
                deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
            frames += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
            frames.append({"type": "content_block_stop", "index": index})
        frames.append({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage})
        frames.append({"type": "message_stop"})
        return "text/event-stream", sse(frames, named=True)

    @staticmethod
    def refusal(prompt, window, output):
        message = f"prompt is too long: {prompt} tokens > {window} maximum"
        if prompt <= window:
            message = f"input length and `max_tokens` exceed context limit: {prompt} + {output} > {window}, decrease input length or `max_tokens` and try again"
        return 400, {"type": "error", "error": {"type": "invalid_request_error", "message": message}, "request_id": new_id("req_")}


class Gemini:
    """Google's generative language API."""

    dialect = "google-generative-ai"

    @staticmethod
    def is_answer(path):
        return path.endswith((":generateContent", ":streamGenerateContent"))

    @staticmethod
    def parse(path, body):
        items = body.get("contents", [])
        items = [items] if isinstance(items, dict) else items
        tools = {}
        for tool in body.get("tools") or []:
            for function in tool.get("functionDeclarations") or []:
                tools[function["name"]] = function.get("parametersJsonSchema") or function.get("parameters") or {}
        request = Request(
            path.rsplit("/", 1)[-1].split(":")[0],
            [body.get("tools"), body.get("systemInstruction")],
            items,
            tools,
            "streamGenerateContent" in path,
            (body.get("generationConfig") or {}).get("maxOutputTokens") or 0,
        )

        def results(content):
            return sum("functionResponse" in part for part in content.get("parts") or [])

        after = items[last_index(items, lambda c: c.get("role") == "model") + 1 :]
        request.has_new_results = any(map(results, after))
        request.last_text = "\n".join(text_of(c.get("parts")) for c in after if c.get("role") == "user")
        request.results = sum(map(results, items))
        return request

    @staticmethod
    def answer(request, answer, _body):
        parts = [{"text": answer.text}] if answer.text else []
        if answer.call:
            parts.append({"functionCall": {"name": answer.call[0], "args": answer.call[1]}})
        usage = {"promptTokenCount": answer.prompt_tokens, "candidatesTokenCount": answer.output_tokens}
        usage["totalTokenCount"] = sum(usage.values())
        candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
        whole = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": request.model, "responseId": new_id("r")}
        if request.is_stream:
            return "text/event-stream", sse([whole])
        return "application/json", json.dumps(whole)

    @staticmethod
    def refusal(prompt, window, _output):
        message = f"The input token count ({prompt}) exceeds the maximum number of tokens allowed ({window})."
        return 400, {"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}


DIALECTS = {"chat": Chat, "responses": Responses, "anthropic": Anthropic, "gemini": Gemini}


def dialect_of(path):
    """The dialect of the request at a path; None where it asks for no answer."""
    plain = path.split("?")[0]
    return next((dialect for dialect in DIALECTS.values() if dialect.is_answer(plain)), None)


def last_index(items, is_wanted):
    return max((index for index, item in enumerate(items) if is_wanted(item)), default=-1)
