"""Evaluation on a sample of the clients: the same numbers for fewer of them, and what is made of them says so."""

import json

import numpy as np
import pandas as pd
import pytest
from command_line import FAST, run_dir

from fedbench.config.compose import compose_run
from fedbench.config.identity import setting
from fedbench.simulation.evaluation import accuracy_metrics

DATA = ["data.clients=20", "data.validation=0.2", "keep_clients=all", "rounds=3", "participation=5"]


def clients_of(tmp_path, lines):
    return pd.read_parquet(run_dir(tmp_path, lines) / "clients.parquet")


@pytest.mark.parametrize("algo", ["fedavg", "apfl", "scaffold"])
def test_a_sample_has_the_rows_that_its_clients_have_among_all(fed, tmp_path, algo):
    whole, some = (
        fed(*DATA, f"algo={algo}", f"evaluate.clients={n}", "seed=1")[1] for n in ("all", 7)
    )
    everyone, table = clients_of(tmp_path, whole), clients_of(tmp_path, some)
    ids = table["client"].unique()
    assert len(ids) == 7
    assert (np.diff(ids) > 0).all()
    wanted = everyone[everyone["client"].isin(ids)].reset_index(drop=True)
    pd.testing.assert_frame_equal(table, wanted, rtol=1e-12)
    last = table[table["round"] == 3]
    row = json.loads((run_dir(tmp_path, some) / "rounds.jsonl").read_text().splitlines()[-1])
    metrics = accuracy_metrics(last["accuracy"].to_numpy(), last["n_test"].to_numpy())
    assert {k: row[k] for k in metrics} == pytest.approx(metrics)
    assert row["train_loss"] == pytest.approx(
        np.average(last["train_loss"], weights=last["n_train"])
    )
    assert row["val_loss"] == pytest.approx(np.average(last["val_loss"], weights=last["n_val"]))
    models = [
        (run_dir(tmp_path, lines) / "model.safetensors").read_bytes() for lines in (whole, some)
    ]
    assert models[0] == models[1]
    facts = [
        json.loads((run_dir(tmp_path, lines) / "meta.json").read_text()) for lines in (whole, some)
    ]
    assert [(m["clients"], m.get("evaluated_clients")) for m in facts] == [(20, None), (20, 7)]


def test_methods_of_a_seed_share_the_sample_and_seeds_do_not(fed, tmp_path):
    ids = [
        clients_of(tmp_path, fed(*FAST, "evaluate.clients=4", f"algo={algo}", f"seed={seed}")[1])[
            "client"
        ].tolist()
        for algo, seed in (("fedavg", 0), ("qfedavg", 0), ("fedavg", 1))
    ]
    assert ids[0] == ids[1] != ids[2]


def test_a_sample_is_another_setting_and_the_default_is_none():
    plain, named, sampled = (
        compose_run(FAST + more) for more in ([], ["evaluate.clients=all"], ["evaluate.clients=7"])
    )
    assert plain.digest == named.digest != sampled.digest
    assert "evaluate.clients" not in setting(plain.tree)
    assert setting(sampled.tree)["evaluate.clients"] == 7


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("0", "evaluate.clients must be all or >= 1, got 0"),
        ("-3", "evaluate.clients must be all or >= 1, got -3"),
        ("2.5", "evaluate.clients must be all or an integer, got 2.5"),
        ("some", "evaluate.clients must be all or an integer, got 'some'"),
        (
            "9",
            "evaluate.clients=9 exceeds the number of clients, 8; use evaluate.clients=all for all of them",
        ),
    ],
)
def test_refused(fed, tmp_path, value, text):
    status, _, err = fed(*FAST, f"evaluate.clients={value}")
    assert status == 2
    assert text in err
    assert not (tmp_path / "results").exists()


def test_tables_say_so(fed, tmp_path):
    sentence = "evaluated on a sample of 5 of 8 clients"
    out = fed("-m", *FAST, "evaluate.clients=5", "algo=fedavg,fedprox", "seed=0,1")[1]
    assert sentence in " ".join("\n".join(out).split())
    assert fed("report", "results", "--compare", "algo")[0] == 0
    report = tmp_path / "results" / "report"
    for name in ("tables/synthetic_leaf.md", "tables/synthetic_leaf.tex", "index.html"):
        assert sentence in (report / name).read_text(), name
    assert [sentence in file.read_text() for file in report.rglob("compared.md")] == [True]
    assert (
        "The evaluation is on a sample of 5 of the 8 clients" in (report / "index.html").read_text()
    )
