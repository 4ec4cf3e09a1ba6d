"""Google's SDK: GOOGLE_GEMINI_BASE_URL and GEMINI_API_KEY are all it knows."""

from google import genai
from google.genai import types

import conversation

client = genai.Client()
tool = types.FunctionDeclaration(
    name=conversation.TOOL["name"],
    description=conversation.TOOL["description"],
    parameters_json_schema=conversation.TOOL["parameters"],
)
config = types.GenerateContentConfig(
    system_instruction="You work on a project of parsers.",
    tools=[types.Tool(function_declarations=[tool])],
    automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    max_output_tokens=2000,
)
contents = []
requests = 0


def answer(is_streamed):
    """One answer of the model, as parts."""
    kwargs = {"model": "scripted", "contents": contents, "config": config}
    if not is_streamed:
        return client.models.generate_content(**kwargs).candidates[0].content.parts
    parts = []
    for chunk in client.models.generate_content_stream(**kwargs):
        for candidate in chunk.candidates or []:
            parts.extend((candidate.content and candidate.content.parts) or [])
    return parts


turns = 0
for turns, words, is_streamed in conversation.asks():
    contents.append(types.Content(role="user", parts=[types.Part(text=words)]))
    for _ in range(conversation.MAX_CALLS):
        parts = answer(is_streamed)
        requests += 1
        contents.append(types.Content(role="model", parts=parts))
        calls = [part.function_call for part in parts if part.function_call]
        if not calls:
            break
        results = [
            types.Part(
                function_response=types.FunctionResponse(
                    id=call.id, name=call.name, response={"output": conversation.result_of(call.args or {})}
                )
            )
            for call in calls
        ]
        contents.append(types.Content(role="user", parts=results))
    else:
        contents.append(types.Content(role="model", parts=[types.Part(text="Stopped.")]))
said = [content.model_dump(mode="json", exclude_none=True) for content in contents]
conversation.done(turns + 1, requests, said)
