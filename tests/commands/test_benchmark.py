"""``fedbench benchmark NAME``: a method of one's own against entries of others, and the check."""

import json
import math
import shutil
from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import pytest
from tiny_benchmark import EXPERIMENT, FILES, context_of, write_tiny

from fedbench.benchmarks.check import (
    Checked,
    CheckedRun,
    check_runs,
    environment_of,
    largest_difference,
)
from fedbench.benchmarks.entries import Entry, entries_of, entry_file
from fedbench.cli import main
from fedbench.commands.benchmark import checked_lines, reasons
from fedbench.runs.results import load_results

pytestmark = pytest.mark.whole

COMMAND = ["benchmark", "tiny", "--config-dir", "conf", "--jobs", "1"]


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """The results of all methods of the benchmark."""
    folder = tmp_path_factory.mktemp("published")
    write_tiny(folder / "conf")
    conf = ["--config-dir", str(folder / "conf"), "--jobs", "1"]
    assert main(["benchmark", "tiny", *conf, f"results_dir={folder / 'results'}"]) == 0
    return folder / "results"


@pytest.fixture(scope="module")
def bundle(published):
    """The results as a published folder."""
    folder = published.parent / "bundle"
    conf = ["--config-dir", str(published.parent / "conf")]
    assert main(["publish", str(published), "--into", str(folder), *conf]) == 0
    return folder


@pytest.fixture
def bench(fed, tmp_path, bundle):
    """Run the command in a directory with the config tree."""
    write_tiny(tmp_path / "conf")

    def run(*args, baselines=bundle):
        source = [] if baselines is None else ["--baselines", str(baselines)]
        return fed(*COMMAND, *source, *args)

    return run


@pytest.fixture
def late(monkeypatch):
    """Let 100 seconds pass between two looks at the clock."""
    monkeypatch.setattr("fedbench.commands.benchmark.monotonic", count(0, 100).__next__)


@pytest.fixture
def no_training(monkeypatch):
    def train(*_):
        raise AssertionError("a run was trained")

    monkeypatch.setattr("fedbench.runs.training.train", train)


def done(folder):
    return sorted(folder.rglob("DONE"))


def test_all_methods_are_tuned_and_run_without_algo(published):
    """AFL has no key of its own but one; it needs all clients, and part samples them."""
    context = context_of(published.parent / "conf", published)
    entries = list(entries_of(published, context.benchmark))
    names = [(entry.setting, entry.method) for entry in entries]
    methods = ("afl", "fedavg", "fedprox")
    assert names == [(setting, method) for setting in ("whole", "part") for method in methods]
    refused = [entry for entry in entries if entry.reason]
    assert [(entry.setting, entry.method) for entry in refused] == [("part", "afl")]
    trials = sum(len(entry.trials) for entry in entries)
    assert len(done(published)) == trials + 5 * 4
    # trials are no results
    assert len(load_results(published).runs) == 5 * 4


def test_an_own_method_is_compared_with_published_entries(bench, tmp_path):
    status, lines, err = bench("algo=mine")
    assert status == 0, err
    assert "tiny@3: 3 methods published, 0 methods here, 1 method to do: at most 16 runs" in err
    text = "\n".join(lines)
    for side in ("tuned", "held out"):
        for metric in ("mean accuracy (%)", "worst 10 % (%)"):
            assert f"### Gain of mine in {metric}, {side}\n" in text
    assert text.count("| fedavg ") == text.count("| fedprox ") == 4
    assert "afl, part: " in text
    assert len(done(tmp_path / "results")) == 16  # of the own method alone
    context = context_of(tmp_path / "conf", tmp_path / "results")
    local = list(entries_of(context.folder, context.benchmark))
    assert [(entry.setting, entry.method) for entry in local] == [
        ("whole", "mine"),
        ("part", "mine"),
    ]


