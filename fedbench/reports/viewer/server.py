"""The server of the viewer: pages, numbers and files of a results directory, on loopback only.

Nothing is written. A request is refused if its ``Host`` is not this machine, so that no other site
can read the results through a name that it resolves to 127.0.0.1. Paths are resolved before they
are used, and everything outside the directory is refused, including targets of symbolic links.
"""

import json
import os
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from urllib.parse import parse_qs, unquote_to_bytes

from fedbench.core.checksums import content_checksum
from fedbench.core.errors import RequestError, reason_of
from fedbench.reports.charts import library
from fedbench.reports.page import PAGE, render_page
from fedbench.reports.viewer.listing import Listing, shown_path, url_path
from fedbench.reports.viewer.run_page import SCRIPT, run_charts, run_page
from fedbench.runs.run import is_run

HOST = "127.0.0.1"
PORT = 8000
MOST_LINES = 12  # maximum number of runs in a chart
_NAMES = (HOST, "localhost", "[::1]")
_HEADERS = {
    "Cache-Control": "no-cache",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
# a file is of no origin: its scripts can draw a report, but fetch nothing
_FILE_POLICY = (
    "sandbox allow-scripts allow-forms allow-modals; default-src 'none'; img-src data:; "
    "script-src 'unsafe-inline'; style-src 'unsafe-inline'"
)
_TEXT = "text/plain; charset=utf-8"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    **dict.fromkeys(("", ".csv", ".jsonl", ".log", ".md", ".tex", ".txt", ".yaml"), _TEXT),
}
_OTHER_TYPE = "application/octet-stream"


class Viewer(ThreadingHTTPServer):
    """A server of the runs below a directory.

    Args:
        root: The directory.
        port: The port. If None, 8000, or any free port if that is in use.

    Raises:
        RequestError: If the port cannot be used.
    """

    def __init__(self, root: Path, port: int | None = None) -> None:
        self.root = root.resolve()
        self.name = root.name or self.root.name
        self.listing = Listing(self.root)
        library()  # takes seconds the first time, which the first page need not wait for
        try:
            super().__init__((HOST, PORT if port is None else port), _Handler)
        except (OSError, OverflowError) as error:
            if port is not None:
                raise RequestError(
                    f"--port {port} cannot be used ({reason_of(error)}); type another, or leave it "
                    "out for a free one"
                ) from error
            super().__init__((HOST, 0), _Handler)

    @property
    def address(self) -> str:
        """The address of the first page."""
        return f"http://{HOST}:{self.server_port}/"

    def place(self, text: str) -> Path:
        """Return the file or directory named by a part of a URL.

        Raises:
            FileNotFoundError: If it does not exist or is outside the directory.
        """
        name = unquote_to_bytes(text)
        try:
            path = (self.root / os.fsdecode(name)).resolve(strict=True)
        except (OSError, ValueError, RuntimeError) as error:  # such as NUL, or a loop of links
            raise FileNotFoundError(text) from error
        if not path.is_relative_to(self.root):
            raise FileNotFoundError(text)
        return path

    def run(self, text: str) -> Path:
        """Return the directory of a run named by a part of a URL.

        Raises:
            FileNotFoundError: If there is no such run.
        """
        path = self.place(text)
        if not path.is_dir() or not is_run(path):
            raise FileNotFoundError(text)
        return path

    def reports(self) -> dict[str, str]:
        """Return the URLs of reports in the directory and up to two levels below, by name."""
        pages = {}
        for pattern in (PAGE, f"[!.]*/{PAGE}", f"[!.]*/[!.]*/{PAGE}"):
            for page in sorted(self.root.glob(pattern)):
                folder = page.parent.relative_to(self.root)
                name = shown_path(folder)
                if name == ".":
                    name = self.name
                pages[name] = f"/files/{url_path(page, self.root)}"
        return pages

    def handle_error(self, request: object, client_address: object) -> None:
        """Report an error outside the answers in one line; a browser may leave at any time."""
        _, error, _ = sys.exc_info()
        if isinstance(error, Exception) and not isinstance(error, ConnectionError):
            print(f"fedbench: a request failed: {reason_of(error)}", file=sys.stderr)


