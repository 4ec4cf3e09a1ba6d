"""A scripted model on the loopback: it has the client run commands with the client's own tool, and records each request.

It has a true window in tokens of its own count, as the scripted provider of the Rust tests has. Unlike that one it speaks
all dialects at one address and knows how each agent's tool that runs commands is called.
"""

import gzip
import json
import re
import sys
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from dialects import DIALECTS, Answer, Request, dialect_of, tokens_of

# Names of the tool that runs a command, in the order in which they are looked for.
TOOLS = [
    "bash", "exec_command", "shell_command", "shell", "run_shell_command", "terminal", "exec", "execute_command",
    "run_command", "run_commands", "run_terminal_command",
]
DONE = "All parts have been read."
# How clients ask for a summary of their own conversation. Where tools are offered, the words have to be plain.
ASKS_FOR_SUMMARY = re.compile(r"summar|state_snapshot|checkpoint|compact", re.IGNORECASE)
ASKS_BESIDE_TOOLS = re.compile(r"do not call (any )?tools|(create|provide|write|generate) an? (detailed |concise |structured )*(summary|prompt for)|CHECKPOINT COMPACTION", re.I)
OPENING_CHARS = 600


@dataclass
class Record:
    """One request for an answer, and what became of it."""

    path: str
    body: dict
    request: Request
    prompt_tokens: int
    kind: str  # "call", "done", "summary", "side" or "refused"
    faults: list


class ScriptedModel:
    """Calls the client's tool `rounds` times, with one command each, and ends. Window in tokens."""

    def __init__(self, window, rounds, command, counts_answer=False, last_command=None, turns_without_tools=False):
        self.window, self.rounds, self.command = window, rounds, command
        self.counts_answer, self.last_command = counts_answer, last_command
        self.turns_without_tools = turns_without_tools
        self.records, self.other, self.lock = [], [], threading.Lock()
        self.called, self.awaited, self.answers = 0, {}, 0
        self.server = LoopbackServer(handler_of(self))
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def answer(self, path, body):
        """(status, content type, text) for a request at a path of an answer."""
        dialect = dialect_of(path)
        request = dialect.parse(path, body)
        prompt = tokens_of([request.head, request.items])
        with self.lock:
            record = Record(path, body, request, prompt, "refused", faults_of(dialect, request))
            self.records.append(record)
            answer_room = request.max_output if self.counts_answer else 0
            if prompt + answer_room > self.window:
                status, refused = dialect.refusal(prompt, self.window, request.max_output)
                return status, "application/json", json.dumps(refused)
            record.kind, answer = self.decide(request)
            answer.prompt_tokens = prompt
            return 200, *dialect.answer(request, answer, body)

    def decide(self, request):
        tool = next((name for name in TOOLS for offered in request.tools if offered.lower() == name), None)
        if asks_for_summary(request, self.turns_without_tools):
            return "summary", Answer(text=summary_of(request))
        if self.turns_without_tools and not tool:
            self.answers += 1
            return "call", Answer(text=f"Part {self.answers} is read. " + filler(self.answers, 1200))
        if not tool:
            return "side", Answer(text="Reading the parts of a report")
        tool = next(name for name in request.tools if name.lower() == tool)
        # A request that comes once more, after a refusal or a compaction, gets the same call once more.
        if self.called > self.rounds:
            return "done", Answer(text=DONE)
        self.called += 1
        command = self.command(self.called)
        if self.called > self.rounds:
            if not self.last_command:
                return "done", Answer(text=DONE)
            command = self.last_command
        return "call", Answer(call=(tool, arguments_of(request.tools[tool], command)))


def asks_for_summary(request, is_chat=False):
    """Whether a client asks for a summary of its own conversation, or for a title of it."""
    opening = request.last_text.strip()
    asks_at = [opening[:OPENING_CHARS], opening[-OPENING_CHARS:]]
    if not request.tools:
        asks_at.append(str(request.head[-1])[:3000])
    # A request for a summary that offers tools stands alone; one without tools may quote the conversation.
    is_person = "[task" in opening if request.tools else opening.startswith("[task")
    if is_chat and not re.search("summari[sz]e", str(request.head[-1])[:3000]):
        is_person = "[task" in opening
    asks = ASKS_BESIDE_TOOLS if request.tools else ASKS_FOR_SUMMARY
    return bool(opening) and not is_person and any(map(asks.search, asks_at))