def test_finished_work_is_not_repeated(bench, tmp_path, published, no_training):
    shutil.copytree(published, tmp_path / "results")
    status, lines, err = bench(baselines=None)
    assert status == 0, err
    assert "0 methods published, 3 methods here, 0 methods to do: at most 0 runs" in err
    assert "### Gain over fedavg in mean accuracy (%), tuned" in lines
    # its entry is written again from its runs
    context = context_of(tmp_path / "conf", tmp_path / "results")
    file = entry_file(context.folder, context.benchmark, "whole", "fedprox")
    before = file.read_text()
    file.unlink()
    assert bench(baselines=None)[0] == 0
    assert file.read_text() == before


def test_a_command_ends_after_some_hours_and_resumes(bench, tmp_path, late):
    status, lines, _ = bench("algo=mine", "--hours", "0.01")
    assert status == 0
    assert lines[-1] == "the hours are up: 1 method left; the same command runs the rest"
    assert not any(line.startswith("| method ") for line in lines)  # it has no gains yet
    assert not list((tmp_path / "results").rglob("mine.json"))
    assert bench("algo=mine")[0] == 0
    assert len(list((tmp_path / "results").rglob("mine.json"))) == 2


def test_ctrl_c_says_how_to_resume(bench, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("fedbench.benchmarks.execution.PlannedEntry.execute", interrupt)
    status, _, err = bench("algo=mine")
    assert status == 130
    assert "interrupted; run the same command again to resume" in err


def test_a_failed_run_is_named_and_trained_again(bench, monkeypatch):
    from fedbench.runs.training import train

    def fail(prepared, recorder):
        if recorder.path.name == "seed_1":
            raise MemoryError("too much")
        return train(prepared, recorder)

    with monkeypatch.context() as patch:
        patch.setattr("fedbench.runs.training.train", fail)
        status, _, err = bench("algo=mine")
    assert status == 1
    assert err.count("MemoryError: too much") == 4  # a seed of two settings and their variants
    status, lines, err = bench("algo=mine")
    assert status == 0, err
    trained = [line for line in lines if line.endswith("of training")]
    assert len(trained) == 4


def test_a_failed_trial_is_no_score_and_is_trained_again(bench, tmp_path, monkeypatch):
    """The values are those of a search without the failure, in which nothing is trained twice."""
    from fedbench.runs.training import train

    trained = []

    def fail(prepared, recorder):
        trained.append(recorder.path)
        if "tuning" in recorder.path.parts and len(trained) == 1:
            raise MemoryError("too much")
        return train(prepared, recorder)

    monkeypatch.setattr("fedbench.runs.training.train", fail)
    status, lines, err = bench("algo=mine")
    assert status == 1
    assert err.count("to repeat it: ") == 1
    text = "\n".join(lines)
    assert "failed; the same command trains it again" in text
    assert "mine, whole: failed runs of the search: 1; run the same command again" in text
    context = context_of(tmp_path / "conf", tmp_path / "results")
    names = [entry.setting for entry in entries_of(context.folder, context.benchmark)]
    assert names == ["part"]
    assert bench("algo=mine")[0] == 0
    assert len(trained) == 16 + 1
    assert trained.count(trained[0]) == 2
    for entry in entries_of(context.folder, context.benchmark):
        assert None not in [trial.score for trial in entry.trials]


def test_a_method_that_refuses_a_trial_is_named_and_the_others_run(bench, tmp_path):
    """The refusal is of a value that the search draws, not of the default."""
    source = """
        from fedbench import Algorithm, server_descent
        from fedbench.core.errors import RequestError

        def mine(x, local=None):
            if x == 0.5:
                raise RequestError("x must not be 0.5")
            return Algorithm(**server_descent(lr=x))
    """
    algo = "_target_: own_second.mine\nx: 1.0\n"
    second = {
        "own_second.py": source,
        "algo/second.yaml": algo,
        "tune/second.yaml": "algo.x: 0.5,1\n",
    }
    write_tiny(tmp_path / "conf", **second)
    status, lines, err = bench("algo=second,mine")
    assert status == 1, err
    text = "\n".join(lines)
    assert "second, whole: x must not be 0.5" in text
    assert "### Gain of mine in mean accuracy (%), tuned" in text
    context = context_of(tmp_path / "conf", tmp_path / "results")
    refused = [e for e in entries_of(context.folder, context.benchmark) if not e.runs]
    assert [e.reason for e in refused] == ["x must not be 0.5"] * 2
    assert err.count("fedbench: chosen: algo.x=") == 2  # of mine, in each setting
    assert not any(e.is_complete(2) for e in refused)  # both are searched again


GLOBAL = """
    # @package _global_
    local: {epochs: 20}
    algo: {_target_: own_mine.mine, x: 1.0}
"""


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"algo/other.yaml": GLOBAL, "tune/other.yaml": "{}\n"},
            "algo=other changes local.epochs of the setting whole, which is the same for all",
        ),
        (
            {
                "algo/other.yaml": FILES["algo/mine.yaml"],
                "tune/other.yaml": "local.epochs: 20,40\n",
            },
            "tune/other.yaml: local.epochs belongs to the setting, which is the same for all",
        ),
    ],
)
def test_an_own_method_cannot_change_the_setting(bench, tmp_path, files, message):
    write_tiny(tmp_path / "conf", **files)
    status, _, err = bench("algo=other")
    assert status == 2
    assert message in err


