"""Diagnostics: measurements of a run besides accuracies and losses.

The loop and the trainer do not refer to diagnostics by name. To add a diagnostic, list a subclass
of ``Diagnostic`` in ``DIAGNOSTICS``. A method declares in ``Algorithm.exposes`` the values that
diagnostics may read within a round.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedbench.core.algorithm import Stage
from fedbench.core.errors import RequestError
from fedbench.core.metrics import is_field
from fedbench.core.types import to_device
from fedbench.core.user_code import place_of
from fedbench.data.dataset import FederatedDataset
from fedbench.simulation.checks import FirstCall, kind
from fedbench.simulation.evaluation import Evaluation
from fedbench.simulation.loop import Exchange, Observer, Snapshot
from fedbench.simulation.measurements import Measurements
from fedbench.simulation.statistics import local_models
from fedbench.simulation.task import Task

_SHOWN = 10  # number of clients whose moments are compared
# parameters that the user's metrics may have
_ARRAYS = ("accuracy", "loss", "weights")


@dataclass(frozen=True)
class Watched:
    """The run that a diagnostic follows.

    Attributes:
        stages: The stages of the run.
        task: The model and its loss.
        measurements: Measurements of losses.
        ignored: Ids of the clients that are excluded from all metrics over clients.
    """

    stages: Sequence[Stage]
    task: Task
    measurements: Measurements
    ignored: np.ndarray = field(default_factory=lambda: np.arange(0))

    @property
    def rounds(self) -> int:
        """Number of rounds over all stages."""
        return sum(s.rounds for s in self.stages)


class Diagnostic:
    """Base class for a diagnostic of one run. All methods do nothing by default.

    Attributes:
        column: Name of the column in the rows of the run; None if the diagnostic has no column.
        optional: Whether the diagnostic is measured only in runs whose configuration sets its name
            to true.
        exposed: Name of a value that a method of the run must expose; None if no value is needed.
        observer: Observer of the exchanges between clients and server, or None.
    """

    column: ClassVar[str | None] = None
    optional: ClassVar[bool] = False
    exposed: ClassVar[str | None] = None
    observer: Observer | None = None

    def __init__(self, run: Watched) -> None:
        self.run = run

    def measure(self, snapshot: Snapshot, evaluation: Evaluation) -> float | None:
        """Return the value of the column at an evaluated round; None if there is none."""
        return None

    def follow(self, snapshot: Snapshot) -> None:
        """Keep the values that later rounds need; called after ``measure`` and on resuming."""

    def document(self) -> dict[str, Any] | None:
        """Return the result for the file <name>.json of a finished run; None if there is none."""
        return None


class UpdateNorm(Diagnostic):
    """Length of the step that the global model took in the last round before an evaluation."""

    column = "update_norm"
    _before: Tensor | None = None

    def measure(self, snapshot: Snapshot, evaluation: Evaluation) -> float | None:
        """Return ||w^t - w^{t-1}||; None for the initial model."""
        if self._before is None:
            return None
        step = snapshot.server["w"] - self._before
        return float(torch.linalg.vector_norm(step.double()))

    def follow(self, snapshot: Snapshot) -> None:
        """Keep the global model."""
        self._before = snapshot.server["w"]


class ImprovedClients(Diagnostic):
    """Share of the cohort whose training loss did not rise in the round.

    Source: AdaFed (Hamidi & Yang, TMLR 2024, Eq. 31).
    """

    column = "improved_clients"
    optional = True
    _before: tuple[FederatedDataset, Tensor] | None = None

    def measure(self, snapshot: Snapshot, evaluation: Evaluation) -> float | None:
        """Return the share of clients with F_k(w^{t+1}) <= F_k(w^t); None for the initial model."""
        cohort = np.setdiff1d(snapshot.cohort, self.run.ignored)
        if self._before is None or not len(cohort):
            return None

        # both on the same blocks of examples, so that equal losses do not differ by rounding
        data_before, w_before = self._before
        mean_losses = self.run.measurements.mean_losses
        rows = to_device(cohort, w_before.device)

        def of_cohort(models: Tensor) -> Tensor:
            return models if models.dim() == 1 else models[rows]

        before = mean_losses(data_before, cohort, of_cohort(w_before))
        after = mean_losses(snapshot.data, cohort, of_cohort(self._models(snapshot)))
        return float((after <= before).double().mean())

    def follow(self, snapshot: Snapshot) -> None:
        """Keep the data and the model before the next round."""
        self._before = snapshot.data, self._models(snapshot)

    def _models(self, snapshot: Snapshot) -> Tensor:
        """Return the server's model [P], or one per client [N, P] with the parts that it keeps."""
        server = snapshot.server
        return local_models(server["w"], server, snapshot.clients)


class MomentSimilarity(Diagnostic):
    """Similarity of the clients' first moments in the last round.

    Only methods that expose "moments" are measured. Checkpoints contain no moments, because no
    checkpoint is written after the last round.
    """

    exposed = "moments"
    _last: tuple[np.ndarray, Tensor] | None = None  # clients, and their moments

    def __init__(self, run: Watched) -> None:
        super().__init__(run)
        self.observer = Observer(lambda round: round == run.rounds, self._observe)

    def _observe(self, exchange: Exchange) -> None:
        expose = exchange.algorithm.exposes.get("moments")
        if expose is not None:
            moments = expose(exchange.uploads, exchange.client_states)
            self._last = (
                exchange.cohort[:_SHOWN],
                moments[:_SHOWN].clone(),
            )

    def document(self) -> dict[str, Any] | None:
        """Return the round, the ids of up to 10 clients, and the matrix of their similarities."""
        if self._last is None:
            return None
        cohort, moments = self._last
        matrix = moment_similarity(self.run.task, moments)
        return {
            "round": self.run.rounds,
            "clients": cohort.tolist(),
            "cka": matrix.tolist(),
        }


