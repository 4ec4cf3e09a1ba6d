#!/usr/bin/env python3
"""Unchanged clients of other people talk through the gateway to a provider with a small window.

    tests/clients/run.py --bin target/release [--turns 100] [--only openai_chat,claude]

Official SDKs and two agents are installed into target/clients. What cannot be installed is skipped, and said so.
In the middle of each SDK's conversation the gateway is killed and started again.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PLACE = ROOT / "target" / "clients"
WINDOW_TOKENS = 32_000
DIALECTS = ["anthropic-messages", "openai-completions", "openai-responses", "google-generative-ai"]

# Script, dialect of the provider, environment that points it at the gateway, how many windows it says.
SDKS = {
    "openai_chat": ("openai-chat", {"OPENAI_BASE_URL": "{url}/v1", "OPENAI_API_KEY": "sk-scripted"}, 10),
    "openai_responses": ("responses", {"OPENAI_BASE_URL": "{url}/v1", "OPENAI_API_KEY": "sk-scripted"}, 4),
    "anthropic_messages": ("anthropic", {"ANTHROPIC_BASE_URL": "{url}", "ANTHROPIC_API_KEY": "sk-scripted"}, 4),
    "google_genai": ("gemini", {"GOOGLE_GEMINI_BASE_URL": "{url}", "GEMINI_API_KEY": "scripted"}, 4),
}
# Dialect of an agent's provider, window and longest answer. Claude Code asks for answers of 64,000 tokens.
AGENTS = {"claude": ("anthropic", 200_000, 64_000), "codex": ("responses", WINDOW_TOKENS, WINDOW_TOKENS // 4)}
TASK = "List the files of this folder with a tool, then say what you see."
# What the scripted agent says beside the words of the script: its answers count, too.
CHARS_PER_TOKEN = 3.5


def say(words):
    print(words, flush=True)


class Process:
    """A server of ours: the first address that it prints is its own."""

    def __init__(self, command, **kwargs):
        self.command, self.kwargs = command, kwargs
        self.start()

    def start(self):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        self.process = subprocess.Popen(self.command, **pipes, **self.kwargs)
        self.said, self.url = [], None
        for line in self.process.stdout:
            self.said.append(line)
            self.url = next((word for word in line.split() if word.startswith("http://")), None)
            if self.url:
                break
        else:
            raise SystemExit(f"{self.command[0]} did not start: {''.join(self.said)}")
        # Whatever it says later is kept, so that it never waits for a reader.
        said, rest = self.said, self.process.stdout
        threading.Thread(target=lambda: said.extend(rest), daemon=True).start()

    def die_and_come_back(self):
        self.process.kill()
        self.process.wait()
        self.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=30)


def provider(binaries, wire, window=WINDOW_TOKENS, max_output=WINDOW_TOKENS // 4):
    limits = ["--window", str(window), "--max-output", str(max_output)]
    return Process([binaries / "scripted-provider", "--wire", wire, *limits])


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def gateway(binaries, folder, upstream, window=WINDOW_TOKENS):
    """`ctxhost serve` with every dialect's upstream replaced by the scripted one."""
    config = folder / "ctxhost.toml"
    upstreams = "".join(f'{dialect} = "{upstream}"\n' for dialect in DIALECTS)
    config.write_text(f"[model]\ndefault_window_tokens = {window}\n\n[gateway.upstreams]\n{upstreams}")
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    command = [binaries / "ctxhost", "--config", config, "serve", "--listen", f"127.0.0.1:{free_port()}"]
    return Process(command, env=environment)


def install_sdks():
    """The Python with the SDKs; None where they do not install."""
    python = PLACE / "venv" / "bin" / "python"
    try:
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", PLACE / "venv"], check=True, capture_output=True)
        packages = ["openai", "anthropic", "google-genai"]
        subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        say(f"SKIPPED  the SDKs do not install: {error}")
        return None
    return python