def test_the_search_space_of_a_method_of_fedbench_is_its_own(tmp_path):
    write_tiny(tmp_path / "conf", **{"tune/fedprox.yaml": "{}\n"})
    context = context_of(tmp_path / "conf", tmp_path / "results")
    assert "algo.mu" in context.planned("whole", "fedprox").axes


def test_other_weights_of_an_own_method_are_named(bench):
    _, _, err = bench("algo=mine")
    assert "mine weights clients by size, and tiny@3 has uniform weights" in err


def test_without_any_run_there_is_no_page(bench, tmp_path, late):
    status, lines, err = bench("--hours", "0.01", baselines=None)
    assert status == 0, err
    assert lines[-1] == "the hours are up: 3 methods left; the same command runs the rest"
    assert "no page is written: there is no run" in lines
    assert not list((tmp_path / "results").rglob("index.html"))


def test_an_entry_without_one_of_its_runs_is_no_entry(bench, tmp_path, published):
    shutil.copytree(published, tmp_path / "results")
    context = context_of(tmp_path / "conf", tmp_path / "results")
    planned = context.planned("whole", "fedprox")
    shutil.rmtree(planned.finished().runs[1].path)
    assert planned.finished() is None
    status, lines, err = bench(baselines=None)
    assert status == 0, err
    assert err.count("fedprox.json cannot be read as an entry") == 1
    assert len([line for line in lines if line.endswith("of training")]) == 1


def test_reasons_of_strangers_are_one_short_line():
    entry = Entry("whole", "mine", reason="a\n\x1b[2J" + "b" * 999)
    run = CheckedRun(entry, SimpleNamespace(meta={"seed": 1}), False, "differs", 1, entry.reason)
    line = checked_lines(Checked(1, 1, 0.02, (run,)))[1]
    assert line.isprintable()
    assert r"a \x1b[2Jbb" in line
    assert len(line) < 400
    assert reasons([entry]) == ["mine, whole: " + r"a \x1b[2J" + "b" * 294]


def test_a_method_that_diverges_is_named_and_the_status_is_1(bench):
    status, lines, _ = bench("algo=diverging")
    assert status == 1
    assert "diverging, whole: every trial diverged" in "\n".join(lines)


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (["rounds=5"], "rounds=5: tiny@3 determines this key"),
        (["algo=mine", "algo.x=1"], "algo.x=1: tiny@3 determines this key"),
        (["seed=3"], "seed=3: tiny@3 determines"),
        (["engine.precision=float64"], "engine.precision=float64: tiny@3 determines"),
        (["algo=mien"], "algo=mien is unknown; did you mean mine?"),
        (["--hours", "0"], "--hours must be > 0"),
        (["--check", "0"], "--check must be >= 1"),
        (["--check", "1", "--draw", "-1"], "--draw must be >= 0"),
    ],
)
def test_a_wrong_request_is_refused(bench, tmp_path, typed, message):
    status, _, err = bench(*typed)
    assert status == 2
    assert message in err
    assert not (tmp_path / "results").exists()


