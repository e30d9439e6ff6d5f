"""One run from its objects to its files: the rounds are run, evaluated, recorded and made resumable here."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedbench.core.algorithm import Sampler, Stage
from fedbench.data.dataset import FederatedDataset
from fedbench.runs.environment import environment, peak_memory_bytes, utc_now
from fedbench.runs.profiling import traced
from fedbench.runs.progress import Bar
from fedbench.runs.store import Checkpoint, DamagedRun, Fields, Recorder
from fedbench.runs.trackers import Tracker
from fedbench.simulation.batches import LocalWork
from fedbench.simulation.client_states import Place, StateAllocator
from fedbench.simulation.diagnostics import COLUMNS, DIAGNOSTICS, Watched
from fedbench.simulation.engine import Engine, Limits, flush_subnormals
from fedbench.simulation.evaluation import evaluate
from fedbench.simulation.loop import Snapshot, simulate
from fedbench.simulation.memory import OutOfMemory, allocation_failed
from fedbench.simulation.task import Task

# a checkpoint is due once the training since the last one has taken this many times as long as writing it
_CHECKPOINT_SHARE = 20
_SMALL_STATES, _WRITTEN_PER_SECOND = 2**26, 1e9  # in bytes: what the first checkpoint is taken to cost
_PIECE = 2**22  # values of models that are checked at once
_COUNTED = ("round", "stage", "client_steps", "bytes_up", "bytes_down")  # fields of a snapshot in a checkpoint


@dataclass(frozen=True)
class PreparedRun:
    """Everything that a run is made of.

    Attributes:
        title: Title for the progress bar and trackers.
        seed: Random seed of the run.
        stages: The stages of the method.
        task: The model and its loss.
        data: The federated data set, on the device.
        work: The local work of a client in a round.
        engine: How the simulation is carried out.
        w: The initial model [P].
        sampler: Draws the cohorts.
        client_state: The place of the client states: auto, device, host or file.
        eval_every: Number of rounds between evaluations.
        eval_train_every: Number of rounds between evaluations of the training examples.
        keep_clients: The rounds whose per-client table is kept: "last", "all" or a list.
        tracker: Follows the run.
        diagnostics: Names of the diagnostics (``fedbench.simulation.diagnostics``).
        facts: Facts for meta.json.
        profile: Whether two rounds are traced into ``trace.json``.
    """

    title: str
    seed: int
    stages: list[Stage]
    task: Task
    data: FederatedDataset
    work: LocalWork
    engine: Engine
    w: Tensor
    sampler: Sampler
    client_state: Place | Literal["auto"]
    eval_every: int
    eval_train_every: int
    keep_clients: str | list[int]
    tracker: Tracker
    diagnostics: tuple[str, ...] = ()
    facts: Fields = field(default_factory=dict)
    profile: bool = False

    @property
    def rounds(self) -> int:
        """Number of rounds over all stages."""
        return sum(s.rounds for s in self.stages)

    def evaluated(self, round: int) -> bool:
        """Return whether the model is evaluated after ``round`` rounds."""
        return round % self.eval_every == 0 or round == self.rounds

    def keeps_clients(self, round: int, ends: bool) -> bool:
        """Return whether the per-client table of an evaluated round is kept; ``ends``: the run ends with it."""
        return round in self.keep_clients if isinstance(self.keep_clients, list) else self.keep_clients == "all" or ends


def run(prepared: PreparedRun, recorder: Recorder, config: Fields) -> Fields:
    """Carry out a run, or the rest of it, and return its final meta data (status: done or diverged).

    Args:
        prepared: The run.
        recorder: Recorder of the run's directory; if it has a checkpoint, the run resumes from it.
        config: The resolved configuration.

    Raises:
        Exception: whatever ended the run early; ``meta.json`` then says failed, and the checkpoint stays.
    """
    try:
        session = _Session(prepared, recorder)
    except DamagedRun as error:
        print(f"fedbench: starting over: {error}", file=sys.stderr)
        recorder.clear()
        session = _Session(prepared, recorder)
    device, tracker = prepared.task.device, prepared.tracker
    meta = {"status": "running", **prepared.facts, **environment(device), "started": utc_now(), "ended": None}
    recorder.write_config(config)
    recorder.write_meta(meta)
    threads = torch.get_num_threads()
    flush_subnormals()
    if device.type == "cpu":
        torch.set_num_threads(1)  # the operations are small: a second thread inside them costs more than it brings
    try:
        tracker.start(recorder.path, prepared.title, config)
        with traced(recorder.path / "trace.json", device) if prepared.profile else nullcontext(lambda: None) as step:
            last = session.consume(step)
    except BaseException as error:
        what = "interrupted" if isinstance(error, KeyboardInterrupt) else f"{type(error).__name__}: {error}"
        recorder.write_meta(meta | {"status": "failed", "ended": utc_now(), "error": what})
        tracker.finish("failed")
        if allocation_failed(error):
            raise OutOfMemory(
                "memory ran out outside of the chunks of clients, whose size is limited by engine.cohort_size; the "
                "server needs the uploads of all clients of a round: lower participation, use a smaller model, or "
                f"keep the clients' states in a file with engine.client_state=file ({what})"
            ) from error
        raise
    finally:
        recorder.close()
        torch.set_num_threads(threads)
        flush_subnormals(False)
        prepared.engine.close()
    meta |= session.outcome(last)
    for name, diagnostic in session.diagnostics.items():
        document = diagnostic.document()
        if document is not None:
            recorder.write_document(name, document)
    layout, deployed = prepared.task.layout, session.deployed(last)
    personal = None if deployed.dim() == 1 else layout.named(deployed)
    recorder.finish(layout.named(deployed if personal is None else last.server["w"]), personal, meta)
    tracker.finish(str(meta["status"]))
    return meta


class _Session:
    """The state of one process at work on a run: clocks, checkpoints and diagnostics."""

    def __init__(self, prepared: PreparedRun, recorder: Recorder) -> None:
        self.prepared, self.recorder = prepared, recorder
        self.seconds = {"train": 0.0, "eval": 0.0}
        self.last: Snapshot | None = None
        self._checked: tuple[Snapshot, bool] | None = None  # the last snapshot whose models were checked
        folder = recorder.path / "checkpoint" / "client_states"
        self.allocator = StateAllocator(prepared.task.device, prepared.client_state, folder)
        watched = Watched(prepared.stages, prepared.task, prepared.engine, prepared.evaluated)
        self.deployed = watched.deployed
        self.diagnostics = {name: DIAGNOSTICS[name](watched) for name in prepared.diagnostics}
        prepared.engine.notify = self._announce
        saved = recorder.load()
        if saved is None:
            recorder.clear()
        else:
            self.last = self._restore(saved)
            self.seconds = {k: saved.progress[f"seconds_{k}"] for k in self.seconds}
            self._follow(self.last)
        self._saved_at, self._cost = self.seconds["train"], None if self.last is None else 0.0

    def consume(self, step: Callable[[], None]) -> Snapshot:
        """Run the remaining rounds and return the last snapshot; ``step`` is called after each."""
        p = self.prepared
        observers = [f for d in self.diagnostics.values() if (f := d.observer()) is not None]
        rounds = simulate(
            p.stages, p.task, p.data, p.work, p.engine, p.w, p.seed, p.sampler, self.allocator, self.last, observers
        )
        with Bar(p.title, p.rounds, self.last.round if self.last else 0) as bar:
            while True:
                start = time.perf_counter()
                snapshot = next(rounds, None)
                if snapshot is None:
                    break
                self.last = snapshot
                due = p.evaluated(snapshot.round)
                if due and p.task.device.type == "cuda":
                    torch.cuda.synchronize(p.task.device)
                self.seconds["train"] += time.perf_counter() - start
                accuracy = self._measure(snapshot) if due else None
                bar.advance(snapshot.round, len(snapshot.cohort), accuracy)
                if due and not self._finite(snapshot):
                    break
                self._follow(snapshot)
                self._save_if_due(snapshot)
                step()
        assert self.last is not None
        return self.last

    def _announce(self, sentence: str) -> None:
        """Say that less is done at once from now on, the first time that this happens."""
        if self.prepared.engine.limits.errors == 1:
            print(f"fedbench: {sentence}; meta.json will have the numbers used", file=sys.stderr)

    def outcome(self, last: Snapshot) -> Fields:
        """Return the facts of the finished run, from its last snapshot."""
        p, trained = self.prepared, self.seconds["train"]
        return {
            "status": "done" if self._finite(last) else "diverged",
            "ended": utc_now(),
            "rounds": last.round,
            "client_steps": last.client_steps,
            "client_steps_per_second": last.client_steps / trained if trained else None,
            "peak_memory_bytes": peak_memory_bytes(p.task.device),
            "client_state": {"bytes": self.allocator.bytes, "place": self.allocator.place},
            "engine": self._engine_facts(),
            "remarks": p.stages[last.stage].algorithm.remarks(last.server),
        }

    def _engine_facts(self) -> Fields:
        """Return how the run was simulated in the end: on less at once than planned, if memory ran out."""
        engine = self.prepared.engine
        facts: Fields = self.prepared.facts.get("engine", {})
        if not engine.limits.errors:
            return facts
        used = {"cohort_size": engine.cohort_size, "workers": engine.workers}
        return {**facts, **used, "memory_errors": engine.limits.errors}

    def _measure(self, s: Snapshot) -> float:
        """Evaluate a snapshot, record the row, and return the mean accuracy."""
        start = time.perf_counter()
        p = self.prepared
        ends = s.round == p.rounds or not self._finite(s)
        wanted = p.keeps_clients(s.round, ends)
        train = wanted or ends or s.round % p.eval_train_every == 0
        evaluation = evaluate(p.task, s.data, self.deployed(s), p.engine, train)
        summary = evaluation.summary()
        diagnosed = {d.column: d.measure(s, evaluation) for d in self.diagnostics.values() if d.column is not None}
        if wanted:
            self.recorder.keep_clients(s.round, evaluation.per_client(s.data.names))
        self.seconds["eval"] += time.perf_counter() - start
        row = {
            "round": s.round,
            **summary,
            **{column: diagnosed.get(column) for column in COLUMNS},
            "clients": len(s.cohort),
            "bytes_up": s.bytes_up,
            "bytes_down": s.bytes_down,
            **{f"seconds_{k}": v for k, v in self.seconds.items()},
        }
        self.recorder.append(row)
        p.tracker.log(row)
        return summary["accuracy_mean"]

    def _follow(self, s: Snapshot) -> None:
        for diagnostic in self.diagnostics.values():
            diagnostic.follow(s)

    def _save_if_due(self, s: Snapshot) -> None:
        if any(d.pending for d in self.diagnostics.values()):
            return
        if self._cost is None:  # the first checkpoint of large states waits too
            self._cost = max(0, self.allocator.bytes - _SMALL_STATES) / _WRITTEN_PER_SECOND
        if self.seconds["train"] - self._saved_at < _CHECKPOINT_SHARE * self._cost:
            return
        start = time.perf_counter()
        files = self.allocator.files()
        tensors = {f"server/{k}": v for k, v in s.server.items()}
        tensors |= {f"clients/{k}": v for k, v in s.clients.items() if k not in files}
        if s.data is not self.prepared.data:
            tensors["labels"] = s.data.y
        progress = {k: getattr(s, k) for k in _COUNTED} | {f"seconds_{k}": v for k, v in self.seconds.items()}
        progress["limits"] = asdict(self.prepared.engine.limits)
        self.recorder.save(Checkpoint(tensors, progress, files))
        self._saved_at, self._cost = self.seconds["train"], time.perf_counter() - start

    def _restore(self, saved: Checkpoint) -> Snapshot:
        p = self.prepared
        device, data = p.task.device, p.data
        server, clients = (
            {k.removeprefix(side): v for k, v in saved.tensors.items() if k.startswith(side)}
            for side in ("server/", "clients/")
        )
        server = {k: v.to(device) for k, v in server.items()}
        counted = {k: saved.progress[k] for k in _COUNTED}
        p.engine.restrict(Limits(**saved.progress.get("limits", {})))  # checkpoints of fedbench 0.1.0 have none
        fresh = p.stages[counted["stage"]].algorithm.client_init(server["w"])
        states = self.allocator.allocate(fresh, data.num_clients)
        for name, v in states.items():
            if name in clients:
                v.copy_(clients[name])
            else:
                self._read(name, v, saved)
        kept = {k: v.to(device) for k, v in clients.items() if k not in states}
        if "labels" in saved.tensors:
            data = data.relabelled(saved.tensors["labels"].to(device))
        return Snapshot(server=server, clients=kept | states, data=data, cohort=np.arange(0), **counted)

    def _read(self, name: str, room: Tensor, saved: Checkpoint) -> None:
        """Read client states that a checkpoint has in a file."""
        try:
            self.allocator.read(name, room, saved.files[name])
        except (KeyError, OSError, ValueError) as error:
            raise DamagedRun(f"{self.recorder.path}: client states {name}: {error!r}") from error

    def _finite(self, s: Snapshot) -> bool:
        """Return whether the global model and the models that clients are judged on are finite."""
        if self._checked is None or self._checked[0] is not s:
            models = (s.server["w"], self.deployed(s).reshape(-1, self.prepared.task.size))
            self._checked = s, all(_all_finite(v) for v in models)
        return self._checked[1]


def _all_finite(models: Tensor) -> bool:
    """Return whether models [..., P] are finite, without a temporary tensor of their size."""
    if bool(torch.isfinite(models.sum(-1)).all()):
        return True  # no sum is finite that has NaN or an infinity in it, but the sum of large numbers may be infinite
    return all(bool(torch.isfinite(v).all()) for v in models.view(-1).split(_PIECE))
