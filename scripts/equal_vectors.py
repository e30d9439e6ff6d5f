#!/usr/bin/env python
"""Write test vectors of clients with equal numbers of examples and steps.

    python scripts/equal_vectors.py --to build/equal

Some peers have such clients alone, and some have readings that results/vectors does not have. Here
each of three clients has 8 examples, in two batches, and takes two epochs.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from vectors.catalogue import METHODS, Case
from vectors.files import VERSION, array, case, text
from vectors.problems import NETWORK_SAMPLED, SOFTMAX_ALL, SOFTMAX_SAMPLED, Problem

# options beside the defaults, of the methods that are written
READINGS = {
    "scaffold": {},
    "fedcm": {},
    "mofedsam": {},
    "fedadam": {"v0": 0.0},
    "fedadagrad": {"v0": 0.0},
    "fedyogi": {"v0": 0.0},
    "feddyn": {"alpha": 0.5},
}


def equal(problem: Problem) -> Problem:
    """Return a problem with clients of equal size, which take two epochs."""
    return replace(problem, data=replace(problem.data, sizes=(8, 8, 8))).with_epochs(2)


PROBLEMS = [equal(problem) for problem in (SOFTMAX_SAMPLED, SOFTMAX_ALL, NETWORK_SAMPLED)]


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description="Write test vectors of equal clients.")
    parser.add_argument("--to", type=Path, required=True, help="folder")
    folder = parser.parse_args().to
    folder.mkdir(parents=True, exist_ok=True)

    sets = {}
    for problem in PROBLEMS:
        sets[problem.kind] = {
            "layers": list(problem.model.sizes),
            "tensors": [list(shape) for shape in problem.model.shapes],
            "w0": array(problem.w0),
            "clients": [{"x": array(x), "y": y.tolist()} for x, y in problem.data.clients],
        }
    (folder / "data.json").write_text(text({"version": VERSION, "data": sets}) + "\n")
    for name, options in READINGS.items():
        entry = METHODS[name]
        methods = [entry.method(problem, options, lr=entry.lr) for problem in PROBLEMS]
        cases = [case(Case(name, "equal clients", m, m.problem.schedule())) for m in methods]
        for item in cases:
            item["hyperparameters"].pop("weights", None)  # they are equal
        contents = {"version": VERSION, "method": name, "cases": cases}
        (folder / f"{name}.json").write_text(text(contents) + "\n")


if __name__ == "__main__":
    main()