def test_a_method_needs_baselines(bench, tmp_path):
    status, _, err = bench("algo=mine", baselines=None)
    assert status == 2
    assert "nothing to compare algo=mine with: type --baselines DIR or URL" in err
    assert "run `fedbench benchmark tiny` first, without algo" in err
    (tmp_path / "empty").mkdir()
    err = bench(baselines=tmp_path / "empty")[2]
    assert "has no folder evidence with published runs; fedbench publish" in err


def test_a_changed_setting_is_refused(bench, tmp_path):
    write_tiny(
        tmp_path / "conf", **{"experiment/own/part.yaml": EXPERIMENT.format(participation=4)}
    )
    status, _, err = bench("algo=mine")
    assert status == 2
    assert "the setting part is not that of tiny@3" in err


def test_list_shows_benchmarks_and_their_cards(fed, tmp_path):
    write_tiny(tmp_path / "conf")
    _, lines, _ = fed("list", "benchmark", "--config-dir", "conf")
    assert [line.split()[0] for line in lines] == ["fair", "fair_mini", "tiny"]
    _, lines, _ = fed("list", "benchmark", "tiny", "--config-dir", "conf")
    assert lines[0] == "tiny: Two tiny settings"
    assert "  baseline: fedavg" in lines
    assert lines[-1] == "use: fedbench --config-dir conf benchmark tiny"
    assert "benchmark=fiar is unknown" in fed("list", "benchmark", "fiar")[2]


# ---- the check


@pytest.fixture
def check(published, tmp_path):
    """Repeat all runs of an entry after it was changed."""
    context = context_of(published.parent / "conf", tmp_path / "results")

    def checked(change=lambda run: run, method="fedprox", number=1):
        entries = entries_of(published, context.benchmark)
        (entry,) = [e for e in entries if (e.setting, e.method) == ("whole", method)]
        runs = tuple(map(change, entry.runs))
        return check_runs([replace(entry, runs=runs, held_out=())], number, 0, context)

    return checked


def changed(clients=False, outcome=None, versions=None, **numbers):
    """A change of what a run says of itself."""

    def change(run):
        meta = dict(run.meta)
        if versions:
            meta["versions"] = run.meta["versions"] | versions
        if outcome:
            meta["status"] = outcome
        copy = replace(run, meta=meta)
        copy.__dict__["_last_round"] = run.last_round() | {
            name: run.last_round()[name] + more for name, more in numbers.items()
        }
        if clients:
            table = run.clients()
            table.loc[table.index[-1], "test_loss"] += 1e-9
            copy.__dict__["clients"] = lambda: table
        return copy

    return change


def test_a_repeated_run_is_identical_and_a_changed_number_is_found(check):
    assert [run.outcome for run in check(number=9).runs] == ["identical"] * 2
    (tampered,) = check(changed(accuracy_mean=1e-12)).runs
    assert (tampered.outcome, tampered.reason) == ("differs", "accuracy_mean")
    assert tampered.difference == pytest.approx(1e-12, rel=1e-2)
    (client,) = check(changed(clients=True)).runs
    assert client.outcome == "differs"
    assert client.reason.startswith("test_loss of client")
    (diverged,) = check(changed(outcome="diverged")).runs
    assert "it is diverged in round 2, and done in round 2 here" in diverged.reason
    # times are not compared
    assert check(changed(seconds_train=5)).runs[0].outcome == "identical"


def test_on_another_kind_of_machine_metrics_are_within_the_tolerance(check):
    """The tolerance is .02, relative above 1, and holds for the metrics of the benchmark."""
    other = {"versions": {"torch": "1.0"}}
    within = check(changed(accuracy_mean=0.015, train_loss=9, **other))
    (run,) = within.runs
    assert run.outcome == "within"
    assert run.reason == "accuracy_mean, with another torch"
    assert run.difference == pytest.approx(0.015)
    assert "0 identical, 1 within, 0 differs; the tolerance on another" in checked_lines(within)[0]
    outside = check(changed(accuracy_mean=0.025, **other))
    assert outside.runs[0].outcome == "differs"
    assert "fedprox, whole, seed " in checked_lines(outside)[1]
    assert check(changed(bytes_up=1, **other)).runs[0].outcome == "within"
    (equal,) = check(changed(train_loss=9, **other)).runs  # the metrics of the benchmark agree
    assert (equal.reason, equal.difference) == ("other numbers, with another torch", 0)
    # an identical run of other versions is identical
    assert check(changed(**other)).runs[0].outcome == "identical"