def install_agents():
    """The folder with the agents' commands; None where they do not install."""
    npm = shutil.which("npm")
    packages = ["@anthropic-ai/claude-code", "@openai/codex"]
    command = [npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", PLACE / "npm", *packages]
    try:
        if npm is None:
            raise OSError("there is no npm")
        subprocess.run(command, check=True, capture_output=True, timeout=600)
    except (OSError, subprocess.SubprocessError) as error:
        say(f"SKIPPED  the agents do not install: {error}")
        return None
    return PLACE / "npm" / "node_modules" / ".bin"


def seen(url):
    with urllib.request.urlopen(f"{url}/seen") as answer:
        return json.load(answer)


def judge(name, run, upstream, least_requests, faults=(), window=WINDOW_TOKENS):
    """A client is served well where it ended well and its provider found nothing wrong."""
    tally = seen(upstream)
    faults = [*faults, *tally["broken"]]
    if run.returncode != 0:
        faults.append(f"it ended with {run.returncode}: {(run.stdout + run.stderr)[-2000:]}")
    if tally["requests"] < least_requests:
        faults.append(f"its provider saw {tally['requests']} requests, at least {least_requests} were to come")
    last = run.stdout.strip().splitlines()[-1:] or [""]
    verdict = "ok      " if not faults else "FAILED  "
    largest = tally["largest_prompt_tokens"]
    say(f"{verdict} {name}: {last[0][:100]} (largest request {largest} of {window} tokens)")
    for fault in faults:
        say(f"         {fault}")
    return not faults


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
    return subprocess.CompletedProcess(command, script.wait(), "".join(said), "")


def faults_of_restart(run, folder):
    """A gateway that was killed goes on with the conversation where it was, not with a new one."""
    if "paused\n" not in run.stdout:
        return ["the gateway was not killed in the middle"]
    kept = list(folder.glob("**/gateway/sessions/*/*.jsonl"))
    return [] if len(kept) == 1 else [f"one conversation is in {len(kept)} sessions"]


def run_sdk(binaries, python, name, turns):
    wire, environment, windows = SDKS[name]
    chars = int(windows * WINDOW_TOKENS * CHARS_PER_TOKEN / turns / 1.6)
    with tempfile.TemporaryDirectory() as folder, provider(binaries, wire) as upstream:
        with gateway(binaries, pathlib.Path(folder), upstream.url) as middle:
            told = {key: value.format(url=middle.url) for key, value in environment.items()}
            told |= {"TURNS": str(turns), "CHARS_PER_TURN": str(chars), "PAUSE_AT": str(turns // 2)}
            run = talk([python, HERE / f"{name}.py"], told, middle.die_and_come_back)
        return judge(name, run, upstream.url, turns, faults_of_restart(run, pathlib.Path(folder)))


def command_of(agent, commands, folder, url):
    """How each agent is asked once, without anybody at the keyboard."""
    environment = {**os.environ, "HOME": str(folder), "IS_SANDBOX": "1"}
    if agent == "claude":
        environment |= {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "sk-scripted"}
        environment |= {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
        return [commands / "claude", "-p", TASK, "--allowedTools", "Bash", "--max-turns", "8"], environment
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
    wire, window, max_output = AGENTS[agent]
    with tempfile.TemporaryDirectory() as folder, provider(binaries, wire, window, max_output) as upstream:
        place = pathlib.Path(folder)
        with gateway(binaries, place, upstream.url, window) as middle:
            command, environment = command_of(agent, commands, place, middle.url)
            run = subprocess.run(
                command, env=environment, cwd=place, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
            )
        return judge(agent, run, upstream.url, 1, window=window)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "target" / "release")
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    wanted = arguments.only.split(",") if arguments.only else [*SDKS, *AGENTS]
    binaries = arguments.bin.resolve()
    good = True
    sdks = [name for name in wanted if name in SDKS]
    python = install_sdks() if sdks else None
    for name in sdks if python else []:
        good &= run_sdk(binaries, python, name, arguments.turns)
    agents = [name for name in wanted if name in AGENTS]
    commands = install_agents() if agents else None
    for name in agents if commands else []:
        good &= run_agent(binaries, commands, name)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
