"""The files of the vectors: JSON, with numbers as decimal strings that read back exactly."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from vectors.catalogue import METHODS, Case, cases_of
from vectors.problems import BATCHNORM_ALL, NETWORK_ALL, SOFTMAX_ALL, Batch
from vectors.rounds import Method, Record, State, Visit

VERSION = 1
Json = Any
# names of values that have the same meaning in all methods
SYMBOLS = {
    "receives.w": "w, the model that the client receives",
    "steps.w": "v, the client's model after every local step",
    "upload.delta": "Delta_k = w - v, at the end of the local steps",
    "server.w": "w, the server's model",
    "server.t": "rounds so far",
}


def array(value: Any) -> Json:
    """Return numbers as their shape and decimal strings."""
    numbers = np.asarray(value, dtype=float)
    return {"shape": list(numbers.shape), "values": [repr(float(v)) for v in numbers.ravel()]}


def state(values: State) -> Json:
    """Return named values."""
    return {name: array(value) for name, value in values.items()}


def batches(by_client: Mapping[int, list[Batch]]) -> Json:
    """Return the batches of the clients."""
    return {str(k): steps for k, steps in by_client.items()}


def client(visit: Visit) -> Json:
    """Return the part of one client in a round."""
    parts = {
        "receives": visit.message,
        "steps": visit.steps,
        "personal_steps": visit.personal_steps,
        "upload": visit.upload,
        "state": visit.new_state,
    }
    return {name: state(values) for name, values in parts.items() if values}


def record(done: Record) -> Json:
    """Return a round."""
    return {
        "clients": {str(visit.k): client(visit) for visit in done.visits},
        "server": state(done.server),
        "model": array(done.model),
    }


def case(item: Case) -> Json:
    """Return a case: what it is given, and all its states."""
    method = item.method
    first, rounds = method.run(item.rounds)
    problem = method.problem
    schedule = []
    for plan in item.rounds:
        entry: dict[str, Json] = {"cohort": plan.cohort, "batches": batches(plan.batches)}
        if plan.personal:
            entry["personal_batches"] = batches(plan.personal)
        schedule.append(entry)
    if method.setup:
        schedule[0]["setup_batches"] = batches(problem.setup())
    start = record(first)
    uploads = start.pop("clients")
    start["states"] = {str(k): state(kept) for k, kept in enumerate(first.states) if kept}
    if uploads:
        start["setup_uploads"] = {k: visit["upload"] for k, visit in uploads.items()}
    return {
        "variant": item.variant,
        "data": problem.kind,
        "cohorts": "all clients" if len(problem.cohorts[0]) == 3 else "sampled clients",
        "hyperparameters": {
            "lr": method.lr,
            "momentum": method.momentum,
            "batch_size": problem.batch_size,
            **method.options,
        },
        "schedule": schedule,
        "start": start,
        "rounds": [record(done) for done in rounds],
    }


def meanings(method: type[Method], cases: list[Json]) -> dict[str, str]:
    """Return the meanings of all names of values of a method."""
    known = SYMBOLS | dict(method.symbols)
    used = dict.fromkeys(name for item in cases for name in _names(item))
    return {name: known[name] for name in used}


def _names(item: Json) -> Iterator[str]:
    """Yield the names of the values of a case."""
    for done in item["rounds"]:
        for visit in done["clients"].values():
            for part, values in visit.items():
                yield from (f"{part}.{name}" for name in values)
        yield from (f"server.{name}" for name in done["server"])


def method_file(name: str) -> Json:
    """Return the contents of the file of a method."""
    method = METHODS[name].method
    cases = [case(item) for item in cases_of(name)]
    return {
        "version": VERSION,
        "method": name,
        "source": inspect.cleandoc(method.__doc__ or ""),
        "formulas": list(method.formulas),
        "symbols": meanings(method, cases),
        "cases": cases,
    }


def data_file() -> Json:
    """Return the contents of the file of the data sets."""
    sets = {}
    for problem in (SOFTMAX_ALL, NETWORK_ALL, BATCHNORM_ALL):
        clients = [{"x": array(x), "y": y.tolist()} for x, y in problem.data.clients]
        sets[problem.kind] = {
            "layers": list(problem.model.sizes),
            "tensors": [list(shape) for shape in problem.model.shapes],
            "w0": array(problem.w0),
            "clients": clients,
        }
    return {"version": VERSION, "data": sets}


def text(value: Json, indent: int = 0) -> str:
    """Return JSON with an array, a list of numbers, a batch or a formula on one line."""
    inner = " " * (indent + 1)
    if isinstance(value, dict) and value and "values" not in value:
        items = [f"{inner}{json.dumps(k)}: {text(v, indent + 1)}" for k, v in value.items()]
        return "{\n" + ",\n".join(items) + "\n" + " " * indent + "}"
    if isinstance(value, list) and value and isinstance(value[0], (dict, str)):
        items = [inner + text(item, indent + 1) for item in value]
        return "[\n" + ",\n".join(items) + "\n" + " " * indent + "]"
    return json.dumps(value, separators=(",", ":"))
