"""The current process: its available cores, and the signals that ask it to end.

The signals come from Ctrl-C, schedulers, closed terminals and other processes. Each of them is
handled like Ctrl-C, unless it is ignored (as in a shell's background jobs) or the program that
calls fedbench has its own handler. Handlers are installed in the main thread only.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

# SLURM is usually configured to send SIGUSR1 before the time limit of a job, and a deadline sends
# SIGALRM
_SIGNALS = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGALRM,
)
_DEFAULTS = (signal.SIG_DFL, signal.default_int_handler)
# environment variables of torchrun, if it started this process
_GROUP = os.environ if "TORCHELASTIC_RUN_ID" in os.environ else {}
RANK = int(_GROUP.get("RANK", 0))
WORLD_SIZE = int(_GROUP.get("WORLD_SIZE", 1))
# among the processes on this machine
LOCAL_RANK = int(_GROUP.get("LOCAL_RANK", 0))
LOCAL_WORLD_SIZE = int(_GROUP.get("LOCAL_WORLD_SIZE", 1))


class Interrupted(KeyboardInterrupt):
    """Interruption by a signal that asked this process to end.

    Args:
        number: The signal.
        where: Description of the interrupted work, for a message.
    """

    def __init__(self, number: int, where: str = "") -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number
        self.where = where


def exit_status(error: KeyboardInterrupt) -> int:
    """Return the exit status of a command that was ended by a signal: 128 + the signal's number."""
    return 128 + (error.number if isinstance(error, Interrupted) else signal.SIGINT)


def interruption(error: BaseException | None) -> KeyboardInterrupt | None:
    """Return the interruption during which an error occurred, or None.

    Libraries such as OmegaConf may fail while they clean up after ``Interrupted``, and then raise
    their own error in its place.
    """
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    return max(1, cores // LOCAL_WORLD_SIZE)


@contextmanager
def on_signal(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle signals with a function inside this block.

    The function replaces default handlers and handlers of this module. Handlers of the program that
    calls fedbench are kept, and ignored signals remain ignored.
    """
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            present = signal.getsignal(number)
            if present in _DEFAULTS or getattr(present, "__module__", None) == __name__:
                before[number] = present
    try:
        for number in before:
            signal.signal(number, handler)
        yield
    finally:
        for number, present in before.items():
            signal.signal(number, present)


def raise_interrupted(number: int, frame: FrameType | None) -> None:
    """Raise ``Interrupted``."""
    raise Interrupted(number)


def end_at_once(number: int, frame: FrameType | None) -> None:
    """End the process; some libraries swallow exceptions raised while they are imported."""
    print("fedbench: interrupted", file=sys.stderr, flush=True)
    os._exit(128 + number)


@contextmanager
def between_rounds(
    at_once: Callable[[], bool] = lambda: False,
) -> Iterator[Callable[[], int | None]]:
    """Note a signal inside this block instead of raising an exception in the middle of a round.

    A second signal raises ``Interrupted``.

    Args:
        at_once: Function that returns whether the first signal raises it as well.

    Yields:
        A function that returns the signal received so far, or None.
    """
    noted: int | None = None

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal noted
        if noted is not None or at_once():
            raise Interrupted(number)
        noted = number
        print(
            "fedbench: ending after this round; a second signal ends at once",
            file=sys.stderr,
            flush=True,
        )

    with on_signal(note):
        yield lambda: noted


@contextmanager
def deadline(seconds: float) -> Iterator[list[bool]]:
    """End this block without an error after a number of seconds.

    When the time is up, the process receives SIGALRM, which is handled like other signals: active
    runs finish their round, write a checkpoint and stop. Other interruptions are still raised.

    Yields:
        A list that is non-empty once the time is up.
    """
    over: list[bool] = []
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield over
        signal.setitimer(signal.ITIMER_REAL, 0)  # a signal that has just arrived is raised here
    except BaseException as error:
        cause = interruption(error)
        if not isinstance(cause, Interrupted) or cause.number != signal.SIGALRM:
            raise
        over.append(True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
