"""Times that are part of fedbench: what they belong to, the file, and how a plan uses them."""

import json
import runpy
import sys

import pytest
from tools import ROOT

from fedbench.papers.durations import Duration, Durations
from fedbench.papers.plan import locate, plan
from fedbench.papers.registry import home_of
from fedbench.papers.stored_durations import (
    StoredDurations,
    Timing,
    from_text,
    merged,
    stored_durations,
    to_text,
    work_of,
    work_of_run,
)
from fedbench.runs import bundle

HERE = "adafedadam/table5_synthetic"
MLP = (("model", "mlp"),)


def there(*timings, machine="another"):
    by_experiment = {}
    for t in timings:
        by_experiment[t.experiment] = (*by_experiment.get(t.experiment, ()), t)
    return StoredDurations(machine, dict.fromkeys(by_experiment, 1000), by_experiment)


def a_run(tmp_path, composed=False):
    """A run of AdaFedAdam; without its configuration, as in a plan without runs, the file has to know its rounds."""
    first = plan(["adafedadam/table4"], "full", seeds=1)[:1]
    (run,) = locate(first, [f"results_dir={tmp_path}"], only_existing=not composed)
    return run


def finished(results, algo, digest, rounds, seconds, departures=None, model="linear"):
    path = results / HERE / algo / digest / "seed_0"
    path.mkdir(parents=True)
    last = {"round": rounds, "seconds_train": seconds, "seconds_eval": 0.0}
    (path / "rounds.jsonl").write_text(json.dumps(last) + "\n")
    (path / "meta.json").write_text(json.dumps({"departures": departures or {}, "model": model}))
    (path / "DONE").touch()


def test_the_work_of_a_round():
    """Rates, methods' own keys and rounds do not change it; with another model its sizes have no meaning."""
    keys = {"algo.gamma": 5.0, "local.lr": 0.1, "rounds": 7, "local.steps": 20, "data.clients": 100, "eval_every": 2}
    assert work_of(keys) == (("data.clients", "100"), ("local.steps", "20"))
    assert work_of({"model": "mlp", "model.hidden": [64], "data.source.first": 9}) == (
        ("data.source.first", "9"),
        ("model", "mlp"),
    )
    assert work_of({"model.hidden": 64}) == (("model.hidden", "64"),)


def test_a_run_has_the_work_of_its_plan():
    changed = {
        "model._target_": ["a.Linear", "a.MLP"],
        "model.hidden": [None, [128]],
        "rounds": [1000, 20],
        "local.lr": [0.1, 0.2],
    }
    assert work_of_run({"departures": changed, "model": "mlp"}) == work_of({"model": "mlp", "rounds": 20})
    repeated = {"data.clients": [143, 30], "data.source.clients": [143, 30]}
    assert work_of_run({"departures": repeated, "model": "lstm"}) == work_of({"data.clients": 30})
    assert work_of_run({}) == ()


def test_stored_times_are_scaled_by_rounds_and_marked(tmp_path):
    """2 s a round and 1000 rounds; another algorithm's time counts if the own one has none, other work never."""
    run = a_run(tmp_path)
    own = Timing(HERE, "adafedadam", (), 100, 200.0)
    other = Timing(HERE, "fedavg", (), 100, 50.0)
    assert Durations(tmp_path, there(own, other)).of([run]) == Duration(2000.0, rough=True, stored=True)
    assert Durations(tmp_path, there(other)).of([run]) == Duration(500.0, rough=True, stored=True)
    assert Durations(tmp_path, there(Timing(HERE, "adafedadam", MLP, 100, 200.0))).of([run]) == Duration(unknown=1)
    assert Durations(tmp_path, there()).of([run]) == Duration(unknown=1)
    assert Durations(tmp_path, there(own)).of([run]).text() == "~33 min"


