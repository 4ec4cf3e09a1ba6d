#!/usr/bin/env python3
"""Unchanged clients of other people talk through the gateway to a provider with a small window.

    tests/clients/run.py --bin target/release [--turns 100] [--only openai_chat,claude,example]
    tests/clients/run.py --install
    tests/clients/run.py --all [--only pi,qwen] [--gateway-only] [--count-answer] [--agents-know] [--window 48000]
                         [--json FILE] [--record FOLDER]

Official SDKs and two agents are installed into target/clients. Where nobody can be reached who has them, that is said and
they are left out; anything else that is wrong ends with 1. In the middle of each SDK's conversation the gateway is killed
and started again. With --install, what a run without --all needs is installed, and nothing is run.

With --all, the agents of agents.py run past three windows of a scripted model, without the gateway and with it, and a
table tells what came of it (docs/gateway/clients.md). Three of them run without --all, too, with the gateway alone.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import agents
import example
import install
import table
import trial
from servers import Gateway, Provider

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WINDOW = 32_000

# Dialect of the provider, environment that points the script at the gateway, how many windows it says, and whether
# the gateway is told the window. Where it is not, a refusal of the provider has to teach it.
SDKS = {
    "openai_chat": ("openai-chat", {"OPENAI_BASE_URL": "{url}/v1", "OPENAI_API_KEY": "sk-scripted"}, 10, True),
    "openai_responses": ("responses", {"OPENAI_BASE_URL": "{url}/v1", "OPENAI_API_KEY": "sk-scripted"}, 4, True),
    "anthropic_messages": ("anthropic", {"ANTHROPIC_BASE_URL": "{url}", "ANTHROPIC_API_KEY": "sk-scripted"}, 4, False),
    "google_genai": ("gemini", {"GOOGLE_GEMINI_BASE_URL": "{url}", "GEMINI_API_KEY": "scripted"}, 4, True),
}
# Dialect of an agent's provider, its window, its longest answer, and how many commands it has the agent run. Each
# prints some 2,000 tokens, so that they are more than the window. Claude Code names a model that is known to have
# another one; Codex is met by a gateway that is told.
AGENTS = {"claude": ("anthropic", 64_000, 8_000, 40, False), "codex": ("responses", WINDOW, 8_000, 24, True)}
TASK = "Run the commands that you are about to run, one after the other, until all have run."
DONE = "All commands have run."


def say(words):
    print(words, flush=True)


def told(faults, *checks):
    """Adds the words of every check that is false."""
    faults.extend(words for good, words in checks if not good)
    return faults


def faults_of(run, provider, gateway, told_window, window=WINDOW):
    """What is wrong whoever the client is: it ended badly, its provider found a fault, no engine did its work."""
    tally, counts = provider.tally(), gateway.counts
    faults = list(tally["broken"])
    return told(
        faults,
        (run.returncode == 0, f"it ended with {run.returncode}: {run.stdout[-2000:]}"),
        (tally["largest_prompt_tokens"] <= window or not told_window, "a request was larger than the window that was told"),
        (tally["overflows"] > 0 or told_window, "no refusal had to teach the window"),
        (counts.get("compaction.applied", 0) > 0, f"the engine compacted nothing: {counts}"),
        (counts.get("saved_tokens", 0) > 0, "nothing was saved"),
        (counts.get("fallback", 0) == 0, f"another engine stood in {counts.get('fallback')} times"),
        (counts.get("rejected_plans", 0) == 0, f"the law refused {counts.get('rejected_plans')} plans"),
    )


def verdict(name, said, faults):
    say(f"{'FAILED  ' if faults else 'ok      '} {name}: {said}")
    for fault in faults:
        say(f"         {fault}")
    return not faults


def figures(provider, gateway, window=WINDOW):
    tally, compactions = provider.tally(), int(gateway.counts.get("compaction.applied", 0))
    return (
        f"{tally['requests']} requests, {tally['streams']} streamed, {tally['calls']} calls, {tally['overflows']} refused, "
        f"{compactions} compactions, largest {tally['largest_prompt_tokens']} of {window} tokens"
    )


def talk(command, environment, while_it_waits):
    """Runs a script. Where it pauses, something is done before it goes on."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    script = subprocess.Popen(command, env={**os.environ, **environment}, **pipes)
    said = []
    for line in script.stdout:
        said.append(line)
        if line == "paused\n":
            while_it_waits()
            script.stdin.write("\n")
            script.stdin.flush()
    return subprocess.CompletedProcess(command, script.wait(), "".join(said))


