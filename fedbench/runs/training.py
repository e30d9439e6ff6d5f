"""One run from its objects to its files: the rounds are run, evaluated, recorded and made resumable here."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor

from fedbench.config.schema import RunConfig
from fedbench.core.algorithm import Stage
from fedbench.core.atomic_files import NotWritten
from fedbench.core.errors import LostProcess, RequestError
from fedbench.core.randomness import Sampler
from fedbench.core.types import State, all_finite
from fedbench.data.dataset import FederatedDataset
from fedbench.runs.environment import environment, peak_memory_bytes, utc_now
from fedbench.runs.process import LOCAL_WORLD_SIZE, Interrupted, between_rounds
from fedbench.runs.progress import RunDisplay
from fedbench.runs.recorder import Recorder
from fedbench.runs.run import DamagedRun, Fields, error_text, is_done
from fedbench.runs.tracing import traced
from fedbench.runs.trackers import Guarded
from fedbench.simulation.client_states import StateAllocator
from fedbench.simulation.diagnostics import COLUMNS, DIAGNOSTICS, CustomMetric, Diagnostic, Watched
from fedbench.simulation.engine import Engine, Limits
from fedbench.simulation.evaluation import evaluate
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.loop import Simulation, Snapshot, simulate
from fedbench.simulation.measurements import Measurements
from fedbench.simulation.memory import OutOfMemory, allocation_failed
from fedbench.simulation.scenario import Scenario, client_columns, round_columns
from fedbench.simulation.task import Task

_CHECKPOINT_EVERY = 60.0  # seconds of training that a killed process loses at most
# fields of a snapshot in a checkpoint
_COUNTED = ("round", "stage", "client_steps", "bytes_up", "bytes_down")


@dataclass(frozen=True)
class PreparedRun:
    """A configuration and the objects that were made of it.

    Attributes:
        config: The configuration.
        stages: The stages of the method.
        task: The model and its loss.
        data: The federated data set, on the device.
        work: The local work of a client in a round.
        engine: How the simulation is carried out.
        w: The initial model [P].
        sampler: Draws the cohorts.
        sample: The clients that are evaluated, ascending; None is all.
        tracker: Follows the run.
        scenario: What surrounds the method.
        metrics: Metrics of the user's own, a column each.
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
    sample: np.ndarray | None
    tracker: Guarded = field(default_factory=Guarded)
    scenario: Scenario = field(default_factory=Scenario)
    metrics: tuple[CustomMetric, ...] = ()
    facts: Fields = field(default_factory=dict)


def train(prepared: PreparedRun, recorder: Recorder) -> int | None:
    """Carry out a run, or the rest of it, and write its files; its final status is done or diverged.

    Args:
        prepared: The run.
        recorder: Recorder of the run's directory; if it has a checkpoint, the run resumes from it.

    Returns:
        A signal that asked this process to end in the last round, which it did not change; else
        None.

    Raises:
        Exception: Whatever ended the run early; ``meta.json`` then says failed, and the checkpoint
            stays.
    """
    config, tracker, ranks = prepared.config, prepared.tracker, prepared.engine.ranks
    # the first process has cut the files back to the checkpoint, or removed them, before the others
    # read them
    session = ranks.after_first(lambda: _open_session(prepared, recorder))
    if len(set(ranks.all_gather(session.last and session.last.round))) > 1:
        raise RequestError(
            f"{recorder.path} must be the same directory for all processes, and is not"
        )

    facts = {**prepared.facts, **session.continues, **environment(prepared.task.device)}
    meta = {"status": "running", **facts, "started": utc_now(), "ended": None}
    recorder.begin(config.stored_tree, meta)
    status = "failed"
    try:
        tracker.call("start", recorder.path, session.title, config.stored_tree)
        with _arithmetic(prepared), between_rounds() as signal:
            session.train(signal)
        status = session.finish(meta)
    except BaseException as error:
        message = error_text(error)
        ended: Fields = {"ended": utc_now()}
        # SystemExit: a scheduler requeues it
        if isinstance(error, KeyboardInterrupt | SystemExit | LostProcess):
            status = "interrupted"
        else:
            ended["error"] = message
        try:
            if not is_done(recorder.path):  # whose files are sealed
                recorder.write_meta(meta | ended | {"status": status})
        except NotWritten as full:  # the facts say running, and the run can be resumed as well
            print(f"fedbench: {full}", file=sys.stderr)
        if allocation_failed(error):
            raise OutOfMemory(
                "memory ran out outside of the chunks of clients, whose size is limited by engine.cohort_size; the "
                "server needs the uploads of all clients of a round: lower participation, use a smaller model, or "
                f"keep the clients' states in a file with engine.client_state=file ({message})"
            ) from error
        raise
    finally:
        tracker.call("finish", status)
    return signal()


