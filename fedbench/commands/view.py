"""``fedbench view [DIR]``: a page in the browser that follows the runs below a directory."""

import signal
import webbrowser
from pathlib import Path

from fedbench.commands.result import CommandResult
from fedbench.core.files import existing_directory
from fedbench.reports.viewer.server import Viewer
from fedbench.runs.process import exit_status


def execute(
    folder: str | Path = "results",
    port: int | None = None,
    open: bool = False,
) -> CommandResult:
    """Serve pages about the runs below a directory to this machine, until Ctrl-C.

    Args:
        folder: Directory of the runs.
        port: Port of the server. If None, 8000, or any free port if that is in use.
        open: Whether to open the first page in the browser.

    Raises:
        RequestError: If the directory does not exist or the port cannot be used.
    """
    folder = existing_directory("DIR", folder)
    with Viewer(folder, port) as viewer:
        print(f"viewing {folder} at {viewer.address} (Ctrl-C ends)", flush=True)
        try:
            if open:
                webbrowser.open(viewer.address)
            viewer.serve_forever()
        except KeyboardInterrupt as interruption:
            if exit_status(interruption) != 128 + signal.SIGINT:
                raise
        print("\nno longer viewing")
    return CommandResult()
