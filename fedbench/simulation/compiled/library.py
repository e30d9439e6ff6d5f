"""The compiled kernels, built on first use and kept in the user's cache.

They are built with the system's compiler or with that of the package ziglang.
"""

import ctypes
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock

from fedbench.core.atomic_files import to_disk
from fedbench.core.checksums import file_checksum
from fedbench.core.errors import install_hint

_SOURCE = Path(__file__).with_name("dense.cpp")
# no flag lets the compiler change the order of a sum, or assume that numbers are finite
_FLAGS = (
    "-O3",
    "-march=native",
    "-std=c++17",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
)
# lines of /proc/cpuinfo
_PROCESSOR = ("model name", "flags", "Features", "CPU part")
_PIPED: dict[str, Any] = {
    "check": True,
    "capture_output": True,
    "text": True,
    "timeout": 900,
}


class Kernels(NamedTuple):
    """The compiled kernels, or the reason why there are none."""

    library: ctypes.CDLL | None
    source: str  # the compiler that built the library, or the reason why there is none


@cache
def kernels() -> Kernels:
    """Return the compiled kernels of this machine.

    The first call on a machine compiles them, which takes seconds. If this fails, or if there is no
    compiler, one line on stderr says so, and runs continue without the kernels.
    """
    compiler = _compiler()
    if compiler is None:
        missing = "no C++ compiler found (c++, g++ or clang++, or the environment variable CXX)"
        reason = f"{missing}; to install one, run: {install_hint('compiler')}"
        _say_slower(reason)
        return Kernels(None, reason)
    try:
        printed = subprocess.run([*compiler, "--version"], **_PIPED).stdout
        version = printed.partition("\n")[0]
        path = _library_path(version)
        with FileLock(path.with_suffix(".lock")):  # another process may be compiling
            library = _built(path) or _build(compiler, path)
        return Kernels(ctypes.CDLL(str(library)), version)
    # RuntimeError: no home directory
    except (OSError, subprocess.SubprocessError, RuntimeError) as error:
        reason = str(error)
        if isinstance(error, subprocess.CalledProcessError):
            lines = [line for line in str(error.stderr).splitlines() if "error" in line]
            reason = ": ".join([f"{error.cmd[0]} failed", *lines[:1]])
        _say_slower(reason)
        return Kernels(None, reason)


def _say_slower(reason: str) -> None:
    print(
        f"fedbench: linear models and MLPs are slower without compiled kernels: {reason}",
        file=sys.stderr,
    )


def _compiler() -> list[str] | None:
    """Return the command of a C++ compiler ($CXX, the system's, or ziglang's), or None."""
    named = os.environ.get("CXX")
    for name in [named] if named else ["c++", "g++", "clang++"]:
        if compiler := shutil.which(name):
            return [compiler]
    packaged = not named and importlib.util.find_spec("ziglang") is not None
    return [sys.executable, "-m", "ziglang", "c++"] if packaged else None


def _library_path(version: str) -> Path:
    """Return the path, without a checksum, of the library in the user's cache.

    Only the user may enter the directory. The name of the library depends on everything that
    affects the library: its source, the flags, the compiler's version and the processor.
    """
    processor = f"{platform.machine()} {platform.processor()}"
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text(encoding="utf-8").partition("\n\n")[0].splitlines()
        processor = "\n".join(line for line in lines if line.startswith(_PROCESSOR))
    parts = (
        _SOURCE.read_text(encoding="utf-8"),
        *_FLAGS,
        version,
        processor,
    )
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    directory = cache.expanduser() / "fedbench" / "kernels"
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    if directory.stat().st_uid != os.getuid():
        raise PermissionError(
            f"{directory} belongs to another user, whose code would be run; remove it"
        )
    directory.chmod(0o700)
    return directory / f"kernels-{digest}"


def _built(path: Path) -> Path | None:
    """Return the library whose name contains its checksum, or None.

    A truncated library would crash the process that loads it.
    """
    for library in path.parent.glob(f"{path.name}-*.so"):
        if library == _with_checksum(path, library):
            return library
    return None


def _with_checksum(path: Path, library: Path) -> Path:
    return path.with_name(f"{path.name}-{file_checksum(library)[1]}.so")


def _build(compiler: list[str], path: Path) -> Path:
    """Compile the library and return its path."""
    # ziglang builds its C++ library first
    slow = ", about two minutes with ziglang" if "ziglang" in compiler else ""
    print(
        f"fedbench: compiling the kernels (once per machine{slow})",
        file=sys.stderr,
    )
    with tempfile.TemporaryDirectory(dir=path.parent) as directory:
        library = Path(directory) / "kernels.so"
        output = ["-shared", "-fPIC", str(_SOURCE), "-o", str(library)]
        subprocess.run([*compiler, *_FLAGS, *output], **_PIPED)
        library.chmod(0o700)
        to_disk(library)
        return library.replace(_with_checksum(path, library))
