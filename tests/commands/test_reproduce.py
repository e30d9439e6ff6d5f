"""``fedbench reproduce``: its plan, and finished, failed and interrupted runs and missing data."""

import json
import re
import shutil
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from command_line import meta_of, model_of
from report_runs import call
from reproduced import SETUPS, SMOKE, elsewhere, entries, models  # noqa: F401 (a fixture)
from tools import ROOT

from fedbench.analysis.departures import Unit
from fedbench.analysis.matching import Evidence
from fedbench.commands.reproduce import execute
from fedbench.config.plans import plans_of
from fedbench.core.config_values import leaves
from fedbench.core.errors import RequestError
from fedbench.papers.readings import Readings, Variant
from fedbench.papers.registry import papers
from fedbench.reproduce import outcomes
from fedbench.reproduce.outcomes import unreadable_data
from fedbench.reproduce.plan import chosen, locate, missing_files, plan, table_names
from fedbench.runs import training
from fedbench.runs.executors.base import RunResult
from fedbench.runs.progress import duration
from fedbench.runs.run import Run, read_run

pytestmark = pytest.mark.whole


@pytest.fixture
def no_report(monkeypatch):
    """Write no report."""

    def written(folder, parts):
        return f"written: {folder}", []

    monkeypatch.setattr("fedbench.reports.write.write_report", written)


@pytest.fixture
def copied(done, tmp_path):
    shutil.copytree(done.results, tmp_path / "results")
    return tmp_path / "results"


def stamps(results):
    """Times at which the models were written."""
    return {path: path.stat().st_mtime_ns for path in results.rglob("model.safetensors")}


def same_models(one, other):
    contents = [[model_of(p.parent) for p in models(folder).values()] for folder in (one, other)]
    return contents[0] == contents[1]


def states(results):
    return [status for *_, status in entries(results)]


# ---- the plan


def registered():
    """The registry's files, read here."""
    files = sorted((ROOT / "fedbench/papers").glob("*.yaml"))
    contents = [yaml.safe_load(file.read_text()) for file in files]
    return {content["paper"]["id"]: content for content in contents}


def rows_of(content):
    """(part, setup, row) of every row of the tables and figures of a paper."""
    for table in content["tables"]:
        for row in table["rows"]:
            yield table["id"], row["setup"], row
    for figure in content["figures"]:
        for row in figure.get("runs", ()):
            for setup in figure["setups"]:
                yield figure["id"], setup, row


def wanted_keys(method, row):
    """The configuration keys that a row sets for its method."""
    keys = dict(method.get("set", {}))
    for name, value in row.get("hyperparameters", {}).items():
        if name in method.get("keys", {}) and value is not None:
            keys[method["keys"][name]] = value
    return keys


def requested():
    """(part, setup, algo, config keys) of every row of every table and figure."""
    for paper, content in registered().items():
        setups = {s["id"]: s for s in content["setups"]}
        methods = {m["id"]: m for m in content["methods"]}
        for part, setup, row in rows_of(content):
            method = methods[row["algo"]]
            keys = wanted_keys(method, row)
            yield f"{paper}/{part}", setups[setup], method["algo"], keys


def text(keys):
    return json.dumps(keys, sort_keys=True)


def test_every_table_and_every_figure_with_runs_is_planned():
    names = {name for name, *_ in requested()}
    planned = [f"{p.id}/{part}" for p, part in chosen([])]
    assert set(planned) == names
    assert [name for name, _ in table_names()] == planned


def test_the_full_plan_is_every_row_at_the_papers_setting_with_the_papers_seeds():
    wanted = Counter(
        (part, setup["experiment"], algo, text(keys), seed)
        for part, setup, algo, keys in requested()
        for seed in range(setup["seeds"])
    )
    jobs = plan([], "full")
    planned = Counter(
        (part, j.experiment, j.algo, text(j.wanted), j.seed) for j in jobs for part in j.parts
    )
    assert planned == wanted
    assert not any(j.cut for j in jobs)
    assert len({tuple(j.overrides) for j in jobs}) == len(jobs)


