"""Training of a prepared run: rounds are simulated, evaluated, recorded and resumed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from functools import partial

import numpy as np
import torch
from torch import Tensor

from fedbench.core.algorithm import Algorithm
from fedbench.core.atomic_files import NotWritten
from fedbench.core.errors import LostProcess, RequestError
from fedbench.core.types import State, all_finite
from fedbench.data.dataset import FederatedDataset
from fedbench.runs.build import HeldOut, PreparedRun
from fedbench.runs.environment import environment, peak_memory_bytes, utc_now
from fedbench.runs.estimate import estimate
from fedbench.runs.process import LOCAL_WORLD_SIZE, Interrupted, between_rounds
from fedbench.runs.progress import RunDisplay
from fedbench.runs.recorder import Recorder
from fedbench.runs.run import DamagedRun, Fields, error_text, is_done
from fedbench.runs.tracing import traced
from fedbench.simulation.client_states import StateAllocator
from fedbench.simulation.diagnostics import COLUMNS, DIAGNOSTICS, Diagnostic, Watched
from fedbench.simulation.engine import Engine, Limits
from fedbench.simulation.evaluation import Evaluation, evaluate
from fedbench.simulation.loop import Simulation, Snapshot, simulate
from fedbench.simulation.measurements import Measurements
from fedbench.simulation.memory import OutOfMemory, allocation_failed
from fedbench.simulation.personal import PERSONAL
from fedbench.simulation.scenario import client_columns, round_columns
from fedbench.simulation.statistics import STATISTICS, TOOK_PART, local_models
from fedbench.simulation.task import Task

_CHECKPOINT_EVERY = 60.0  # maximum seconds of training lost if the process is killed
# fields of a snapshot that a checkpoint stores as numbers
_COUNTED = ("round", "stage", "client_steps", "bytes_up", "bytes_down")
# exceptions after which a run is to be resumed; SystemExit: a scheduler requeues the run
_INTERRUPTIONS = (KeyboardInterrupt, SystemExit, LostProcess)
# metrics that are also recorded before fine-tuning
_UNTUNED = ("accuracy_mean", "accuracy_mean_weighted", "accuracy_std", "test_loss")
_MEMORY_HINT = (
    "memory ran out outside of the chunks of clients, whose size is limited by "
    "engine.cohort_size; the server needs the uploads of all clients of a round: lower "
    "participation, use a smaller model, or keep the clients' states in a file with "
    "engine.client_state=file"
)


def train(prepared: PreparedRun, recorder: Recorder) -> int | None:
    """Train a run, or its remaining rounds, and write its files.

    The final status of the run is "done" or "diverged".

    Args:
        prepared: The run.
        recorder: Recorder of the run's directory. If there is a checkpoint, the run resumes from
            it.

    Returns:
        A signal to end this process, if one was received in the last round, else None. The run is
        complete in either case.

    Raises:
        Exception: Any error that ended the run early. ``meta.json`` then has the status "failed",
            and the checkpoint is kept.
    """
    tracker = prepared.tracker
    ranks = prepared.engine.ranks
    # the first process cuts the files back to the checkpoint, or removes them, before the others
    # read them
    session = ranks.after_first(lambda: _open_session(prepared, recorder))
    resumed_from = session.last and session.last.round
    if len(set(ranks.all_gather(resumed_from))) > 1:
        raise RequestError(
            f"{recorder.path} must be the same directory for all processes, and is not"
        )

    config = prepared.config.stored_tree
    meta = {
        "status": "running",
        **prepared.facts,
        **session.continues,
        **environment(prepared.task.device),
        "started": utc_now(),
        "ended": None,
    }
    recorder.begin(config, meta)
    status = "failed"
    try:
        tracker.call("start", recorder.path, session.title, config)

        def at_once() -> bool:
            # nothing is lost before round 0 is recorded, but several processes must end together
            return ranks.world_size == 1 and not session.seconds["eval"]

        with _arithmetic(prepared), between_rounds(at_once) as signal:
            session.train(signal)
        status = session.finish(meta)
    except BaseException as error:
        if isinstance(error, Interrupted) and not error.where:
            error.where = f": {recorder.path}"
        if isinstance(error, _INTERRUPTIONS):
            status = "interrupted"
        _record_end(recorder, meta, status, error_text(error))
        if allocation_failed(error):
            raise OutOfMemory(f"{_MEMORY_HINT} ({error_text(error)})") from error
        raise
    finally:
        tracker.call("finish", status)
    return signal()


def _record_end(
    recorder: Recorder,
    meta: Fields,
    status: str,
    message: str,
) -> None:
    """Record in the facts why a run ended early, unless its files are sealed."""
    if is_done(recorder.path):
        return
    ended = {"status": status, "ended": utc_now()}
    if status == "failed":
        ended["error"] = message
    try:
        recorder.write_meta(meta | ended)
    except NotWritten as full:  # the status remains "running", and the run can still be resumed
        print(f"fedbench: {full}", file=sys.stderr)


def _open_session(prepared: PreparedRun, recorder: Recorder) -> TrainingSession:
    """Return the session of a run; if the checkpoint is corrupt, the run starts over."""
    try:
        return TrainingSession(prepared, recorder)
    except DamagedRun as error:
        print(f"fedbench: starting over: {error}", file=sys.stderr)
        recorder.clear()
        return TrainingSession(prepared, recorder)


def _engines(prepared: PreparedRun) -> list[Engine]:
    """Return the engines of a run; fine-tuning may need one of its own."""
    engines = [prepared.engine]
    tuning = prepared.finetuning
    if tuning is not None and tuning.engine is not prepared.engine:
        engines.append(tuning.engine)
    return engines


@contextmanager
def _arithmetic(prepared: PreparedRun) -> Iterator[None]:
    """Set the number of threads and the rounding of this process for a run in this block.

    The engine's threads end with the block.
    """
    threads = torch.get_num_threads()
    torch.set_flush_denormal(True)
    if prepared.task.device.type == "cpu":
        # the operations are small: a second thread per operation costs more than it saves
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_flush_denormal(False)
        for engine in _engines(prepared):
            engine.close()


class TrainingSession:
    """The state of a process that is training a run.

    Args:
        prepared: The run.
        recorder: Recorder of the run's directory. If there is a checkpoint, the run resumes from
            it.

    Attributes:
        title: Title for the progress bar and trackers.
        rounds: Number of rounds over all stages.
        seconds: Seconds of training and of evaluation so far.
        last: The last snapshot, or None before the first one.
        finite: Whether the models were finite at the last evaluation.
        continues: Entry for ``meta.json`` on the shorter run that this run continues, if any.
        follow: Function called with the round and the share of its evaluation that is done.

    Raises:
        DamagedRun: If the checkpoint is corrupt.
    """

    def __init__(self, prepared: PreparedRun, recorder: Recorder) -> None:
        self.prepared = prepared
        self.recorder = recorder
        config = prepared.config
        self.title = f"{config.names.algo} seed {config.seed} {config.task_name}"
        self.rounds = sum(s.rounds for s in prepared.stages)
        self.seconds = {"train": 0.0, "eval": 0.0}
        self.last: Snapshot | None = None
        self.finite = True
        self.continues: Fields = {}
        self.follow: Callable[[int, float], None] = lambda round, share: None
        self.allocator = StateAllocator(
            prepared.task.device,
            config.engine.client_state,
            recorder.states,
            LOCAL_WORLD_SIZE,
        )
        for engine in _engines(prepared):
            engine.notify = self._notify
        self.measurements = Measurements(prepared.task, prepared.engine)
        # of their own: plans of the examples are kept for a few sets of clients
        self.held_out_measurements = Measurements(prepared.task, prepared.engine)
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
        """Return whether the model is evaluated after round ``round``."""
        return self.prepared.config.evaluates(round, round == self.rounds)

    def train(self, signal: Callable[[], int | None]) -> None:
        """Run the remaining rounds, or stop earlier if the model diverges.

        Args:
            signal: Function that returns a signal asking this process to end, or None.

        Raises:
            Interrupted: After a round, if such a signal was received. The checkpoint includes the
                round.
        """
        trace: AbstractContextManager[Callable[[], None]] = nullcontext(lambda: None)
        if self.prepared.config.engine.profile:
            trace = traced(self.recorder.path / "trace.json")
        done = self.last.round if self.last else 0
        display = RunDisplay(self.title, self.rounds, done)
        self.follow = display.evaluating
        with trace as step, display.bars:
            display.announce(partial(estimate, self.prepared, self.rounds))
            for snapshot in self.snapshots():
                row = None
                if self.evaluates(snapshot.round):
                    row = self.record(snapshot)
                display.advance(snapshot.round, row)
                if not self.finite:
                    return
                if snapshot.round < self.rounds:
                    self._save_if_due(snapshot, signal())
                step()

    def snapshots(self) -> Iterator[Snapshot]:
        """Yield the snapshots of the remaining rounds; a new run starts with the initial model."""
        prepared = self.prepared
        observers = [diagnostic.observer for diagnostic in self.diagnostics.values()]
        simulation = Simulation(
            stages=prepared.stages,
            data=prepared.data,
            work=prepared.work,
            measurements=self.measurements,
            w=prepared.shared_w,
            seed=prepared.config.seed,
            sampler=prepared.sampler,
            selection=prepared.selection,
            allocator=self.allocator,
            observers=[observer for observer in observers if observer is not None],
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
        config = self.prepared.config
        sample = self.prepared.evaluated
        round = snapshot.round
        start = time.perf_counter()
        deployed = self._deployed(snapshot, sample)
        w = snapshot.server["w"]
        self.finite = all_finite(w) and (deployed is w or all_finite(deployed))

        ends = round == self.rounds or not self.finite
        train = config.evaluates_training(round, ends)
        untuned = evaluate(
            self.measurements,
            snapshot.data,
            deployed,
            train,
            sample,
            partial(self.follow, round),
            config.evaluate.class_metrics,
        )
        evaluation, tuned = self._fine_tuned(snapshot, snapshot.data, untuned)
        measured = self._measured(snapshot, evaluation)
        held_out: Fields = {}
        if self.prepared.held_out is not None:
            held_out = self._held_out(self.prepared.held_out, snapshot, train)
        if config.keeps_clients(round, ends):
            table = evaluation.per_client(snapshot.data.names)
            table |= client_columns(snapshot.server, evaluation.ids)
            if tuned:
                table["untuned_accuracy"] = untuned.test.accuracies
            self.recorder.keep_clients(round, table)
        self.seconds["eval"] += time.perf_counter() - start

        row = {
            "round": round,
            **evaluation.summary(),
            **tuned,
            **held_out,
            **measured,
            **round_columns(snapshot.server),
            **_absence(snapshot),
            "clients": len(snapshot.cohort),
            "bytes_up": snapshot.bytes_up,
            "bytes_down": snapshot.bytes_down,
            "seconds_train": self.seconds["train"],
            "seconds_eval": self.seconds["eval"],
        }
        self.recorder.append(row)
        self.prepared.tracker.call("log", row)
        return row

    def _fine_tuned(
        self,
        snapshot: Snapshot,
        data: FederatedDataset,
        untuned: Evaluation,
    ) -> tuple[Evaluation, Fields]:
        """Return the evaluation after fine-tuning, if there is any, and its further columns."""
        tuning = self.prepared.finetuning
        if tuning is None:
            return untuned, {}
        algorithm = self.prepared.stages[snapshot.stage].algorithm
        evaluation, steps = tuning.evaluate(algorithm, snapshot, data, untuned)
        before = untuned.summary()
        columns: Fields = {f"untuned_{name}": before[name] for name in _UNTUNED}
        return evaluation, columns | {"finetune_steps": steps}

    def _held_out(
        self,
        held_out: HeldOut,
        snapshot: Snapshot,
        train: bool,
    ) -> Fields:
        """Return the columns of the clients that never train.

        Args:
            held_out: The clients.
            snapshot: The snapshot.
            train: Whether to evaluate their training examples, too.
        """
        untuned = evaluate(
            self.held_out_measurements,
            held_out.data,
            self._deployed(snapshot, held_out.ids),
            train,
            held_out.ids,
            classes=self.prepared.config.evaluate.class_metrics,
        )
        evaluation, tuned = self._fine_tuned(snapshot, held_out.data, untuned)
        columns = evaluation.summary() | tuned
        return {f"held_out_{name}": v for name, v in columns.items()}

    def _measured(self, snapshot: Snapshot, evaluation: Evaluation) -> Fields:
        """Return the columns of diagnostics, of the user's metrics and of attacks."""
        columns: Fields = dict.fromkeys(COLUMNS)
        for diagnostic in self.diagnostics.values():
            if diagnostic.column is not None:
                columns[diagnostic.column] = diagnostic.measure(snapshot, evaluation)
        for metric in self.prepared.metrics:
            columns[metric.name] = metric.measure(evaluation)
        models = partial(self._deployed, snapshot)
        attackers = self.prepared.scenario.attackers
        return columns | attackers.measured(
            models,
            self.measurements,
            snapshot.data,
            evaluation.ids,
        )

    def finish(self, meta: Fields) -> str:
        """Write the files of a finished run, and return its status, "done" or "diverged"."""
        snapshot = self.last
        assert snapshot is not None
        documents = {}
        for name, diagnostic in self.diagnostics.items():
            if (document := diagnostic.document()) is not None:
                documents[name] = document

        task = self.prepared.task
        server = snapshot.server
        clients = snapshot.clients
        models = {"model": task.named(local_models(server["w"], server, {}))}
        kept: dict[str, Tensor] = {}
        for name, layout in ((PERSONAL, task.personal), (STATISTICS, task.local)):
            if name in clients:
                kept |= layout.named(clients[name])
        algorithm = self.prepared.stages[snapshot.stage].algorithm
        if algorithm.own_head:
            kept |= _second_heads(task, clients[algorithm.own_head])
        if kept:
            models["personal"] = kept
        else:
            deployed = self._deployed(snapshot)
            # clients are evaluated on the global model, or each on its own
            if deployed.dim() == 1:
                models["model"] = task.named(deployed)
            else:
                models["personal"] = task.layout.named(deployed)
        meta = meta | self._final_facts(snapshot)
        self.recorder.finish(models, documents, meta)
        return str(meta["status"])

    def _final_facts(self, snapshot: Snapshot) -> Fields:
        """Return the facts that are known at the end of a run."""
        prepared = self.prepared
        engine = prepared.facts.get("engine", {}) | prepared.engine.ranks.facts()
        if errors := prepared.engine.limits.errors:  # memory ran out, so less was processed at once
            engine["cohort_size"] = prepared.engine.cohort_size
            engine["workers"] = prepared.engine.workers
            engine["memory_errors"] = errors

        algorithm = prepared.stages[snapshot.stage].algorithm
        seconds = self.seconds["train"]
        return {
            "status": "done" if self.finite else "diverged",
            "ended": utc_now(),
            "rounds": snapshot.round,
            "client_steps": snapshot.client_steps,
            "client_steps_per_second": snapshot.client_steps / seconds if seconds else None,
            "peak_memory_bytes": peak_memory_bytes(prepared.task.device),
            "client_state": {"bytes": self.allocator.bytes, "place": self.allocator.place},
            "engine": engine,
            "remarks": self._remarks(algorithm, snapshot),
        }

    def _remarks(self, algorithm: Algorithm, snapshot: Snapshot) -> list[str]:
        """Return remarks for the user on the finished run."""
        remarks = self.prepared.scenario.with_states(algorithm).remarks(snapshot.server)
        if never := _absence(snapshot).get("never"):
            remarks = [
                *remarks,
                f"{never} of {snapshot.data.num_clients} clients never took part: they are judged "
                "with initial running statistics, which is near chance",
            ]
        return remarks

    def _deployed(
        self,
        snapshot: Snapshot,
        ids: np.ndarray | None = None,
    ) -> Tensor:
        """Return the models to evaluate: one per client [C, P], or one for all clients [P].

        Args:
            snapshot: The snapshot.
            ids: Ids of the clients. If None, all clients.
        """
        algorithm = self.prepared.stages[snapshot.stage].algorithm
        clients = snapshot.clients
        if ids is not None:
            rows = torch.from_numpy(ids)
            clients = {name: v[rows.to(v.device)] for name, v in clients.items()}
        return algorithm.deploy(snapshot.server, clients)

    def _diagnostics(self) -> dict[str, Diagnostic]:
        """Return the diagnostics whose values the methods expose (optional ones if configured)."""
        prepared = self.prepared
        attackers = prepared.scenario.attackers.who
        run = Watched(
            prepared.stages,
            prepared.task,
            self.measurements,
            attackers,
        )
        exposed = {None}.union(*(stage.algorithm.exposes for stage in prepared.stages))
        diagnostics = {}
        for name, diagnostic in DIAGNOSTICS.items():
            chosen = not diagnostic.optional or getattr(prepared.config, name)
            if chosen and diagnostic.exposed in exposed:
                diagnostics[name] = diagnostic(run)
        return diagnostics

    def _notify(self, sentence: str) -> None:
        """Print that memory has run out, on the first occasion only."""
        if sum(engine.limits.errors for engine in _engines(self.prepared)) == 1:
            print(f"fedbench: {sentence}; meta.json will have the numbers used", file=sys.stderr)

    def _save_if_due(self, snapshot: Snapshot, signal: int | None) -> None:
        """Write a checkpoint if one is due or a signal was received.

        Raises:
            Interrupted: If any process that shares the run received a signal.
        """
        round = snapshot.round
        signal = self.prepared.engine.ranks.agreed(round, snapshot.server["w"], signal)
        due = self.seconds["train"] - self._saved_at >= _CHECKPOINT_EVERY
        continued = self.prepared.config.keep_state and round == self.rounds - 1
        if due or continued or signal is not None:
            self._save(snapshot)
        if signal is not None:
            where = f" at round {round} of {self.rounds}: {self.recorder.path}"
            raise Interrupted(signal, where)

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

    def _restore(
        self,
        tensors: dict[str, Tensor],
        progress: Fields,
    ) -> Snapshot:
        """Restore the session from a checkpoint, and return the snapshot in the checkpoint."""
        prepared = self.prepared
        device = prepared.task.device
        self.seconds = progress["seconds"]
        if "continues" in progress:
            self.continues = {"continues": progress["continues"]}
        prepared.engine.resume(Limits(**progress["limits"]), progress["cohort_size"])

        server = {name: v.to(device) for name, v in _section(tensors, "server/").items()}
        algorithm = prepared.scenario.with_states(prepared.stages[progress["stage"]].algorithm)
        initial = algorithm.client_init(server["w"])
        packed = _section(tensors, "clients/")
        states = self.allocator.unpacked(packed, initial, prepared.data.num_clients)
        clients = {}
        for name, v in packed.items():
            if name.partition("/")[0] not in states:
                clients[name] = v.to(device)

        data = prepared.data
        if "labels" in tensors:
            data = data.relabelled(tensors["labels"].to(device))
        return Snapshot(
            server=server,
            clients=clients | states,
            data=data,
            cohort=np.arange(0),
            **{name: progress[name] for name in _COUNTED},
        )


def _second_heads(task: Task, heads: Tensor) -> State:
    """Return second heads [N, |head|] by the name of the tensor to which they are added."""
    inside = f"{task.head}." if task.head else ""
    names = [name for name in task.shared.names if name.startswith(inside)]
    tensors = task.layout.of(names).named(heads)
    return {f"personal.{name}": v for name, v in tensors.items()}


def _absence(snapshot: Snapshot) -> dict[str, int]:
    """Return the number of clients that never took part, if clients keep running statistics."""
    took_part = snapshot.clients.get(TOOK_PART)
    if took_part is None:
        return {}
    may_train = snapshot.data.train.counts > 0
    absent = took_part.flatten().numpy(force=True) == 0
    return {"never": int((absent & may_train).sum())}


def _section(tensors: State, prefix: str) -> State:
    """Return the tensors whose names start with a prefix, with the prefix removed."""
    return {name.removeprefix(prefix): v for name, v in tensors.items() if name.startswith(prefix)}
