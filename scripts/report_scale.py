"""Time and peak memory of a report of many runs.

    python scripts/report_scale.py RUN [--runs 20000] [--into DIR]

RUN is the directory of a finished run. It is copied with other seeds, methods, data sets and learning rates, each copy
with an identity and with checksums of its own; then `fedbench report` is run on the copies. The numbers of a copy
differ from those of RUN by a factor close to 1, so that no two runs are alike.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice, product
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from fedbench.config.groups import options
from fedbench.core.sealing import seal, to_text
from fedbench.runs.run import read_run

SEEDS, RATES = 10, (0.003, 0.01, 0.03, 0.1)
LINKED = ("clients.parquet", "model.safetensors")  # files that no copy changes


class Copy(NamedTuple):
    """What distinguishes a copy from the others."""

    data: str
    algo: str
    rate: float
    seed: int


def copies() -> Iterator[Copy]:
    """Yield endlessly many copies: the seeds of every learning rate of every method on one data set after the other."""
    algos = [name for name in options("algo") if not name.startswith("_")]
    number = 0
    while True:
        for algo, rate, seed in product(algos, RATES, range(SEEDS)):
            yield Copy(f"copies_{number:03d}", algo, rate, seed)
        number += 1


def write_copy(
    root: Path, copy: Copy, source: Path, config: dict[str, Any], meta: dict[str, Any], rows: Sequence[Any]
) -> None:
    """Write a copy of a run."""
    digest = hashlib.sha256(repr(copy[:3]).encode()).hexdigest()[:10]
    path = root / copy.data / copy.algo / digest / f"seed_{copy.seed}"
    path.mkdir(parents=True)
    own = {**config, "seed": copy.seed, "local": {**config["local"], "lr": copy.rate}}
    (path / "config.yaml").write_text(yaml.dump(own, Dumper=yaml.CSafeDumper, sort_keys=False))
    named = {"experiment": None, "data": copy.data, "algo": copy.algo, "hash": digest, "seed": copy.seed}
    facts = {**meta, **named, "departures": {}, "sealed": True}
    (path / "meta.json").write_text(json.dumps(facts, indent=2) + "\n")
    factor = 1 - copy.seed / 1000 - copy.rate / 10
    lines = [
        {k: v * factor if isinstance(v, float) and k.startswith("accuracy") else v for k, v in r.items()} for r in rows
    ]
    (path / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for name in LINKED:
        (path / name).hardlink_to(source / name)
    sealed = {file.name: seal(file) for file in sorted(path.iterdir())}
    (path / "DONE").write_text(to_text({"sealed": sealed}))


def make(root: Path, source: Path, runs: int) -> None:
    """Write copies of a run."""
    found = read_run(source)
    rows = found.rounds().astype(object).where(lambda t: t.notna(), None).to_dict("records")
    kept = root / ".source"  # links need the file system of the copies
    kept.mkdir(parents=True)
    for name in LINKED:
        shutil.copyfile(source / name, kept / name)
    for copy in islice(copies(), runs):
        write_copy(root, copy, kept, found.config, found.meta, rows)


def main(argv: Sequence[str]) -> None:
    """Make the copies, report them and print the cost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="directory of a finished run")
    parser.add_argument("--runs", type=int, default=20_000, help="number of copies (default: 20000)")
    parser.add_argument(
        "--into", type=Path, help="directory for the copies, which stay there (default: a temporary one)"
    )
    asked = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as temporary:
        root = asked.into or Path(temporary) / "runs"
        if not root.exists():
            make(root, asked.run.resolve(), asked.runs)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-m", "fedbench", "report", str(root)], check=True, stdout=subprocess.DEVNULL)
        wall = time.perf_counter() - begun
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(
        f"{asked.runs} runs: {wall:.1f} s, {1000 * wall / asked.runs:.2f} ms a run ({seconds:.1f} s of CPU time), "
        f"peak memory {after.ru_maxrss / 1024:.0f} MB"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
