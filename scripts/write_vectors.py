#!/usr/bin/env python
"""Write the test vectors of the methods.

    python scripts/write_vectors.py [--to results/vectors] [METHOD ...]

They are made by the references in scripts/vectors, which need NumPy alone.
"""

import argparse
from pathlib import Path

from vectors.catalogue import METHODS
from vectors.files import data_file, method_file, text

FOLDER = Path(__file__).resolve().parent.parent / "results" / "vectors"


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description="Write the test vectors of the methods.")
    parser.add_argument("--to", type=Path, default=FOLDER, help="default: results/vectors")
    parser.add_argument("methods", nargs="*", metavar="METHOD", help="default: all")
    args = parser.parse_args()
    unknown = sorted(set(args.methods) - METHODS.keys())
    if unknown:
        parser.error(f"there is no method {unknown[0]!r}; there are {', '.join(sorted(METHODS))}")

    args.to.mkdir(parents=True, exist_ok=True)
    (args.to / "data.json").write_text(text(data_file()) + "\n")
    for name in args.methods or METHODS:
        (args.to / f"{name}.json").write_text(text(method_file(name)) + "\n")


if __name__ == "__main__":
    main()
