"""More rounds for a finished run: it goes on from its state, and nothing shows that it did."""

import json
import re
import shutil

import pandas as pd
import pytest
from command_line import run_dir
from tools import ALGORITHMS

from fedbench.config.compose import compose_run
from fedbench.runs.donors import depends_on_rounds

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
    pd.testing.assert_frame_equal(pd.read_parquet(one / "clients.parquet"), pd.read_parquet(other / "clients.parquet"))


def both(fed, tmp_path, given, few, many):
    """The run of ``many`` rounds in one go, and the one that goes on after ``few``; and what was said of it."""
    whole = run_dir(tmp_path, fed(*given, f"rounds={many}", "results_dir=whole")[1])
    short = run_dir(tmp_path, fed(*given, f"rounds={few}", "keep_state=true", "results_dir=parts")[1])
    status, lines, err = fed(*given, f"rounds={many}", "results_dir=parts")
    assert status == 0
    return whole, short, run_dir(tmp_path, lines), err


@pytest.mark.parametrize("algo", [a for a in ALGORITHMS if a != "fedcorr"])
def test_twenty_and_then_forty_rounds_are_forty_rounds(fed, tmp_path, algo):
    extra = ["algo.partial=true"] if algo == "afl" else ["algo.variant=stateless"] if algo == "fafed" else []
    part = [] if algo in ("stem",) else ["participation=0.5"]
    whole, short, longer, err = both(fed, tmp_path, [f"algo={algo}", *extra, *part, *SMALL], 4, 8)
    assert f"going on from round 3 of {short.relative_to(tmp_path)} (rounds=4)" in err
    same(whole, longer)
    assert longer.parent.name == whole.parent.name != short.parent.name
    assert json.loads((longer / "meta.json").read_text())["continues"] == {"hash": short.parent.name, "rounds": 4}


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
    assert "going on from round 3" in err
    same(whole, longer)


def test_step_by_step(fed, tmp_path):
    given = [*SMALL, "algo=fedadam", "keep_state=true"]
    for rounds in (1, 2, 5):
        status, lines, err = fed(*given, f"rounds={rounds}", "results_dir=parts")
        assert (f"going on from round {({2: 1, 5: 2}.get(rounds, 0)) - 1} of" in err) == (rounds > 1)
        assert status == 0
    whole = run_dir(tmp_path, fed(*given, "rounds=5", "results_dir=whole")[1])
    same(whole, run_dir(tmp_path, lines))
    assert (tmp_path / lines[-1] / "state").is_dir()  # which goes on further


def test_a_run_that_was_evaluated_more_often_serves_too(fed, tmp_path):
    whole = run_dir(tmp_path, fed(*SMALL, "rounds=6", "eval_every=2", "results_dir=whole")[1])
    fed(*SMALL, "rounds=4", "eval_every=1", "keep_state=true", "results_dir=parts")
    _, lines, err = fed(*SMALL, "rounds=6", "eval_every=2", "results_dir=parts")
    assert "going on from round 3" in err
    same(whole, run_dir(tmp_path, lines))


@pytest.mark.parametrize(
    "keys", [["eval_every=3"], ["eval_every=6", "keep_clients=all"], ["eval_every=1000"]], ids=" ".join
)
def test_a_finished_run_evaluated_more_often_is_the_answer(fed, tmp_path, keys):
    """Its rows include those of a run at the cadence that is asked for, number by number, and nothing is trained."""
    every, more = keys[0], keys[1:]
    whole = run_dir(tmp_path, fed(*SMALL, *more, "rounds=7", every, "results_dir=whole")[1])
    dense = run_dir(tmp_path, fed(*SMALL, *more, "rounds=7", "results_dir=parts")[1])
    before = (dense / "meta.json").read_bytes()
    status, lines, err = fed(*SMALL, *more, "rounds=7", every, "results_dir=parts")
    assert status == 0
    assert "done already" in lines[0]
    assert f"answered from {dense.relative_to(tmp_path)}, evaluated more often (eval_every=1, not {every[11:]})" in err
    assert run_dir(tmp_path, lines) == dense
    assert (dense / "meta.json").read_bytes() == before
    assert len(list((tmp_path / "parts").rglob("rounds.jsonl"))) == 1
    asked = {row["round"] for row in rows(whole)}
    assert asked == {0, 7} | {t for t in range(8) if t % int(every[11:]) == 0}
    assert [untrained(r) for r in rows(dense) if r["round"] in asked] == [untrained(r) for r in rows(whole)]
    assert (whole / "model.safetensors").read_bytes() == (dense / "model.safetensors").read_bytes()