def test_stored_times_are_scaled_by_what_was_measured_on_both_machines(tmp_path):
    """Here a round with the MLP takes 3 s, there 1 s; so 200 s there are 600 s here for another setting."""
    finished(tmp_path, "fedavg", "x", 10, 30.0, {"model._target_": ["l", "m"]}, model="mlp")
    others = there(
        Timing(HERE, "fedavg", MLP, 100, 100.0),
        Timing("adafedadam/table7_synthetic_momentum", "adafedadam", (), 1000, 200.0),
    )
    (run,) = locate(plan(["adafedadam/table7"], "full", seeds=1)[9:10], [f"results_dir={tmp_path}"])
    assert (run.experiment, run.algo) == ("adafedadam/table7_synthetic_momentum", "adafedadam")
    found = Durations(tmp_path, others)
    assert found.ratio == 3.0
    assert found.of([run]) == Duration(600.0, rough=True, stored=True)


def test_runs_here_with_the_same_work_come_before_stored_times_and_those_before_other_work(tmp_path):
    finished(tmp_path, "fedavg", "other", 10, 70.0, {"model._target_": ["l", "m"]}, model="mlp")  # 7 s a round
    run = a_run(tmp_path, composed=True)
    assert Durations(tmp_path, there()).of([run]) == Duration(7000.0, rough=True)
    assert Durations(tmp_path, there(Timing(HERE, "adafedadam", (), 1, 2.0))).of([run]).stored
    finished(tmp_path, "fedavg", "same", 10, 50.0)
    assert Durations(tmp_path, there(Timing(HERE, "adafedadam", (), 1, 2.0))).of([run]) == Duration(5000.0, rough=True)


def test_the_file_keeps_what_it_was_given():
    given = there(Timing(HERE, "fedavg", MLP, 100, 12.25, 3), Timing(HERE, "fednova", (), 7, 1.5), machine='2 "cores"')
    assert from_text(to_text(given)) == given


def test_times_of_one_setting_are_averaged_over_runs():
    """10 s of one run and 40 s of two: 30 s on average."""
    a, b = Timing(HERE, "fedavg", MLP, 5, 10.0), Timing(HERE, "fedavg", MLP, 5, 40.0, 2)
    longer = Timing(HERE, "fedavg", MLP, 6, 1.0)
    assert merged([a, longer, b]) == [Timing(HERE, "fedavg", MLP, 5, 30.0, 3), longer]


def test_the_stored_times_belong_to_experiments_of_the_papers():
    assert "core" in stored_durations().machine
    for experiment, timings in stored_durations().timings.items():
        assert home_of(experiment) is not None
        assert stored_durations().rounds[experiment] > 0
        for t in timings:
            assert t.rounds > 0
            assert t.seconds > 0
            assert t.runs > 0


@pytest.mark.parametrize("machine", ["old", "new"])
def test_the_script_keeps_times_of_the_same_machine(tmp_path, monkeypatch, machine):
    """All runs of FedFa on the IID set do the same work; the setting that is in the file already is kept."""
    file = tmp_path / "durations.json"
    file.write_text(to_text(there(Timing(HERE, "fedavg", MLP, 5, 10.0), machine="old")))
    folder = ROOT / "results" / "published" / "fedfa"
    monkeypatch.setattr(sys, "argv", ["durations.py", str(folder), "--machine", machine, "--into", str(file)])
    runpy.run_path(str(ROOT / "scripts" / "durations.py"), run_name="__main__")
    found = from_text(file.read_text())
    assert found.machine == machine
    assert (HERE in found.timings) == (machine == "old")
    iid = "fedfa/table2_synthetic_iid"
    seconds = [
        run.last_round()["seconds_train"] + run.last_round()["seconds_eval"]
        for run in bundle.stored(folder)
        if (run.meta["experiment"], run.meta["algo"]) == (iid, "fedfa")
    ]
    (own,) = [t for t in found.timings[iid] if (t.algo, t.work) == ("fedfa", ())]
    assert (own.rounds, own.runs) == (200, len(seconds))
    assert own.seconds == pytest.approx(sum(seconds) / len(seconds), abs=0.01)
    assert found.rounds[iid] == 200