def test_runs_that_tables_share_are_planned_once():
    """Table 7 repeats Table 5 on Synthetic: 20 and 15 rows, 5 of them shared, 3 seeds each."""
    names = ["adafedadam/table5", "adafedadam/table7"]
    jobs = plan(names, "full")
    assert len(jobs) == 3 * (20 + 15 - 5)
    shared = [j for j in jobs if j.parts == names]
    algorithms = ("fedavg", "fedadam", "qfedavg", "fednova", "adafedadam")
    assert {j.experiment for j in shared} == {SETUPS[0]}
    assert Counter(j.algo for j in shared) == dict.fromkeys(algorithms, 3)
    assert plan([*names, names[0]], "full") == jobs


def test_settings_that_are_typed_in_two_ways_are_one_run():
    """Figure 3 names alpha=1, which the tables have by default."""
    names = ["adafedadam/table4", "adafedadam/figure3"]
    jobs = plan(names, "full", seeds=1)
    assert len(jobs) == 3 + 12
    located = locate(jobs, ["results_dir=here"])
    assert len(located) == len({j.path for j in located}) == 3 + 12 - 1
    (both,) = [j for j in located if j.parts == names]
    assert both.path.parts[:4] == ("here", "adafedadam", "table5_synthetic", "adafedadam")
    assert both.path.name == "seed_0"


@pytest.mark.parametrize("profile", ["full", "cpu", "smoke"])
def test_the_number_of_seeds_may_be_typed(profile):
    per_row = Counter((j.setting, j.experiment) for j in plan([], profile, seeds=4))
    assert set(per_row.values()) == {4}


def test_a_profile_has_its_number_of_seeds():
    jobs = plan(["adafedadam/table5"], "cpu")
    setups = papers()["adafedadam"].setups.values()
    seeds = {s.experiment: s.profiles["cpu"].seeds for s in setups}
    for experiment in {j.experiment for j in jobs}:
        planned = {j.seed for j in jobs if j.experiment == experiment}
        assert planned == set(range(seeds[experiment]))


def readings(jobs):
    return Counter(j.reading for j in jobs)


def test_readings_add_variants_after_the_adopted_runs(monkeypatch, tmp_path):
    """Table 4 has three rows with 3 seeds: 9 runs.

    Two setups have momentum, 6 runs of a variant; four variants concern AdaFedAdam everywhere.
    """
    variants = ("code_weights", "unscaled_step", "code_weights_unscaled", "code")
    counts = {"": 9, "carried_momentum": 6, **dict.fromkeys(variants, 9)}
    monkeypatch.chdir(ROOT)
    adopted = plan(["adafedadam/table4"], "full")
    jobs = plan(["adafedadam/table4"], "full", readings=True)
    assert [j.overrides for j in jobs[:9]] == [j.overrides for j in adopted]
    assert readings(jobs) == counts
    carried = {j.algo for j in jobs if j.reading == "carried_momentum"}
    assert carried == {"carried_adafedadam"}
    located = locate(jobs, [f"results_dir={tmp_path}"])
    assert readings(located) == counts
    assert len({j.path for j in located}) == 9 + 6 + 4 * 9
    table5 = plan(["adafedadam/table5"], "full", readings=True)
    assert "carried_momentum" not in readings(table5)


class Noting:
    """An executor that ends every run at once, and notes what has ended before each batch."""

    def __init__(self):
        self.before = []

    def execute(self, batch):
        self.before.append((batch.config_dir, batch.statuses()))
        for config in batch.configs:
            batch.add(RunResult(config.overrides, "failed", config.path, error="as planned"))


def test_the_runs_of_every_directory_are_counted_from_zero(
    monkeypatch, tmp_path, no_report, capsys
):
    monkeypatch.chdir(ROOT)
    executor = Noting()
    names = ["adafedadam/table4", f"results_dir={tmp_path / 'results'}"]
    result = execute(names, executor, profile="smoke", readings=True)
    assert result.status == 1
    assert executor.before == [(None, []), (Path("examples/carried_momentum"), [])]
    planned = plan(["adafedadam/table4"], "smoke", readings=True)
    assert capsys.readouterr().out.count("as planned") == len(planned)


PLAN = """
- id: p1
  date: '2026-01-02'
  experiments: [adafedadam/table5_synthetic]
  seeds: [10, 12]
  claims: {}
  adopted: {}
  search: None.
  variants: [code]
"""


