"""The search of a benchmark and its entries: order, refusals, identities, resuming."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from tiny_benchmark import context_of, write_tiny

from fedbench.benchmarks.entries import entries_of, entry_file, read_entry
from fedbench.benchmarks.execution import methods_of
from fedbench.config.user_sources import user_code_from
from fedbench.core.errors import RequestError
from fedbench.tuning import search
from fedbench.tuning.search import Trial

pytestmark = pytest.mark.whole


@pytest.fixture
def tiny(tmp_path):
    write_tiny(tmp_path / "conf")
    with user_code_from(tmp_path / "conf"):
        yield context_of(tmp_path / "conf", tmp_path / "results")


def no_training(*_):
    raise AssertionError("trained again")


def test_a_search_takes_the_best_rate_and_then_the_own_keys(tiny, monkeypatch):
    """FedProx has two rates at its default mu, and two values of mu at the better rate.

    Values, scores and runs are on disk afterwards, and nothing is trained again.
    """
    planned = tiny.planned("whole", "fedprox")
    assert planned.finished() is None
    entry, results = planned.execute()
    assert [result.status for result in results] == ["done"] * 4
    rates, own = entry.trials[:2], entry.trials[2:]
    assert [(t.values["local.lr"], t.values["algo.mu"]) for t in sorted_by_rate(rates)] == [
        (0.01, 0.1),
        (0.1, 0.1),
    ]
    best = max(rates, key=lambda trial: trial.score)
    assert {t.values["local.lr"] for t in own} == {best.values["local.lr"]}
    assert len({t.values["algo.mu"] for t in own}) == 2
    assert entry.chosen == max(entry.trials, key=lambda trial: trial.score).values
    assert entry.space == ("local.lr=0.01,0.1", "algo.mu=0.001,0.01,0.1,0.5,1")
    for runs, alpha in ((entry.runs, 1), (entry.held_out, 0.5)):
        assert [run.meta["seed"] for run in runs] == [0, 1]
        assert {run.flat["data.source.alpha"] for run in runs} == {alpha}
        assert {run.flat["algo.mu"] for run in runs} == {entry.chosen["algo.mu"]}
        assert {run.config["tuned_on"][0] for run in runs} == {1000}
    assert planned.most_runs == 2 + 2 + 4

    monkeypatch.setattr("fedbench.runs.training.train", no_training)
    assert facts(planned.finished()) == facts(entry)
    assert facts(planned.execute()[0]) == facts(entry)
    (read,) = entries_of(tiny.folder, tiny.benchmark)
    assert facts(read) == facts(entry)


def sorted_by_rate(trials):
    return sorted(trials, key=lambda trial: trial.values["local.lr"])


def facts(entry):
    """Everything in an entry, with runs by their directories."""
    runs = [[run.path for run in runs] for runs in (entry.runs, entry.held_out)]
    return vars(entry) | {"runs": runs[0], "held_out": runs[1]}


def test_a_method_without_a_rate_searches_its_own_keys_alone(tiny):
    planned = tiny.planned("whole", "fedsps")
    assert "local.lr" not in planned.axes
    own = planned.axes
    trials = planned.execute()[0].trials
    assert len(trials) == 2
    assert {key for trial in trials for key in trial.values} == set(own)


def test_an_entry_is_done_only_with_all_its_runs_and_the_present_configuration(tiny, tmp_path):
    planned = tiny.planned("whole", "mine")
    entry, _ = planned.execute()
    assert planned.finished() == entry
    done = entry.held_out[1].path / "DONE"
    done.rename(done.with_name("UNDONE"))
    assert planned.finished() is None
    done.with_name("UNDONE").rename(done)
    for changed in (
        {"tune/mine.yaml": "algo.x: 0.5,2.0\n"},
        {"algo/mine.yaml": "_target_: own_mine.mine\nx: 2.0\n"},
    ):
        write_tiny(tmp_path / "changed", **changed)
        with user_code_from(tmp_path / "changed"):
            other = context_of(tmp_path / "changed", tiny.folder)
            assert other.planned("whole", "mine").finished() is None
    for changed in ({"budget": 1}, {"seeds": (7,)}, {"metric": "val_loss"}):
        search_ = replace(tiny.benchmark.search, **changed)
        other = replace(tiny, benchmark=replace(tiny.benchmark, search=search_))
        assert other.planned("whole", "mine").finished() is None
    fewer = replace(tiny, benchmark=replace(tiny.benchmark, seeds=1))
    assert fewer.planned("whole", "mine").finished() is None
    file = entry_file(tiny.folder, tiny.benchmark, "whole", "mine")
    file.write_text(file.read_text().replace('"trials"', '"trial"'))
    with pytest.raises(RequestError, match=r"mine\.json cannot be read as an entry .*'trials'"):
        read_entry(file, tiny.folder)


def test_a_method_is_refused_with_the_reason_that_a_run_would_print(tiny):
    assert tiny.planned("whole", "fedprox").refusal() == ""
    reason = tiny.planned("part", "afl").refusal()
    assert "needs all clients in every round" in reason
    entry = tiny.planned("part", "afl").write(reason=reason)
    assert (entry.reason, entry.runs, entry.chosen) == (reason, (), None)
    assert tiny.planned("part", "afl").finished() is None  # it is built again
    assert [e.reason for e in entries_of(tiny.folder, tiny.benchmark)] == [reason]


def test_missing_data_are_no_property_of_a_method(tiny, monkeypatch):
    def build(config):
        raise RequestError(f"no data for {config.names.algo}")

    monkeypatch.setattr("fedbench.runs.build.build", build)
    with pytest.raises(RequestError, match="no data for fedavg"):
        tiny.planned("whole", "fedprox").refusal()


def test_a_method_all_of_whose_trials_diverge_has_no_runs(tiny):
    planned = tiny.planned("whole", "diverging")
    entry, results = planned.execute()
    assert (entry.chosen, entry.runs, results) == (None, (), [])
    assert [trial.score for trial in entry.trials] == [None, None]
    assert entry.reason == "every trial diverged"
    assert planned.finished() == entry


def test_only_searched_keys_can_be_chosen(tiny):
    with pytest.raises(RequestError, match=r"a chosen key of fedprox must be .* 'algo\._target_'"):
        tiny.planned("whole", "fedprox").config({"algo._target_": "os.system"})


@pytest.mark.parametrize(
    ("method", "chosen", "studies", "run"),
    [
        ("fedavg", {"local.lr": 0.03}, ["83a14af220"], "40eab8eef1"),
        ("fedprox", {"local.lr": 0.03, "algo.mu": 1}, ["a0a1b66e9a", "7f7bf85bbc"], "705db9af3e"),
        ("fedsps", {"algo.c": 0.01, "algo.gamma_b": 0.141}, ["5efd4722fd"], "5c97cc18eb"),
    ],
)
def test_the_identities_of_published_studies_and_runs(
    method, chosen, studies, run, tmp_path, monkeypatch
):
    """With another identity, the studies and runs that there are would be trained again."""
    folders = []

    def searched(study):
        folders.append(study.folder.name)
        return SimpleNamespace(trials=[Trial(0, chosen, {100: [0.5]})])

    monkeypatch.setattr(search.Study, "search", searched)
    planned = context_of(None, tmp_path, "fair").planned("synthetic", method)
    planned._search()
    assert folders == studies
    place = Path("synthetic", "fairness", "synthetic", method, run, "seed_3")
    assert planned.config(chosen, 3).path == tmp_path / place


def test_a_searched_key_that_the_method_lacks_is_refused(tmp_path):
    write_tiny(tmp_path, **{"tune/mine.yaml": "algo.y: 0.5,1.0\n"})
    with user_code_from(tmp_path):
        planned = context_of(tmp_path, tmp_path / "results").planned("whole", "mine")
        message = r"tune/mine\.yaml: algo\.y is no key of algo=mine.*; its keys are .*algo\.x"
        with pytest.raises(RequestError, match=message):
            planned.finished() or planned.most_runs


def test_a_benchmark_may_name_its_methods(tiny):
    assert methods_of(tiny.benchmark) == ["fedavg", "fedprox", "afl"]


def test_a_users_file_cannot_widen_the_search_of_a_baseline(tmp_path):
    """Keys that the baseline's own file has are typed, so that only further ones matter."""
    write_tiny(tmp_path / "conf", **{"tune/fedprox.yaml": "algo.mu: null\n"})
    planned = context_of(tmp_path / "conf", tmp_path / "results").planned("whole", "fedprox")
    assert planned.refusal() == ""
    write_tiny(tmp_path / "conf", **{"tune/fedprox.yaml": "local.momentum: 0,0.9\n"})
    with pytest.raises(RequestError, match="momentum is not in the search of fedprox"):
        planned.refusal()
