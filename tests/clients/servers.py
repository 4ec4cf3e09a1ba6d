"""The servers that a client needs: a gateway, and a provider of our own that tells what it has seen."""

import json
import os
import re
import signal
import socket
import subprocess
import threading
import urllib.request

DIALECTS = ["anthropic-messages", "openai-completions", "openai-responses", "google-generative-ai"]
SAMPLE = re.compile(r"^ctxhost_(\w+?)(?:_total)?(?:\{(.*)\})? (\S+)$", re.MULTILINE)


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


class Provider(Process):
    """A model with a true window, in one dialect. It wanders, or runs so many commands."""

    def __init__(self, binaries, wire, window, max_output, commands=None):
        options = ["--window", str(window), "--max-output", str(max_output)]
        options += ["--commands", str(commands)] if commands else []
        super().__init__([binaries / "scripted-provider", "--wire", wire, *options])

    def tally(self):
        return json.loads(fetch(f"{self.url}/seen"))

    def tokens_of(self, said):
        """What a conversation takes in the provider's own tokens, all of it."""
        return json.loads(fetch(f"{self.url}/count", json.dumps(said).encode()))["tokens"]


class Gateway(Process):
    """`ctxhost serve` with every dialect's upstream replaced, and a window only where it is told one."""

    def __init__(self, binaries, folder, upstream, window=None, model_name=None):
        config = folder / "ctxhost.toml"
        upstreams = "".join(f'{dialect} = "{upstream}"\n' for dialect in DIALECTS)
        model = f"[model]\ndefault_window_tokens = {window}\n\n" if window else ""
        # A name that is known has a window of its own, which goes before the default.
        named = f'[models."{model_name}"]\nwindow_tokens = {window}\n\n' if model_name else ""
        config.write_text(f"{model}{named}[gateway.upstreams]\n{upstreams}")
        environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
        command = [binaries / "ctxhost", "--config", config, "serve", "--listen", f"127.0.0.1:{free_port()}"]
        # What all gateways at this place have counted: one that is killed begins at zero.
        self.counts = {}
        super().__init__(command, env=environment)

    def note(self):
        """Takes in what this gateway has counted so far."""
        for name, labels, value in SAMPLE.findall(fetch(f"{self.url}/metrics").decode()):
            name = f"{name}.applied" if 'outcome="applied"' in labels else name
            self.counts[name] = self.counts.get(name, 0) + float(value)

    def die_and_come_back(self):
        self.note()
        super().die_and_come_back()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def fetch(url, body=None):
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, body) as answer:
        return answer.read()
