"""Trackers that follow a run during training: Weights & Biases, TensorBoard and MLflow."""

import importlib
import os
import secrets
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbench.core.config_values import config_value, leaves
from fedbench.core.errors import RequestError, install_hint
from fedbench.runs.run import Fields, last_row

# maximum characters per value and values per request that every MLflow store accepts
_MLFLOW_TEXT, _MLFLOW_PARAMETERS = 500, 100
# prefixes of the keys sent to TensorBoard
_HYPERPARAMETERS = ("algo.", "local.", "data.", "model.", "rounds", "participation", "seed")
# metrics shown next to the hyperparameters
_JUDGED = ("accuracy_mean", "accuracy_worst30", "accuracy_std", "test_loss")


class Tracker:
    """Base class of trackers; a tracker follows one run.

    All methods do nothing by default: the files of the run are complete without a tracker. An error
    in a tracker never ends a run.
    """

    def start(
        self,
        path: Path,
        name: str,
        config: Fields,
    ) -> None:
        """Start following a run, given its directory, title and resolved configuration."""

    def log(self, row: Fields) -> None:
        """Log one evaluated round, a line of ``rounds.jsonl``."""

    def finish(self, status: str) -> None:
        """Stop following the run, given its final status."""


@dataclass
class Guarded:
    """A wrapper that calls a tracker, if there is one, until the tracker fails.

    A failure prints one line to standard error, and the run continues.
    """

    tracker: Tracker | None = None

    def call(self, method: str, *args: Any) -> None:
        """Call a method of the tracker."""
        if self.tracker is None:
            return
        try:
            getattr(self.tracker, method)(*args)
        except Exception as error:
            name = type(self.tracker).__name__
            self.tracker = None
            text = f"{type(error).__name__}: {' '.join(str(error).split()) or 'no message'}"
            print(f"fedbench: {name} failed, the run continues without it: {text}", file=sys.stderr)


@dataclass
class WandbTracker(Tracker):
    """A tracker that logs every evaluated round to Weights & Biases.

    The seeds of a setting form a group. Without a login, rounds are logged to local files, which
    ``wandb sync`` uploads.

    Attributes:
        project: Name of the project.
        entity: User or team. If None, the account's default.
    """

    project: str
    entity: str | None = None

    def __post_init__(self) -> None:
        self._wandb = _package("wandb")

    def start(
        self,
        path: Path,
        name: str,
        config: Fields,
    ) -> None:
        """Start the run; a resumed run continues under the id stored in its directory."""
        note = path / "wandb_id"
        run_id = _known_id(note, config) or secrets.token_hex(4)
        note.write_text(run_id, encoding="utf-8")
        offline = os.environ.get("WANDB_MODE") == "offline"
        if "WANDB_MODE" not in os.environ and not self._wandb.login(prompt=False):
            offline = True
            print(
                f"fedbench: no login for wandb; `wandb sync {path / 'wandb'}/*` sends the run",
                file=sys.stderr,
            )
        self._run: Any = self._wandb.init(
            project=self.project,
            entity=self.entity,
            name=name,
            config=config,
            dir=str(path),
            id=run_id,
            group=_setting_of(path),
            mode="offline" if offline else None,
            resume=None if offline else "allow",
            settings=self._wandb.Settings(quiet=True),
        )

    def log(self, row: Fields) -> None:
        """Log one evaluated round."""
        self._run.log(numbers(row), step=row["round"])

    def finish(self, status: str) -> None:
        """End the run; every status other than "done" is reported as a failure."""
        self._run.finish(exit_code=0 if status == "done" else 1)


