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
from fedbench.core.atomic_files import NotWritten
from fedbench.core.errors import LostProcess, RequestError
from fedbench.core.randomness import Sampler
from fedbench.core.types import all_finite
from fedbench.data.dataset import FederatedDataset
from fedbench.runs.process import LOCAL_WORLD_SIZE, Interrupted, between_rounds
from fedbench.runs.progress import shown_progress
from fedbench.runs.recorder import Recorder, environment, peak_memory_bytes, traced, utc_now
from fedbench.runs.run import DamagedRun, Fields, is_done
from fedbench.runs.trackers import Guarded
from fedbench.simulation.client_states import StateAllocator
from fedbench.simulation.diagnostics import COLUMNS, DIAGNOSTICS, CustomMetric, Watched
from fedbench.simulation.engine import Engine, Limits
from fedbench.simulation.evaluation import evaluate
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.loop import Simulation, Snapshot, simulate
from fedbench.simulation.measurements import Measurements
from fedbench.simulation.memory import OutOfMemory, allocation_failed
from fedbench.simulation.scenario import Scenario, of_clients, recorded
from fedbench.simulation.task import Task

_CHECKPOINT_EVERY = 60.0  # seconds of training that a killed process loses at most
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
        sample: The clients that are evaluated, ascending; None is all.
        tracker: Follows the run; None if nothing does.
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
    tracker: Guarded | None
    scenario: Scenario = field(default_factory=Scenario)
    metrics: tuple[CustomMetric, ...] = ()
    facts: Fields = field(default_factory=dict)


