"""More rounds for a finished run: it continues from its state, with the results of one run."""

import re
import shutil

import pandas as pd
import pytest
from command_line import interrupted, meta_of, rows_without_clocks
from tools import ALGORITHMS

from fedbench.config.compose import compose_run
from fedbench.runs.cached_run import depends_on_rounds

pytestmark = pytest.mark.whole

SMALL = ["data=synthetic_leaf", "data.clients=6", "local.batch_size=20"]
KEPT = [*SMALL, "rounds=4", "keep_state=true"]


def models(path):
    return {p.name: p.read_bytes() for p in path.glob("*.safetensors")}


def assert_same(one, other):
    assert rows_without_clocks(one) == rows_without_clocks(other)
    assert models(one) == models(other)
    clients = [pd.read_parquet(path / "clients.parquet") for path in (one, other)]
    pd.testing.assert_frame_equal(*clients)


@pytest.fixture
def more(fed, train, tmp_path):
    """Run some rounds and then more, which must be as in one go.

    Returns the shorter run, the longer one, and its lines on standard error.
    """

    def run(*args, few=4, many=6):
        args = [*SMALL, *args]
        whole = train(*args, f"rounds={many}", "results_dir=whole")
        short = train(*args, f"rounds={few}", "keep_state=true", "results_dir=parts")
        status, out, err = fed(*args, f"rounds={many}", "results_dir=parts")
        assert status == 0
        longer = tmp_path / out[-1]
        assert_same(whole, longer)
        assert longer.parent.name == whole.parent.name != short.parent.name
        return short, longer, err

    return run


@pytest.mark.parametrize(
    "keys",
    [
        "algo=scaffold participation=0.5",
        "keep_clients=all eval_train_every=3",
        "algo=fedcada eval_every=3",
        *(
            pytest.param(keys, marks=pytest.mark.slow)
            for keys in (
                "algo=afl algo.partial=true participation=0.5",
                "algo=apfl participation=0.5",
                "algo=drfa participation=0.5",
                "algo=fafed algo.variant=stateless participation=0.5",
                "algo=fedavg participation=0.5",
                "algo=mimelite participation=0.5",
                "algo=stem",
                "improved_clients=true eval_every=2",
                "keep_clients=[2,4]",
                "data.validation=0.2",
                "engine.client_state=file algo=scaffold",
                "algo=adafedadam eval_train_every=1",
                "local.schedule=decay local.decay_factor=0.9",
            )
        ),
    ],
)
def test_four_and_then_seven_rounds_are_seven_rounds(more, tmp_path, keys):
    short, longer, err = more(*keys.split(), many=7)
    assert f"continuing from round 3 of {short.relative_to(tmp_path)} (rounds=4)" in err
    assert meta_of(longer)["continues"] == {
        "hash": short.parent.name,
        "rounds": 4,
    }


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        (["algo=fedcorr", "algo.iterations=0", "algo.mixup=false"], "fedcorr"),
        (["local.schedule=cosine"], "local.schedule=cosine"),
    ],
)
def test_a_run_that_depends_on_its_number_of_rounds_starts_over(more, keys, reason):
    _, _, err = more(*keys)
    assert f"starting over: {reason} depends on the total number of rounds" in err


def test_which_methods_depend_on_the_number_of_rounds():
    names = {a for a in ALGORITHMS if depends_on_rounds(compose_run([f"algo={a}"]))}
    assert names == {"fedcorr", "fixbn"}
    assert not depends_on_rounds(compose_run(["algo=fedavg", "parts.fix_after=1"]))
    assert depends_on_rounds(compose_run(["algo=fedavg", "parts.fix_after=0.2"]))
    assert depends_on_rounds(compose_run(["algo=fedcorr_adafed"]))


def test_step_by_step(fed, train, tmp_path):
    args = [*SMALL, "algo=fedadam", "keep_state=true"]
    train(*args, "rounds=1", "results_dir=parts")
    for before, rounds in ((1, 2), (2, 5)):
        _, out, err = fed(*args, f"rounds={rounds}", "results_dir=parts")
        assert f"continuing from round {before - 1} of" in err
    path = tmp_path / out[-1]
    assert_same(train(*args, "rounds=5", "results_dir=whole"), path)
    assert (path / "state").is_dir()  # from which the next run would continue


@pytest.mark.parametrize(
    "other",
    [
        "local.lr=0.02",
        "seed=1",
        "data.seed=5",
        "improved_clients=true",
        "keep_clients=all",
        "rounds=2",
        "eval_every=2",
        "force=true",
    ],
)
def test_another_setting_or_a_shorter_run_does_not_continue(fed, train, other):
    train(*KEPT)
    status, _, err = fed(*SMALL, "rounds=6", other)
    assert status == 0
    assert "continuing" not in err


def test_without_keep_state_nothing_is_kept(fed, train):
    """The two are one setting."""
    path = train(*SMALL, "rounds=4")
    assert not (path / "state").exists()
    assert "continuing" not in fed(*SMALL, "rounds=6")[2]
    status, out, err = fed(*KEPT)
    assert status == 0
    assert "done already" in out[0]
    assert "has kept no state" in err


def test_a_damaged_state_is_reported_and_the_run_starts_over(fed, train, tmp_path):
    (state,) = (train(*KEPT) / "state").glob("round_*")
    state.write_bytes(state.read_bytes()[:-1] + b"x")
    _, out, err = fed(*SMALL, "rounds=7")
    assert re.search(r"starting over: the state in .* cannot be used: .*changed", err)
    assert_same(train(*SMALL, "rounds=7", "results_dir=whole"), tmp_path / out[-1])


def test_a_state_that_has_changed_is_found_when_the_run_is_asked_for(fed, train):
    path = train(*KEPT)
    for file in sorted((path / "state").iterdir()):
        content = file.read_bytes()
        file.write_bytes(content[:-2] + bytes([content[-2] ^ 1, content[-1]]))
        status, _, err = fed(*KEPT)
        assert status == 1, err
        assert f"state: {file.name} has changed since it was written" in err
        file.write_bytes(content)
    train(*KEPT)


def test_a_run_that_continues_another_can_be_interrupted(fed, train, monkeypatch):
    """It has its own checkpoint then, and still names the other run."""
    whole = train(*SMALL, "rounds=9", "results_dir=whole")
    short = train(*KEPT)
    interrupted(fed, monkeypatch, 3, *SMALL, "rounds=9")
    shutil.rmtree(short / "state")
    path = train(*SMALL, "rounds=9")
    assert_same(whole, path)
    assert meta_of(path)["continues"]["rounds"] == 4
