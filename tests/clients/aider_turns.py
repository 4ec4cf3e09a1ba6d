"""Aider as its makers document it for scripts: one coder, and one message of the person after the other."""

import os
import sys

from aider.coders import Coder
from aider.io import InputOutput
from aider.models import Model

# Aider folds its own chat at a sixteenth of a window unless it is told to leave that to others.
WIDE_TOKENS = 1_000_000

model = Model("openai/scripted")
if int(os.environ.get("TOLD_WINDOW", WIDE_TOKENS)) >= WIDE_TOKENS:
    model.max_chat_history_tokens = WIDE_TOKENS
coder = Coder.create(
    main_model=model, io=InputOutput(yes=True, pretty=False), fnames=[], auto_commits=False, use_git=False, map_tokens=0,
    stream=True, suggest_shell_commands=False,
)
for number in range(1, int(os.environ["ROUNDS"]) + 1):
    with open(f"part_{number:03}.txt") as part:
        coder.run(f"{os.environ['TASK'] if number == 1 else f'[task, part {number}]'}\n\n{part.read()}")
    if coder.num_exhausted_context_windows:
        sys.exit("the context window is exhausted")
