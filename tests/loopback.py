"""A server on loopback that answers every path with what a test has put there, and notes what was
asked.
"""

from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


class Server:
    """A server and what it was asked for.

    Attributes:
        files: Path -> content, the status of an error, or a function that gets the handler and
            answers; other paths are 404.
    """

    def __init__(self):
        self.files, self.asked = {}, []


@contextmanager
def serving():
    """A server that runs while the block does."""
    server = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            server.asked.append(self.path.lstrip("/"))
            answer = server.files.get(self.path.lstrip("/"), 404)
            if callable(answer):
                answer(self)
                return
            body = answer if isinstance(answer, bytes) else b"an error page"
            self.send_response(200 if isinstance(answer, bytes) else answer)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.root = f"http://127.0.0.1:{http.server_port}"
    thread = Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
