"""Pictures, drawn by further processes while this one computes what comes next.

    python -m fedbench.report.drawing

is such a process: it reads tasks from its standard input, as long as there are any, and answers on its standard output.
It ends with the process that has started it, whose end of the pipe is closed then, however it dies.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import local
from types import TracebackType
from typing import IO, Any

from fedbench.core.errors import RequestError
from fedbench.report.views import FigureView
from fedbench.runs.cores import available_cores

Draw = Callable[..., list[Path]]
_FEW = 8  # pictures; for so few, processes would take longer to start than to draw


class Drawing:
    """Draws pictures; use it as a context manager.

    Args:
        pictures: About how many there will be: many are drawn by as many processes as there are cores.
    """

    def __init__(self, pictures: int = 0) -> None:
        cores = available_cores()
        self._threads = ThreadPoolExecutor(cores) if pictures > _FEW and cores > 1 else None
        self._own = local()  # of each thread: its process
        self._processes: list[subprocess.Popen[bytes]] = []
        self._begun: dict[str, Future[list[Path]]] = {}

    def __enter__(self) -> Drawing:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:  # the pictures are no longer wanted
            for process in self._processes:
                process.kill()
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        for process in self._processes:
            with process:  # closes its pipes and waits for its end
                pass

    def draw(self, view: FigureView, draw: Draw, base: Path, *given: Any, reduced: bool) -> FigureView:
        """Draw a picture, now or later, and return its view; ``finished`` gives those of later ones their pictures.

        Args:
            view: The view without the picture.
            draw: Drawing function of ``fedbench.report.plots``.
            base: Path of its files without their endings.
            given: Its further arguments.
            reduced: Its argument of this name.

        Raises:
            NotWritten: If a file cannot be written.
        """
        if self._threads is None:
            return _with_picture(view, draw(base, *given, reduced=reduced))
        self._begun[view.name] = self._threads.submit(self._elsewhere, draw, (base, *given), reduced)
        return view

    def finished(self, views: Iterable[FigureView]) -> list[FigureView]:
        """Return views with their pictures, once these are drawn.

        Raises:
            NotWritten: If a file cannot be written.
            RequestError: If a process that draws has been ended.
        """
        return [_with_picture(v, self._begun[v.name].result()) if v.name in self._begun else v for v in views]

    def _elsewhere(self, draw: Draw, given: tuple[Any, ...], reduced: bool) -> list[Path]:
        """Have a picture drawn by the process of this thread."""
        if not hasattr(self._own, "process"):
            self._own.process = _process()
            self._processes.append(self._own.process)
        process: subprocess.Popen[bytes] = self._own.process
        assert process.stdin is not None and process.stdout is not None
        try:
            pickle.dump((draw, given, reduced), process.stdin)
            process.stdin.flush()
            answer = pickle.load(process.stdout)  # noqa: S301 (of a process of our own)
        except (EOFError, OSError) as error:
            raise RequestError(
                f"a process that draws pictures ended with exit status {process.wait()}; run the same command again"
            ) from error
        if isinstance(answer, BaseException):
            raise answer
        files: list[Path] = answer
        return files


def _process() -> subprocess.Popen[bytes]:
    path = os.pathsep.join(p or str(Path.cwd()) for p in sys.path)  # where this process finds fedbench, and matplotlib
    return subprocess.Popen(  # noqa: S603 (this interpreter, with a module of our own)
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,  # Ctrl-C is for the process that waits for it
    )


def _with_picture(view: FigureView, files: Iterable[Path]) -> FigureView:
    return replace(view, svg=next(f for f in files if f.suffix == ".svg").read_text(encoding="utf-8"))


def serve(tasks: IO[bytes], answers: IO[bytes]) -> None:
    """Draw the pictures that arrive until there are no more; an error is the answer in place of the files."""
    while True:
        try:
            draw, given, reduced = pickle.load(tasks)  # noqa: S301 (of the process that has started this one)
        except EOFError:
            return
        try:
            answer: Any = draw(*given, reduced=reduced)
        except Exception as error:
            answer = error
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    sys.stdout = sys.stderr  # what is printed is no answer
    serve(sys.stdin.buffer, answers)
