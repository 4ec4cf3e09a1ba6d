"""One agent, run once against the scripted model, with or without the gateway: what it saw and what was sent."""

import json
import os
import re
import signal
import statistics
import subprocess
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import agents
from dialects import chars_of, dialect_of, tokens_of
from model import ScriptedModel, filler
from servers import Gateway
from tap import Tap

# Each part that is read has so many characters. Agents cut results from 10,000 characters on.
PART_CHARS = 9_000
# So many windows of results are read.
WINDOWS = 3.2
AGENT_TIMEOUT_S = 600
# A request is "full" from this share of the window on, as the client wrote it.
FULL_SHARE = 0.9
# Today's name of the trim and its name in DESIGN.
EMERGENCY = re.compile(r"last[ _-]rung|emergency[ _-]trim", re.IGNORECASE)
TASK = (
    "[task 7f3e-41c9] Read part_001.txt to part_{last:03}.txt in this folder, in this order, each with one command of your own "
    "such as `cat part_001.txt`. Do not skip a part, do not change a file, and keep the reference QX-88213 in mind. "
    "When all parts are read, answer with one sentence."
)


@dataclass
class Outcome:
    """What one run came to."""

    agent: agents.Agent
    through_gateway: bool
    returncode: int | None  # None: it was ended for its time
    output: str
    exchanges: list  # what the client sent and got
    records: list  # what the model was asked
    other: list  # requests that ask for no answer
    log: str = ""
    counts: dict = field(default_factory=dict)
    window: int = 0
    rounds: int = 0
    seconds: float = 0.0

    @cached_property
    def errors(self):
        """Errors that the client saw: failed answers, and a run that did not come to its end."""
        failed = [f"{exchange.status}: {exchange.error}" for exchange in self.exchanges if exchange.error or exchange.status >= 400]
        if self.returncode != 0:
            failed.append(f"ended with {self.returncode}")
        elif not self.is_done:
            failed.append("ended before the task was done")
        return failed

    @cached_property
    def is_done(self):
        return any(record.kind == "done" for record in self.records) or (
            self.agent.is_chat and sum(record.kind == "call" for record in self.records) >= self.rounds
        ) or (self.agent.last_command is not None and sum(record.kind == "call" for record in self.records) > self.rounds)

    @cached_property
    def main(self):
        """Requests of the main conversation, as the model got them."""
        return [record for record in self.records if is_main(self.agent, record.request)]

    @cached_property
    def answered(self):
        return [record for record in self.main if record.kind != "refused"]

    @cached_property
    def sessions(self):
        """(sessions of the main conversation, sessions of side calls alone), by the header of the answers."""
        main, side = set(), set()
        for exchange, request in zip(self.exchanges, self.client_requests):
            session = exchange.answer_headers.get("x-ctxhost-session")
            if session:
                (main if is_main(self.agent, request) else side).add(session)
        return len(main), len(side - main)

    @cached_property
    def trims(self):
        """Requests that the emergency trim shaped: by the header of the answer, or by the log if it has more."""
        by_header = sum(bool(EMERGENCY.search(e.answer_headers.get("x-ctxhost-engine", ""))) for e in self.exchanges)
        return max(by_header, len(EMERGENCY.findall(self.log)))

    @cached_property
    def prefix_kept(self):
        """Of what the model had read of the conversation, the share that the next request begins with."""
        kept = total = 0
        for before, after in zip(self.answered, self.answered[1:]):
            kept += common_chars(before.request, after.request)
            total += size_of(before.request)
        return kept / total if total else 1.0

    @cached_property
    def share_when_full(self):
        """The median share of the window that requests took once the client's own history had filled it."""
        full_at = next((at for at, share in enumerate(self.client_shares) if share >= FULL_SHARE), None)
        if full_at is None:
            full_at = next((at for at, r in enumerate(self.answered) if r.prompt_tokens >= FULL_SHARE * self.window), None)
        shares = [record.prompt_tokens / self.window for record in self.answered[full_at or 0 :]]
        return statistics.median(shares) if shares and full_at is not None else None

    @cached_property
    def client_shares(self):
        return [tokens_of([r.head, r.items]) / self.window for r in self.client_requests if is_main(self.agent, r)]

    @cached_property
    def client_requests(self):
        return [dialect_of(exchange.path).parse(exchange.path, exchange.body) for exchange in self.exchanges]

    @cached_property
    def task_kept(self):
        """The share of answered requests of the main conversation that hold the person's request word for word."""
        task = json.dumps(TASK.format(last=self.rounds))[1:-1]
        kept = [task in json.dumps(record.request.items) for record in self.answered]
        return sum(kept) / len(kept) if kept else 0.0

    @cached_property
    def faults(self):
        return [fault for record in self.records for fault in record.faults]


