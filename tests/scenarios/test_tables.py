"""What scenarios measure, in tables and plots."""

from itertools import product

import pytest
from command_line import FAST

from fedbench.analysis.attacks import attack_success
from fedbench.analysis.build_tables import run_tables
from fedbench.runs.results import Results

pytestmark = pytest.mark.whole

SCENARIOS = ["epsilon", "attackers_accuracy", "attack_success"]


@pytest.fixture
def runs(fed, tmp_path):
    """Runs the command, and returns its output and the runs."""

    def call(*given):
        status, out, err = fed(*given)
        assert status == 0, err
        return out, list(Results(tmp_path / "results"))

    return call


def column_names(table):
    return [column.name for column in table.columns]


@pytest.mark.slow
def test_the_success_of_an_attack_is_what_its_clean_partner_loses(runs):
    """1 - accuracy / accuracy of the same seed without the attack, and under the same defence."""
    attack = "attack=sign_flip attack.clients=2 attack.message=none,sign_flip attack.scale=4"
    sweep = f"-m algo.weights=uniform {attack} defence=none,median seed=0,1"
    _, found = runs(*FAST, *sweep.split())
    by_key = {
        (run.meta.get("defence", "none"), run.flat["attack.message"], run.meta["seed"]): run
        for run in found
    }

    def success(defence, seed):
        attacked = by_key[defence, "sign_flip", seed].last_round()["accuracy_mean"]
        return 1 - attacked / by_key[defence, "none", seed].last_round()["accuracy_mean"]

    assert attack_success(found) == {
        by_key[defence, "sign_flip", seed].path: success(defence, seed)
        for defence, seed in product(("none", "median"), (0, 1))
    }

    (table,) = run_tables(found)
    assert column_names(table)[-2:] == SCENARIOS[1:]
    last = {
        (line.keys["defence"], line.keys["attack.message"]): line.cells[-1].values
        for line in table.lines
    }
    expected = [100 * success("none", seed) for seed in (0, 1)]
    assert last["none", "sign_flip"] == pytest.approx(expected)
    assert last["median", "none"] == ()


def test_the_success_of_an_attack_on_a_pair_is_a_column(runs):
    pair = "attack=pair attack.clients=2 attack.source=3 attack.target=5"
    _, (run,) = runs(*FAST, *pair.split())
    (table,) = run_tables([run])
    assert column_names(table)[-2:] == SCENARIOS[1:]
    (success,) = table.lines[0].cells[-1].values
    assert success == pytest.approx(100 * run.last_round()["attack_success"])


@pytest.mark.slow
def test_privacy_is_in_the_table_of_a_sweep_and_on_an_axis(runs):
    pytest.importorskip("dp_accounting")
    sweep = "-m algo.weights=uniform privacy=central privacy.noise=1,2 participation=0.5"
    out, found = runs(*FAST, *sweep.split())
    assert "| privacy.noise=2 |" in "\n".join(out)
    (table,) = run_tables(found)
    assert column_names(table)[-1] == "epsilon"
    told = {line.keys["privacy.noise"]: line.cells[-1].values for line in table.lines}
    assert told == {run.flat["privacy.noise"]: (run.last_round()["epsilon"],) for run in found}
    runs(
        "plot",
        "results",
        "--x",
        "epsilon",
        "--by",
        "privacy.noise",
    )


def test_runs_without_scenarios_have_no_columns_for_them(runs):
    (table,) = run_tables(runs(*FAST)[1])
    assert not {*SCENARIOS} & {*column_names(table)}
