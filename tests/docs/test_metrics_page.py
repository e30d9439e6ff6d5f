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
    rounds = pd.read_json(path / "rounds.jsonl", lines=True)
    clients = pd.read_parquet(path / "clients.parquet")
    files = {file.name for file in path.iterdir() if file.suffix != ".lock"}
    assert NAMES.issuperset([*rounds.columns, *clients.columns, *files])


@pytest.mark.parametrize(
    ("name", "shown", "value"),
    [
        ("accuracy_mean", "mean 50 %", 0.5),
        ("accuracy_mean_weighted", "mean (w) 62.5 %", 0.625),
        ("accuracy_std", "40.82 %", 0.4082),
        ("accuracy_worst30", "0 (m = 1)", 0.0),
        ("angle_degrees", "39.23 degrees", 39.23),
        ("kl_uniform", "0.4621", 0.4621),
    ],
)
def test_the_example_by_hand(name, shown, value):
    example = PAGE.partition("By hand")[2].partition("\n\n")[0]
    assert shown in " ".join(example.split())
    measured = accuracy_metrics(
        np.array([1, 0.5, 0]),
        np.array([2, 1, 1]),
    )
    assert measured[name] == pytest.approx(
        value,
        abs=5e-3 if value > 1 else 5e-5,
    )