def arguments_of(schema, command):
    """What the schema of a tool requires, with the command at its place."""
    fields = schema.get("properties") or {}
    required = list(schema.get("required") or [])
    for name in ("command", "cmd", "commands"):
        if name in fields and name not in required:
            required.append(name)

    def value(name):
        field = fields.get(name) or {}
        kind = field.get("type")
        kind = (kind[0] if isinstance(kind, list) else kind) or "string"
        kind = str(kind).lower()
        if name in ("command", "cmd", "commands"):
            if name == "commands":
                return [command]
            return ["bash", "-lc", command] if kind == "array" else command
        if field.get("enum"):
            return field["enum"][0]
        return {"integer": 30, "number": 30, "boolean": False, "array": [], "object": {}}.get(kind, "Read the next part")

    return {name: value(name) for name in required}


def summary_of(request):
    """A summary in the forms that clients look for. It states the task, as a model's would."""
    text = (
        "The person asked to read the parts of a report one after the other. "
        f"{request.results} parts were read so far; the next ones follow. No errors occurred."
    )
    return f"<analysis>The parts are read in order.</analysis>\n<summary>\n{text}\n</summary>\n<state_snapshot>\n{text}\n</state_snapshot>"


def filler(seed, chars):
    words = "ledger parser window socket budget engine retry cursor branch widget schema record".split()
    out, size, at = [], 0, seed
    while size < chars:
        at = (at * 1103515245 + 12345) % 2147483648
        word = words[at % len(words)] + ("" if at % 5 else f"_{at % 9973}")
        out.append(word)
        size += len(word) + 1
    return " ".join(out)


def faults_of(dialect, request):
    """Rules of providers that a gateway could break: each call has its result and each result its call."""
    calls, faults = set(), []
    for item in request.items:
        for kind, call_id in pairs_of(dialect, item):
            if kind == "call":
                calls.add(call_id)
            elif call_id not in calls:
                faults.append(f"result without a call: {call_id}")
            else:
                calls.discard(call_id)
    faults += [f"call without a result: {call_id}" for call_id in calls]
    if dialect is DIALECTS["anthropic"] and request.items and request.items[0]["role"] != "user":
        faults.append("the first message is not the user's")
    if not request.items:
        faults.append("no message")
    return faults


def pairs_of(dialect, item):
    if dialect is DIALECTS["chat"]:
        if item["role"] == "tool":
            yield "result", item.get("tool_call_id")
        for call in item.get("tool_calls") or []:
            yield "call", call["id"]
    elif dialect is DIALECTS["responses"]:
        kind = str(item.get("type"))
        if kind.endswith("_call_output"):
            yield "result", item["call_id"]
        elif kind.endswith("_call"):
            yield "call", item.get("call_id")
    elif dialect is DIALECTS["anthropic"] and isinstance(item.get("content"), list):
        for block in item["content"]:
            if block.get("type") == "tool_result":
                yield "result", block["tool_use_id"]
            elif block.get("type") == "tool_use":
                yield "call", block["id"]


class LoopbackServer(ThreadingHTTPServer):
    """A server on a free port of this machine. A client that resets its connection is no fault."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, handler):
        super().__init__(("127.0.0.1", 0), handler)

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def handler_of(model):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def reply(self, status, kind, text):
            data = text.encode()
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def do_GET(self):
            model.other.append(f"{self.command} {self.path}")
            if self.path.split("?")[0].endswith("/models"):
                self.reply(200, "application/json", json.dumps({"object": "list", "data": []}))
            elif self.path == "/":
                self.reply(200, "text/plain", "scripted model")
            else:
                self.reply(404, "application/json", json.dumps({"error": {"message": "not found"}}))

        do_HEAD = do_GET

        def do_POST(self):
            data = read_body(self)
            try:
                body = json.loads(data)
            except ValueError:
                body = None
            if isinstance(body, dict) and dialect_of(self.path):
                return self.reply(*model.answer(self.path, body))
            model.other.append(f"POST {self.path}")
            if isinstance(body, dict) and "count" in self.path.lower() and "token" in self.path.lower():
                size = tokens_of(body)
                return self.reply(200, "application/json", json.dumps({"input_tokens": size, "totalTokens": size}))
            self.reply(404, "application/json", json.dumps({"error": {"message": "not found", "code": 404}}))

    return Handler


def read_body(handler):
    """The body of a request, plain, whether it came with its length or in chunks."""
    if "chunked" in handler.headers.get("transfer-encoding", ""):
        data = b""
        while size := int(handler.rfile.readline().split(b";")[0], 16):
            data += handler.rfile.read(size)
            handler.rfile.readline()
        handler.rfile.readline()
    else:
        data = handler.rfile.read(int(handler.headers.get("content-length") or 0))
    return gzip.decompress(data) if handler.headers.get("content-encoding") == "gzip" else data
