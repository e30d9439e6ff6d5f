"""Part b: memory, what happens when it runs out, and what a round makes the device wait for."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from suite.parts import Outcome, Part, Piece, Setting, release, wait_for
from suite.subjects import composed, forms, last_model, pictures, prepared, rounds_of
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from fedbench.core.errors import RequestError
from fedbench.core.types import Batch, ClientInfo, Oracle, State
from fedbench.runs.train import PreparedRun
from fedbench.simulation.forms import Form
from fedbench.simulation.memory import client_bytes, peak_device_bytes

_CLOSE = 1e-4  # relative distance of models in float32 whose chunks differ
_BEYOND = 2  # a chunk may take a quarter of the free memory, by prediction
_WIDE = 3072, 512  # features and hidden units of the perceptron on a GPU
_FAILING, _PLANTED = 4, 2**28  # captures that fail, and the bytes that each has allocated by then
_LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx", "cudaGraphLaunch")
_WAITS = ("cudaStreamSynchronize", "cudaEventSynchronize", "cudaMemcpy")  # those of a device are the profiler's own
STACKED = Form("stacked")


def wide(setting: Setting, clients: int, rounds: int = 2, form: Form = STACKED, method: str = "fedavg") -> PreparedRun:
    """Return a run of a perceptron whose clients are all trained side by side: 1.6 million parameters on a GPU."""
    features, hidden = (30, 8) if setting.small else _WIDE
    asked = ("model=mlp", f"model.hidden=[{hidden}]", "local.batch_size=32", "local.lr=0.05")
    config = composed(f"algo={method}", *asked, f"rounds={rounds}", f"engine.cohort_size={clients}")
    return prepared(config, pictures((features,), [64] * clients), setting.device, form, "float32")


def out_of_memory(setting: Setting) -> Outcome:
    """Run with ample memory and again with half of what that took: it has to halve, and to arrive at the same model."""
    clients = 8 if setting.small else 64
    ample = wide(setting, clients)
    if not setting.small:
        torch.cuda.reset_peak_memory_stats(setting.device)
    before = _allocated(setting)
    want = last_model(ample)
    taken = 0 if setting.small else torch.cuda.max_memory_allocated(setting.device) - before
    tight = wide(setting, clients)
    del ample
    release(setting.device)
    with _all_taken_but(taken // 2, setting) if not setting.small else _failing_above(clients // 2, tight):
        got = last_model(tight)
    off, limits = float((got - want).norm() / want.norm()), tight.engine.limits
    wrong = [] if off <= _CLOSE else [f"the model differs by {off:.1e}, at most {_CLOSE}"]
    if not limits.errors or limits.clients is None or limits.clients >= clients:
        wrong.append(f"memory did not run out, or nothing was halved: {limits}")
    return {
        "clients": clients,
        "clients_after": limits.clients,
        "errors": limits.errors,
        "bytes_of_a_round": taken,
        "bytes_left": taken // 2,
        "off": off,
        "wrong": wrong,
    }


def _allocated(setting: Setting) -> int:
    return 0 if setting.small else torch.cuda.memory_allocated(setting.device)


@contextmanager
def _all_taken_but(kept: int, setting: Setting) -> Any:
    """Fill the device with plain allocations until only ``kept`` bytes are free."""
    free, _ = torch.cuda.mem_get_info(setting.device)
    filler = torch.empty(max(0, free - kept), dtype=torch.uint8, device=setting.device)
    try:
        yield
    finally:
        del filler
        release(setting.device)


class _Failing:
    """An oracle that fails as a GPU does when it is asked for more than a number of clients at once."""

    def __init__(self, oracle: Oracle, most: int) -> None:
        self._oracle, self._most = oracle, most

    def __getattr__(self, name: str) -> Any:
        return getattr(self._oracle, name)

    def _check(self, w: Tensor) -> None:
        if len(w) > self._most:
            raise torch.OutOfMemoryError(f"planted: more than {self._most} clients")

    def __call__(self, w: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        self._check(w)
        return self._oracle(w, batch)

    def descend_(self, w: Tensor, batch: Batch, lr: Tensor) -> None:
        self._check(w)
        self._oracle.descend_(w, batch, lr)  # type: ignore[attr-defined]


@contextmanager
def _failing_above(most: int, run: PreparedRun) -> Any:
    """Where there is no GPU to fill, let allocations of more than ``most`` clients fail."""
    run.engine.oracle = _Failing(run.engine.oracle, most)  # type: ignore[assignment]
    yield


def failed_capture(setting: Setting) -> Outcome:
    """Let captures fail, which may cost their memory in some releases of torch, and check that the next one works."""
    graphs = Form("loop", graphs=True)
    want = last_model(wide(setting, 4, form=Form("loop")))
    last_model(wide(setting, 4, form=graphs))  # libraries keep workspaces of the first one
    release(setting.device)
    before, wrong = torch.cuda.memory_reserved(setting.device), []
    for _ in range(_FAILING):
        if not _fails(wide(setting, 4, form=graphs)):
            wrong.append("a step that reads a number from the device was captured")
        release(setting.device)
    leaked = torch.cuda.memory_reserved(setting.device) - before
    if leaked >= _PLANTED:
        wrong.append(f"{_FAILING} failed captures keep {leaked / 2**20:.0f} MiB")
    got = last_model(wide(setting, 4, form=graphs))
    off = float((got - want).norm() / want.norm())
    if not off <= _CLOSE:
        wrong.append(f"after failed captures the model differs by {off:.1e}, at most {_CLOSE}")
    return {"failed": _FAILING, "leaked": leaked, "off": off, "wrong": wrong}


def _fails(run: PreparedRun) -> bool:
    """Return whether local steps that allocate memory, and then read a number from the device, are refused."""
    (stage,) = run.stages
    algo = stage.algorithm

    def reading(oracle: Oracle, msg: State, local: State, batch: Batch, info: ClientInfo) -> State:
        new = algo.step(oracle, msg, local, batch, info)
        memory = torch.empty(_PLANTED, dtype=torch.uint8, device=new["w"].device)
        return new if new["w"].sum().item() < float("inf") and len(memory) else local

    try:
        last_model(replace(run, stages=[stage._replace(algorithm=replace(algo, step=reading))]))
    except RequestError:
        return True
    return False


def peaks(setting: Setting) -> Outcome:
    """Compare measured peaks with four clients' peak in proportion, by which a run on a GPU sizes its chunks."""
    rows: list[dict[str, float]] = []
    wrong = []
    for clients in (4, 8) if setting.small else (4, 16, 64, 128):
        run = wide(setting, clients)
        if setting.small:
            last_model(run)
            rows.append({"clients": clients, "measured": clients * client_bytes(run.task, run.data, 32)})
        else:
            rows.append({"clients": clients, "measured": peak_device_bytes(setting.device, partial(last_model, run))})
        row = rows[-1]
        row["predicted"] = rows[0]["measured"] / rows[0]["clients"] * clients
        if row["measured"] > _BEYOND * row["predicted"]:
            wrong.append(f"{clients} clients take {row['measured'] / row['predicted']:.1f} times what was predicted")
    return {"rows": rows, "wrong": wrong}


