"""The viewer's server as tests use it: on a free port, in a thread of this process."""

from contextlib import contextmanager
from http.client import HTTPConnection
from threading import Thread
from types import SimpleNamespace

from fedbench.reports.viewer.server import Viewer


@contextmanager
def viewing(root):
    """Serve a directory while the block runs; yields the server."""
    with Viewer(root, 0) as viewer:
        thread = Thread(target=viewer.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield viewer
        finally:
            viewer.shutdown()
            thread.join()


def ask(viewer, path, method="GET", **headers):
    """Send a request with exactly this path; returns status, headers and body."""
    connection = HTTPConnection("127.0.0.1", viewer.server_port, timeout=60)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return SimpleNamespace(status=answer.status, headers=answer.headers, body=body)