class TensorboardTracker(Tracker):
    """A tracker that writes every evaluated round to ``tensorboard/`` in the run's directory.

    Charts are grouped (``accuracy/mean``, ``loss/train``). The keys of the method, local solver,
    data and model are logged as hyperparameters, by which TensorBoard compares runs.
    """

    def __init__(self) -> None:
        self._events = _package("torch.utils.tensorboard")

    def start(
        self,
        path: Path,
        name: str,
        config: Fields,
    ) -> None:
        """Open a new event file, which supersedes earlier files from its first round on."""
        last = last_row(path / "rounds.jsonl") or {"round": -1}
        self._writer: Any = self._events.SummaryWriter(
            str(path / "tensorboard"), purge_step=last["round"] + 1
        )
        hyperparameters = {}
        for key, value in leaves(config).items():
            if key.startswith(_HYPERPARAMETERS) and value is not None:
                is_number = isinstance(value, int | float)
                hyperparameters[key] = value if is_number else config_value(value)
        metrics = dict.fromkeys(map(tag, _JUDGED), 0.0)
        for part in self._events.summary.hparams(hyperparameters, metrics):
            self._writer.file_writer.add_summary(part)

    def log(self, row: Fields) -> None:
        """Write one evaluated round."""
        for key, value in numbers(row).items():
            self._writer.add_scalar(tag(key), value, row["round"])

    def finish(self, status: str) -> None:
        """Close the event file."""
        self._writer.close()


@dataclass
class MlflowTracker(Tracker):
    """A tracker that logs every evaluated round to MLflow, on the server configured for MLflow.

    The configuration is logged as parameters (dotted keys, which can be searched) and as the
    artifact ``config.json``. The tag ``setting`` is the same for all seeds of a setting.

    Attributes:
        project: Name of the MLflow experiment.
    """

    project: str

    def __post_init__(self) -> None:
        self._mlflow = _package("mlflow")

    def start(
        self,
        path: Path,
        name: str,
        config: Fields,
    ) -> None:
        """Start the run; a resumed run continues under the id stored in its directory."""
        mlflow = self._mlflow
        mlflow.set_experiment(self.project)
        note = path / "mlflow_id"
        known = _known_id(note, config)
        run = mlflow.start_run(known, run_name=name)
        if known is not None:
            return
        note.write_text(run.info.run_id, encoding="utf-8")
        mlflow.set_tag("setting", _setting_of(path))
        parameters = []
        for key, value in leaves(config).items():
            parameters.append((key, config_value(value)[:_MLFLOW_TEXT]))
        for first in range(0, len(parameters), _MLFLOW_PARAMETERS):
            mlflow.log_params(dict(parameters[first : first + _MLFLOW_PARAMETERS]))
        mlflow.log_dict(config, "config.json")

    def log(self, row: Fields) -> None:
        """Log one evaluated round."""
        self._mlflow.log_metrics(numbers(row), step=row["round"])

    def finish(self, status: str) -> None:
        """End the run."""
        statuses = {"done": "FINISHED", "interrupted": "KILLED"}
        self._mlflow.end_run(statuses.get(status, "FAILED"))


def tag(key: str) -> str:
    """Return the name of a metric in TensorBoard; its first part is the group of the chart."""
    first, _, rest = key.partition("_")
    return f"loss/{first}" if rest == "loss" else key.replace("_", "/", 1)


def numbers(row: Fields) -> dict[str, float]:
    """Return the numeric values of a row, without the round."""
    values = {}
    for key, value in row.items():
        if isinstance(value, int | float) and key != "round":
            values[key] = float(value)
    return values


def _package(name: str) -> Any:
    """Import and return a package that only one tracker needs.

    Raises:
        RequestError: If the package is not installed.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        raise RequestError(
            f"tracker needs the package {missing}, which is not installed; "
            f"run: {install_hint(missing)}"
        ) from error


def _setting_of(path: Path) -> str:
    """Return a run's setting from its directory: experiment or data set, method and hash."""
    return "/".join(path.resolve().parts[-4:-1])


def _known_id(note: Path, config: Fields) -> str | None:
    """Return the id that a tracker assigned to a resumed run, or None for a new run."""
    if config.get("force") or not note.exists():
        return None
    return note.read_text(encoding="utf-8") or None