def train(prepared: PreparedRun, recorder: Recorder) -> int | None:
    """Carry out a run, or the rest of it, and write its files; its final status is done or diverged.

    Args:
        prepared: The run.
        recorder: Recorder of the run's directory; if it has a checkpoint, the run resumes from it.

    Returns:
        A signal that asked this process to end in the last round, which it did not change; else None.

    Raises:
        Exception: Whatever ended the run early; ``meta.json`` then says failed, and the checkpoint stays.
    """
    config, tracker, ranks = prepared.config, prepared.tracker, prepared.engine.ranks
    if ranks.rank:
        ranks.broadcast(None)  # the first has cut the files back to the checkpoint, or removed them
    try:
        session = TrainingSession(prepared, recorder)
    except DamagedRun as error:
        print(f"fedbench: starting over: {error}", file=sys.stderr)
        recorder.clear()
        session = TrainingSession(prepared, recorder)
    if not ranks.rank:
        ranks.broadcast(None)
    if len(set(ranks.all_gather(session.last and session.last.round))) > 1:
        raise RequestError(f"{recorder.path} must be the same directory for all processes, and is not")

    def announce(sentence: str) -> None:
        if prepared.engine.limits.errors == 1:
            print(f"fedbench: {sentence}; meta.json will have the numbers used", file=sys.stderr)

    prepared.engine.notify = announce
    meta = {"status": "running", **prepared.facts, **session.continues, **environment(prepared.task.device)}
    meta |= {"started": utc_now(), "ended": None}
    recorder.begin(config.stored_tree, meta)
    try:
        if tracker is not None:
            tracker.call(lambda t: t.start(recorder.path, session.title, config.stored_tree))
        with _arithmetic(prepared), between_rounds() as asked:
            session.train(asked)
        ended = session.finish(meta)
    except BaseException as error:
        ended_by = KeyboardInterrupt | SystemExit | LostProcess  # SystemExit: a scheduler's handler that requeues it
        status = "interrupted" if isinstance(error, ended_by) else "failed"
        what = str(error) if isinstance(error, NotWritten) else f"{type(error).__name__}: {error}"
        meta |= {"status": status, "ended": utc_now(), **({"error": what} if status == "failed" else {})}
        try:
            if not is_done(recorder.path):  # whose files are sealed
                recorder.write_meta(meta)
        except NotWritten as full:  # the facts say running, and the run can be resumed as well
            print(f"fedbench: {full}", file=sys.stderr)
        if tracker is not None:
            tracker.call(lambda t: t.finish(status))
        if allocation_failed(error):
            raise OutOfMemory(
                "memory ran out outside of the chunks of clients, whose size is limited by engine.cohort_size; the "
                "server needs the uploads of all clients of a round: lower participation, use a smaller model, or "
                f"keep the clients' states in a file with engine.client_state=file ({what})"
            ) from error
        raise
    if tracker is not None:
        tracker.call(lambda t: t.finish(ended))
    return asked()


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
        config, device = prepared.config, prepared.task.device
        self.title = f"{config.names.algo} seed {config.seed} {config.task_name}"
        self.rounds = sum(s.rounds for s in prepared.stages)
        self.seconds = {"train": 0.0, "eval": 0.0}
        self.last: Snapshot | None = None
        self.finite = True
        self.continues: Fields = {}
        self.allocator = StateAllocator(device, config.engine.client_state, recorder.states, LOCAL_WORLD_SIZE)
        self.measurements = Measurements(prepared.task, prepared.engine)
        watched = Watched(prepared.stages, prepared.task, self.measurements, prepared.scenario.attackers.who)
        exposed = {None}.union(*(stage.algorithm.exposes for stage in prepared.stages))
        asked = {
            k: d for k, d in DIAGNOSTICS.items() if d.exposed in exposed and (not d.optional or getattr(config, k))
        }
        self.diagnostics = {name: diagnostic(watched) for name, diagnostic in asked.items()}
        saved = recorder.load()
        if saved is None:
            recorder.clear()
        else:
            self.last = self._restore(*saved)
            for diagnostic in self.diagnostics.values():
                diagnostic.follow(self.last)
        self._saved_at = self.seconds["train"]

    def evaluates(self, round: int) -> bool:
        """Return whether the model is evaluated after ``round`` rounds."""
        return round % self.prepared.config.eval_every == 0 or round == self.rounds

    def train(self, asked: Callable[[], int | None]) -> None:
        """Run the remaining rounds, or those until the model has diverged.

        Args:
            asked: Returns the signal that asks this process to end, or None.

        Raises:
            Interrupted: After a round, if such a signal has come; the round is in the checkpoint.
        """
        config, device, ranks = self.prepared.config, self.prepared.task.device, self.prepared.engine.ranks
        traces = config.engine.profile and not ranks.rank
        trace = traced(self.recorder.path / "trace.json", device) if traces else None
        shown = shown_progress(self.title, self.rounds, self.last.round if self.last else 0)
        with trace or nullcontext(lambda: None) as step, shown as advance:
            for snapshot in self.snapshots():
                evaluates = self.evaluates(snapshot.round)
                slow = evaluates and self.seconds["eval"] > 1 + snapshot.round  # a second each time
                advance(snapshot.round, len(snapshot.cohort), None, "evaluating" if slow else "")
                if evaluates:
                    advance(snapshot.round, 0, self.record(snapshot))
                if not self.finite:
                    return
                if left := self.rounds - snapshot.round:
                    number, due = asked(), self.seconds["train"] - self._saved_at >= _CHECKPOINT_EVERY
                    number = ranks.agreed(snapshot.round, snapshot.server["w"], number)
                    if due or number is not None or (config.keep_state and left == 1):
                        self._save(snapshot)
                    if number is not None:
                        raise Interrupted(number, f" at round {snapshot.round} of {self.rounds}: {self.recorder.path}")
                step()

    def snapshots(self) -> Iterator[Snapshot]:
        """Yield the snapshots of the remaining rounds; that of a new run begins with the initial model."""
        p = self.prepared
        observers = [d.observer for d in self.diagnostics.values() if d.observer is not None]
        simulation = Simulation(
            p.stages,
            p.data,
            p.work,
            self.measurements,
            p.w,
            p.config.seed,
            p.sampler,
            self.allocator,
            observers,
            p.scenario,
        )
        snapshots = simulate(simulation, self.last)
        while True:
            start = time.perf_counter()
            snapshot = next(snapshots, None)
            if snapshot is None:
                return
            if self.evaluates(snapshot.round) and p.task.device.type == "cuda":
                torch.cuda.synchronize(p.task.device)
            self.seconds["train"] += time.perf_counter() - start
            self.last = snapshot
            yield snapshot
            for diagnostic in self.diagnostics.values():
                diagnostic.follow(snapshot)

    def record(self, s: Snapshot) -> Fields:
        """Evaluate a snapshot, record the row, and return it."""

        def models(ids: np.ndarray | None) -> Tensor:
            some = {k: v if ids is None else v[torch.from_numpy(ids).to(v.device)] for k, v in s.clients.items()}
            return self.prepared.stages[s.stage].algorithm.deploy(s.server, some)

        p, w, deployed = self.prepared, s.server["w"], models(self.prepared.sample)
        self.finite = all_finite(w) and (deployed is w or all_finite(deployed))
        ends, keep = s.round == self.rounds or not self.finite, p.config.keep_clients
        wanted = (keep == "all" or ends) if isinstance(keep, str) else s.round in keep
        train, start = wanted or ends or s.round % p.config.eval_train_every == 0, time.perf_counter()
        evaluation = evaluate(self.measurements, s.data, deployed, train, p.sample)
        summary = evaluation.summary()
        diagnosed = {d.column: d.measure(s, evaluation) for d in self.diagnostics.values() if d.column is not None}
        own = {metric.name: metric.measure(evaluation) for metric in p.metrics}
        own |= p.scenario.attackers.measured(models, self.measurements, s.data, evaluation.ids)
        if wanted:
            table = evaluation.per_client(s.data.names) | of_clients(s.server, evaluation.ids)
            self.recorder.keep_clients(s.round, table)
        self.seconds["eval"] += time.perf_counter() - start
        row = {
            "round": s.round,
            **summary,
            **{column: diagnosed.get(column) for column in COLUMNS},
            **own,
            **recorded(s.server),
            "clients": len(s.cohort),
            "bytes_up": s.bytes_up,
            "bytes_down": s.bytes_down,
            **{f"seconds_{k}": v for k, v in self.seconds.items()},
        }
        self.recorder.append(row)
        if p.tracker is not None:
            p.tracker.call(lambda t: t.log(row))
        return row

    def finish(self, meta: Fields) -> str:
        """Write what a run that has ended leaves, and return its status: done or diverged."""
        p, s, trained = self.prepared, self.last, self.seconds["train"]
        assert s is not None
        engine: Fields = dict(p.facts.get("engine", {}))
        if p.engine.limits.errors:  # memory has run out, and less was done at once
            engine |= {"cohort_size": p.engine.cohort_size, "workers": p.engine.workers}
            engine["memory_errors"] = p.engine.limits.errors
        if p.engine.ranks.world_size > 1:
            engine["bytes_sent"] = p.engine.ranks.sent
        status = "done" if self.finite else "diverged"
        meta = meta | {
            "status": status,
            "ended": utc_now(),
            "rounds": s.round,
            "client_steps": s.client_steps,
            "client_steps_per_second": s.client_steps / trained if trained else None,
            "peak_memory_bytes": peak_memory_bytes(p.task.device),
            "client_state": {"bytes": self.allocator.bytes, "place": self.allocator.place},
            "engine": engine,
            "remarks": p.scenario.lasting(p.stages[s.stage].algorithm).remarks(s.server),
        }
        documents = {name: found for name, d in self.diagnostics.items() if (found := d.document()) is not None}
        deployed, layout = p.stages[s.stage].algorithm.deploy(s.server, s.clients), p.task.layout
        personal = None if deployed.dim() == 1 else layout.named(deployed)
        model = layout.named(deployed if personal is None else s.server["w"])
        self.recorder.finish(model, personal, documents, meta)
        return status

    def _save(self, s: Snapshot) -> None:
        """Write a checkpoint."""
        engine = self.prepared.engine
        states = self.allocator.packed(s.clients)
        tensors = {f"server/{k}": v for k, v in s.server.items()} | {f"clients/{k}": v for k, v in states.items()}
        if s.data is not self.prepared.data:
            tensors["labels"] = s.data.y
        progress = {k: getattr(s, k) for k in _COUNTED} | {"seconds": self.seconds, **self.continues}
        progress |= {"limits": asdict(engine.limits), "cohort_size": engine.cohort_size}
        self.recorder.save(tensors, progress)
        self._saved_at = self.seconds["train"]

    def _restore(self, tensors: dict[str, Tensor], progress: Fields) -> Snapshot:
        """Go on as the run did that has written a checkpoint, and return its snapshot."""
        p, device = self.prepared, self.prepared.task.device
        self.seconds = progress["seconds"]
        self.continues = {k: progress[k] for k in ("continues",) if k in progress}
        p.engine.resume(Limits(**progress["limits"]), progress["cohort_size"])
        server, clients = (
            {k.removeprefix(side): v for k, v in tensors.items() if k.startswith(side)}
            for side in ("server/", "clients/")
        )
        server = {k: v.to(device) for k, v in server.items()}
        fresh = p.scenario.lasting(p.stages[progress["stage"]].algorithm).client_init(server["w"])
        states = self.allocator.unpacked(clients, fresh, p.data.num_clients)
        kept = {k: v.to(device) for k, v in clients.items() if k.partition("/")[0] not in states}
        data = p.data.relabelled(tensors["labels"].to(device)) if "labels" in tensors else p.data
        counted = {k: progress[k] for k in _COUNTED}
        return Snapshot(server=server, clients=kept | states, data=data, cohort=np.arange(0), **counted)
