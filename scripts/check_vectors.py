#!/usr/bin/env python
"""Compare an implementation of a federated method with the test vectors of fedbench.

    python scripts/check_vectors.py scaffold my_scaffold.py

The Python file defines ``train(data, w0, schedule, hyperparameters)``, as results/vectors/README.md
describes it. The script runs it on every case of the method, and prints the first difference of
each: its round, client, step and entry. It needs NumPy alone. A case for which the function raises
NotImplementedError, since it has no such option, is not compared.

Exit status: 0 if all cases agree, 1 if one differs, 2 if one cannot be compared: the request is
wrong, the function fails, or it returns something of another form.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import reprlib
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

VECTORS = Path(__file__).resolve().parent.parent / "results" / "vectors"
TOLERANCE = 1e-9
ARGUMENTS = ("data", "w0", "schedule", "hyperparameters")
ROUND_PARTS = ("clients", "server", "model")
PARTS = ("receives", "steps", "personal_steps", "upload", "state")

Array = NDArray[np.float64]
Json = Any
Comparison = tuple[str, str, Json, Json]  # place, name, expected, given
Train = Callable[[Json, Array, Json, Json], Json]


class WrongRequest(Exception):
    """A request that cannot be carried out."""


class WrongForm(Exception):
    """A returned value of another form than results/vectors/README.md describes."""


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


def folder_of(given: Path | None) -> Path:
    """Return the folder of the vectors: the given one, or the first of the usual ones.

    Those are the repository's, the folder of this script, and ``vectors`` in the current one.

    Raises:
        WrongRequest: If it has no vectors.
    """
    usual = [VECTORS, Path(__file__).resolve().parent, Path("vectors")]
    folders = usual if given is None else [given]
    for folder in folders:
        if (folder / "data.json").is_file():
            return folder
    places = ", ".join(map(str, folders))
    raise WrongRequest(f"there is no data.json in {places}; use --vectors with the right folder")


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
    known = sorted(p.stem for p in folder.glob("*.json") if p.stem not in ("data", "schema"))
    if name not in known:
        raise WrongRequest(f"{folder} has no vectors of {name!r}; it has {', '.join(known)}")
    return decoded(json.loads((folder / f"{name}.json").read_text()))


def read_function(path: Path, name: str) -> Train:
    """Return a function of a Python file.

    Raises:
        WrongRequest: If there is none, if it takes other arguments, or if the file fails.
    """
    if not path.is_file():
        state = "is not a file" if path.exists() else "does not exist"
        raise WrongRequest(f"{path} {state}; give a Python file")
    try:
        functions = runpy.run_path(str(path))
    except Exception as error:
        traceback.print_exc()
        raise WrongRequest(f"{path} cannot be run: {described_error(error)}") from error
    if not callable(functions.get(name)):
        raise WrongRequest(f"{path} has no function {name!r}; see --function")
    train: Train = functions[name]
    try:
        inspect.signature(train).bind(*ARGUMENTS)
    except TypeError as error:
        wanted = ", ".join(ARGUMENTS)
        raise WrongRequest(f"{name} must take 4 arguments, which are {wanted}: {error}") from error
    return train


def described_error(error: Exception) -> str:
    """Return the type of an error and its message."""
    return f"{type(error).__name__}: {error}"


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


# ---- the form of what an implementation returns


def checked(case: Json, states: Json) -> list[Json]:
    """Return the states of a case, with clients by their names in the file.

    Raises:
        WrongForm: If something is not where the README has it.
    """
    rule = "it must return a list with a dictionary for each round"
    if not isinstance(states, Sequence) or isinstance(states, str):
        raise WrongForm(f"the function returned {described(states)}; {rule}")
    count = len(case["rounds"])
    if len(states) != count:
        raise WrongForm(f"the function returned {len(states)} rounds; {rule}, here {count}")
    return [checked_round(given, f"round {t}") for t, given in enumerate(states, start=1)]


def checked_round(given: Json, place: str) -> Json:
    """Return the states of a round, with clients by their names in the file."""
    check_parts(given, place, ROUND_PARTS)
    server = given.get("server", {})
    check_dictionary(server, f"{place}: server", "of values by name")
    clients = given.get("clients", {})
    check_dictionary(clients, f"{place}: clients", "with a dictionary for each client")
    for k, client in clients.items():
        check_client(client, f"{place}, client {k}")
    return {**given, "server": server, "clients": {str(k): c for k, c in clients.items()}}


def check_client(given: Json, place: str) -> None:
    """Raise WrongForm if the part of a client in a round has another form."""
    check_parts(given, place, PARTS)
    for part, values in given.items():
        check_dictionary(values, f"{place}: {part}", "of values by name")
        if part.endswith("steps"):
            for name, rows in values.items():
                # arrays of any library have ndim
                if not isinstance(rows, (list, tuple)) and not getattr(rows, "ndim", 0):
                    message = f"{place}: {part}.{name} is {described(rows)}"
                    raise WrongForm(f"{message}; it must have a row for each local step")


def check_parts(given: Json, place: str, known: Sequence[str]) -> None:
    """Raise WrongForm unless a value is a dictionary with no other keys than the known ones."""
    check_dictionary(given, place, f"with some of {', '.join(known)}")
    unknown = [name for name in given if name not in known]
    if unknown:
        raise WrongForm(f"{place}: {unknown[0]!r} is unknown; there are {', '.join(known)}")


def check_dictionary(given: Json, name: str, content: str) -> None:
    """Raise WrongForm unless a value is a dictionary."""
    if not isinstance(given, Mapping):
        raise WrongForm(f"{name} is {described(given)}; it must be a dictionary {content}")


def described(value: Json) -> str:
    """Return what a value is, in a few words."""
    if value is None:
        return "None"
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    return f"a value of type {type(value).__name__}"


# ---- comparing


def unequal(expected: Array, given: Json, tolerance: float) -> str:
    """Return how an array differs, or "" if it does not.

    Two numbers are equal if they differ by at most ``tolerance`` times the larger of 1 and the
    expected number.
    """
    try:
        actual = np.asarray(given, dtype=float)
    except (TypeError, ValueError, RuntimeError) as error:  # torch raises the last one
        value = reprlib.repr(given)
        return f"should be numbers of shape {expected.shape}, got {value} ({error})"
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
    unknown = sorted(given.keys() - expected.keys(), key=str)
    if unknown:
        allowed = ", ".join(expected) or "nothing"
        yield place, unknown[0], None, f"is not among the values here, which are {allowed}"
    for name, value in expected.items():
        if name in given:
            yield place, name, value, given[name]


def steps_of(expected: Json, given: Json, place: str) -> Iterator[Comparison]:
    """Yield (place, name, expected, given): errors in the number of steps, then step by step."""
    known = {name: rows for name, rows in given.items() if name in expected}
    others = {name: rows for name, rows in given.items() if name not in expected}
    yield from values_of(expected, others, place)
    for name, rows in known.items():
        count = len(expected[name])
        if len(rows) != count:
            message = f"should have {count} steps, got {len(rows)}"
            if len(rows) == count + 1:
                message += "; the value before the first step is not one of them"
            yield f"{place}, step {min(count, len(rows)) + 1}", name, None, message
    longest = max((len(expected[name]) for name in known), default=0)
    for step in range(longest):
        for name, rows in known.items():
            yield f"{place}, step {step + 1}", name, expected[name][step], rows[step]


def pairs(case: Json, states: list[Json]) -> Iterator[Comparison]:
    """Yield (place, name, expected, given) for all values of checked states.

    They come in the order in which they are computed. A message in the place of a given value
    stands for an error, and has None for the expected value.
    """
    for t, (expected, given) in enumerate(zip(case["rounds"], states, strict=True), start=1):
        place = f"round {t}"
        clients = given["clients"]
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
        for where, name, *values in values_of(server, given["server"], f"{place}, server"):
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

    Raises:
        WrongForm: If the states have another form than the README describes.
    """
    for place, name, expected, given in pairs(case, checked(case, states)):
        message = given if expected is None else unequal(expected, given, tolerance)
        if message:
            return Difference(place, name, message)
    return None


