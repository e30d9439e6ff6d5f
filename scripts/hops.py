"""Count the functions and modules of fedbench that one small run crosses.

usage: python scripts/hops.py [--list] [KEY=VALUE ...]

The run is `fedbench algo=adafedadam data=synthetic_leaf rounds=20` unless overrides are given; its files are written
to a temporary directory. A function counts once however often it is called, also in worker threads; lambdas,
comprehensions and the bodies of classes and modules do not count.
"""

from __future__ import annotations

import argparse
import inspect
import os
import sys
import tempfile
import threading
from pathlib import Path
from types import CodeType, FrameType

RUN = ("algo=adafedadam", "data=synthetic_leaf", "rounds=20")
ROOT = Path(__file__).resolve().parent.parent / "fedbench"


class Crossed:
    """The functions of the package that have been called, in order of first call."""

    def __init__(self) -> None:
        self.codes: dict[CodeType, None] = {}

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """Note a call; this is the profile function of the interpreter."""
        if event == "call":
            self.codes.setdefault(frame.f_code)

    def functions(self) -> list[tuple[str, str]]:
        """Module and qualified name of each function."""
        own = [c for c in self.codes if Path(c.co_filename).is_relative_to(ROOT)]
        named = [c for c in own if c.co_flags & inspect.CO_OPTIMIZED and not c.co_name.startswith("<")]
        return [(str(Path(c.co_filename).relative_to(ROOT)), c.co_qualname) for c in named]


def main(argv: list[str] | None = None) -> int:
    """Carry out the run, print what it crossed and return its exit status."""
    p = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    p.add_argument("--list", action="store_true", help="print every function, in order of its first call")
    p.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    asked = p.parse_args(argv)

    crossed, before = Crossed(), Path.cwd()
    sys.path.insert(0, str(ROOT.parent))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        threading.setprofile(crossed)
        sys.setprofile(crossed)
        try:
            from fedbench.cli import main as fedbench

            status = fedbench(list(asked.overrides or RUN))
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
            os.chdir(before)
    functions = crossed.functions()
    if asked.list:
        for module, name in functions:
            print(f"{module}: {name}")
    modules = {module for module, _ in functions}
    rooms = {Path(module).parts[0] for module in modules if len(Path(module).parts) > 1}
    print(f"{len(functions)} functions in {len(modules)} modules of {len(rooms)} rooms")
    return status


if __name__ == "__main__":
    sys.exit(main())
