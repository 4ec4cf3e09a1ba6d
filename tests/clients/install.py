"""Clients of other people, in the versions that were tried. Only where nobody can be reached they are left out."""

import os
import pathlib
import platform
import shutil
import subprocess
import sys

PLACE = pathlib.Path(__file__).resolve().parent.parent.parent / "target" / "clients"
SDKS = ["openai==3.54.0", "anthropic==2.12.0", "google-genai==3.4.0"]
AGENTS = ["@anthropic-ai/claude-code@2.1.197", "@openai/codex@0.169.0"]
# OpenClaw asks for 24.16 or newer, Qwen Code for 22.
NODE = "24.21.0"
NPM_OPTIONS = ["--loglevel=error", "--no-audit", "--no-fund", "--prefer-offline"]
# How pip and npm say that nobody answers. Whatever else goes wrong is a failure.
UNREACHABLE = [
    "after connection broken", "Max retries exceeded", "Temporary failure in name resolution", "ProxyError",
    "ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENETUNREACH", "EHOSTUNREACH",
]


class Unreachable(Exception):
    """Nothing can be installed here, through no fault of anybody."""


class Failed(SystemExit):
    """An installation failed for a reason of its own."""


def sdks():
    """The Python with the SDKs."""
    python = PLACE / "venv" / "bin" / "python"
    if not python.exists():
        run([sys.executable, "-m", "venv", PLACE / "venv"])
    run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *SDKS])
    return python


def agents():
    """The folder with the agents' commands."""
    npm = shutil.which("npm")
    if npm is None:
        # Whoever wanted it has said why it is not here.
        raise Unreachable("there is no npm; install nodejs and npm")
    run([npm, "install", *NPM_OPTIONS, "--prefix", PLACE / "npm", *AGENTS])
    return PLACE / "npm" / "node_modules" / ".bin"


def node():
    """The folder with Node in the version that the agents of the table need."""
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine())
    npm = shutil.which("npm")
    if npm is None or machine is None:
        raise Unreachable(f"there is no npm, or no Node for {platform.machine()}; install nodejs and npm")
    place = PLACE / "agents" / "node"
    run([npm, "install", *NPM_OPTIONS, "--prefix", place, f"node-linux-{machine}@{NODE}"])
    return place / "node_modules" / f"node-linux-{machine}" / "bin"


def agent(agent, node):
    """The folder with the commands of an agent of the table; each has packages of its own."""
    place = PLACE / "agents" / agent.name
    if agent.registry == "npm":
        path = {**os.environ, "PATH": f"{node}:{os.environ['PATH']}"}
        run([shutil.which("npm"), "install", *NPM_OPTIONS, "--prefix", place, f"{agent.package}@{agent.version}"], path)
        return place / "node_modules" / ".bin"
    python = place / "bin" / "python"
    if not python.exists():
        run([sys.executable, "-m", "venv", place])
    run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", f"{agent.package}=={agent.version}", *agent.beside])
    return place / "bin"


def run(command, environment=None):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    except subprocess.TimeoutExpired as error:
        raise Unreachable(f"{command[0]} had not ended after {error.timeout:.0f} s") from error
    if done.returncode == 0:
        return
    said = (done.stdout + done.stderr).strip()
    nobody = [line for line in said.splitlines() if any(words in line for words in UNREACHABLE)]
    if nobody:
        raise Unreachable(nobody[-1])
    raise Failed(f"FAILED    {' '.join(map(str, command))} ended with {done.returncode}:\n{said[-2000:]}")