class _Handler(BaseHTTPRequestHandler):
    """Answers to the requests GET and HEAD; others are refused."""

    server: Viewer
    error_message_format = "<!DOCTYPE html><title>%(message)s</title><p>%(explain)s</p>\n"

    def do_GET(self) -> None:
        """Answer a request."""
        port = self.server.server_port
        hosts = {f"{name}:{port}" for name in _NAMES}
        if self.headers.get("Host") not in hosts:
            self.send_error(
                HTTPStatus.FORBIDDEN,
                explain="Host must be that of the address",
            )
            return
        path, _, query = self.path.partition("?")
        route, _, rest = path.lstrip("/").partition("/")
        answers = {
            "": self._runs,
            "runs.json": self._rows,
            "charts.json": self._charts,
            "run": self._run,
            "files": self._file,
        }
        try:
            if route not in answers:
                raise FileNotFoundError(route)
            answers[route](rest, query)
        except FileNotFoundError:
            self.send_error(HTTPStatus.NOT_FOUND)
        except ConnectionError:
            raise  # the browser does not wait for the answer: see ``Viewer.handle_error``
        except Exception as fault:  # whatever the files of one run contain, the others are shown
            self.send_error(
                HTTPStatus.INTERNAL_SERVER_ERROR,
                explain=reason_of(fault),
            )

    do_HEAD = do_GET

    def _runs(self, rest: str, query: str) -> None:
        """Send the page with all runs."""
        text = render_page(
            "runs.html",
            charts=True,
            script=SCRIPT,
            title=f"Runs in {self.server.name}",
            reports=self.server.reports(),
            most=MOST_LINES,
        )
        self._send(text.encode(), _TYPES[".html"])

    def _rows(self, rest: str, query: str) -> None:
        self._send_json(self.server.listing.rows())

    def _charts(self, rest: str, query: str) -> None:
        """Send the charts of the runs that the query names and that still exist."""
        paths = []
        for text in parse_qs(query).get("run", [])[:MOST_LINES]:
            with suppress(FileNotFoundError):
                paths.append(self.server.run(text))
        self._send_json(run_charts(paths, self.server.root))

    def _run(self, rest: str, query: str) -> None:
        path = self.server.run(rest)
        self.server.listing.forget(path)
        page = run_page(path, self.server.root)
        self._send(page.encode(), _TYPES[".html"])

    def _file(self, rest: str, query: str) -> None:
        """Send a file; a directory leads to its page, or to the page of the run that it contains.

        Raises:
            FileNotFoundError: If there is no such file, or it is hidden.
        """
        path = self.server.place(rest)
        names = path.relative_to(self.server.root).parts
        if any(name.startswith(".") for name in names):
            raise FileNotFoundError(rest)  # hidden files may contain secrets, such as .env
        if path.is_dir():
            page = url_path(path, self.server.root)
            if is_run(path):
                self._redirect(f"/run/{page}")
            else:
                self.server.place(f"{page}/{PAGE}")
                self._redirect(f"/files/{page}/{PAGE}")
        elif path.is_file():
            headers = {
                "Content-Type": _TYPES.get(path.suffix, _OTHER_TYPE),
                "Content-Security-Policy": _FILE_POLICY,
            }
            with path.open("rb") as file:
                self._begin(headers)
                if self.command == "GET":
                    shutil.copyfileobj(file, self.wfile)
        else:
            raise FileNotFoundError(rest)  # such as a pipe, which may never end

    # ---- parts of answers

    def _send_json(self, value: object) -> None:
        """Send a value, unless the browser has it already."""
        body = json.dumps(value, allow_nan=False).encode()
        _, checksum = content_checksum(body)
        tag = f'"{checksum}"'
        headers = {"ETag": tag}
        if self.headers.get("If-None-Match") == tag:
            self._begin(headers, HTTPStatus.NOT_MODIFIED)
        else:
            self._send(body, _TYPES[".json"], headers)

    def _send(
        self,
        body: bytes,
        kind: str,
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            **more,
        }
        self._begin(headers)
        if self.command == "GET":
            self.wfile.write(body)

    def _redirect(self, url: str) -> None:
        headers = {
            "Location": url,
            "Content-Length": "0",
        }
        self._begin(headers, HTTPStatus.FOUND)

    def _begin(
        self,
        headers: Mapping[str, str],
        status: int = HTTPStatus.OK,
    ) -> None:
        """Send the status and the headers of an answer."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def end_headers(self) -> None:
        """Add the headers of all answers, including errors."""
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing about a request."""