def untrained(row):
    """A row without the losses on training examples, which eval_train_every spaces among the rounds."""
    return {k: v for k, v in row.items() if k != "train_loss"}


@pytest.mark.parametrize(
    "other",
    [["eval_every=2"], ["eval_every=4", "local.lr=0.02"], ["eval_every=4", "seed=1"], ["eval_every=4", "force=true"]],
    ids=" ".join,
)
def test_rounds_that_were_not_evaluated_and_other_settings_are_trained(fed, other):
    """Every second round is not among every fourth one."""
    fed(*SMALL, "rounds=8", "eval_every=4" if other == ["eval_every=2"] else "eval_every=2")
    status, lines, err = fed(*SMALL, "rounds=8", *other)
    assert status == 0
    assert "done already" not in lines[0]
    assert "answered from" not in err


@pytest.mark.parametrize(
    "other",
    [["local.lr=0.02"], ["seed=1"], ["data.seed=5"], ["improved_clients=true"], ["keep_clients=all"], ["rounds=2"]],
    ids=" ".join,
)
def test_another_setting_or_a_shorter_run_does_not_go_on(fed, other):
    fed(*SMALL, "rounds=4", "keep_state=true")
    status, _, err = fed(*SMALL, "rounds=6", *other)
    assert status == 0
    assert "going on" not in err


def test_a_run_evaluated_less_often_does_not_serve(fed):
    fed(*SMALL, "rounds=4", "eval_every=2", "keep_state=true")
    assert "going on" not in fed(*SMALL, "rounds=6", "eval_every=1")[2]


def test_without_keep_state_nothing_is_kept(fed, tmp_path):
    path = run_dir(tmp_path, fed(*SMALL, "rounds=4")[1])
    assert not (path / "state").exists()
    assert "going on" not in fed(*SMALL, "rounds=6")[2]
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
    whole, short, longer, err = both(fed, tmp_path, [*SMALL, "local.schedule=decay", "local.decay_factor=0.9"], 4, 6)
    assert f"going on from round 3 of {short.relative_to(tmp_path)}" in err
    same(whole, longer)


def test_which_methods_depend_on_the_number_of_rounds():
    assert {a for a in ALGORITHMS if depends_on_rounds(compose_run([f"algo={a}"]))} == {"fedcorr"}
    assert depends_on_rounds(compose_run(["algo=fedcorr_adafed"]))


def test_a_damaged_state_is_reported_and_the_run_starts_over(fed, tmp_path):
    whole, short, _, _ = both(fed, tmp_path, SMALL, 4, 6)
    (state,) = (short / "state").glob("state_*.safetensors")
    state.write_bytes(state.read_bytes()[:-1] + b"x")
    _, lines, err = fed(*SMALL, "rounds=7", "results_dir=parts")
    assert re.search(r"starting over: the state in .* cannot be used: .*changed", err)
    assert rows(run_dir(tmp_path, lines))[:6] == rows(whole)[:6]


def test_what_goes_on_can_be_interrupted_and_keeps_saying_where_it_comes_from(fed, tmp_path, monkeypatch):
    from command_line import interrupted

    whole = run_dir(tmp_path, fed(*SMALL, "rounds=9", "results_dir=whole")[1])
    fed(*SMALL, "rounds=4", "keep_state=true", "results_dir=parts")
    interrupted(fed, monkeypatch, 3, *SMALL, "rounds=9", "results_dir=parts")
    shutil.rmtree(next((tmp_path / "parts").glob("*/*/*/*/state")))  # the run has its own checkpoint by now
    _, lines, _ = fed(*SMALL, "rounds=9", "results_dir=parts")
    same(whole, run_dir(tmp_path, lines))
    assert json.loads((tmp_path / lines[-1] / "meta.json").read_text())["continues"]["rounds"] == 4
