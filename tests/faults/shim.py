"""The library that counts a process's operations on files and does harm at the n-th; see shim.c."""

import ctypes
import enum
import os
import shutil
import subprocess
import sys
from pathlib import Path

_SOURCE = Path(__file__).with_name("shim.c")


class Harm(enum.IntEnum):
    """What happens at an operation."""

    NONE = 0
    COUNT = 1
    KILL = 2
    TEAR = 3  # a write leaves its first half, then SIGKILL
    FAIL_ONCE = 4
    FAIL_FROM = 5  # this operation and all later ones fail
    VANISH = 6  # the directory gets another name
    SEND = 7  # a signal


def why_not() -> str | None:
    """Why this machine cannot run the suites; None if it can."""
    if not sys.platform.startswith("linux"):
        return "the shim stands in for glibc's calls, which needs Linux"
    if shutil.which("cc") is None:
        return "the shim has to be compiled, and there is no cc"
    return None


def preloaded(folder: Path) -> dict[str, str]:
    """The environment of a process with the shim, which is compiled into a directory."""
    library = folder / "shim.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(_SOURCE), "-ldl"], check=True)
    threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
    return {**os.environ, **threads, "LD_PRELOAD": str(library), "FAULTS_SHIM": str(library)}


def _library() -> ctypes.CDLL:
    return ctypes.CDLL(os.environ["FAULTS_SHIM"])


def arm(folder: Path, harm: Harm, at: int = 0, number: int = 0) -> None:
    """Do harm at operation ``at`` below a directory; ``number`` is the error or the signal."""
    _library().fault_arm(str(folder).encode(), ctypes.c_int(harm), ctypes.c_long(at), ctypes.c_int(number))


def count() -> int:
    """Operations since ``arm``."""
    function = _library().fault_count
    function.restype = ctypes.c_long
    return int(function())


def let_the_clock_jump(seed: int) -> None:
    """From now on every look at the time of day is years off, forth or back."""
    _library().fault_clock(1, ctypes.c_ulong(seed))