def _open_session(prepared: PreparedRun, recorder: Recorder) -> TrainingSession:
    """Return the session of a run, which starts over if its checkpoint is corrupt."""
    try:
        return TrainingSession(prepared, recorder)
    except DamagedRun as error:
        print(f"fedbench: starting over: {error}", file=sys.stderr)
        recorder.clear()
        return TrainingSession(prepared, recorder)


@contextmanager
def _arithmetic(prepared: PreparedRun) -> Iterator[None]:
    """Set threads and rounding of this process for a run inside this block, and end the engine's threads after it."""
    threads = torch.get_num_threads()
    torch.set_flush_denormal(True)
    if prepared.task.device.type == "cpu":
        # the operations are small: a second thread inside them costs more than it brings
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_flush_denormal(False)
        prepared.engine.close()


class TrainingSession:
    """The state of one process at work on a run.

    Args:
        prepared: The run.
        recorder: Recorder of the run's directory; if it has a checkpoint, the run resumes from it.

    Attributes:
        title: Title for the progress bar and trackers.
        rounds: Number of rounds over all stages.
        seconds: Time of training and of evaluation so far.
        last: The last snapshot; None before the first.
        finite: Whether the models were finite when they were last evaluated.
        continues: For ``meta.json``, the shorter run that this one continues, if there is one.

    Raises:
        DamagedRun: If the checkpoint is corrupt.
    """

    def __init__(self, prepared: PreparedRun, recorder: Recorder) -> None:
        self.prepared, self.recorder = prepared, recorder
        config = prepared.config
        self.title = f"{config.names.algo} seed {config.seed} {config.task_name}"
        self.rounds = sum(s.rounds for s in prepared.stages)
        self.seconds = {"train": 0.0, "eval": 0.0}
        self.last: Snapshot | None = None
        self.finite = True
        self.continues: Fields = {}
        self.allocator = StateAllocator(
            prepared.task.device, config.engine.client_state, recorder.states, LOCAL_WORLD_SIZE
        )
        prepared.engine.notify = self._notify
        self.measurements = Measurements(prepared.task, prepared.engine)
        self.diagnostics = self._diagnostics()
        checkpoint = recorder.load()
        if checkpoint is None:
            recorder.clear()
        else:
            self.last = self._restore(*checkpoint)
            for diagnostic in self.diagnostics.values():
                diagnostic.follow(self.last)
        self._saved_at = self.seconds["train"]

    def evaluates(self, round: int) -> bool:
        """Return whether the model is evaluated after ``round`` rounds."""
        return round % self.prepared.config.eval_every == 0 or round == self.rounds

    def train(self, signal: Callable[[], int | None]) -> None:
        """Run the remaining rounds, or those until the model has diverged.

        Args:
            signal: Returns the signal that asks this process to end, or None.

        Raises:
            Interrupted: After a round, if such a signal has come; the round is in the checkpoint.
        """
        config = self.prepared.config
        trace = (
            traced(self.recorder.path / "trace.json")
            if config.engine.profile
            else nullcontext(lambda: None)
        )
        display = RunDisplay(self.title, self.rounds, self.last.round if self.last else 0)
        with trace as step, display.bars:
            for snapshot in self.snapshots():
                row = self.record(snapshot) if self.evaluates(snapshot.round) else None
                display.advance(snapshot.round, len(snapshot.cohort), row)
                if not self.finite:
                    return
                if snapshot.round < self.rounds:
                    self._save_if_due(snapshot, signal())
                step()

    def snapshots(self) -> Iterator[Snapshot]:
        """Yield the snapshots of the remaining rounds; that of a new run begins with the initial model."""
        prepared = self.prepared
        simulation = Simulation(
            stages=prepared.stages,
            data=prepared.data,
            work=prepared.work,
            measurements=self.measurements,
            w=prepared.w,
            seed=prepared.config.seed,
            sampler=prepared.sampler,
            allocator=self.allocator,
            observers=[d.observer for d in self.diagnostics.values() if d.observer is not None],
            scenario=prepared.scenario,
        )
        snapshots = simulate(simulation, self.last)
        while True:
            start = time.perf_counter()
            snapshot = next(snapshots, None)
            if snapshot is None:
                return
            if self.evaluates(snapshot.round) and prepared.task.device.type == "cuda":
                torch.cuda.synchronize(prepared.task.device)
            self.seconds["train"] += time.perf_counter() - start
            self.last = snapshot
            yield snapshot
            for diagnostic in self.diagnostics.values():
                diagnostic.follow(snapshot)

    def record(self, snapshot: Snapshot) -> Fields:
        """Evaluate a snapshot, record the row, and return it."""
        prepared, config, round = self.prepared, self.prepared.config, snapshot.round
        start = time.perf_counter()
        deployed = self._deployed(snapshot, prepared.sample)
        w = snapshot.server["w"]
        self.finite = all_finite(w) and (deployed is w or all_finite(deployed))
        last = round == self.rounds or not self.finite
        keep = config.keep_clients
        kept = (keep == "all" or last) if isinstance(keep, str) else round in keep
        with_train = kept or last or round % config.eval_train_every == 0

        evaluation = evaluate(
            self.measurements, snapshot.data, deployed, with_train, prepared.sample
        )
        columns = dict.fromkeys(COLUMNS)
        for diagnostic in self.diagnostics.values():
            if diagnostic.column is not None:
                columns[diagnostic.column] = diagnostic.measure(snapshot, evaluation)
        own = {metric.name: metric.measure(evaluation) for metric in prepared.metrics}
        models = partial(self._deployed, snapshot)
        attacks = prepared.scenario.attackers.measured(
            models, self.measurements, snapshot.data, evaluation.ids
        )
        if kept:
            table = evaluation.per_client(snapshot.data.names) | client_columns(
                snapshot.server, evaluation.ids
            )
            self.recorder.keep_clients(round, table)
        self.seconds["eval"] += time.perf_counter() - start

        row = {
            "round": round,
            **evaluation.summary(),
            **columns,
            **own,
            **attacks,
            **round_columns(snapshot.server),
            "clients": len(snapshot.cohort),
            "bytes_up": snapshot.bytes_up,
            "bytes_down": snapshot.bytes_down,
            "seconds_train": self.seconds["train"],
            "seconds_eval": self.seconds["eval"],
        }
        self.recorder.append(row)
        prepared.tracker.call("log", row)
        return row

    def finish(self, meta: Fields) -> str:
        """Write what a run that has ended leaves, and return its status: done or diverged."""
        prepared, snapshot = self.prepared, self.last
        assert snapshot is not None
        engine = {**prepared.facts.get("engine", {}), **prepared.engine.ranks.facts()}
        if errors := prepared.engine.limits.errors:  # memory has run out, and less was done at once
            engine["cohort_size"] = prepared.engine.cohort_size
            engine["workers"] = prepared.engine.workers
            engine["memory_errors"] = errors
        algorithm = prepared.stages[snapshot.stage].algorithm
        status = "done" if self.finite else "diverged"
        seconds = self.seconds["train"]
        meta = meta | {
            "status": status,
            "ended": utc_now(),
            "rounds": snapshot.round,
            "client_steps": snapshot.client_steps,
            "client_steps_per_second": snapshot.client_steps / seconds if seconds else None,
            "peak_memory_bytes": peak_memory_bytes(prepared.task.device),
            "client_state": {"bytes": self.allocator.bytes, "place": self.allocator.place},
            "engine": engine,
            "remarks": prepared.scenario.lasting(algorithm).remarks(snapshot.server),
        }
        documents = {name: diagnostic.document() for name, diagnostic in self.diagnostics.items()}
        written = {name: document for name, document in documents.items() if document is not None}

        deployed, layout = self._deployed(snapshot), prepared.task.layout
        if deployed.dim() == 1:  # clients are judged on the global model
            models = {"model": layout.named(deployed)}
        else:
            models = {
                "model": layout.named(snapshot.server["w"]),
                "personal": layout.named(deployed),
            }
        self.recorder.finish(models, written, meta)
        return status

    def _deployed(self, snapshot: Snapshot, ids: np.ndarray | None = None) -> Tensor:
        """Return the models that clients are judged on, [C, P], of all of them without ``ids``, or one model [P]."""
        clients = snapshot.clients
        if ids is not None:
            rows = torch.from_numpy(ids)
            clients = {name: v[rows.to(v.device)] for name, v in clients.items()}
        return self.prepared.stages[snapshot.stage].algorithm.deploy(snapshot.server, clients)

    def _diagnostics(self) -> dict[str, Diagnostic]:
        """Return the diagnostics of the run: those whose values its methods expose, and optional ones as configured."""
        prepared = self.prepared
        run = Watched(
            prepared.stages, prepared.task, self.measurements, prepared.scenario.attackers.who
        )
        exposed = {None}.union(*(stage.algorithm.exposes for stage in prepared.stages))
        return {
            name: diagnostic(run)
            for name, diagnostic in DIAGNOSTICS.items()
            if diagnostic.exposed in exposed
            and (not diagnostic.optional or getattr(prepared.config, name))
        }

    def _notify(self, sentence: str) -> None:
        """Print that memory has run out, the first time."""
        if self.prepared.engine.limits.errors == 1:
            print(f"fedbench: {sentence}; meta.json will have the numbers used", file=sys.stderr)

    def _save_if_due(self, snapshot: Snapshot, signal: int | None) -> None:
        """Write a checkpoint from time to time, and after a signal.

        Raises:
            Interrupted: If a signal has come to any of the processes that share the run.
        """
        signal = self.prepared.engine.ranks.agreed(snapshot.round, snapshot.server["w"], signal)
        due = self.seconds["train"] - self._saved_at >= _CHECKPOINT_EVERY
        last_but_one = snapshot.round == self.rounds - 1
        if due or signal is not None or (self.prepared.config.keep_state and last_but_one):
            self._save(snapshot)
        if signal is not None:
            raise Interrupted(
                signal, f" at round {snapshot.round} of {self.rounds}: {self.recorder.path}"
            )

    def _save(self, snapshot: Snapshot) -> None:
        """Write a checkpoint."""
        engine = self.prepared.engine
        states = self.allocator.packed(snapshot.clients)
        tensors = {f"server/{name}": v for name, v in snapshot.server.items()}
        tensors |= {f"clients/{name}": v for name, v in states.items()}
        if snapshot.data is not self.prepared.data:
            tensors["labels"] = snapshot.data.y
        progress = {
            **{name: getattr(snapshot, name) for name in _COUNTED},
            **self.continues,
            "seconds": self.seconds,
            "limits": asdict(engine.limits),
            "cohort_size": engine.cohort_size,
        }
        self.recorder.save(tensors, progress)
        self._saved_at = self.seconds["train"]

    def _restore(self, tensors: dict[str, Tensor], progress: Fields) -> Snapshot:
        """Resume as the run was that has written a checkpoint, and return its snapshot."""
        prepared, device = self.prepared, self.prepared.task.device
        self.seconds = progress["seconds"]
        self.continues = {k: progress[k] for k in ("continues",) if k in progress}
        prepared.engine.resume(Limits(**progress["limits"]), progress["cohort_size"])

        server = {name: v.to(device) for name, v in _section(tensors, "server/").items()}
        packed = _section(tensors, "clients/")
        algorithm = prepared.scenario.lasting(prepared.stages[progress["stage"]].algorithm)
        states = self.allocator.unpacked(
            packed, algorithm.client_init(server["w"]), prepared.data.num_clients
        )
        kept = {
            name: v.to(device) for name, v in packed.items() if name.partition("/")[0] not in states
        }
        data = prepared.data
        if "labels" in tensors:
            data = data.relabelled(tensors["labels"].to(device))
        counted = {name: progress[name] for name in _COUNTED}
        return Snapshot(
            server=server, clients=kept | states, data=data, cohort=np.arange(0), **counted
        )


def _section(tensors: State, prefix: str) -> State:
    """Return the tensors whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): v for name, v in tensors.items() if name.startswith(prefix)}