def run_sdk(binaries, python, name, turns):
    wire, environment, windows, is_told = SDKS[name]
    with tempfile.TemporaryDirectory() as folder, Provider(binaries, wire, WINDOW, WINDOW // 4) as provider:
        place = pathlib.Path(folder)
        with Gateway(binaries, place, provider.url, WINDOW if is_told else None) as gateway:
            told_of = {key: value.format(url=gateway.url) for key, value in environment.items()}
            told_of |= {"TURNS": str(turns), "TOKENS": str(windows * WINDOW), "PAUSE_AT": str(turns // 2)}
            told_of |= {"TRANSCRIPT": str(place / "said.json")}
            run = talk([python, HERE / f"{name}.py"], told_of, gateway.die_and_come_back)
            gateway.note()
        faults = faults_of(run, provider, gateway, is_told)
        tally, kept = provider.tally(), list(place.glob("**/gateway/sessions/*/*.jsonl"))
        tokens = provider.tokens_of(json.loads((place / "said.json").read_text())) if run.returncode == 0 else 0
        told(
            faults,
            (tokens >= windows * WINDOW, f"{tokens} tokens were said, {windows} windows are {windows * WINDOW}"),
            (tally["answers"] >= turns, f"{tally['answers']} answers in {turns} turns"),
            (turns // 3 <= tally["streams"] < tally["requests"], f"{tally['streams']} answers were streamed"),
            (tally["with_tool_results"] >= turns // 4, f"{tally['with_tool_results']} requests had results of tools"),
            ("paused\n" in run.stdout, "the gateway was not killed in the middle"),
            (len(kept) == 1, f"one conversation is in {len(kept)} sessions"),
        )
        said = f"{turns} turns, {tokens / WINDOW:.1f} windows, {figures(provider, gateway)}"
        return verdict(name, said, faults)


def command_of(agent, commands, folder, url):
    """How each agent is asked once, without anybody at the keyboard."""
    environment = {**os.environ, "HOME": str(folder), "IS_SANDBOX": "1"}
    if agent == "claude":
        environment |= {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "sk-scripted"}
        environment |= {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "8000"}
        return [commands / "claude", "-p", TASK, "--allowedTools", "Bash", "--max-turns", "100"], environment
    home = folder / ".codex"
    home.mkdir()
    (home / "config.toml").write_text(
        'model = "scripted"\nmodel_provider = "gateway"\n[model_providers.gateway]\nname = "gateway"\n'
        f'base_url = "{url}/v1"\nwire_api = "responses"\nenv_key = "SCRIPTED_KEY"\n'
    )
    environment |= {"CODEX_HOME": str(home), "SCRIPTED_KEY": "sk-scripted"}
    options = ["--skip-git-repo-check", "--sandbox", "danger-full-access"]
    return [commands / "codex", "exec", *options, TASK], environment


def run_agent(binaries, commands, agent):
    wire, window, max_output, runs, is_told = AGENTS[agent]
    with tempfile.TemporaryDirectory() as folder, Provider(binaries, wire, window, max_output, runs) as provider:
        place = pathlib.Path(folder)
        with Gateway(binaries, place, provider.url, window if is_told else None) as gateway:
            command, environment = command_of(agent, commands, place, gateway.url)
            pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
            run = subprocess.run(command, env=environment, cwd=place, timeout=300, **pipes)
            gateway.note()
        tally = provider.tally()
        faults = told(
            faults_of(run, provider, gateway, is_told, window),
            (DONE in run.stdout, f"it did not hear the model out: {run.stdout[-500:]}"),
            (tally["calls"] == runs, f"its tool was called {tally['calls']} times, {runs} were to come"),
            (tally["with_tool_results"] >= runs, f"{tally['with_tool_results']} requests had results of tools"),
        )
        return verdict(agent, figures(provider, gateway, window), faults)


def installed(what, skipped):
    """What an installer gives; None where nobody can be reached, which is remembered."""
    try:
        return what()
    except install.Unreachable as error:
        skipped.append(f"SKIPPED   {what.__name__}: {error}")
        say(skipped[-1])
        return None


def installed_agents(wanted, skipped, forgives):
    """(agent, folder of its commands, folder of Node) for each that can be installed here; why not, for the others.

    Without `forgives`, an installation that fails for a reason of its own ends the run."""
    node = installed(install.node, skipped)
    for agent in agents.AGENTS if node else []:
        if agent.name not in wanted:
            continue
        try:
            yield agent, install.agent(agent, node), node
        except (install.Unreachable, install.Failed) as error:
            if isinstance(error, install.Failed) and not forgives:
                raise
            skipped.append(f"SKIPPED   {agent.name} {agent.version}: {' '.join(str(error).split())[-300:]}")
            say(skipped[-1])


def run_all(arguments, wanted, with_direct, skipped):
    """Runs the agents of the table; true where each meets its targets through the gateway."""
    outcomes, is_good = [], True
    for agent, commands, node in installed_agents(wanted, skipped, forgives=with_direct):
        for binaries in [None, arguments.bin.resolve()] if with_direct else [arguments.bin.resolve()]:
            window = arguments.window or agent.window
            believed = window if arguments.agents_know else agents.WIDE_TOKENS
            way = "gateway" if binaries else "direct"
            # The gate has the stricter kind of provider.
            counts_answer = arguments.count_answer or not arguments.all
            outcome = trial.run(agent, commands, node, binaries, window, believed, counts_answer)
            outcomes.append(outcome)
            if arguments.record:
                table.write_bodies(outcome, arguments.record / f"{agent.name}-{way}.json")
            missed = table.missed(outcome, must_fill=not arguments.agents_know) if binaries else []
            is_good = is_good and not missed
            # Without the gateway nothing is expected.
            verdict_word = "FAILED  " if missed else "ok      " if binaries else "        "
            say(f"{verdict_word} {agent.name} {way}: {table.line(outcome)}")
            for words in missed:
                say(f"         {words}")
    if outcomes:
        say("\n" + table.render(outcomes))
    if arguments.json:
        arguments.json.write_text(json.dumps([table.row(outcome) for outcome in outcomes], indent=1))
    return is_good


def install_all(wanted, skipped):
    """Installs what a run of `wanted` needs, so that the run finds it."""
    installed(install.sdks, skipped)
    installed(install.agents, skipped)
    for agent, *_ in installed_agents(wanted, skipped, forgives=False):
        say(f"installed {agent.name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "target" / "release")
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--only", default="")
    parser.add_argument("--install", action="store_true", help="install what the run without --all needs, and run nothing")
    parser.add_argument("--all", action="store_true", help="run the agents of agents.py and print their table")
    parser.add_argument("--gateway-only", action="store_true", help="leave out the runs without the gateway")
    parser.add_argument("--count-answer", action="store_true", help="the model counts max_tokens into its window, as vLLM does")
    parser.add_argument("--agents-know", action="store_true", help="agents are configured with the model's true window")
    parser.add_argument("--window", type=int, help="the model's window in tokens; else each agent's own of agents.py")
    parser.add_argument("--json", type=pathlib.Path, help="write the rows of the table into this file")
    parser.add_argument("--record", type=pathlib.Path, help="write the bodies that clients sent into this folder")
    arguments = parser.parse_args()
    # Servers and agents are ended on the way out, so being stopped has to lead there.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    known = [agent.name for agent in agents.AGENTS]
    names = arguments.only.split(",") if arguments.only else known
    unknown = {*names} - {*known} - ({*SDKS, "example"} if not arguments.all else set())
    if unknown:
        parser.error(f"--only names {', '.join(sorted(unknown))}; it may name {', '.join(known)}, and without --all {', '.join(SDKS)}, example")
    if arguments.install:
        install_all(agents.GATE, [])
        return
    if arguments.all:
        skipped = []
        is_good = run_all(arguments, names, not arguments.gateway_only, skipped)
        say("\n".join(skipped))
        sys.exit(0 if is_good else 1)
    wanted = arguments.only.split(",") if arguments.only else [*SDKS, "example", *AGENTS, *agents.GATE]
    binaries = arguments.bin.resolve()
    good, skipped = [], []
    python = installed(install.sdks, skipped) if {*SDKS, "example"} & {*wanted} else None
    for name in [*SDKS] if python else []:
        if name in wanted:
            good.append(run_sdk(binaries, python, name, arguments.turns))
    if python and "example" in wanted:
        good.append(verdict("example", *example.run(binaries, python)))
    commands = installed(install.agents, skipped) if {*AGENTS} & {*wanted} else None
    for name in [*AGENTS] if commands else []:
        if name in wanted:
            good.append(run_agent(binaries, commands, name))
    in_gate = [name for name in wanted if name not in {*SDKS, "example", *AGENTS}]
    if in_gate:
        good.append(run_all(arguments, in_gate, False, skipped))
    if skipped:
        say("\n".join(["", "=" * 80, *skipped, "=" * 80]))
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
