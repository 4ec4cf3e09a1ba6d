"""The Anthropic SDK: ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY are all it knows."""

from anthropic import Anthropic

import conversation

client = Anthropic(max_retries=0)
tools = [
    {
        "name": conversation.TOOL["name"],
        "description": conversation.TOOL["description"],
        "input_schema": conversation.TOOL["parameters"],
    }
]
messages = []
requests = 0


def marked():
    """The messages with a mark for the provider's cache at the end, where clients put it."""
    last = dict(messages[-1])
    blocks = last["content"]
    if isinstance(blocks, str):
        blocks = [{"type": "text", "text": blocks}]
    blocks = [*blocks[:-1], {**blocks[-1], "cache_control": {"type": "ephemeral"}}]
    return [*messages[:-1], {**last, "content": blocks}]


def answer(is_streamed):
    """One answer of the model, as blocks."""
    kwargs = {
        "model": "scripted",
        "system": "You work on a project of parsers.",
        "messages": marked(),
        "tools": tools,
        "max_tokens": 2000,
    }
    if is_streamed:
        with client.messages.stream(**kwargs) as stream:
            message = stream.get_final_message()
    else:
        message = client.messages.create(**kwargs)
    return [block.model_dump(exclude_none=True) for block in message.content]


turns = 0
for turns, words, is_streamed in conversation.asks():
    messages.append({"role": "user", "content": words})
    for _ in range(conversation.MAX_CALLS):
        blocks = answer(is_streamed)
        requests += 1
        messages.append({"role": "assistant", "content": blocks})
        calls = [block for block in blocks if block["type"] == "tool_use"]
        if not calls:
            break
        results = [
            {"type": "tool_result", "tool_use_id": call["id"], "content": conversation.result_of(call["input"])}
            for call in calls
        ]
        messages.append({"role": "user", "content": results})
    else:
        # The agent has stopped the model: the results have an answer of nobody's, so it gives one.
        messages.append({"role": "assistant", "content": "Stopped."})
conversation.done(turns + 1, requests, messages)
