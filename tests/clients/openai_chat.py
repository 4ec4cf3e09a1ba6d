"""The OpenAI SDK over chat completions: OPENAI_BASE_URL and OPENAI_API_KEY are all it knows."""

import json

from openai import OpenAI

import conversation

client = OpenAI(max_retries=0)
tools = [{"type": "function", "function": conversation.TOOL}]
messages = [{"role": "system", "content": "You work on a project of parsers."}]
requests = 0


def answer(is_streamed):
    """One answer of the model, as a message."""
    kwargs = {"model": "scripted", "messages": messages, "tools": tools, "max_tokens": 2000}
    if not is_streamed:
        return client.chat.completions.create(**kwargs).choices[0].message.model_dump(exclude_none=True)
    content, calls = "", {}
    for chunk in client.chat.completions.create(stream=True, **kwargs):
        for choice in chunk.choices:
            content += choice.delta.content or ""
            for part in choice.delta.tool_calls or []:
                call = calls.setdefault(part.index, {"id": "", "name": "", "arguments": ""})
                call["id"] = part.id or call["id"]
                call["name"] += part.function.name or ""
                call["arguments"] += part.function.arguments or ""
    message = {"role": "assistant", "content": content or None}
    if calls:
        message["tool_calls"] = [
            {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
            for c in calls.values()
        ]
    return message


turns = 0
for turns, words, is_streamed in conversation.asks():
    messages.append({"role": "user", "content": words})
    for _ in range(conversation.MAX_CALLS):
        message = answer(is_streamed)
        requests += 1
        messages.append(message)
        calls = message.get("tool_calls") or []
        if not calls:
            break
        for call in calls:
            arguments = json.loads(call["function"]["arguments"])
            messages.append(
                {"role": "tool", "tool_call_id": call["id"], "content": conversation.result_of(arguments)}
            )
conversation.done(turns + 1, requests, messages)
