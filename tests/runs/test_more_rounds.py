"""More rounds for a finished run: it goes on from its state, and nothing shows that it did."""

import json
import re
import shutil

import pandas as pd
import pytest
from command_line import run_dir
from tools import ALGORITHMS

from fedbench.config.compose import compose_run
from fedbench.runs.cached_run import depends_on_rounds

SMALL = ["data=synthetic_leaf", "data.clients=6", "local.batch_size=20"]
CLOCKS = ("seconds_train", "seconds_eval")


def rows(path):
    found = [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k not in CLOCKS} for row in found]


def same(one, other):
    assert rows(one) == rows(other)
    for name in ("model.safetensors", "personal.safetensors"):
        assert (one / name).exists() == (other / name).exists()
        if (one / name).exists():
            assert (one / name).read_bytes() == (other / name).read_bytes()
    pd.testing.assert_frame_equal(
        pd.read_parquet(one / "clients.parquet"), pd.read_parquet(other / "clients.parquet")
    )


def both(fed, tmp_path, given, few, many):
    """The run of ``many`` rounds in one go, and the one that goes on after ``few``; and what was said of it."""
    whole = run_dir(tmp_path, fed(*given, f"rounds={many}", "results_dir=whole")[1])
    short = run_dir(
        tmp_path, fed(*given, f"rounds={few}", "keep_state=true", "results_dir=parts")[1]
    )
    status, lines, err = fed(*given, f"rounds={many}", "results_dir=parts")
    assert status == 0
    return whole, short, run_dir(tmp_path, lines), err


@pytest.mark.parametrize(
    "algo", ["afl", "apfl", "drfa", "fafed", "fedavg", "mimelite", "scaffold", "stem"]
)
def test_twenty_and_then_forty_rounds_are_forty_rounds(fed, tmp_path, algo):
    extra = (
        ["algo.partial=true"]
        if algo == "afl"
        else ["algo.variant=stateless"]
        if algo == "fafed"
        else []
    )
    part = [] if algo in ("stem",) else ["participation=0.5"]
    whole, short, longer, err = both(fed, tmp_path, [f"algo={algo}", *extra, *part, *SMALL], 4, 8)
    assert f"continuing from round 3 of {short.relative_to(tmp_path)} (rounds=4)" in err
    same(whole, longer)
    assert longer.parent.name == whole.parent.name != short.parent.name
    assert json.loads((longer / "meta.json").read_text())["continues"] == {
        "hash": short.parent.name,
        "rounds": 4,
    }


@pytest.mark.parametrize(
    "keys",
    [
        ["improved_clients=true", "eval_every=2"],
        ["keep_clients=all", "eval_train_every=3"],
        ["keep_clients=[2,4]"],
        ["data.validation=0.2"],
        ["engine.client_state=file", "algo=scaffold"],
        ["algo=adafedadam", "eval_train_every=1"],
        ["algo=fedcada", "eval_every=3"],
    ],
    ids=" ".join,
)
def test_whatever_is_recorded(fed, tmp_path, keys):
    whole, _, longer, err = both(fed, tmp_path, [*SMALL, *keys], 4, 7)
    assert "continuing from round 3" in err
    same(whole, longer)


def test_step_by_step(fed, tmp_path):
    given = [*SMALL, "algo=fedadam", "keep_state=true"]
    for rounds in (1, 2, 5):
        status, lines, err = fed(*given, f"rounds={rounds}", "results_dir=parts")
        assert (f"continuing from round {({2: 1, 5: 2}.get(rounds, 0)) - 1} of" in err) == (
            rounds > 1
        )
        assert status == 0
    whole = run_dir(tmp_path, fed(*given, "rounds=5", "results_dir=whole")[1])
    same(whole, run_dir(tmp_path, lines))
    assert (tmp_path / lines[-1] / "state").is_dir()  # which goes on further


@pytest.mark.parametrize(
    "other",
    [
        ["local.lr=0.02"],
        ["seed=1"],
        ["data.seed=5"],
        ["improved_clients=true"],
        ["keep_clients=all"],
        ["rounds=2"],
        ["eval_every=2"],
    ],
    ids=" ".join,
)
def test_another_setting_or_a_shorter_run_does_not_go_on(fed, other):
    fed(*SMALL, "rounds=4", "keep_state=true")
    status, _, err = fed(*SMALL, "rounds=6", *other)
    assert status == 0
    assert "continuing" not in err


