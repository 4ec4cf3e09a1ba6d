"""A proxy between a client and its base URL: it records what the client sends and what it gets, and changes nothing."""

import http.client
import json
import re
import threading
import urllib.parse
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from dialects import dialect_of
from model import LoopbackServer, read_body

HOP_BY_HOP = {"connection", "transfer-encoding", "keep-alive", "proxy-connection", "content-length", "upgrade", "expect"}
# How the dialects say inside a stream that something failed.
ERROR_IN_STREAM = re.compile(rb'"type": ?"error"|"type": ?"response\.failed"|^data: ?\{"error"|\n\ndata: ?\{"error"')
UPSTREAM_TIMEOUT_S = 120
EXCERPT_CHARS = 400


@dataclass
class Exchange:
    """One request for an answer, as the client sent it, and its answer's head."""

    path: str
    body: dict
    headers: dict
    status: int = 0
    answer_headers: dict = field(default_factory=dict)
    error: str = ""


class Tap:
    """Listens on a free port of the loopback and forwards to `upstream`."""

    def __init__(self, upstream):
        self.upstream = urllib.parse.urlsplit(upstream)
        self.exchanges = []
        self.server = LoopbackServer(handler_of(self))
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def exchange(self, path, headers, data):
        """A record where an answer is asked, None elsewhere."""
        if not dialect_of(path):
            return None
        try:
            body = json.loads(data)
        except ValueError:
            return None
        record = Exchange(path, body, {name.lower(): value for name, value in headers.items()})
        self.exchanges.append(record)
        return record


def handler_of(tap):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_POST(self):
            data = read_body(self)
            record = tap.exchange(self.path, self.headers, data) if self.command == "POST" else None
            upstream = http.client.HTTPConnection(tap.upstream.netloc, timeout=UPSTREAM_TIMEOUT_S)
            dropped = HOP_BY_HOP | {"host", "content-encoding"}
            kept = {name: value for name, value in self.headers.items() if name.lower() not in dropped}
            try:
                upstream.request(self.command, self.path, data or None, kept)
                self.pass_answer(upstream.getresponse(), record)
            except (OSError, http.client.HTTPException) as error:
                self.close_connection = True
                if record and not record.status:
                    record.status, record.error = 599, f"no answer: {error}"
            finally:
                upstream.close()

        do_GET = do_HEAD = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_POST

        def pass_answer(self, answer, record):
            seen = b""
            if record:
                record.status = answer.status
                record.answer_headers = {name.lower(): value for name, value in answer.getheaders()}
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in HOP_BY_HOP:
                    self.send_header(name, value)
            has_body = self.command != "HEAD" and answer.status not in (204, 304)
            self.send_header(*(("transfer-encoding", "chunked") if has_body else ("content-length", "0")))
            self.end_headers()
            while has_body and (data := answer.read1(65536)):
                seen = (seen + data)[-200_000:]
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                self.wfile.flush()
            if has_body:
                self.wfile.write(b"0\r\n\r\n")
            if record and (answer.status >= 400 or ERROR_IN_STREAM.search(seen)):
                record.error = seen.decode(errors="replace")[:EXCERPT_CHARS]

    return Handler
