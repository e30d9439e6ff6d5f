"""Write the page of the fairness benchmark.

    python scripts/benchmark_page.py OUT --from DIR [DIR ...]
    python scripts/benchmark_page.py OUT

The first form collects the results in OUT and writes the page; the second writes the page again
from OUT alone, byte for byte. Every DIR is the results directory of one setting
(scripts/fairness_benchmark.py). OUT/notes.yaml has the title and the texts of the page, or is
copied from --notes FILE; runs.parquet and tuning.json, which the first form writes, have everything
else.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmark.comparisons import collect, load, save
from benchmark.page import NOTES, read_notes, write_benchmark

from fedbench.core.atomic_files import replace_file
from fedbench.core.errors import RequestError


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path, help="directory of the page, with notes.yaml")
    parser.add_argument(
        "--from",
        dest="folders",
        type=Path,
        nargs="+",
        help="results directories of the settings",
    )
    parser.add_argument("--notes", type=Path, help="a notes.yaml to copy to OUT")
    args = parser.parse_args(argv)
    try:
        notes = read_notes(args.notes or args.out / NOTES)
        if args.folders:
            save(collect(args.folders), args.out)
        if args.notes:
            args.out.mkdir(parents=True, exist_ok=True)
            replace_file(args.out / NOTES, args.notes.read_text(encoding="utf-8"))
        print(f"written: {write_benchmark(load(args.out), notes, args.out)}")
    except RequestError as error:
        print(f"{error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
