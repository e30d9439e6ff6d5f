"""A command in a forked child: it has all modules, costs a hundredth of a second to start, and may die."""

import os
import select
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_PATIENCE = 120.0  # seconds after which a child hangs


@dataclass(frozen=True)
class End:
    """How a child has ended: its exit status, or minus the signal; what it printed; whether it hung."""

    status: int
    text: str
    hung: bool

    @property
    def crashed(self) -> bool:
        """Whether a user sees an internal error, or the process died of one."""
        internal = ("Traceback", "debug=true shows", "Exception ignored")
        died = self.status < 0 and self.status not in (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGHUP)
        return died or any(sign in self.text for sign in internal)


class Child:
    """A forked child at work."""

    def __init__(self, work: Callable[[], int]) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (closed by end)
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if not self.pid:
            self._become(work)

    def _become(self, work: Callable[[], int]) -> None:
        status = 70
        try:
            for number in (1, 2):
                os.dup2(self._output.fileno(), number)
            status = work()
        except BaseException:
            os.write(2, traceback.format_exc().encode())  # sys.stderr may be another file, such as that of a test
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def send(self, number: int) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def end(self) -> End:
        """Wait for the end."""
        handle = os.pidfd_open(self.pid)
        try:
            hung = not select.select([handle], [], [], _PATIENCE)[0]
        finally:
            os.close(handle)
        if hung:
            os.kill(self.pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        with self._output as output:
            output.seek(0)
            return End(status, output.read().decode(errors="replace"), hung)


def answer(work: Callable[[], Any]) -> Any:
    """What a function returns in a child; it must be text."""
    end = Child(lambda: print(work()) or 0).end()
    assert end.status == 0, end.text
    return end.text.splitlines()[-1]