def seeds_by_experiment(jobs, reading=""):
    """The seeds of the runs of a reading, by experiment."""
    seeds = {}
    for job in jobs:
        if job.reading == reading:
            seeds.setdefault(job.experiment, []).append(job.seed)
    return seeds


@pytest.fixture
def results(tmp_path):
    """A results directory with plans: of seeds 10 to 12, and of seeds 12 and 13."""
    file = tmp_path / "plans" / "adafedadam.yaml"
    file.parent.mkdir()
    other = PLAN.replace("p1", "p2").replace("[10, 12]", "[12, 13]").replace("[code]", "[]")
    file.write_text(PLAN + other)
    return tmp_path


def test_planned_seeds_replace_those_of_the_paper_and_their_variants_are_added(results):
    """Table 4 has AdaFedAdam on Synthetic, which is planned, and with two kinds of momentum."""
    table = ["adafedadam/table4"]
    jobs = plan(table, "full", folder=results)
    planned, *others = SETUPS
    unplanned = {name: [0, 1, 2] for name in others}
    assert seeds_by_experiment(jobs) == {planned: [10, 11, 12, 13], **unplanned}
    assert readings(jobs) == {"": 4 + 2 * 3, "code": 4}
    assert seeds_by_experiment(jobs, "code") == {planned: [10, 11, 12, 13]}
    every = plan(table, "full", readings=True, folder=results)
    assert seeds_by_experiment(every, "code") == {planned: [10, 11, 12, 13], **unplanned}
    typed = plan(table, "full", seeds=1, folder=results)
    assert seeds_by_experiment(typed) == {key: [0] for key in SETUPS}
    assert {job.seed for job in plan(table, "full")} == {0, 1, 2}


@pytest.mark.parametrize(
    ("experiment", "profile", "seeds"),
    [
        (SETUPS[0], "cpu", [10, 11, 12, 13]),  # as in the paper, but for the number of seeds
        (SETUPS[0], "smoke", [0]),
        ("adafedadam/table5_femnist", "cpu", list(range(10))),
    ],
)
def test_reduced_runs_are_not_planned(results, experiment, profile, seeds):
    """Profile cpu has 200 of 1000 rounds on Femnist."""
    file = results / "plans" / "adafedadam.yaml"
    file.write_text(file.read_text().replace(SETUPS[0], experiment))
    jobs = plan(["adafedadam/table5"], profile, folder=results)
    planned = [job for job in jobs if job.experiment == experiment]
    assert sorted({job.seed for job in planned}) == seeds
    assert ("code" in readings(planned)) == (seeds[0] == 10)