def test_a_metric_that_a_published_run_lacks_is_a_difference(check):
    def without(run):
        copy = replace(run)
        row = run.last_round()
        del row["accuracy_worst10"]
        copy.__dict__["_last_round"] = row
        return copy

    (run,) = check(without).runs
    assert (run.outcome, run.reason) == ("differs", "accuracy_worst10")


def test_a_number_that_only_one_run_has_is_a_difference(check):
    assert largest_difference({"a": 1}, {"a": 1, "b": 2}) == ("b", math.inf)
    assert largest_difference({"a": 1, "b": 2}, {"a": 1}) == ("b", math.inf)
    assert largest_difference({"a": 1}, {"a": 1, "b": math.nan}) == ("", 0)
    assert largest_difference({"a": math.inf}, {"a": 5.0}) == ("a", math.inf)
    assert largest_difference({"a": math.inf}, {"a": -math.inf}) == ("a", math.inf)
    assert largest_difference({"a": math.inf}, {"a": math.inf}) == ("", 0)

    def cut(run):
        copy = replace(run)
        copy.__dict__["clients"] = lambda: run.clients().tail(1)
        return copy

    (run,) = check(cut).runs
    assert run.outcome == "differs"
    assert " of client " in run.reason


def test_the_same_draw_trains_again(check, tmp_path):
    """What an earlier check left is not compared: other versions may be installed now."""
    first = check().runs[0]
    (table,) = (tmp_path / "results").rglob("rounds.jsonl")
    table.with_name("LEFT").touch()
    assert check().runs[0].run.path == first.run.path
    assert not table.with_name("LEFT").exists()
    assert table.exists()


def test_the_environment_is_versions_machine_and_engine(published):
    context = context_of(published.parent / "conf", published)
    run = next(entries_of(published, context.benchmark)).runs[0]
    assert None not in environment_of(run).values()
    engine = run.meta["engine"]
    for change in (
        {"platform": "x"},
        {"device_name": "x"},
        {"versions": {"numpy": "2"}},
        {"engine": engine | {"mode": "x"}},
        {"engine": engine | {"cohort_size": -1}},
        {"engine": engine | {"workers": -1}},
        {"engine": engine | {"processes": 2}},
    ):
        assert environment_of(replace(run, meta=run.meta | change)) != environment_of(run)


def test_check_draws_runs_repeats_them_and_ends_with_status_1_if_one_differs(
    bench, tmp_path, published
):
    status, lines, err = bench("--check", "2", "--draw", "7")
    assert status == 0, err
    assert "2 runs of 20 repeated (--draw 7): 2 identical, 0 within, 0 differs" in "\n".join(lines)
    assert "0 methods to do" in err
    repeated = done(tmp_path / "results" / "checks" / "tiny@3" / "7")
    assert len(done(tmp_path / "results")) == len(repeated) == 2
    assert load_results(tmp_path / "results").runs.empty

    # a vectorised run and a loop sum in other orders
    status, lines, _ = bench("--check", "2", "--draw", "7", "engine.mode=loop")
    assert status == 0, lines
    assert load_results(tmp_path / "results").runs.empty

    # a choice that is not that of its runs
    shutil.copytree(published, tmp_path / "results", dirs_exist_ok=True)
    for file in (tmp_path / "results" / "benchmark").rglob("*.json"):
        facts = json.loads(file.read_text())
        if facts["chosen"]:
            facts["chosen"]["local.lr"] = 0.5
        file.write_text(json.dumps(facts))
    status, lines, _ = bench("--check", "1", baselines=None)
    assert status == 1
    assert "its digest is" in lines[-2]
