"""A conversation that outgrows its window: what the person says, what the tool answers."""

import json
import os
import pathlib
import random
import sys

TURNS = int(os.environ.get("TURNS", "100"))
# So much is said at least, in tokens of the provider: several times the window of its model.
TOKENS = int(os.environ.get("TOKENS", "128000"))
CHARS_PER_TURN = int(TOKENS * 3.5 / TURNS)
# Of which the person says so much, and each file that is read so much.
ASK_SHARE, FILE_SHARE = 0.6, 0.25
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
        yield turn, f"Turn {turn}: look at {path}. {text(CHARS_PER_TURN * ASK_SHARE)}", turn % 2 == 0


def result_of(arguments):
    """What a file holds."""
    return f"// {arguments.get('path', '?')}\n{text(CHARS_PER_TURN * FILE_SHARE)}"


def done(turns, requests, said):
    """Leaves all that was said for whoever runs it, who has the provider count it."""
    if "TRANSCRIPT" in os.environ:
        pathlib.Path(os.environ["TRANSCRIPT"]).write_text(json.dumps(said))
    print(f"{turns} turns, {requests} requests, 0 errors", flush=True)