def test_a_run_evaluated_less_often_does_not_serve(fed):
    fed(*SMALL, "rounds=4", "eval_every=2", "keep_state=true")
    assert "continuing" not in fed(*SMALL, "rounds=6", "eval_every=1")[2]


def test_who_forces_a_run_begins_at_its_start(fed):
    fed(*SMALL, "rounds=4", "keep_state=true")
    assert "continuing" not in fed(*SMALL, "rounds=6", "force=true")[2]


def test_without_keep_state_nothing_is_kept(fed, tmp_path):
    path = run_dir(tmp_path, fed(*SMALL, "rounds=4")[1])
    assert not (path / "state").exists()
    assert "continuing" not in fed(*SMALL, "rounds=6")[2]
    assert "has kept no state" in fed(*SMALL, "rounds=4", "keep_state=true")[2]


def test_keeping_the_state_is_no_part_of_the_identity(fed, tmp_path):
    one = run_dir(tmp_path, fed(*SMALL, "rounds=4", "results_dir=a")[1])
    other = run_dir(tmp_path, fed(*SMALL, "rounds=4", "keep_state=true", "results_dir=b")[1])
    assert one.parent.name == other.parent.name
    same(one, other)


def test_a_method_made_for_its_number_of_rounds_starts_over_and_says_so(fed, tmp_path):
    given = [*SMALL, "algo=fedcorr", "algo.iterations=0", "algo.mixup=false"]
    whole, _, longer, err = both(fed, tmp_path, given, 4, 6)
    assert "starting over: fedcorr depends on the total number of rounds" in err
    same(whole, longer)


def test_a_rate_that_falls_over_all_rounds_starts_over_and_says_so(fed, tmp_path):
    whole, _, longer, err = both(fed, tmp_path, [*SMALL, "local.schedule=cosine"], 4, 6)
    assert "starting over: local.schedule=cosine depends on the total number of rounds" in err
    same(whole, longer)


def test_a_rate_that_decays_per_round_goes_on(fed, tmp_path):
    whole, short, longer, err = both(
        fed, tmp_path, [*SMALL, "local.schedule=decay", "local.decay_factor=0.9"], 4, 6
    )
    assert f"continuing from round 3 of {short.relative_to(tmp_path)}" in err
    same(whole, longer)


def test_which_methods_depend_on_the_number_of_rounds():
    assert {a for a in ALGORITHMS if depends_on_rounds(compose_run([f"algo={a}"]))} == {"fedcorr"}
    assert depends_on_rounds(compose_run(["algo=fedcorr_adafed"]))


def test_a_damaged_state_is_reported_and_the_run_starts_over(fed, tmp_path):
    whole, short, _, _ = both(fed, tmp_path, SMALL, 4, 6)
    (state,) = (short / "state").glob("round_*")
    state.write_bytes(state.read_bytes()[:-1] + b"x")
    _, lines, err = fed(*SMALL, "rounds=7", "results_dir=parts")
    assert re.search(r"starting over: the state in .* cannot be used: .*changed", err)
    assert rows(run_dir(tmp_path, lines))[:6] == rows(whole)[:6]


def test_a_state_that_has_changed_is_found_when_the_run_is_asked_for(fed, tmp_path):
    given = [*SMALL, "rounds=3", "keep_state=true"]
    path = run_dir(tmp_path, fed(*given)[1])
    for file in sorted((path / "state").iterdir()):
        content = file.read_bytes()
        file.write_bytes(content[:-2] + bytes([content[-2] ^ 1, content[-1]]))
        status, _, err = fed(*given)
        assert status == 1, err
        assert f"state: {file.name} has changed since it was written" in err, err
        file.write_bytes(content)
    assert fed(*given)[0] == 0


def test_a_run_that_continues_another_can_be_interrupted_and_keeps_saying_so(
    fed, tmp_path, monkeypatch
):
    from command_line import interrupted

    whole = run_dir(tmp_path, fed(*SMALL, "rounds=9", "results_dir=whole")[1])
    fed(*SMALL, "rounds=4", "keep_state=true", "results_dir=parts")
    interrupted(fed, monkeypatch, 3, *SMALL, "rounds=9", "results_dir=parts")
    # the run has its own checkpoint by now
    shutil.rmtree(next((tmp_path / "parts").glob("*/*/*/*/state")))
    _, lines, _ = fed(*SMALL, "rounds=9", "results_dir=parts")
    same(whole, run_dir(tmp_path, lines))
    assert json.loads((tmp_path / lines[-1] / "meta.json").read_text())["continues"]["rounds"] == 4
