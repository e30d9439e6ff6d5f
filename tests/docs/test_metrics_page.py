"""The page on metrics names every field that a run has, and its example by hand is right."""

import re

import numpy as np
import pandas as pd
import pytest
from command_line import FAST, run_dir
from tools import ROOT

from fedbench.core.metrics import CATALOGUE
from fedbench.simulation.evaluation import accuracy_metrics

PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
NAMES = set(re.findall(r"`([\w.]+)`", PAGE))


def test_every_metric_of_the_catalogue_is_explained():
    assert set(CATALOGUE) <= NAMES


def test_every_column_of_a_run_is_explained(fed, tmp_path):
    path = run_dir(tmp_path, fed(*FAST)[1])
    assert set(pd.read_json(path / "rounds.jsonl", lines=True).columns) <= NAMES
    assert set(pd.read_parquet(path / "clients.parquet").columns) <= NAMES
    assert {p.name for p in path.iterdir() if p.suffix != ".lock"} <= NAMES


def test_the_example_by_hand():
    found = accuracy_metrics(np.array([1, 0.5, 0]), np.array([2, 1, 1]))
    shown = PAGE[PAGE.index("By hand") :].split("\n\n")[0]
    for name, factor, text in [
        ("accuracy_mean", 100, "mean 50 %"),
        ("accuracy_mean_weighted", 100, "mean (w) 62.5 %"),
        ("accuracy_std", 100, "40.82 %"),
        ("accuracy_worst30", 100, "0 (m = 1)"),
        ("angle_degrees", 1, "39.23 degrees"),
        ("kl_uniform", 1, "0.4621"),
    ]:
        assert text in " ".join(shown.split())
        assert factor * found[name] == pytest.approx(
            float(re.search(r"[\d.]+", text.replace("(w)", ""))[0]), abs=5e-3
        )
