"""The OpenAI SDK over responses: OPENAI_BASE_URL and OPENAI_API_KEY are all it knows."""

import json

from openai import OpenAI

import conversation

client = OpenAI(max_retries=0)
tools = [{"type": "function", "strict": False, **conversation.TOOL}]
items = []
requests = 0


def answer(is_streamed):
    """One answer of the model, as items."""
    kwargs = {
        "model": "scripted",
        "instructions": "You work on a project of parsers.",
        "input": items,
        "tools": tools,
        "max_output_tokens": 2000,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    if is_streamed:
        with client.responses.stream(**kwargs) as stream:
            response = stream.get_final_response()
    else:
        response = client.responses.create(**kwargs)
    keep = {"id", "type", "role", "content", "name", "call_id", "arguments", "summary", "encrypted_content"}
    return [
        {key: value for key, value in item.model_dump(exclude_none=True).items() if key in keep}
        for item in response.output
    ]


turns = 0
for turns, words, is_streamed in conversation.asks():
    items.append({"role": "user", "content": words})
    for _ in range(conversation.MAX_CALLS):
        output = answer(is_streamed)
        requests += 1
        items.extend(output)
        calls = [item for item in output if item["type"] == "function_call"]
        if not calls:
            break
        for call in calls:
            result = conversation.result_of(json.loads(call["arguments"]))
            items.append({"type": "function_call_output", "call_id": call["call_id"], "output": result})
conversation.done(turns + 1, requests, items)
