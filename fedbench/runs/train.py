"""One run from its objects to its files: the loop is consumed, measured, recorded and made resumable here."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedbench.core.algorithm import Sampler, Stage
from fedbench.data.dataset import FederatedDataset
from fedbench.runs.environment import environment, now, peak_memory_bytes
from fedbench.runs.profiling import traced
from fedbench.runs.progress import Bar
from fedbench.runs.store import Checkpoint, DamagedRun, Fields, Recorder
from fedbench.runs.trackers import Tracker
from fedbench.simulation.batches import LocalWork
from fedbench.simulation.client_states import Lasting, Place, read_file
from fedbench.simulation.engine import Engine, flush_subnormals
from fedbench.simulation.evaluation import Record, evaluate, moment_similarity
from fedbench.simulation.loop import Snapshot, simulate
from fedbench.simulation.probes import mean_losses
from fedbench.simulation.task import Task

# a checkpoint is due once the training since the last one has taken this many times what writing it took
_CHECKPOINT_SHARE = 20


@dataclass(frozen=True)
class PreparedRun:
    """Everything a run is made of.

    Attributes:
        title: for people.
        seed: of the run.
        stages: what to run.
        task: the model and its loss.
        data: the federated data set, on the device.
        work: what a client does in a round.
        engine: how it is carried out.
        w: the initial model [P].
        sampler: of the cohorts.
        client_state: where the clients' lasting states are kept: auto, device, host or file.
        eval_every: rounds between evaluations.
        keep_clients: "last", "all" or the rounds whose per-client table is kept.
        improved_clients: whether to record the share of the cohort whose training loss did not rise.
        tracker: follows the run.
        facts: for meta.json.
        profile: whether two rounds are traced into ``trace.json``.
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
    keep_clients: str | list[int]
    improved_clients: bool
    tracker: Tracker
    facts: Fields = field(default_factory=dict)
    profile: bool = False

    @property
    def rounds(self) -> int:
        """Number of rounds over all stages."""
        return sum(s.rounds for s in self.stages)


def run(e: PreparedRun, recorder: Recorder, config: Fields) -> Fields:
    """Carry out a run, or what is left of it, and return its final meta data (status: done or diverged).

    Args:
        e: what to run.
        recorder: of the run's directory; with a checkpoint there the run goes on from it.
        config: the resolved configuration.

    Raises:
        Exception: whatever ended the run early; ``meta.json`` then says failed, and the checkpoint stays.
    """
    try:
        session = _Session(e, recorder)
    except DamagedRun as error:
        print(f"fedbench: starting over: {error}", file=sys.stderr)
        recorder.clear()
        session = _Session(e, recorder)
    meta = {"status": "running", **e.facts, **environment(e.task.device), "started": now(), "ended": None}
    recorder.write_config(config)
    recorder.write_meta(meta)
    threads = torch.get_num_threads()
    flush_subnormals()
    if e.task.device.type == "cpu":
        torch.set_num_threads(1)  # the operations are small: a second thread inside them costs more than it brings
    try:
        e.tracker.start(recorder.path, e.title, config)
        with traced(recorder.path / "trace.json", e.task.device) if e.profile else nullcontext(lambda: None) as step:
            last = session.consume(step)
    except BaseException as error:
        what = "interrupted" if isinstance(error, KeyboardInterrupt) else f"{type(error).__name__}: {error}"
        recorder.write_meta(meta | {"status": "failed", "ended": now(), "error": what})
        e.tracker.finish("failed")
        raise
    finally:
        recorder.close()
        torch.set_num_threads(threads)
        flush_subnormals(False)
        e.engine.close()
    trained = session.seconds["train"]
    meta |= {
        "status": "done" if _finite(e, last) else "diverged",
        "ended": now(),
        "rounds": last.round,
        "client_steps": last.client_steps,
        "client_steps_per_second": last.client_steps / trained if trained else None,
        "peak_memory_bytes": peak_memory_bytes(e.task.device),
        "client_state": {"bytes": session.lasting.bytes, "place": session.lasting.place},
        "remarks": e.stages[last.stage].algorithm.remarks(last.server),
    }
    if last.moments is not None:
        matrix = moment_similarity(e.task, last.moments).tolist()
        recorder.write_moments({"round": last.round, "clients": last.cohort[: len(matrix)].tolist(), "cka": matrix})
    deployed = _deployed(e, last)
    personal = None if deployed.dim() == 1 else e.task.layout.named(deployed)
    recorder.finish(e.task.layout.named(deployed if personal is None else last.server["w"]), personal, meta)
    e.tracker.finish(str(meta["status"]))
    return meta


def _deployed(e: PreparedRun, s: Snapshot) -> Tensor:
    return e.stages[s.stage].algorithm.deploy(s.server, s.clients)


