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

from fedbench.core.errors import RequestError

# SIGUSR1 is what SLURM is usually told to send before the time of a job is over
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
_DEFAULTS = (signal.SIG_DFL, signal.default_int_handler)
# torchrun has started this process, and others
_GROUP = os.environ if "TORCHELASTIC_RUN_ID" in os.environ else {}
# its number, also on this machine
RANK, LOCAL_RANK = int(_GROUP.get("RANK", 0)), int(_GROUP.get("LOCAL_RANK", 0))
# with this one
WORLD_SIZE, LOCAL_WORLD_SIZE = (
    int(_GROUP.get("WORLD_SIZE", 1)),
    int(_GROUP.get("LOCAL_WORLD_SIZE", 1)),
)


class Interrupted(KeyboardInterrupt):
    """A signal asked this process to end.

    Args:
        number: The signal.
        where: What it has ended, for a message.
    """

    def __init__(self, number: int, where: str = "") -> None:
        super().__init__(signal.Signals(number).name)
        self.number, self.where = number, where


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


def answered_signals() -> list[int]:
    """Return the signals that raise an exception in this process now, so not those that it ignores."""
    return [number for number in _SIGNALS if callable(signal.getsignal(number))]


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return max(1, cores // LOCAL_WORLD_SIZE)


@contextmanager
def answered_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Let a function handle signals inside this block, in place of default handlers and those of this module."""
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in (_SIGNALS if main else ())}
    # handlers of the program that calls fedbench stay, and so do signals that are ignored
    ours = [
        n for n, h in before.items() if h in _DEFAULTS or getattr(h, "__module__", None) == __name__
    ]
    try:
        for number in ours:
            signal.signal(number, handler)
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])


def raise_interrupted(number: int, frame: FrameType | None) -> None:
    """Raise ``Interrupted``."""
    raise Interrupted(number)


def end_at_once(number: int, frame: FrameType | None) -> None:
    """End the process: some libraries swallow an exception that comes while they are imported."""
    print("fedbench: interrupted", file=sys.stderr, flush=True)
    os._exit(128 + number)


@contextmanager
def between_rounds() -> Iterator[Callable[[], int | None]]:
    """Note a signal inside this block instead of raising an exception in the middle of a round; a second one raises it.

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

    with answered_by(note):
        yield lambda: noted


@contextmanager
def deadline(seconds: float) -> Iterator[list[bool]]:
    """End this block after some seconds without an error; the list that is given is not empty if the time was up.

    The main thread then receives SIGINT, or where that is ignored, as in the background of a shell
    script, another signal that ends runs: those under way finish their round, write a checkpoint
    and stop. An interruption by anything else stays one.

    Raises:
        RequestError: If no signal could end the block.
    """
    answered, main, over = answered_signals(), threading.get_ident(), []
    if not answered:
        raise RequestError("--hours cannot end runs here, since all signals are ignored; remove it")

    def ring() -> None:
        over.append(True)
        signal.pthread_kill(main, answered[0])

    timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), ring)
    timer.daemon = True
    timer.start()
    try:
        yield over
        timer.cancel()
        timer.join()  # if the time was up just now, its signal comes here and not after the block
    except BaseException as error:
        if not over or interruption(error) is None:
            raise
    finally:
        timer.cancel()