def omitted(case: Json, states: Json) -> list[str]:
    """Return the names of the values that an implementation does not return in some round.

    Raises:
        WrongForm: If the states have another form than the README describes.
    """
    names = []
    for expected, given in zip(case["rounds"], checked(case, states), strict=True):
        names += [f"server.{name}" for name in expected["server"].keys() - given["server"]]
        for k, client in expected["clients"].items():
            for part, values in client.items():
                mine = given["clients"].get(k, {}).get(part, {})
                names += [f"{part}.{name}" for name in values.keys() - mine]
    return sorted(set(names))


def run_case(train: Train, case: Json, data: Mapping[str, Json]) -> Json:
    """Return what an implementation returns for a case."""
    chosen = deepcopy(data[case["data"]])  # an implementation may change what it is given
    schedule = deepcopy(numbered(case["schedule"]))
    return train(chosen, chosen["w0"].copy(), schedule, dict(case["hyperparameters"]))


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
    parser.add_argument("--vectors", type=Path, help="folder of the vectors, if not a usual one")
    return parser.parse_args(arguments)


def outcome(
    train: Train, case: Json, data: Mapping[str, Json], tolerance: float
) -> tuple[int, str]:
    """Return the exit status for a case, and what is to be said of it."""
    try:
        states = run_case(train, case, data)
    except NotImplementedError as error:
        return 0, f"not compared: {error}"
    except Exception as error:
        traceback.print_exc()
        return 2, f"the function failed: {described_error(error)}"
    try:
        difference = first_difference(case, states, tolerance)
        left_out = omitted(case, states)
    except WrongForm as error:
        return 2, str(error)
    if difference is not None:
        return 1, str(difference)
    remark = f", without {', '.join(left_out)}, which it does not return" if left_out else ""
    return 0, f"agrees{remark}"


def main(arguments: list[str] | None = None) -> int:
    """Compare, print and return the exit status."""
    args = parsed(arguments)
    try:
        folder = folder_of(args.vectors)
        cases = chosen_cases(read_method(folder, args.method), args.variant)
        train = read_function(args.file, args.function)
    except WrongRequest as error:
        print(error, file=sys.stderr)
        return 2

    data = read_data(folder)
    status = 0
    for case in cases:
        own, message = outcome(train, case, data, args.tolerance)
        status = max(status, own)
        print(f"{title(case)}: {message}", flush=True)
    return status


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # the reader, such as head, has seen enough
        # Python would write to the pipe once more when it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(2)
