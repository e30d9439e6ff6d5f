"""Evaluation on a sample of the clients: the same numbers for fewer clients, named in tables."""

import numpy as np
import pandas as pd
import pytest
from command_line import FAST, meta_of, model_of

from fedbench.config.compose import compose_run
from fedbench.config.identity import setting
from fedbench.runs.run import read_run
from fedbench.simulation.evaluation import accuracy_metrics

DATA = ["data.clients=20", "data.validation=0.2", "keep_clients=all", "rounds=3", "participation=5"]


@pytest.mark.parametrize("algo", ["fedavg", "apfl", "scaffold"])
def test_a_sample_has_the_rows_that_its_clients_have_among_all(train, algo):
    whole = train(*DATA, f"algo={algo}", "seed=1")
    some = train(*DATA, f"algo={algo}", "seed=1", "evaluate.clients=7")
    everyone = read_run(whole).clients()
    table = read_run(some).clients()
    ids = table["client"].unique()
    assert len(ids) == 7
    assert (np.diff(ids) > 0).all()
    sampled = everyone[everyone["client"].isin(ids)].reset_index(drop=True)
    pd.testing.assert_frame_equal(table, sampled, rtol=1e-12)

    last = table[table["round"] == 3]
    row = read_run(some).last_round()
    metrics = accuracy_metrics(
        last["accuracy"].to_numpy(),
        last["n_test"].to_numpy(),
    )
    assert {k: row[k] for k in metrics} == pytest.approx(metrics)
    for part in ("train", "val"):
        loss = np.average(last[f"{part}_loss"], weights=last[f"n_{part}"])
        assert row[f"{part}_loss"] == pytest.approx(loss)
    assert model_of(whole) == model_of(some)
    assert meta_of(some)["evaluated_clients"] == 7


def test_methods_of_a_seed_share_the_sample_and_seeds_do_not(train):
    def sample(*args):
        clients = read_run(train(*FAST, "evaluate.clients=4", *args)).clients()
        return clients["client"].tolist()

    assert sample("seed=0") == sample("seed=0", "algo=qfedavg") != sample("seed=1")


def test_a_sample_is_another_setting_and_the_default_is_none():
    plain = compose_run(FAST)
    named = compose_run([*FAST, "evaluate.clients=all"])
    sampled = compose_run([*FAST, "evaluate.clients=7"])
    assert plain.digest == named.digest != sampled.digest
    assert "evaluate.clients" not in setting(plain.tree)
    assert setting(sampled.tree)["evaluate.clients"] == 7


@pytest.mark.slow
def test_tables_name_the_sample(fed, tmp_path):
    sentence = "evaluated on a sample of 5 of 8 clients"
    _, out, _ = fed("-m", *FAST, "evaluate.clients=5", "algo=fedavg,fedprox", "seed=0,1")
    assert sentence in " ".join(" ".join(out).split())
    assert fed("report", "results", "--compare", "algo")[0] == 0
    report = tmp_path / "results" / "report"
    (compared,) = report.rglob("compared.md")
    tables = [report / "tables" / f"synthetic_leaf.{end}" for end in ("md", "tex")]
    page = report / "index.html"
    for file in (compared, *tables, page):
        assert sentence in file.read_text(), file.name
    assert "The evaluation is on a sample of 5 of the 8 clients" in page.read_text()
