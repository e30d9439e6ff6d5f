"""This process: the cores that it may use, and the signals that ask it to end.

Those are Ctrl-C, and what schedulers, closed terminals and other processes send. Each is answered
as Ctrl-C is, unless it is ignored (as in the background of a shell) or the program that calls
fedbench has a handler of its own. Handlers exist in the main thread only.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

# SIGUSR1 is what SLURM is usually told to send before the time of a job is over, and SIGALRM comes
# at a deadline
_SIGNALS = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGALRM,
)
_DEFAULTS = (signal.SIG_DFL, signal.default_int_handler)
# torchrun has started this process, and others
_GROUP = os.environ if "TORCHELASTIC_RUN_ID" in os.environ else {}
RANK = int(_GROUP.get("RANK", 0))
WORLD_SIZE = int(_GROUP.get("WORLD_SIZE", 1))
# of those on this machine
LOCAL_RANK = int(_GROUP.get("LOCAL_RANK", 0))
LOCAL_WORLD_SIZE = int(_GROUP.get("LOCAL_WORLD_SIZE", 1))


class Interrupted(KeyboardInterrupt):
    """A signal asked this process to end.

    Args:
        number: The signal.
        where: What it has ended, for a message.
    """

    def __init__(self, number: int, where: str = "") -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number
        self.where = where


def exit_status(error: KeyboardInterrupt) -> int:
    """Return the exit status of a command that a signal has ended: 128 and the signal's number."""
    return 128 + (error.number if isinstance(error, Interrupted) else signal.SIGINT)


def interruption(error: BaseException | None) -> KeyboardInterrupt | None:
    """Return the signal during which an error came up, if there was one.

    Libraries may fail while they clean up after ``Interrupted``, as OmegaConf does, and raise their
    own error over it.
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
    """Let a function handle signals inside this block.

    It takes the place of default handlers and of those of this module. Handlers of the program that
    calls fedbench stay, and so do signals that are ignored.
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
    """End the process: some libraries swallow an exception that comes while they are imported."""
    print("fedbench: interrupted", file=sys.stderr, flush=True)
    os._exit(128 + number)


@contextmanager
def between_rounds() -> Iterator[Callable[[], int | None]]:
    """Note a signal inside this block instead of raising an exception in the middle of a round.

    A second signal raises it.

    Yields:
        A function that returns the signal that has come, or None.
    """
    noted: int | None = None

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal noted
        if noted is not None:
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
    """End this block after some seconds without an error.

    The list that it gives is not empty if the time was up.

    The process then receives SIGALRM, which is answered as other signals are: runs under way finish
    their round, write a checkpoint and stop. An interruption by anything else stays one.
    """
    over: list[bool] = []
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield over
        signal.setitimer(signal.ITIMER_REAL, 0)  # a signal that has just come is raised here
    except BaseException as error:
        cause = interruption(error)
        if not isinstance(cause, Interrupted) or cause.number != signal.SIGALRM:
            raise
        over.append(True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
