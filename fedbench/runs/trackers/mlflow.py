"""MLflow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlflow

from fedbench.runs.trackers import Tracker, numbers


class MlflowTracker(Tracker):
    """Logs every evaluated round to MLflow, on the server that MLflow is configured to use.

    Args:
        project: Name of the MLflow experiment.
    """

    def __init__(self, project: str) -> None:
        self.project = project

    def start(self, path: Path, name: str, config: dict[str, Any]) -> None:
        """Start the run; the configuration is logged as an artifact."""
        mlflow.set_experiment(self.project)
        mlflow.start_run(run_name=name)
        mlflow.log_dict(config, "config.json")

    def log(self, row: dict[str, Any]) -> None:
        """Log one evaluated round."""
        mlflow.log_metrics(numbers(row), step=row["round"])

    def finish(self, status: str) -> None:
        """End the run."""
        mlflow.end_run("FINISHED" if status == "done" else "FAILED")