def launches(method: str, setting: Setting) -> Outcome:
    """Count kernel launches and waits of a warm round in every form; a round has to wait for nothing."""
    rows, wrong = [], []
    plain = wide(setting, 4)
    plain.engine.close()
    asked = composed(f"algo={method}", "model=mlp", "model.hidden=[8]")
    for form in forms(asked, pictures((30,), [8] * 4), setting.device, "float32"):
        run = wide(setting, 4, 4, form, method)
        rounds = rounds_of(run)
        for _ in range(3):  # the initial model, the round that captures, and one that warms up
            next(rounds)
        wait_for(setting.device)
        lines = _waits_of(rounds, setting)
        counted = _counted(rounds, setting)
        run.engine.close()
        rows.append({"form": str(form), **counted, "lines": lines})
        wrong += [f"{form}: a round waits for the device: {line}" for line in lines]
    return {"rows": rows, "wrong": wrong}


def _waits_of(rounds: Any, setting: Setting) -> list[str]:
    """Return the lines at which a round waits for the device, as torch warns of them."""
    if setting.small:
        next(rounds)
        return []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            next(rounds)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return [f"{w.filename}:{w.lineno}" for w in caught if "called a synchronizing CUDA operation" in str(w.message)]


def _counted(rounds: Any, setting: Setting) -> dict[str, int]:
    """Return how often a round starts kernels or graphs, copies, and waits: the calls of CUDA that are profiled."""
    kinds = [ProfilerActivity.CPU] + ([] if setting.small else [ProfilerActivity.CUDA])
    with profile(activities=kinds, acc_events=True) as traced:
        next(rounds)
        wait_for(setting.device)
    calls = Counter({e.key: e.count for e in traced.key_averages()})
    return {
        "operations": sum(n for k, n in calls.items() if k.startswith("aten::")),
        "launches": sum(calls[k] for k in _LAUNCHES),
        "graphs": calls["cudaGraphLaunch"],
        "copies": calls["cudaMemcpyAsync"],
        "waits": sum(calls[k] for k in _WAITS),
    }


def pieces(setting: Setting) -> list[Piece]:
    """Return the pieces of the part."""
    counted = [Piece(f"launches, {m}", 0.7, partial(launches, m)) for m in ("fedavg", "scaffold")]
    graphs = [] if setting.small else [Piece("failed captures", 0.5, failed_capture)]
    return [Piece("out of memory", 1.0, out_of_memory), *graphs, *counted, Piece("peaks", 0.5, peaks)]


def table(found: Mapping[str, Outcome]) -> list[str]:
    """Return the outcomes as tables."""
    lines = []
    if "errors" in (f := found.get("out of memory", {})):
        lines += [
            f"Out of memory: {f['clients']} clients at once take {f['bytes_of_a_round'] / 2**20:.0f} MiB; with "
            f"{f['bytes_left'] / 2**20:.0f} MiB left, {f['errors']} allocation errors leave {f['clients_after']}, "
            f"and the model differs by {f['off']:.1e}.",
            "",
        ]
    if "leaked" in (f := found.get("failed captures", {})):
        kept = f"{f['leaked'] / 2**20:.0f} MiB stay allocated; the model of the next one differs by {f['off']:.1e}"
        lines += [f"After {f['failed']} captures that failed, {kept}.", ""]
    if rows := found.get("peaks", {}).get("rows"):
        lines += ["| clients at once | predicted MiB | measured MiB |", "| ---: | ---: | ---: |"]
        for r in rows:
            lines.append(f"| {r['clients']} | {r['predicted'] / 2**20:.2f} | {r['measured'] / 2**20:.2f} |")
        lines.append("")
    counted = [(k.split(", ")[1], r) for k, f in found.items() if k.startswith("launches") for r in f.get("rows", [])]
    if counted:
        lines += ["| method | form | operations | launches | of graphs | copies | waits |"]
        lines += ["| --- | --- | ---: | ---: | ---: | ---: | ---: |"]
        names = ("operations", "launches", "graphs", "copies", "waits")
        lines += [f"| {m} | {r['form']} | " + " | ".join(str(r[k]) for k in names) + " |" for m, r in counted]
    return lines


PART = Part("b", "Memory, launches and waits", pieces, table)