class _Session:
    """The state of consuming one loop: clocks, checkpoints and what the next row needs from the round before."""

    def __init__(self, e: PreparedRun, recorder: Recorder) -> None:
        self.e, self.recorder = e, recorder
        self.seconds = {"train": 0.0, "eval": 0.0}
        self.last: Snapshot | None = None
        self.lasting = Lasting(e.task.device, e.client_state, recorder.path / "checkpoint" / "lasting")
        self._losses: np.ndarray | None = None  # F_k of the round before, if improved clients are counted
        saved = recorder.load()
        if saved is None:
            recorder.clear()
        else:
            self.last = self._restore(saved)
            self.seconds = {k: saved.progress[f"seconds_{k}"] for k in self.seconds}
            self._note_losses(self.last)
        self._saved_at, self._cost = self.seconds["train"], 0.0

    def consume(self, step: Callable[[], None]) -> Snapshot:
        """Go through the rounds that are left and return the last snapshot; ``step`` is called after each."""
        e = self.e
        rounds = simulate(e.stages, e.task, e.data, e.work, e.engine, e.w, e.seed, e.sampler, self.lasting, self.last)
        with Bar(e.title, e.rounds, self.last.round if self.last else 0) as bar:
            while True:
                start = time.perf_counter()
                snapshot = next(rounds, None)
                if snapshot is None:
                    break
                before, self.last = self.last, snapshot
                due = snapshot.round % e.eval_every == 0 or snapshot.round == e.rounds
                if due and e.task.device.type == "cuda":
                    torch.cuda.synchronize(e.task.device)
                self.seconds["train"] += time.perf_counter() - start
                accuracy = self._measure(snapshot, before) if due else None
                bar.advance(snapshot.round, len(snapshot.cohort), accuracy)
                if due and not _finite(e, snapshot):
                    break
                self._note_losses(snapshot)
                self._save_if_due(snapshot)
                step()
        assert self.last is not None
        return self.last

    def _measure(self, s: Snapshot, before: Snapshot | None) -> float:
        start = time.perf_counter()
        e = self.e
        record = evaluate(e.task, s.data, _deployed(e, s), e.engine)
        summary = record.summary()
        improved = self._improved(s, record)
        ends = s.round == e.rounds or not _finite(e, s)
        wanted = s.round in e.keep_clients if isinstance(e.keep_clients, list) else e.keep_clients == "all" or ends
        if wanted:
            self.recorder.keep_clients(s.round, record.per_client(s.data.names))
        self.seconds["eval"] += time.perf_counter() - start
        row = {
            "round": s.round,
            **summary,
            "improved_clients": improved,
            "update_norm": None if before is None else _distance(s.server["w"], before.server["w"]),
            "clients": len(s.cohort),
            "bytes_up": s.bytes_up,
            "bytes_down": s.bytes_down,
            **{f"seconds_{k}": v for k, v in self.seconds.items()},
        }
        self.recorder.append(row)
        e.tracker.log(row)
        return summary["accuracy_mean"]

    def _improved(self, s: Snapshot, record: Record) -> float | None:
        """Return the share of the cohort with F_k(w^{t+1}) <= F_k(w^t) (AdaFed, Hamidi & Yang 2024, Eq. 31)."""
        if self._losses is None or not len(s.cohort):
            return None
        e, w = self.e, s.server["w"]
        if _deployed(e, s) is w:
            after = record.train_loss[s.cohort] / record.n_train[s.cohort]
        else:  # the record is of other models than the global one
            after = mean_losses(e.task, s.data, s.cohort, w, e.engine).cpu().numpy()
        return float(np.mean(after <= self._losses[s.cohort]))

    def _note_losses(self, s: Snapshot) -> None:
        e = self.e
        if e.improved_clients and ((s.round + 1) % e.eval_every == 0 or s.round + 1 == e.rounds):
            ids = np.arange(s.data.num_clients)
            self._losses = mean_losses(e.task, s.data, ids, s.server["w"], e.engine).cpu().numpy()

    def _save_if_due(self, s: Snapshot) -> None:
        if s.moments is not None:  # they are not in a checkpoint: the last round is done again if need be
            return
        if self.seconds["train"] - self._saved_at < _CHECKPOINT_SHARE * self._cost:
            return
        start = time.perf_counter()
        files = self.lasting.files()
        tensors = {f"server/{k}": v for k, v in s.server.items()}
        tensors |= {f"clients/{k}": v for k, v in s.clients.items() if k not in files}
        if s.data is not self.e.data:
            tensors["labels"] = s.data.y
        progress = {k: getattr(s, k) for k in ("round", "stage", "client_steps", "bytes_up", "bytes_down")}
        progress |= {f"seconds_{k}": v for k, v in self.seconds.items()}
        self.recorder.save(Checkpoint(tensors, progress, files))
        self._saved_at, self._cost = self.seconds["train"], time.perf_counter() - start

    def _restore(self, saved: Checkpoint) -> Snapshot:
        e = self.e
        server, clients = (
            {k.removeprefix(side): v for k, v in saved.tensors.items() if k.startswith(side)}
            for side in ("server/", "clients/")
        )
        server = {k: v.to(e.task.device) for k, v in server.items()}
        counted = {k: saved.progress[k] for k in ("round", "stage", "client_steps", "bytes_up", "bytes_down")}
        fresh = e.stages[counted["stage"]].algorithm.client_init(server["w"])
        room = self.lasting.keep(fresh, e.data.num_clients)
        for name, v in room.items():
            v.copy_(clients[name] if name in clients else read_file(saved.files[name], v))
        kept = {k: v.to(e.task.device) for k, v in clients.items() if k not in room}
        data = e.data.relabelled(saved.tensors["labels"].to(e.task.device)) if "labels" in saved.tensors else e.data
        return Snapshot(server=server, clients=kept | room, data=data, cohort=np.arange(0), **counted)


def _distance(a: Tensor, b: Tensor) -> float:
    return float(torch.linalg.vector_norm((a - b).double()))


def _finite(e: PreparedRun, s: Snapshot) -> bool:
    """Return whether the global model and what the clients are judged on are numbers."""
    return all(bool(torch.isfinite(v).all()) for v in (s.server["w"], _deployed(e, s)))
