"""One run from its objects to its files: the rounds are run, evaluated, recorded and made resumable here."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field

import numpy as np
import torch
from torch import Tensor

from fedbench.config.schema import RunConfig
from fedbench.core.algorithm import Stage
from fedbench.core.files import NotWritten
from fedbench.core.randomness import Sampler
from fedbench.data.dataset import FederatedDataset
from fedbench.runs.checkpoints import Checkpoint
from fedbench.runs.environment import environment, peak_memory_bytes, utc_now
from fedbench.runs.interrupts import Interrupted, between_rounds
from fedbench.runs.profiling import traced
from fedbench.runs.progress import shown_progress
from fedbench.runs.recorder import Recorder
from fedbench.runs.run import DamagedRun, Fields
from fedbench.runs.trackers import Tracker
from fedbench.simulation.client_states import StateAllocator
from fedbench.simulation.diagnostics import COLUMNS, DIAGNOSTICS, CustomMetric, Watched
from fedbench.simulation.engine import Engine, Limits, OutOfMemory, allocation_failed
from fedbench.simulation.evaluation import evaluate
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.loop import Snapshot, simulate
from fedbench.simulation.measurements import Measurements
from fedbench.simulation.task import Task

_CHECKPOINT_EVERY = 10.0  # seconds of training that a killed process loses at most
_PIECE = 2**22  # values of models that are checked at once
_COUNTED = ("round", "stage", "client_steps", "bytes_up", "bytes_down")  # fields of a snapshot in a checkpoint


@dataclass(frozen=True)
class PreparedRun:
    """A configuration and what was made of it.

    Attributes:
        config: The configuration.
        stages: The stages of the method.
        task: The model and its loss.
        data: The federated data set, on the device.
        work: The local work of a client in a round.
        engine: How the simulation is carried out.
        w: The initial model [P].
        sampler: Draws the cohorts.
        tracker: Follows the run.
        metrics: Metrics of the user's own, a column each.
        diagnostics: Names of the diagnostics (``fedbench.simulation.diagnostics``).
        facts: Facts for meta.json.
    """

    config: RunConfig
    stages: list[Stage]
    task: Task
    data: FederatedDataset
    work: LocalWork
    engine: Engine
    w: Tensor
    sampler: Sampler
    tracker: Tracker
    metrics: tuple[CustomMetric, ...] = ()
    diagnostics: tuple[str, ...] = ()
    facts: Fields = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Title for the progress bar and trackers."""
        return f"{self.config.names.algo} seed {self.config.seed} {self.config.task_name}"

    @property
    def rounds(self) -> int:
        """Number of rounds over all stages."""
        return sum(s.rounds for s in self.stages)

    def evaluated(self, round: int) -> bool:
        """Return whether the model is evaluated after ``round`` rounds."""
        return round % self.config.eval_every == 0 or round == self.rounds

    def keeps_clients(self, round: int, ends: bool) -> bool:
        """Return whether the per-client table of an evaluated round is kept; ``ends``: the run ends with it."""
        keep = self.config.keep_clients
        return keep == "all" or ends if isinstance(keep, str) else round in keep


def run(prepared: PreparedRun, recorder: Recorder) -> None:
    """Carry out a run, or the rest of it, and write its files; its final status is done or diverged.

    Args:
        prepared: The run.
        recorder: Recorder of the run's directory; if it has a checkpoint, the run resumes from it.

    Raises:
        Exception: Whatever ended the run early; ``meta.json`` then says failed, and the checkpoint stays.
    """
    session = _begun(prepared, recorder)
    config, device, tracker = prepared.config.stored_tree, prepared.task.device, prepared.tracker
    meta = {"status": "running", **prepared.facts, **environment(device), "started": utc_now(), "ended": None}
    recorder.write_config(config)
    recorder.write_meta(meta)
    try:
        tracker.start(recorder.path, prepared.title, config)
        with _arithmetic(prepared), between_rounds() as asked:
            session.train(asked)
    except (KeyboardInterrupt, SystemExit):  # SystemExit: a scheduler's handler that requeues the job
        _leave(recorder, meta | {"status": "interrupted", "ended": utc_now()})
        tracker.finish("interrupted")
        raise
    except BaseException as error:
        what = str(error) if isinstance(error, NotWritten) else f"{type(error).__name__}: {error}"
        _leave(recorder, meta | {"status": "failed", "ended": utc_now(), "error": what})
        tracker.finish("failed")
        if allocation_failed(error):
            raise OutOfMemory(
                "memory ran out outside of the chunks of clients, whose size is limited by engine.cohort_size; the "
                "server needs the uploads of all clients of a round: lower participation, use a smaller model, or "
                f"keep the clients' states in a file with engine.client_state=file ({what})"
            ) from error
        raise
    meta |= session.outcome()
    session.finish(meta)
    tracker.finish(str(meta["status"]))


