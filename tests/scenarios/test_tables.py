"""What scenarios measure, in tables and plots."""

import pytest
from command_line import FAST

from fedbench.analysis.attacks import attack_success
from fedbench.analysis.build_tables import run_tables
from fedbench.runs.results import Results

MEAN = ["algo.weights=uniform"]


def test_the_success_of_an_attack_is_what_its_clean_partner_loses(fed, tmp_path):
    """1 - accuracy / accuracy of the same seed without the attack, and under the same defence."""
    sweep = ["attack=sign_flip", "attack.clients=2", "attack.message=none,sign_flip"]
    defences = "defence=none,median"
    assert fed("-m", *FAST, *MEAN, *sweep, defences, "attack.scale=4", "seed=0,1")[0] == 0
    runs = {
        (r.meta.get("defence", "none"), r.flat["attack.message"], r.meta["seed"]): r
        for r in Results(tmp_path / "results")
    }
    accuracy = {key: run.last_round()["accuracy_mean"] for key, run in runs.items()}
    want = {
        (defence, seed): 1 - accuracy[defence, "sign_flip", seed] / accuracy[defence, "none", seed]
        for defence in ("none", "median")
        for seed in (0, 1)
    }
    assert attack_success(runs.values()) == {
        runs[defence, "sign_flip", seed].path: share for (defence, seed), share in want.items()
    }
    (table,) = run_tables(runs.values())
    assert [c.name for c in table.columns[-2:]] == ["attackers_accuracy", "attack_success"]
    cells = {
        (line.keys["defence"], line.keys["attack.message"]): line.cells[-1] for line in table.lines
    }
    expected = [100 * want["none", seed] for seed in (0, 1)]
    assert cells["none", "sign_flip"].values == pytest.approx(expected)
    assert cells["median", "none"].values == ()


def test_the_success_of_an_attack_on_a_pair_is_a_column(fed, tmp_path):
    pair = ["attack=pair", "attack.clients=2", "attack.source=3", "attack.target=5"]
    assert fed(*FAST, *pair)[0] == 0
    (run,) = Results(tmp_path / "results")
    (table,) = run_tables([run])
    assert [c.name for c in table.columns[-2:]] == ["attackers_accuracy", "attack_success"]
    assert table.lines[0].cells[-1].values == (
        pytest.approx(100 * run.last_round()["attack_success"]),
    )


def test_privacy_is_in_the_table_of_a_sweep_and_on_an_axis(fed, tmp_path):
    pytest.importorskip("dp_accounting")
    status, out, _ = fed(
        "-m", *FAST, *MEAN, "privacy=central", "privacy.noise=1,2", "participation=0.5"
    )
    assert status == 0
    assert "| privacy.noise=2 |" in "\n".join(out)
    (table,) = run_tables(Results(tmp_path / "results"))
    spent = {
        r.flat["privacy.noise"]: r.last_round()["epsilon"] for r in Results(tmp_path / "results")
    }
    assert table.columns[-1].name == "epsilon"
    assert {
        line.keys["privacy.noise"]: line.cells[-1].values for line in table.blocks[0].lines
    } == {z: (epsilon,) for z, epsilon in spent.items()}
    assert fed("plot", "results", "--x", "epsilon", "--by", "privacy.noise")[0] == 0


def test_runs_without_scenarios_have_no_columns_for_them(fed, tmp_path):
    assert fed(*FAST)[0] == 0
    (table,) = run_tables(Results(tmp_path / "results"))
    assert not {"epsilon", "attackers_accuracy", "attack_success"} & {c.name for c in table.columns}
