"""Examples held out for validation: apart, complete, per client, and none of the test data."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from command_line import run_dir
from hypothesis import given
from hypothesis import strategies as st
from tools import federation, rejected, task_for

from fedbench.config.compose import compose_run
from fedbench.data.dataset import with_validation
from fedbench.runs.build_data import federated
from fedbench.simulation.engine import Engine
from fedbench.simulation.evaluation import accuracy_metrics, evaluate
from fedbench.simulation.measurements import Measurements
from fedbench.simulation.oracles import make_oracle

SIZES = st.lists(
    st.integers(0, 30),
    min_size=1,
    max_size=8,
)
FRACTIONS = st.one_of(
    st.just(0.2),
    st.floats(0, 0.99),
)


@given(SIZES, FRACTIONS, st.integers(0, 5))
def test_each_client_s_training_examples_are_divided(sizes, fraction, seed):
    before = federation(sizes)
    after = with_validation(before, fraction, seed)
    parts = zip(
        before.train.split(),
        after.train.split(),
        after.validation.split(),
        strict=True,
    )
    for rows, train, held_out in parts:
        assert sorted([*train, *held_out]) == sorted(rows)
        assert len(held_out) == min(int(fraction * len(rows) + 1e-9), max(0, len(rows) - 1))
        assert list(train) == sorted(train)  # full batches keep the stored order
    assert torch.equal(before.test.index, after.test.index)
    assert np.array_equal(before.test.counts, after.test.counts)


def test_the_seed_of_the_data_decides():
    data = federation([40, 40])
    rows = [with_validation(data, 0.5, seed).validation.index.tolist() for seed in (0, 0, 1)]
    assert rows[0] == rows[1] != rows[2]
    first, second = with_validation(data, 0.5, 0).validation.split()
    assert (second - 43).tolist() != first.tolist()  # clients do not hold out the same places


def with_and_without(*keys):
    return (federated(compose_run([*keys, f"data.validation={v}"])) for v in (0, 0.25))


@pytest.mark.parametrize("data", ["synthetic_leaf", "synthetic_1_1"])
def test_the_test_examples_of_a_data_set_stay(data):
    plain, held = with_and_without(f"data={data}")
    assert plain.validation is None
    assert torch.equal(plain.test.index, held.test.index)
    assert np.array_equal(plain.train.counts, held.train.counts + held.validation.counts)
    assert torch.equal(plain.y, held.y)


@pytest.mark.parametrize("value", ["0", "0.0"])
def test_without_validation_a_run_is_the_one_that_it_was(value):
    assert compose_run([f"data.validation={value}"]).digest == compose_run([]).digest
    assert compose_run(["data.validation=0.2"]).digest != compose_run([]).digest


@pytest.mark.parametrize("value", ["1", "-0.1", "null"])
def test_fractions_out_of_range_are_refused(value):
    with rejected(r"data.validation must be"):
        compose_run([f"data.validation={value}"])


def measured(data, w, task):
    measurements = Measurements(
        task,
        Engine(make_oracle(task, "stacked"), "stacked", 100),
    )
    return evaluate(measurements, data, w)


@pytest.mark.parametrize("personal", [False, True])
def test_every_metric_of_the_test_examples_is_measured_on_them(personal):
    """Validation examples in the place of test examples have the same numbers, under other
    names."""
    data = with_validation(
        federation([30, 1, 12, 25]),
        0.4,
        0,
    )
    task = task_for(data)
    w = task.init(torch.Generator().manual_seed(1))
    w = w.expand(4, -1) * torch.arange(1, 5)[:, None] if personal else w
    ours = measured(data, w, task)
    theirs = measured(
        replace(data, test=data.validation, validation=None),
        w,
        task,
    )
    swapped = {
        f"val_{name.removeprefix('test_')}": theirs.summary()[name]
        for name in ("test_loss", *accuracy_metrics(np.ones(1), np.ones(1)))
    }
    summary = ours.summary()
    assert {name: v for name, v in summary.items() if name.startswith("val_")} == swapped
    table = ours.per_client(data.names)
    assert list(table["n_val"]) == [12, 0, 4, 10]
    accuracy = theirs.per_client(data.names)["accuracy"]
    np.testing.assert_array_equal(table["val_accuracy"], accuracy)


def rows(path):
    return [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]


def test_without_any_validation_examples_the_columns_are_null(fed, tmp_path):
    path = run_dir(tmp_path, fed("rounds=1", "data.clients=3", "data.validation=0.0001")[1])
    last = rows(path)[-1]
    assert last["val_accuracy_mean"] is None
    assert last["val_loss"] is None
    assert last["accuracy_mean"] is not None


def test_a_run_records_them_and_other_runs_do_not(fed, tmp_path):
    plain = run_dir(tmp_path, fed("rounds=2", "data.clients=5")[1])
    held = run_dir(tmp_path, fed("rounds=2", "data.clients=5", "data.validation=0.3")[1])
    columns, more = (set(rows(path)[0]) for path in (plain, held))
    assert columns < more
    assert all(name.startswith("val_") for name in more - columns)
    added = {"n_val", "val_correct", "val_accuracy", "val_loss"}
    tables = [set(pd.read_parquet(p / "clients.parquet").columns) for p in (plain, held)]
    assert tables[1] - tables[0] == added