def test_the_command_runs_what_plans_ask_for_and_records_their_digests(
    results, no_report, monkeypatch
):
    """Four seeds as adopted and under the planned variant; none of them is trained here."""
    monkeypatch.setattr(training, "evaluate", lambda *_: 1 // 0)
    chosen = ["adafedadam/table4", "--profile", "full", "--experiment", SETUPS[0]]
    status, out, _ = call("reproduce", *chosen, "--jobs", "1", f"results_dir={results}")
    assert status == 1
    assert "8 of 8 runs did not succeed" in out
    digests = {plan.id: plan.digest for plan in plans_of(results, "adafedadam")}
    asking = {10: ["p1"], 11: ["p1"], 12: ["p1", "p2"], 13: ["p2"]}
    metas = [meta_of(path.parent) for path in results.rglob("meta.json")]
    assert len(metas) == 8
    for meta in metas:
        assert meta["plans"] == {id: digests[id] for id in asking[meta["seed"]]}


@pytest.mark.parametrize("profile", ["full", "cpu"])
def test_a_variant_of_one_method_is_planned_for_its_rows_only(monkeypatch, profile):
    """Other methods keep their runs, and the rounds of the variant replace those of a profile."""
    keys = {"local.lr": 0.5, "rounds": 7}
    variant = Variant(
        "own",
        "",
        "",
        setups=("synthetic",),
        methods={"adafedadam": keys},
    )
    changed = replace(
        papers()["adafedadam"],
        readings=Readings(variants={"own": variant}),
    )
    monkeypatch.setattr("fedbench.reproduce.plan.papers", lambda: {"adafedadam": changed})
    jobs = plan(["adafedadam/table5"], profile, seeds=2, readings=True)
    own = [j for j in jobs if j.reading == "own"]
    rows = [(j.row.setup, j.row.algo, j.seed) for j in own]
    assert rows == [("synthetic", "adafedadam", seed) for seed in range(2)]
    assert all(j.keys.items() >= keys.items() for j in own)


def test_a_variant_whose_algorithms_are_elsewhere_is_left_out_and_named():
    assert "carried_momentum" not in readings(plan(["adafedadam/table4"], "full", readings=True))
    command = ["reproduce", "adafedadam/table4", "--plan"]
    status, out, _ = call(*command, "--readings")
    assert status == 0
    (line,) = re.findall("for other readings:(.*)", out)
    assert "carried_momentum" not in line
    assert " code 30," in line  # 3 rows, 10 seeds
    left_out = "without the variant carried_momentum of adafedadam: its algorithms are in "
    assert f"{left_out}examples/carried_momentum" in out
    assert "readings" not in call(*command)[1]


@pytest.mark.parametrize("profile", ["cpu", "smoke"])
def test_a_profile_cuts_what_the_registry_says_and_a_rows_own_settings_stay(profile):
    for j in plan([], profile, seeds=1):
        cut = j.paper.setups[j.row.setup].profiles[profile].set
        expected = {**cut, **j.wanted}
        if "rounds" in cut:
            expected["rounds"] = cut["rounds"]
        assert {**j.wanted, **j.cut} == expected
        keys = [o.split("=")[0] for o in j.overrides]
        assert len(keys) == len(set(keys))


# ---- the command


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (89.0, "89 s"),
        (7200.0, "2.0 h"),
        (720e3, "8 days"),
    ],
)
def test_times_in_words(seconds, words):
    assert duration(seconds) == words


def test_a_deadline_leaves_runs_that_the_same_command_resumes(tmp_path, monkeypatch, no_report):
    monkeypatch.setattr(training, "_CHECKPOINT_EVERY", 0)
    real = training.evaluate

    def slow(*args):
        time.sleep(0.2)
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(training, "evaluate", slow)
        status, out, _ = call(*SMOKE, "--hours", "0.0001")
    assert status == 0
    assert re.search(r"the hours are up: [123] of 3 runs are left; the same command runs them", out)
    assert call(*SMOKE, "--hours", "1")[0] == 0
    assert states(tmp_path / "results") == ["done"] * 3


def test_results_that_cannot_be_written_are_refused_before_data_are_read():
    status, _, err = call(*SMOKE, "results_dir=/proc/none")
    assert status == 2
    assert err.startswith("fedbench: results_dir=/proc/none cannot be written to (No such file")
    assert err.count("\n") == 1


def test_showing_the_plan_writes_nothing(tmp_path):
    parts = ["adafedadam/table4", "adafedadam/figure3"]
    status, out, err = call("reproduce", *parts, "--plan", "--seeds", "2")
    assert status == 0
    assert err == ""
    lines = out.splitlines()
    assert lines[0].startswith("profile cpu, results in results")
    first, second, total = [" ".join(line.split()) for line in lines[2:5]]
    assert first.startswith("adafedadam/table4 6 0 ")
    assert second.startswith("adafedadam/figure3 24 0 ")
    assert total.startswith("in all, runs shared 28 0 ")
    assert list(tmp_path.iterdir()) == []


def test_a_plan_names_the_place_and_the_reductions():
    _, out, _ = call(*SMOKE, "--plan", "results_dir='a (new) =place'")
    assert "results in a (new) =place\n" in out
    assert "reduced: eval_every=1, local.steps=2, rounds=2, seeds 1 of 3\n" in out


def test_a_plan_names_the_files_that_are_missing(tmp_path):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for name in (
        "test_batch",
        *(f"data_batch_{k}" for k in range(1, 6)),
    ):
        (folder / name).touch()
    names = ["adafed/table1", "adafed/table2", "fedfa/table2", "adafedadam/table4"]
    missing = missing_files(
        locate(plan(names, "smoke", seeds=1), []),
        tmp_path,
    )
    assert missing["adafed/table2_cifar100_s1"] == "cifar-100-python.tar.gz"
    assert missing["fedfa/table2_sent140"] == "sent140/trainingandtestdata.zip, glove/glove.6B.zip"
    assert not {"adafed/table1_cifar10_s1", "adafedadam/table5_synthetic"} & set(missing)