def is_main(agent, request):
    if agent.is_chat:
        return "[task" in json.dumps(request.items) and not request.tools
    return len(request.tools) > 0


def size_of(request):
    return chars_of([request.head, request.items])


def common_chars(before, after):
    """Characters at the beginning that two requests share, item by item and within the first item that differs."""
    shared = 0
    for one, other in zip([*before.head, *before.items], [*after.head, *after.items]):
        if plain(one) == plain(other):
            shared += chars_of(one)
            continue
        one, other = plain(one), plain(other)
        return shared + next((at for at, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
    return shared


def plain(item):
    """An item without marks for the provider's cache."""
    def without(value):
        if isinstance(value, dict):
            return {key: without(inner) for key, inner in value.items() if key != "cache_control"}
        return [without(inner) for inner in value] if isinstance(value, list) else value

    return json.dumps(without(item), ensure_ascii=False)


def run(agent, commands, node, binaries=None, window=48_000, told=agents.WIDE_TOKENS, counts_answer=False, windows=WINDOWS):
    """Runs an agent; through the gateway where its binaries are given. Windows in tokens; `told` is what the agent believes."""
    rounds = int(windows * window * 3.5 / PART_CHARS) + 1
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ctxhost-agent-", ignore_cleanup_errors=True)))
        home, work = folder / "home", folder / "work"
        home.mkdir()
        write_parts(work, rounds)
        read = "cat part_{:03}.txt".format
        model = stack.enter_context(
            ScriptedModel(window, rounds, read, counts_answer, agent.last_command, turns_without_tools=agent.is_chat)
        )
        gateway = None
        if binaries:
            gateway = stack.enter_context(Gateway(binaries, folder, model.url, window, agent.model))
        tap = stack.enter_context(Tap(gateway.url if gateway else model.url))
        place = agents.Place(home, work, tap.url, TASK.format(last=rounds), told, commands)
        command, extra = agent.start(place)
        environment = agents.environment_of(place, node, {**extra, "ROUNDS": str(rounds)})
        returncode, output, seconds = run_command(command, environment, work, AGENT_TIMEOUT_S)
        if gateway:
            gateway.note()
        log = "".join(gateway.said) if gateway else ""
        return Outcome(
            agent, gateway is not None, returncode, output, tap.exchanges, model.records, model.other, log,
            gateway.counts if gateway else {}, window, rounds, seconds,
        )


def write_parts(work, rounds):
    work.mkdir()
    for number in range(1, rounds + 1):
        text = filler(number, PART_CHARS - 60)
        lines = "\n".join(text[at : at + 90] for at in range(0, len(text), 90))
        (work / f"part_{number:03}.txt").write_text(f"Part {number:03}, id PX-{number * 7919 % 99991:05}\n{lines}\n")


def run_command(command, environment, folder, limit_s):
    """(exit code or None, output, seconds). Nothing of it is left behind, whether it ended by itself or took too long."""
    begun = time.monotonic()
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        pipes = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
        path = environment["PATH"].split(":")
        found = next((Path(p) / command[0] for p in path if (Path(p) / command[0]).exists()), command[0])
        process = subprocess.Popen([found, *command[1:]], env=environment, cwd=folder, start_new_session=True, **pipes)
        try:
            returncode = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            returncode = None
        finally:
            end_leftovers(process, environment["HOME"])
        output.seek(0)
        return returncode, output.read(), time.monotonic() - begun


def end_leftovers(process, home):
    """Ends an agent's process group, and servers of its own that it detached: those have its home in their environment."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            pass
        for pid in processes_with(f"HOME={home}".encode()):
            try:
                os.kill(pid, sign)
            except ProcessLookupError:
                pass
        time.sleep(0.3)
    process.wait()


def processes_with(variable):
    """The processes of this machine that were started with a variable, by what Linux shows of them."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if variable in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            pass  # It has ended meanwhile, or is another user's.
    return found
