#!/usr/bin/env python
"""Compare an implementation of a federated method with the test vectors of fedbench.

    python scripts/check_vectors.py scaffold my_scaffold.py

The Python file defines ``train(data, w0, schedule, hyperparameters)``, as results/vectors/README.md
describes it. The script runs it on every case of the method, and prints the first difference of
each: its round, client, step and entry. It needs NumPy alone. A case for which the function raises
NotImplementedError, since the implementation has no such option, is named and left out.

Exit status: 0 if all cases agree, 1 if one differs, 2 if the request is wrong.
"""

from __future__ import annotations

import argparse
import json
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

VECTORS = Path(__file__).resolve().parent.parent / "results" / "vectors"
TOLERANCE = 1e-9
PARTS = ("receives", "steps", "personal_steps", "upload", "state")

Array = NDArray[np.float64]
Json = Any
Comparison = tuple[str, str, Json, Json]  # place, name, expected, given
Train = Callable[[Json, Array, Json, Json], Json]


class WrongRequest(Exception):
    """A request that cannot be carried out."""


class Difference(NamedTuple):
    """The first place at which an implementation differs from a case.

    Attributes:
        place: The round, and the client and step or the server.
        name: Name of the value.
        message: What differs.
    """

    place: str
    name: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.name} {self.message}"


# ---- reading