def test_a_plan_is_carried_out(done):
    """Every run exists with its files; no sweep is left."""
    assert entries(done.results) == [(s, "adafedadam", 0, "done") for s in SETUPS]
    assert {p.name for p in done.results.iterdir()} == {"adafedadam", "report"}
    for path in models(done.results).values():
        run = read_run(path.parent)
        assert run.done
        assert run.rounds()["round"].tolist() == [0, 1, 2]
        assert run.config["local"]["steps"] == 2
    # it ends with that table, its claims and the page
    table, _, last = done.out.rpartition("\n\n")
    assert last.splitlines()[-1] == f"written: {done.results / 'report' / 'index.html'}"
    table = table[table.index("## AdaFedAdam, Table 4") :]
    assert max(map(len, table.splitlines())) <= 100
    claim = "unclear (6 comparisons, none run): Momentum at the clients"
    assert f"- not run, scaled-down check: {claim}" in table


def test_doing_it_again_trains_nothing(copied, no_training, no_report):
    files = sorted(copied.rglob("seed_0/*"))
    before = [(p.read_bytes(), p.stat().st_mtime_ns) for p in files]
    assert len(before) == 3 * 6
    status, out, _ = call(*SMOKE)
    assert status == 0
    assert [(p.read_bytes(), p.stat().st_mtime_ns) for p in files] == before
    assert re.search(r"^adafedadam/table4 +3 +3 +0 ", out, re.MULTILINE)


def test_more_seeds_are_added_to_those_that_are_there(done, tmp_path, no_report):
    """Results may be in a directory of any name."""
    results = tmp_path / "rés (ü) =1, x"
    shutil.copytree(done.results, results)
    before = stamps(results)
    status, out, _ = call(*SMOKE, "--seeds", "2", f"results_dir='{results.name}'")
    assert status == 0
    assert out.splitlines()[-1] == f"written: {results.name}"
    assert entries(results) == [(s, "adafedadam", seed, "done") for s in SETUPS for seed in (0, 1)]
    assert stamps(results).items() > before.items()


def stopping(monkeypatch, number, error):
    """Raise ``error`` at one of the evaluations that are to come; each run has three."""
    calls = []
    real = training.evaluate

    def evaluate(*args):
        calls.append(1)
        if len(calls) == number:
            raise error
        return real(*args)

    monkeypatch.setattr(training, "evaluate", evaluate)
    return calls


def test_an_interrupted_command_resumes(tmp_path, done, monkeypatch, no_report):
    """Ctrl-C at the last evaluation of the second of three runs."""
    with monkeypatch.context() as patch:
        patch.setattr(training, "_CHECKPOINT_EVERY", 0)
        stopping(patch, 6, KeyboardInterrupt())
        status, _, err = call(*SMOKE)
    assert status == 130
    message = "fedbench: interrupted; run the same command again to resume"
    assert err.splitlines()[-1] == message
    results = tmp_path / "results"
    assert states(results) == ["done", "interrupted"]
    assert not (results / "sweeps").exists()
    before = stamps(results)
    calls = stopping(monkeypatch, 0, AssertionError)
    assert call(*SMOKE)[0] == 0
    assert len(calls) == 1 + 3  # round 2 of the second run, and all of the third
    assert states(results) == ["done"] * 3
    assert stamps(results).items() > before.items()
    assert same_models(results, done.results)


def changes(config, base):
    """Departures of a configuration from that of its experiment."""
    here = leaves(config.tree)
    there = leaves(base.tree)
    changed = [k for k in {*here, *there} if here.get(k) != there.get(k)]
    free = ("eval_every", "eval_train_every", "seed")
    return {k: [there.get(k), here.get(k)] for k in changed if not k.startswith(free)}


