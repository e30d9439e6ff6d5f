"""MLflow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlflow

from fedbench.core.trees import config_value, leaves
from fedbench.runs.trackers import Tracker, known_id, numbers, setting_of

_LONGEST = 500  # characters of a parameter's value that every MLflow store takes
_MOST = 100  # parameters in one request
_STATUS = {"done": "FINISHED", "interrupted": "KILLED"}


class MlflowTracker(Tracker):
    """Logs every evaluated round to MLflow, on the server that MLflow is configured to use.

    The configuration is logged as parameters (dotted keys, which can be searched) and as the artifact
    ``config.json``; the tag ``setting`` has what the seeds of a setting share.

    Args:
        project: Name of the MLflow experiment.
    """

    def __init__(self, project: str) -> None:
        self.project = project

    def start(self, path: Path, name: str, config: dict[str, Any]) -> None:
        """Start the run; a resumed run continues under the id stored in its directory."""
        mlflow.set_experiment(self.project)
        note = path / "mlflow_id"
        known = known_id(note, config)
        if known is not None:
            mlflow.start_run(run_id=known)
            return
        note.write_text(mlflow.start_run(run_name=name).info.run_id, encoding="utf-8")
        mlflow.set_tag("setting", setting_of(path))
        params = [(k, config_value(v)[:_LONGEST]) for k, v in leaves(config).items()]
        for i in range(0, len(params), _MOST):
            mlflow.log_params(dict(params[i : i + _MOST]))
        mlflow.log_dict(config, "config.json")

    def log(self, row: dict[str, Any]) -> None:
        """Log one evaluated round."""
        mlflow.log_metrics(numbers(row), step=row["round"])

    def finish(self, status: str) -> None:
        """End the run."""
        mlflow.end_run(_STATUS.get(status, "FAILED"))