def _begun(prepared: PreparedRun, recorder: Recorder) -> Session:
    """Return the session of a run, from its checkpoint if that is whole."""
    try:
        return Session(prepared, recorder)
    except DamagedRun as error:
        print(f"fedbench: starting over: {error}", file=sys.stderr)
        recorder.clear()
        return Session(prepared, recorder)


@contextmanager
def _arithmetic(prepared: PreparedRun) -> Iterator[None]:
    """Set threads and rounding of this process for a run inside this block, and end the engine's threads after it."""
    threads = torch.get_num_threads()
    torch.set_flush_denormal(True)
    if prepared.task.device.type == "cpu":
        torch.set_num_threads(1)  # the operations are small: a second thread inside them costs more than it brings
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_flush_denormal(False)
        prepared.engine.close()


def _leave(recorder: Recorder, meta: Fields) -> None:
    """Write the facts of a run that ends early; without space they say running, and the run can be resumed as well."""
    try:
        recorder.write_meta(meta)
    except NotWritten as error:
        print(f"fedbench: {error}", file=sys.stderr)


class Session:
    """The state of one process at work on a run: clocks, checkpoints and diagnostics.

    Args:
        prepared: The run.
        recorder: Recorder of the run's directory; if it has a checkpoint, the run resumes from it.

    Attributes:
        last: The last snapshot; None before the first.
        finite: Whether the models were finite when they were last evaluated.

    Raises:
        DamagedRun: If the checkpoint is corrupt.
    """

    def __init__(self, prepared: PreparedRun, recorder: Recorder) -> None:
        self.prepared, self.recorder = prepared, recorder
        self.seconds = {"train": 0.0, "eval": 0.0}
        self.last: Snapshot | None = None
        self.finite = True
        folder = recorder.path / "checkpoint" / "client_states"
        self.allocator = StateAllocator(prepared.task.device, prepared.config.engine.client_state, folder)
        self.measurements = Measurements(prepared.task, prepared.engine)
        watched = Watched(prepared.stages, prepared.task, self.measurements, prepared.evaluated)
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
        self._saved_at, self._cost = self.seconds["train"], 0.0

    def train(self, asked: Callable[[], int | None]) -> None:
        """Run the remaining rounds.

        Args:
            asked: Returns the signal that asks this process to end, or None.

        Raises:
            Interrupted: After a round, if such a signal has come; the round is in the checkpoint.
        """
        p = self.prepared
        trace = traced(self.recorder.path / "trace.json", p.task.device) if p.config.engine.profile else None
        with (
            trace or nullcontext(lambda: None) as step,
            shown_progress(p.title, p.rounds, self.last.round if self.last else 0) as advance,
        ):
            for snapshot in self.rounds():
                advance(snapshot.round, len(snapshot.cohort), self.record(snapshot))
                if not self.finite:
                    break
                if (number := asked()) is not None and snapshot.round < p.rounds:
                    if self._saved_at < self.seconds["train"]:  # the checkpoint that counts is never written over
                        self._save(snapshot)
                    raise Interrupted(number)
                step()

    def rounds(self) -> Iterator[Snapshot]:
        """Yield the snapshots of the remaining rounds; that of a new run begins with the initial model."""
        p = self.prepared
        observers = [f for d in self.diagnostics.values() if (f := d.observer()) is not None]
        snapshots = simulate(
            p.stages,
            p.task,
            p.data,
            p.work,
            p.engine,
            p.w,
            p.config.seed,
            p.sampler,
            self.allocator,
            self.last,
            observers,
            self.measurements,
        )
        while True:
            start = time.perf_counter()
            snapshot = next(snapshots, None)
            if snapshot is None:
                return
            if p.evaluated(snapshot.round) and p.task.device.type == "cuda":
                torch.cuda.synchronize(p.task.device)
            self.seconds["train"] += time.perf_counter() - start
            self.last = snapshot
            yield snapshot

    def record(self, s: Snapshot) -> Fields | None:
        """Evaluate and record a snapshot if that is due, and keep what resuming needs; return its row, or None."""
        row = None
        if self.prepared.evaluated(s.round):
            self.finite = self._finite(s)
            row = self._measure(s)
        if self.finite:
            self._follow(s)
            if self._is_due(self.prepared.rounds - s.round):
                self._save(s)
        return row

    def outcome(self) -> Fields:
        """Return the facts of the finished run."""
        p, trained, engine, last = self.prepared, self.seconds["train"], self.prepared.engine, self._end()
        used: Fields = dict(p.facts.get("engine", {}))
        if engine.limits.errors:  # memory has run out, and less was done at once
            used |= {"cohort_size": engine.cohort_size, "workers": engine.workers}
            used["memory_errors"] = engine.limits.errors
        return {
            "status": "done" if self._finite(last) else "diverged",
            "ended": utc_now(),
            "rounds": last.round,
            "client_steps": last.client_steps,
            "client_steps_per_second": last.client_steps / trained if trained else None,
            "peak_memory_bytes": peak_memory_bytes(p.task.device),
            "client_state": {"bytes": self.allocator.bytes, "place": self.allocator.place},
            "engine": used,
            "remarks": p.stages[last.stage].algorithm.remarks(last.server),
        }

    def finish(self, meta: Fields) -> None:
        """Write what a run that has ended leaves: the documents of its diagnostics, its models and its facts."""
        for name, diagnostic in self.diagnostics.items():
            document = diagnostic.document()
            if document is not None:
                self.recorder.write_document(name, document)
        last, layout = self._end(), self.prepared.task.layout
        deployed = self.deployed(last)
        personal = None if deployed.dim() == 1 else layout.named(deployed)
        named = layout.named(deployed if personal is None else last.server["w"])
        self.recorder.finish(named, personal, meta)

    def _end(self) -> Snapshot:
        assert self.last is not None
        return self.last

    def _announce(self, sentence: str) -> None:
        """Say that less is done at once from now on, the first time that this happens."""
        if self.prepared.engine.limits.errors == 1:
            print(f"fedbench: {sentence}; meta.json will have the numbers used", file=sys.stderr)

    def _measure(self, s: Snapshot) -> Fields:
        """Evaluate a snapshot, record the row, and return it."""
        p = self.prepared
        ends = s.round == p.rounds or not self.finite
        wanted = p.keeps_clients(s.round, ends)
        train = wanted or ends or s.round % p.config.eval_train_every == 0
        start = time.perf_counter()
        evaluation = evaluate(self.measurements, s.data, self.deployed(s), train)
        summary = evaluation.summary()
        diagnosed = {d.column: d.measure(s, evaluation) for d in self.diagnostics.values() if d.column is not None}
        own = {metric.name: metric.measure(evaluation) for metric in p.metrics}
        if wanted:
            self.recorder.keep_clients(s.round, evaluation.per_client(s.data.names))
        self.seconds["eval"] += time.perf_counter() - start
        row = {
            "round": s.round,
            **summary,
            **{column: diagnosed.get(column) for column in COLUMNS},
            **own,
            "clients": len(s.cohort),
            "bytes_up": s.bytes_up,
            "bytes_down": s.bytes_down,
            **{f"seconds_{k}": v for k, v in self.seconds.items()},
        }
        self.recorder.append(row)
        p.tracker.log(row)
        return row

    def _follow(self, s: Snapshot) -> None:
        for diagnostic in self.diagnostics.values():
            diagnostic.follow(s)

    def _is_due(self, left: int) -> bool:
        """Return whether a checkpoint is due, ``left`` rounds before the end.

        A run with more rounds continues from that of the round before the last. Otherwise a checkpoint that takes over
        half a second to write waits 20 times as long as that.
        """
        if self.prepared.config.keep_state and left < 2:
            return left == 1
        return self.seconds["train"] - self._saved_at >= _CHECKPOINT_EVERY * max(1.0, 2 * self._cost)

    def _save(self, s: Snapshot) -> None:
        """Write a checkpoint, unless a diagnostic waits for the next round."""
        if any(d.pending for d in self.diagnostics.values()):
            return
        start = time.perf_counter()
        files, engine = self.allocator.files, self.prepared.engine
        tensors = {f"server/{k}": v for k, v in s.server.items()}
        tensors |= {f"clients/{k}": v for k, v in s.clients.items() if k not in files}
        if s.data is not self.prepared.data:
            tensors["labels"] = s.data.y
        progress = {k: getattr(s, k) for k in _COUNTED} | {f"seconds_{k}": v for k, v in self.seconds.items()}
        progress |= {"limits": asdict(engine.limits), "cohort_size": engine.cohort_size}
        self.recorder.checkpoints.save(Checkpoint(tensors, progress, files))
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
        p.engine.resume(Limits(**saved.progress["limits"]), saved.progress["cohort_size"])
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
            self.allocator.read(room, saved.files[name])
        except NotWritten:
            raise  # the checkpoint is whole, and the disk full
        except (KeyError, OSError, ValueError) as error:
            raise DamagedRun(f"{self.recorder.path}: client states {name}: {error!r}") from error

    def _finite(self, s: Snapshot) -> bool:
        """Return whether the global model and the models that clients are judged on are finite."""
        w, deployed = s.server["w"], self.deployed(s)
        return all(_all_finite(v) for v in ((w,) if deployed is w else (w, deployed)))


def _all_finite(models: Tensor) -> bool:
    """Return whether models [..., P] are finite, without a temporary tensor of their size."""
    if bool(torch.isfinite(models.sum(-1)).all()):
        return True  # no sum is finite that has NaN or an infinity in it, but the sum of large numbers may be infinite
    return all(bool(torch.isfinite(v).all()) for v in models.reshape(-1).split(_PIECE))