def decoded(value: Json) -> Json:
    """Return a value of a file with arrays in the place of their decimal strings."""
    if isinstance(value, list):
        return [decoded(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"shape", "values"}:
        numbers = [float(text) for text in value["values"]]
        return np.array(numbers).reshape(value["shape"])
    return {name: decoded(item) for name, item in value.items()}


def numbered(value: Json) -> Json:
    """Return a schedule in which clients are whole numbers, as in its cohorts."""
    rounds = []
    for plan in value:
        changed = dict(plan)
        for name, batches in plan.items():
            if name.endswith("batches"):
                changed[name] = {int(k): steps for k, steps in batches.items()}
        rounds.append(changed)
    return rounds


def read_data(folder: Path) -> dict[str, Json]:
    """Return the data sets: the clients' examples, the layers and the initial model of each."""
    contents = decoded(json.loads((folder / "data.json").read_text()))
    sets = {}
    for name, data in contents["data"].items():
        clients = [(c["x"], np.array(c["y"])) for c in data["clients"]]
        sets[name] = {**data, "clients": clients}
    return sets


def read_method(folder: Path, name: str) -> Json:
    """Return the file of a method.

    Raises:
        WrongRequest: If there is none.
    """
    path = folder / f"{name}.json"
    if not path.exists():
        known = sorted(p.stem for p in folder.glob("*.json") if p.stem not in ("data", "schema"))
        raise WrongRequest(f"{folder} has no vectors of {name!r}; it has {', '.join(known)}")
    return decoded(json.loads(path.read_text()))


def read_function(path: Path, name: str) -> Train:
    """Return a function of a Python file.

    Raises:
        WrongRequest: If there is none.
    """
    if not path.exists():
        raise WrongRequest(f"{path} does not exist; give a Python file")
    functions = runpy.run_path(str(path))
    if name not in functions:
        raise WrongRequest(f"{path} has no function {name!r}; see --function")
    train: Train = functions[name]
    return train


def chosen_cases(method: Json, variant: str | None) -> list[Json]:
    """Return the cases of a variant, or all of them.

    Raises:
        WrongRequest: If there are none.
    """
    cases: list[Json] = method["cases"]
    if variant is None:
        return cases
    names = list(dict.fromkeys(case["variant"] for case in cases))
    if variant not in names:
        raise WrongRequest(f"{method['method']} has no variant {variant!r}; it has {names}")
    return [case for case in cases if case["variant"] == variant]


# ---- comparing


def unequal(expected: Array, given: Json, tolerance: float) -> str:
    """Return how an array differs, or "" if it does not.

    Two numbers are equal if they differ by at most ``tolerance`` times the larger of 1 and the
    expected number.
    """
    try:
        actual = np.asarray(given, dtype=float)
    except (TypeError, ValueError):
        return f"should be numbers of shape {expected.shape}, got {given!r}"
    if actual.shape != expected.shape:
        return f"should have shape {expected.shape}, got {actual.shape}"
    gap = np.abs(actual - expected)
    close = gap <= tolerance * np.maximum(1, np.abs(expected))  # False for NaN
    if close.all():
        return ""
    index = tuple(int(i) for i in np.argwhere(~close)[0])
    entry = f"at entry {', '.join(map(str, index))} " if index else ""
    return (
        f"{entry}should be {float(expected[index])!r}, got {float(actual[index])!r}, which differs "
        f"by {float(gap[index]):.3g} ({int((~close).sum())} of {close.size} entries differ)"
    )


def values_of(expected: Json, given: Json, place: str) -> Iterator[Comparison]:
    """Yield (place, name, expected, given) for the values of a part, in the order of the file."""
    unknown = sorted(given.keys() - expected.keys())
    if unknown:
        allowed = ", ".join(expected) or "nothing"
        yield place, unknown[0], None, f"is not among the values here, which are {allowed}"
    for name, value in expected.items():
        if name in given:
            yield place, name, value, given[name]


def steps_of(expected: Json, given: Json, place: str) -> Iterator[Comparison]:
    """Yield (place, name, expected, given) step by step."""
    known = {name: rows for name, rows in given.items() if name in expected}
    others = {name: rows for name, rows in given.items() if name not in expected}
    yield from values_of(expected, others, place)
    longest = max((len(rows) for rows in expected.values()), default=0)
    for step in range(longest):
        for name, rows in known.items():
            if step < len(rows):
                yield f"{place}, step {step + 1}", name, expected[name][step], rows[step]
    for name, rows in known.items():
        if len(rows) != longest:
            message = f"should have {longest} steps, got {len(rows)}"
            yield f"{place}, step {min(longest, len(rows)) + 1}", name, None, message


def pairs(case: Json, states: Json) -> Iterator[Comparison]:
    """Yield (place, name, expected, given) for all values that an implementation returns.

    They come in the order in which they are computed. A message in the place of a given value
    stands for an error, and has None for the expected value.
    """
    count = len(case["rounds"])
    for t, expected in enumerate(case["rounds"]):
        place = f"round {t + 1}"
        if t >= len(states):
            yield place, "states", None, f"should be {count} rounds, got {len(states)}"
            return
        given = states[t]
        clients = {str(k): client for k, client in given.get("clients", {}).items()}
        for k in sorted(clients.keys() - expected["clients"].keys()):
            yield f"{place}, client {k}", "client", None, "does not take part in this round"
        for k, client in expected["clients"].items():
            for part in PARTS:
                here = f"{place}, client {k}"
                mine = clients.get(k, {}).get(part, {})
                walk = steps_of if part.endswith("steps") else values_of
                for where, name, *values in walk(client.get(part, {}), mine, here):
                    yield where, f"{part}.{name}", values[0], values[1]
        # the model comes last: it is computed from the other values
        server = dict(sorted(expected["server"].items(), key=lambda item: item[0] == "w"))
        mine = given.get("server", {})
        for where, name, *values in values_of(server, mine, f"{place}, server"):
            yield where, f"server.{name}", values[0], values[1]
        if "model" not in given:
            yield place, "model", None, "is missing; every round needs it"
        else:
            yield place, "model", expected["model"], given["model"]


def first_difference(case: Json, states: Json, tolerance: float = TOLERANCE) -> Difference | None:
    """Return the first difference of an implementation from a case, or None.

    Args:
        case: The case, as ``read_method`` returns it.
        states: What ``train`` returned.
        tolerance: Largest difference, relative to numbers above 1.
    """
    for place, name, expected, given in pairs(case, states):
        message = given if expected is None else unequal(expected, given, tolerance)
        if message:
            return Difference(place, name, message)
    return None


def omitted(case: Json, states: Json) -> list[str]:
    """Return the names of the values that an implementation does not return in some round."""
    names = []
    for expected, given in zip(case["rounds"], states, strict=True):
        clients = {str(k): client for k, client in given.get("clients", {}).items()}
        names += [f"server.{name}" for name in expected["server"].keys() - given.get("server", {})]
        for k, client in expected["clients"].items():
            for part, values in client.items():
                mine = clients.get(k, {}).get(part, {})
                names += [f"{part}.{name}" for name in values.keys() - mine]
    return sorted(set(names))


def run_case(train: Train, case: Json, data: Mapping[str, Json]) -> Json:
    """Return what an implementation returns for a case."""
    chosen = data[case["data"]]
    schedule = numbered(case["schedule"])
    return train(dict(chosen), chosen["w0"].copy(), schedule, dict(case["hyperparameters"]))


def title(case: Json) -> str:
    """Return a name of a case."""
    return f"{case['variant']} ({case['data']}, {case['cohorts']})"


# ---- the command


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """Return the arguments of the command."""
    parser = argparse.ArgumentParser(
        description="Compare an implementation with the test vectors of a federated method."
    )
    parser.add_argument("method", help="name of the method, such as scaffold")
    parser.add_argument("file", type=Path, help="Python file with the function")
    parser.add_argument("--function", default="train", help="its name (default: train)")
    parser.add_argument("--variant", help="only this variant, such as default")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE, help="default: 1e-9")
    parser.add_argument("--vectors", type=Path, default=VECTORS, help="folder of the vectors")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Compare, print and return the exit status."""
    args = parsed(arguments)
    try:
        cases = chosen_cases(read_method(args.vectors, args.method), args.variant)
        train = read_function(args.file, args.function)
    except WrongRequest as error:
        print(error, file=sys.stderr)
        return 2

    data = read_data(args.vectors)
    status = 0
    for case in cases:
        try:
            states = run_case(train, case, data)
        except NotImplementedError as error:
            print(f"{title(case)}: not compared, {error}")
            continue
        difference = first_difference(case, states, args.tolerance)
        if difference is not None:
            status = 1
            print(f"{title(case)}: {difference}")
            continue
        left_out = omitted(case, states)
        remark = f", without {', '.join(left_out)}, which it does not return" if left_out else ""
        print(f"{title(case)}: agrees{remark}")
    return status


if __name__ == "__main__":
    sys.exit(main())
