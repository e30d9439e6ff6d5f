"""Fine-tuning: local training of every client's model before it is evaluated.

Nothing of it survives the evaluation: the states of server and clients, the traffic and the count
of local steps are those of a run without it.
"""

import copy
from collections.abc import Set
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedbench.core.algorithm import Algorithm, Descent
from fedbench.core.optim import Optimizer
from fedbench.core.randomness import Purpose
from fedbench.core.types import ClientInfo, State, Step
from fedbench.data.dataset import FederatedDataset
from fedbench.simulation.cohort import Cohort
from fedbench.simulation.engine import Engine
from fedbench.simulation.evaluation import Evaluation, measured_sums, splits_of
from fedbench.simulation.local_work import LocalWork
from fedbench.simulation.loop import Snapshot
from fedbench.simulation.measurements import ExamplePlan, Measurements
from fedbench.simulation.statistics import STATISTICS, moving, trained_models
from fedbench.simulation.task import Task


@dataclass(frozen=True)
class FineTuning:
    """Fine-tuning of the clients of a run.

    Every client takes local steps on the cross-entropy of its training examples, with the local
    solver of the run and fresh buffers.

    Attributes:
        run: The model of the run, whose vectors [P] clients are judged on.
        task: The same model, whose vectors [W] also contain the frozen parameters that are moved.
        moved: Which values of such a vector are moved, [W]. If None, all.
        engine: Engine for ``task``.
        work: The local work before an evaluation.
        lr: The learning rate. If None, the rate of the last finished round.
        solver: The local solver.
        seed: Random seed of the run.
        moving: Number of rounds in which running statistics move; later they are constants. If
            None, all rounds.
    """

    run: Task
    task: Task
    moved: Tensor | None
    engine: Engine
    work: LocalWork
    lr: float | None
    solver: Optimizer
    seed: int
    moving: int | None = None

    def evaluate(
        self,
        algo: Algorithm,
        snapshot: Snapshot,
        data: FederatedDataset,
        before: Evaluation,
    ) -> tuple[Evaluation, int]:
        """Return the evaluation after fine-tuning, and the number of local steps of all clients.

        A client without training examples keeps its measurements.

        Args:
            algo: The method.
            snapshot: The server's and the clients' states.
            data: The data set.
            before: The evaluation without fine-tuning, of the same clients and examples.
        """
        trained = before.n["train"] > 0
        ids = before.ids[trained]
        if not len(ids):
            return before, 0
        done = snapshot.round
        tau = self.work.tau(ids, data.train.counts[ids], self.seed, done)
        cohort = Cohort(
            ids,
            tau,
            data,
            self.work,
            Measurements(self.task, self.engine),
            self.seed,
            Purpose.FINETUNE,
        )
        lr = self.lr or self.work.rate(max(0, done - 1))
        info = cohort.info("uniform", done)
        info = replace(info, lr=torch.full_like(info.lr, lr))
        method = self._method(algo, data, done, before.measured.keys())
        measured = cohort.train(method, snapshot.server, snapshot.clients, info, done).uploads

        values = {}
        for name, v in before.measured.items():
            values[name] = v.copy()
            values[name][trained] = measured[name].numpy(force=True)
        return replace(before, measured=values), int(tau.sum())

    def _method(
        self,
        algo: Algorithm,
        data: FederatedDataset,
        round: int,
        names: Set[str],
    ) -> Algorithm:
        """Return a method whose clients train their models and upload measurements of them."""
        trained = self.task.shared.size + self.task.personal.size
        has_statistics = trained < self.task.size

        def start(
            server: State,
            clients: State,
            info: ClientInfo,
        ) -> State:
            judged = algo.deploy(server, clients).expand(len(info.id), -1)
            models = self._completed(judged)
            w = models[:, :trained]
            local = {"w": w, **self.solver.init(w)}
            return {**local, STATISTICS: models[:, trained:]} if has_statistics else local

        def finish(
            server: State,
            clients: State,
            local: State,
            info: ClientInfo,
        ) -> tuple[State, State]:
            ids = info.id.flatten().numpy(force=True)
            models = trained_models(local)
            measured: State = {}
            for split, rows in splits_of(data, train="train_loss" in names).items():
                plan = ExamplePlan(self.task, data, rows, ids, self.engine, threads=False)
                measured |= measured_sums(plan, split, models, f"{split}_scores" in names)
            return measured, {}

        step: Step = Descent(_masked(self.solver, self.moved))
        if has_statistics:
            step = moving(step, self.moving is None or round < self.moving)
        return Algorithm(start=start, step=step, finish=finish)

    def _completed(self, judged: Tensor) -> Tensor:
        """Return models [c, W], given the models [c, P] that clients are judged on."""
        if self.task is self.run:
            return judged
        values = {}
        for name, v in self.run.constants.items():
            values[name] = v.expand(len(judged), *v.shape)
        values |= self.run.layout.named(judged)
        return torch.cat([values[name].flatten(1) for name in self.task.layout.names], 1)


def tuned_task(task: Task, names: Set[str]) -> Task:
    """Return a task of the same model in which the parameters ``names`` can be moved.

    It is the same task unless one of them is frozen.
    """
    frozen = task.constants.keys() - set(task.layout.names)
    if not names & frozen:
        return task
    model = copy.deepcopy(task.model).requires_grad_()
    kept = frozen - names
    tuned = Task(model, task.device, task.dtype, task.bf16, frozen=kept)
    tuned.constants = {name: task.constants[name] for name in kept}
    return tuned


def moved_values(task: Task, names: Set[str]) -> Tensor | None:
    """Return which trained values of a task's vectors belong to the parameters ``names``.

    None if all of them do.
    """
    trained = task.layout.names[: task.parameters]
    if names >= set(trained):
        return None
    chosen = torch.tensor([name in names for name in trained])
    sizes = torch.tensor(task.layout.sizes[: task.parameters])
    return chosen.repeat_interleave(sizes).to(task.device)


def _masked(solver: Optimizer, moved: Tensor | None) -> Optimizer:
    """Return a solver that sees and moves only the values ``moved`` [W]; if None, the same one."""
    if moved is None:
        return solver

    def update(g: Tensor, state: State) -> tuple[Tensor, State]:
        d, new = solver.update(torch.where(moved, g, 0), state)
        # weight decay would move the others
        return torch.where(moved, d, 0), new

    return Optimizer(solver.init, update)
