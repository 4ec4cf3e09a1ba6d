"""Clients of other people, in the versions that were tried. Only where nobody can be reached they are left out."""

import pathlib
import shutil
import subprocess
import sys

PLACE = pathlib.Path(__file__).resolve().parent.parent.parent / "target" / "clients"
SDKS = ["openai==3.54.0", "anthropic==2.12.0", "google-genai==3.4.0"]
AGENTS = ["@anthropic-ai/claude-code@2.1.197", "@openai/codex@0.169.0"]
# How pip and npm say that nobody answers. Whatever else goes wrong is a failure.
UNREACHABLE = [
    "after connection broken", "Max retries exceeded", "Temporary failure in name resolution", "ProxyError",
    "ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENETUNREACH", "EHOSTUNREACH",
]


class Unreachable(Exception):
    """Nothing can be installed here, through no fault of anybody."""


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
    options = ["--loglevel=error", "--no-audit", "--no-fund", "--prefer-offline", "--prefix", PLACE / "npm"]
    run([npm, "install", *options, *AGENTS])
    return PLACE / "npm" / "node_modules" / ".bin"


def run(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    except subprocess.TimeoutExpired as error:
        raise Unreachable(f"{command[0]} had not ended after {error.timeout:.0f} s") from error
    if done.returncode == 0:
        return
    said = (done.stdout + done.stderr).strip()
    nobody = [line for line in said.splitlines() if any(words in line for words in UNREACHABLE)]
    if nobody:
        raise Unreachable(nobody[-1])
    raise SystemExit(f"FAILED    {' '.join(map(str, command))} ended with {done.returncode}:\n{said[-2000:]}")