DIAGNOSTICS: dict[str, type[Diagnostic]] = {
    "improved_clients": ImprovedClients,
    "update_norm": UpdateNorm,
    "moments": MomentSimilarity,
}
COLUMNS = tuple(d.column for d in DIAGNOSTICS.values() if d.column is not None)


def moment_similarity(task: Task, moments: Tensor) -> np.ndarray:
    """Return the similarity of the clients' first moments, [K, K].

    Source: FedCAda (Zhou et al. 2024, Eq. 2). The similarity is the linear CKA of each weight
    tensor, reshaped to [out, rest], averaged over the tensors. Vectors, such as biases, are left
    out, and so are tensors without variance.

    Args:
        task: The model.
        moments: First moments [K, P].
    """
    tensors = []
    for v in task.layout.views(moments.float()):
        if v.dim() > 2:
            tensors.append(v.flatten(2).numpy(force=True))

    clients = len(moments)
    similarity = np.empty((clients, clients, len(tensors)))
    for i, j, k in np.ndindex(similarity.shape):
        tensor = tensors[k]
        similarity[i, j, k] = linear_cka(tensor[i], tensor[j])

    with_variance = np.isfinite(similarity).sum(-1)
    with np.errstate(invalid="ignore"):  # no tensor has variance
        mean: np.ndarray = np.nansum(similarity, -1) / with_variance
    return mean


def linear_cka(x: np.ndarray, y: np.ndarray) -> float:
    """Return the linear CKA of two matrices with the same number of rows.

    Sources: Kornblith et al., ICML 2019; FedCAda, Eq. 2.

    The value is ‖Y'X‖²/(‖X'X‖ ‖Y'Y‖) in Frobenius norms, for matrices [n, a] and [n, b] with
    centred columns. It is 1 for matrices that are equal up to scale, and NaN if one of them has no
    variance.
    """
    x = _centred(x)
    y = _centred(y)
    if min(x.shape[1], y.shape[1]) <= len(x):
        cross = np.sum((y.T @ x) ** 2)
        gram_x = x.T @ x
        gram_y = y.T @ y
    else:  # the same numbers from smaller matrices
        gram_x = x @ x.T
        gram_y = y @ y.T
        cross = np.sum(gram_x * gram_y)
    norms = np.linalg.norm(gram_x) * np.linalg.norm(gram_y)
    return float(cross / norms) if norms > 0 else float("nan")


def _centred(m: np.ndarray) -> np.ndarray:
    """Return a matrix with centred columns and norm 1; NaN if all columns are constant."""
    m = np.asarray(m, float)
    largest = np.abs(m).max(initial=0.0)
    centred = m / largest if largest > 0 else m  # squares of tiny numbers would be 0
    centred = centred - centred.mean(0)
    size = np.linalg.norm(centred)
    rounding = 1e-12 * np.sqrt(m.size)
    return centred / size if size > rounding else np.full_like(m, np.nan)


class CustomMetric:
    """A user's metric: a function of per-client arrays that returns a number.

    The metric is measured at every evaluated round.

    Args:
        name: Name of its column in ``rounds.jsonl``.
        function: Function that receives each of the arrays ``accuracy``, ``loss`` and ``weights``
            [N] for which it has a parameter.
        options: Other arguments of the function.

    Raises:
        RequestError: If the name is taken or cannot name a column, or the function has other
            parameters.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        options: Mapping[str, Any],
    ) -> None:
        reserved = re.match("round$|accuracy_|val_", name) or is_field(name)
        if reserved or not re.fullmatch("[a-z][a-z0-9_]*", name):
            raise RequestError(
                f"metrics.{name}: a name consists of lower-case letters, digits and _, and is not "
                "that of a column of every run, such as those that begin with accuracy_ or val_; "
                "give the metric another"
            )

        signature = inspect.signature(function)
        self._arrays = tuple(k for k in _ARRAYS if k in signature.parameters)
        try:
            signature.bind(**dict.fromkeys(self._arrays), **options)
        except TypeError as error:
            raise RequestError(
                f"metrics.{name}: {place_of(function)}: {error}; a metric takes "
                f"{', '.join(_ARRAYS)}, and options that are set with +metrics.{name}.KEY=VALUE"
            ) from error

        self.name = name
        self._call = FirstCall(
            lambda arrays: function(**arrays, **options),
            f"metrics.{name}",
            _not_a_number,
            named=function,
        )

    def measure(self, evaluation: Evaluation) -> float | None:
        """Return the metric over the clients that have test examples; None if there are none.

        Raises:
            RequestError: If the function raises an error or returns no number, in its first call.
        """
        n, correct, loss = evaluation.test
        tested = n > 0
        if not tested.any():
            return None

        weights = n[tested]
        arrays = {
            "accuracy": correct[tested] / weights,
            "loss": loss[tested] / weights,
            "weights": weights.astype(np.float64),
        }
        return float(self._call({name: arrays[name] for name in self._arrays}))


def _not_a_number(args: tuple[Any, ...], result: Any) -> str | None:
    """Return the fault of a metric's result, or None."""
    number = isinstance(result, Real) and not isinstance(result, bool)
    if number and np.isfinite(float(result)):
        return None
    returned = str(result) if isinstance(result, Real) else kind(result)
    arrays = [f"{name} {list(v.shape)}" for name, v in args[0].items()]
    return f"returned {returned}; expected one finite number from {', '.join(arrays)}"
