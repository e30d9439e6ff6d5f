"""One run from its objects to its files: the loop is consumed, measured, recorded and made resumable here."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fedbench.batches import LocalWork
from fedbench.data.federated import FederatedDataset
from fedbench.engine import Engine
from fedbench.environment import environment, now, peak_memory_bytes
from fedbench.evaluate import Record, evaluate
from fedbench.probes import mean_losses
from fedbench.progress import Bar
from fedbench.simulate import Snapshot, Stage, simulate
from fedbench.store import Checkpoint, Recorder, Row
from fedbench.task import Task
from fedbench.trackers import Tracker

# a checkpoint is due once the training since the last one has taken this many times what writing it took
_CHECKPOINT_SHARE = 20


@dataclass(frozen=True)
class Experiment:
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
        eval_every: rounds between evaluations.
        keep_clients: "last", "all" or the rounds whose per-client table is kept.
        improved_clients: whether to record the share of the cohort whose training loss did not rise.
        tracker: follows the run.
        facts: for meta.json.
    """

    title: str
    seed: int
    stages: list[Stage]
    task: Task
    data: FederatedDataset
    work: LocalWork
    engine: Engine
    w: Tensor
    eval_every: int
    keep_clients: str | list[int]
    improved_clients: bool
    tracker: Tracker
    facts: Row = field(default_factory=dict)

    @property
    def rounds(self) -> int:
        """Number of rounds over all stages."""
        return sum(s.rounds for s in self.stages)


def run(e: Experiment, recorder: Recorder, config: Row) -> Row:
    """Carry out a run, or what is left of it, and return its final meta data (status: done or diverged).

    Args:
        e: what to run.
        recorder: of the run's directory; with a checkpoint there the run goes on from it.
        config: the resolved configuration.

    Raises:
        Exception: whatever ended the run early; ``meta.json`` then says failed, and the checkpoint stays.
    """
    session = _Session(e, recorder)
    meta = {"status": "running", **e.facts, **environment(e.task.device), "started": now(), "ended": None}
    recorder.write_config(config)
    recorder.write_meta(meta)
    e.tracker.start(recorder.path, e.title, config)
    threads = torch.get_num_threads()
    if e.task.device.type == "cpu":
        torch.set_num_threads(1)  # the operations are small: a second thread inside them costs more than it brings
    try:
        last = session.consume()
    except Exception as error:
        meta |= {"status": "failed", "ended": now(), "error": f"{type(error).__name__}: {error}"}
        recorder.write_meta(meta)
        e.tracker.finish("failed")
        raise
    finally:
        recorder.close()
        torch.set_num_threads(threads)
        e.engine.close()
    trained = session.seconds["train"]
    meta |= {
        "status": "done" if _finite(last) else "diverged",
        "ended": now(),
        "rounds": last.round,
        "client_steps": last.client_steps,
        "client_steps_per_second": last.client_steps / trained if trained else None,
        "peak_memory_bytes": peak_memory_bytes(e.task.device),
        "remarks": e.stages[last.stage].algorithm.remarks(last.server),
    }
    recorder.finish(e.task.layout.named(last.server["w"]), meta)
    e.tracker.finish(str(meta["status"]))
    return meta


class _Session:
    """The state of consuming one loop: clocks, checkpoints and what the next row needs from the round before."""

    def __init__(self, e: Experiment, recorder: Recorder) -> None:
        self.e, self.recorder = e, recorder
        self.seconds = {"train": 0.0, "eval": 0.0}
        self.last: Snapshot | None = None
        self._losses: np.ndarray | None = None  # F_k of the round before, if improved clients are counted
        saved = recorder.load()
        if saved is None:
            recorder.clear()
        else:
            self.last = self._restore(saved)
            self.seconds = {k: saved.progress[f"seconds_{k}"] for k in self.seconds}
            self._note_losses(self.last)
        self._saved_at, self._cost = self.seconds["train"], 0.0

    def consume(self) -> Snapshot:
        """Go through the rounds that are left and return the last snapshot."""
        e = self.e
        rounds = simulate(e.stages, e.task, e.data, e.work, e.engine, e.w, e.seed, self.last)
        with Bar(e.title, e.rounds, self.last.round if self.last else 0) as bar:
            while True:
                start = time.perf_counter()
                snapshot = next(rounds, None)
                if snapshot is None:
                    break
                self.last = snapshot
                due = snapshot.round % e.eval_every == 0 or snapshot.round == e.rounds
                if due and e.task.device.type == "cuda":
                    torch.cuda.synchronize(e.task.device)
                self.seconds["train"] += time.perf_counter() - start
                accuracy = self._measure(snapshot) if due else None
                bar.advance(snapshot.round, len(snapshot.cohort), accuracy)
                if due and not _finite(snapshot):
                    break
                self._note_losses(snapshot)
                self._save_if_due(snapshot)
        assert self.last is not None
        return self.last

    def _measure(self, s: Snapshot) -> float:
        start = time.perf_counter()
        e = self.e
        record = evaluate(e.task, s.data, e.stages[s.stage].algorithm.deploy(s.server, s.clients), e.engine)
        summary = record.summary()
        improved = self._improved(s, record)
        ends = s.round == e.rounds or not _finite(s)
        wanted = s.round in e.keep_clients if isinstance(e.keep_clients, list) else e.keep_clients == "all" or ends
        if wanted:
            self.recorder.keep_clients(s.round, record.per_client(s.data.names))
        self.seconds["eval"] += time.perf_counter() - start
        row = {
            "round": s.round,
            **summary,
            "improved_clients": improved,
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
        after = record.train_loss[s.cohort] / record.n_train[s.cohort]
        return float(np.mean(after <= self._losses[s.cohort]))

    def _note_losses(self, s: Snapshot) -> None:
        e = self.e
        if e.improved_clients and ((s.round + 1) % e.eval_every == 0 or s.round + 1 == e.rounds):
            ids = np.arange(s.data.num_clients)
            self._losses = mean_losses(e.task, s.data, ids, s.server["w"], e.engine).cpu().numpy()

    def _save_if_due(self, s: Snapshot) -> None:
        if self.seconds["train"] - self._saved_at < _CHECKPOINT_SHARE * self._cost:
            return
        start = time.perf_counter()
        tensors = {f"server/{k}": v for k, v in s.server.items()} | {f"clients/{k}": v for k, v in s.clients.items()}
        if s.data is not self.e.data:
            tensors["labels"] = s.data.y
        progress = {k: getattr(s, k) for k in ("round", "stage", "client_steps", "bytes_up", "bytes_down")}
        progress |= {f"seconds_{k}": v for k, v in self.seconds.items()}
        self.recorder.save(Checkpoint(tensors, progress))
        self._saved_at, self._cost = self.seconds["train"], time.perf_counter() - start

    def _restore(self, saved: Checkpoint) -> Snapshot:
        tensors = {k: v.to(self.e.task.device) for k, v in saved.tensors.items()}
        parts = {
            side: {k.removeprefix(side): v for k, v in tensors.items() if k.startswith(side)}
            for side in ("server/", "clients/")
        }
        counted = {k: saved.progress[k] for k in ("round", "stage", "client_steps", "bytes_up", "bytes_down")}
        data = self.e.data.relabelled(tensors["labels"]) if "labels" in tensors else self.e.data
        return Snapshot(server=parts["server/"], clients=parts["clients/"], data=data, cohort=np.arange(0), **counted)


def _finite(s: Snapshot) -> bool:
    return bool(torch.isfinite(s.server["w"]).all())