@pytest.mark.parametrize(
    ("profile", "step"),
    [
        ("smoke", 31),
        pytest.param("cpu", 1, marks=pytest.mark.slow),
        pytest.param("smoke", 1, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("paper", list(papers()))
def test_the_runs_of_a_profile_stand_for_their_rows(paper, profile, step, composer):
    """What a profile cuts may be cut: else a table would stay empty after all of its runs."""
    bases = {}
    for job in plan([paper], profile, seeds=1)[::step]:
        config = composer.config(job.experiment, job.algo, job.keys)
        base = (job.experiment, job.algo)
        if base not in bases:
            bases[base] = composer.config(*base, {})
        meta = {
            "experiment": job.experiment,
            "algo": job.algo,
            "hash": config.digest,
            "seed": 0,
            "model": "m",
            "departures": changes(config, bases[base]),
            "status": "running",
            "started": "",
            "sources": [],
        }
        run = Run(Path("nowhere"), config.tree, meta)
        choices, _ = Evidence(job.paper, [run]).choices(job.row)
        split = config.tree["data"]["seed"] or 0  # drawn with the seed where it is null
        assert choices.others == ((Unit(split, 0), "not finished"),), job.setting


def test_a_failure_does_not_stop_the_others(tmp_path, monkeypatch, no_figures):
    """The second run fails in its second evaluation, with a message of two lines."""
    with monkeypatch.context() as patch:
        stopping(patch, 5, RuntimeError("no such\n    luck & 100 %"))
        status, out, _ = call(*SMOKE)
    results = tmp_path / "results"
    assert status == 1
    assert states(results) == ["done", "failed", "done"]
    assert "1 of 3 runs did not succeed, 0 for lack of data\n" in out
    assert out.endswith("seed=0: RuntimeError: no such\n    luck & 100 %\n")
    table = results / "report" / "tables" / "adafedadam_table4.md"
    assert "- AdaFedAdam: seed 0 failed; RuntimeError: no such luck & 100 %" in table.read_text()
    assert call(*SMOKE)[0] == 0  # without the failure
    assert states(results) == ["done"] * 3
    assert "no such luck" not in table.read_text()


# ---- data


def test_what_has_no_data_is_refused_and_the_others_run(tmp_path, no_figures):
    """Table 5 reads three data sets from files, which are missing, and generates Synthetic."""
    where = ["data_dir=nothing", "data.download=false"]
    status, out, err = call("reproduce", "adafedadam/table5", "--profile", "smoke", *where)
    results = tmp_path / "results"
    assert status == 0
    assert [e[0] for e in entries(results)] == [SETUPS[0]] * 5
    assert states(results) == ["done"] * 5
    paper = papers()["adafedadam"]
    experiments = {paper.setups[s].experiment for s in paper.tables["table5"].setups}
    for name in experiments - {SETUPS[0]}:
        assert err.count(f"no data for {name}: ") == 1
    assert err.count("data.download=false") == 3
    assert out.endswith("15 of 20 runs did not succeed, 15 for lack of data\n")
    assert not (tmp_path / "nothing").exists()


def test_data_that_several_experiments_share_are_read_once(monkeypatch):
    jobs = locate(plan(["adafedadam/table3", "adafedadam/table4"], "smoke"), [])
    read = []

    def reading(config):
        read.append(config.task_name)
        if "cifar10" not in config.task_name:
            raise RequestError(f"no {config.data.source.target}")

    monkeypatch.setattr(outcomes, "read_examples", reading)
    faults = unreadable_data(jobs)
    assert len(read) == 2
    assert faults == dict.fromkeys(SETUPS, "no fedbench.data.sources.synthetic.leaf")


# ---- several processes


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [["--jobs", "3"], ["hydra/launcher=joblib"]],
    ids=" ".join,
)
def test_a_failure_in_another_process_is_reported(tmp_path, done, no_report, how):
    """A file stands where the directory of a run belongs; the other runs are as in one process."""
    where = f"results_dir={tmp_path}"
    job = locate(plan(["adafedadam/table4"], "smoke"), [where])[1]
    job.path.parent.mkdir(parents=True)
    job.path.write_text("in the way")
    status, out, _ = call(*SMOKE[:4], *how, where)
    assert status == 1  # it has data
    assert entries(tmp_path) == entries(done.results)[::2]
    for setup, file in models(tmp_path).items():
        assert file.read_bytes() == models(done.results)[setup].read_bytes()
    message = f"results_dir={tmp_path} cannot be written to"
    assert message in out.rpartition("1 of 3 runs did not succeed")[2]
