"""A long conversation with a model through the official SDK, configured by OPENAI_BASE_URL and OPENAI_API_KEY."""

from openai import OpenAI

TURNS = 80
LINES_PER_TURN = 770
# An estimate, used for the printed figures only.
CHARS_PER_TOKEN = 4

client = OpenAI()
messages = [{"role": "system", "content": "You read the log of a building site and answer in one sentence."}]
longest = 0


def page(turn):
    """One page of a log with distinct lines."""
    lines = (f"{turn:02}:{line:03} crane {line % 7} lifted {turn * line % 900} kg to floor {line % 40}." for line in range(LINES_PER_TURN))
    return "\n".join(lines)


def sent_tokens():
    return sum(len(message["content"]) for message in messages) // CHARS_PER_TOKEN


for turn in range(TURNS):
    messages.append({"role": "user", "content": f"Page {turn} of the log:\n{page(turn)}\nWhat stands out?"})
    answer, read_tokens = "", 0
    options = {"stream": True, "stream_options": {"include_usage": True}, "max_tokens": 1000}
    for chunk in client.chat.completions.create(model="scripted", messages=messages, **options):
        for choice in chunk.choices:
            answer += choice.delta.content or ""
        if chunk.usage:
            read_tokens = chunk.usage.prompt_tokens
    messages.append({"role": "assistant", "content": answer})
    longest = max(longest, read_tokens)
    print(f"turn {turn + 1:3}   history {sent_tokens():7,} tokens   the model read {read_tokens:6,}", flush=True)

print(f"{TURNS} turns without an error: {sent_tokens():,} tokens in the history, the longest request had {longest:,}")
