"""A server on loopback that answers every path with a list of answers in turn, good and bad, and counts."""

from __future__ import annotations

import re
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from fedbench.data.files import hosts

# ---- answers of the server: functions of the handler


def whole(content, **headers):
    """The whole file, whatever was asked for."""
    return lambda h: h.answer(200, content, length=len(content), headers=headers)


def ranged(content, cut=None, tag=None):
    """What was asked for, and only up to byte ``cut`` of it; all of it to who has another version than ``tag``."""
    known = {"ETag": tag} if tag else {}

    def answer(h):
        start = int((re.fullmatch(r"bytes=(\d+)-", h.headers.get("Range", "")) or ["", "0"])[1])
        if not start or h.headers.get("If-Range", tag) != tag:
            return h.answer(200, content[:cut], length=len(content), headers=known)
        if start >= len(content):
            return h.answer(416, headers={"Content-Range": f"bytes */{len(content)}"})
        place = {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}", **known}
        return h.answer(206, content[start:][:cut], length=len(content) - start, headers=place)

    return answer


def status(code, **headers):
    return lambda h: h.answer(code, b"an error page", length=13, headers=headers)


def hangs_up(h):
    h.connection.shutdown(socket.SHUT_RDWR)


def silent(until):
    """Says nothing until the event is set."""
    return lambda h: until.wait(30)


def without_length(content):
    return lambda h: h.answer(200, content)


class Server:
    """Answers every path with its list of answers in turn; the last one again and again."""

    def __init__(self):
        self.answers, self.requests, self.counting = {}, [], threading.Lock()
        self.agents, self.versions, self.commands = set(), [], []

    def url(self, *answers, path="file"):
        self.answers[f"/{path}"] = list(answers)
        return f"{self.root}/{path}"

    def asked(self, path="file"):
        """The Range headers of the requests for a path."""
        return [wanted for name, wanted in self.requests if name == f"/{path}"]


class Handler(BaseHTTPRequestHandler):
    """Looks up what to answer; ``book`` is the server's."""

    book: Server

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        book = self.book
        with book.counting:
            book.requests.append((self.path, self.headers.get("Range")))
            book.commands.append(self.command)
            book.versions.append(self.headers.get("If-Range"))
            book.agents.add((self.headers["User-Agent"].split("/")[0], self.headers["Accept-Encoding"]))
            answers = book.answers.get(self.path) or [status(404)]
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
        answer(self)

    def answer(self, code, content=b"", *, length=None, headers=None):
        self.send_response(code)
        for name, value in (headers or {}).items():
            self.send_header(name.replace("_", "-"), value)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_):
        pass


@contextmanager
def serving():
    """A server that runs while the block does; nothing is known of earlier ones, which may have had its port."""
    hosts.forget()
    book = Server()
    http = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {"book": book}))
    book.root = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield book
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
