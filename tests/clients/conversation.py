"""A conversation that outgrows its window: what the person says, what the tool answers."""

import os
import random
import sys

TURNS = int(os.environ.get("TURNS", "100"))
# So much is said in each turn that the whole is several times the window of the model.
CHARS_PER_TURN = int(os.environ.get("CHARS_PER_TURN", "3400"))
# A model that calls tools for ever is stopped by an agent, too.
MAX_CALLS = 4
# Before this turn the agent waits for a line from whoever runs it: something happens to the gateway meanwhile.
PAUSE_AT = int(os.environ.get("PAUSE_AT", "-1"))

WORDS = "parser window ledger socket budget engine retry summary cursor branch widget schema".split()
TOOL = {
    "name": "read_file",
    "description": "Reads a file of the project.",
    "parameters": {
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
    },
}

_random = random.Random(20261121)


def text(chars):
    words = []
    while chars > 0:
        word = _random.choice(WORDS)
        words.append(word)
        chars -= len(word) + 1
    return " ".join(words)


def asks():
    """The person's words, turn by turn. Every second turn is streamed."""
    for turn in range(TURNS):
        if turn == PAUSE_AT:
            print("paused", flush=True)
            sys.stdin.readline()
        path = f"/srv/app/part_{turn}.rs"
        yield turn, f"Turn {turn}: look at {path}. {text(CHARS_PER_TURN // 2)}", turn % 2 == 0


def result_of(arguments):
    """What a file holds."""
    return f"// {arguments.get('path', '?')}\n{text(CHARS_PER_TURN // 2)}"


def done(turns, requests, chars):
    print(f"{turns} turns, {requests} requests, {chars} characters said, 0 errors", flush=True)
