"""The example for newcomers, run as its page says: the very commands, at other ports, with a folder for what is kept."""

import os
import pathlib
import re
import subprocess
import tempfile

from servers import Process, fetch, free_port

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "examples" / "gateway" / "README.md"
WINDOWS, WINDOW = 10, 64_000
# What was done before: the programs are built, the SDK is installed.
DONE = ("cargo ", "python3 -m venv", "target/clients/venv/bin/pip")


def commands():
    """What stands behind each `$` of the page."""
    lines = [line[2:] for line in PAGE.read_text().splitlines() if line.startswith("$ ")]
    return [line for line in lines if not line.startswith(DONE)]


def run(binaries, python):
    """A sentence about it, and what is wrong."""
    provider_port, gateway_port = free_port(), free_port()
    elsewhere = {
        "target/release/": f"{binaries}/",
        "target/clients/venv/bin/python": str(python),
        "ctxhost serve": f"ctxhost serve --listen 127.0.0.1:{gateway_port}",
        "8788": str(provider_port),
        "8787": str(gateway_port),
    }
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "XDG_STATE_HOME": folder, "XDG_CONFIG_HOME": folder}
        servers, said, exports = [], "", ""
        try:
            for command in commands():
                for here, there in elsewhere.items():
                    command = command.replace(here, there)
                if command.startswith("export "):
                    exports += f"{command}; "
                elif command.endswith(" &"):
                    line = ["bash", "-c", f"exec {command[:-2]}"]
                    servers.append(Process(line, env=environment, cwd=ROOT))
                else:
                    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
                    line = ["bash", "-c", exports + command]
                    said += subprocess.run(line, env=environment, cwd=ROOT, timeout=300, **pipes).stdout
            tally = fetch(f"http://127.0.0.1:{provider_port}/seen").decode() if servers else ""
        finally:
            for server in servers:
                server.__exit__()
    return judged(said, tally)


def judged(said, tally):
    """The script counts by a rule of thumb that is on the safe side of the provider's own tokens."""
    end = re.search(r"turns without an error: ([\d,]+) tokens in the history, the longest request had ([\d,]+)", said)
    if end is None:
        return "it did not come to its end", [said[-2000:]]
    tokens, longest = (int(figure.replace(",", "")) for figure in end.groups())
    faults = []
    if tokens < WINDOWS * WINDOW:
        faults.append(f"{tokens} tokens are less than {WINDOWS} windows")
    if longest > WINDOW:
        faults.append(f"a request had {longest} tokens")
    if not re.search(r'compaction_total\{.*outcome="applied"\} [1-9]', said):
        faults.append(f"what the page counts shows no compaction: {said[-1000:]}")
    if not re.search(r"fallback_total\{.*\} 0", said):
        faults.append(f"what the page counts shows fallbacks: {said[-1000:]}")
    if '"broken":[]' not in tally:
        faults.append(f"its provider found faults: {tally}")
    return f"{tokens / WINDOW:.1f} windows, the longest request had {longest} of {WINDOW} tokens", faults
