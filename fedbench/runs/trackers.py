"""Trackers follow a run while it is running: Weights & Biases, TensorBoard and MLflow."""

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

# characters of a value, and values of a request, that every store takes
_MLFLOW_TEXT, _MLFLOW_PARAMETERS = 500, 100
# keys for TensorBoard
_HYPERPARAMETERS = ("algo.", "local.", "data.", "model.", "rounds", "participation", "seed")
_JUDGED = ("accuracy_mean", "accuracy_worst30", "accuracy_std", "test_loss")  # metrics next to them


class Tracker:
    """Follows one run.

    Every default does nothing: the files of the run are complete without a tracker. An error in a
    tracker never ends a run.
    """

    def start(
        self,
        path: Path,
        name: str,
        config: Fields,
    ) -> None:
        """Start to follow a run, given its directory, its title and the resolved configuration."""

    def log(self, row: Fields) -> None:
        """Log one evaluated round, a line of ``rounds.jsonl``."""

    def finish(self, status: str) -> None:
        """End with the status of the run."""


@dataclass
class Guarded:
    """Calls a tracker, if there is one, until it fails.

    A failure is one line on standard error, and the run continues.
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
    """Logs every evaluated round to Weights & Biases; the seeds of a setting are a group.

    Without a login it logs to files, which ``wandb sync`` sends.

    Attributes:
        project: Name of the project.
        entity: User or team; None is the default of the account.
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
        """End the run; every status other than done is a failure."""
        self._run.finish(exit_code=0 if status == "done" else 1)


class TensorboardTracker(Tracker):
    """Writes every evaluated round to ``tensorboard/`` in the run's directory.

    Charts are in groups (``accuracy/mean``, ``loss/train``), and the keys of method, local solver,
    data and model are hyperparameters, by which TensorBoard compares runs.
    """

    def __init__(self) -> None:
        self._events = _package("torch.utils.tensorboard")

    def start(
        self,
        path: Path,
        name: str,
        config: Fields,
    ) -> None:
        """Open a further event file, from whose first round on the earlier ones no longer count."""
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
    """Logs every evaluated round to MLflow, on the server that MLflow is configured to use.

    The configuration is logged as parameters (dotted keys, which can be searched) and as the
    artifact ``config.json``; the tag ``setting`` has what the seeds of a setting share.

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
    """Return the name of a metric in TensorBoard, whose first part is the group of its chart."""
    first, _, rest = key.partition("_")
    return f"loss/{first}" if rest == "loss" else key.replace("_", "/", 1)


def numbers(row: Fields) -> dict[str, float]:
    """Return the numbers of a row without the number of the round."""
    values = {}
    for key, value in row.items():
        if isinstance(value, int | float) and key != "round":
            values[key] = float(value)
    return values


def _package(name: str) -> Any:
    """Return a package that only one tracker needs.

    Raises:
        RequestError: If it is not installed.
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
    """Return the setting of a run by its directory: experiment or data set, method and hash."""
    return "/".join(path.resolve().parts[-4:-1])


def _known_id(note: Path, config: Fields) -> str | None:
    """Return the id under which a tracker has followed a run that is resumed; None for others."""
    if config.get("force") or not note.exists():
        return None
    return note.read_text(encoding="utf-8") or None
