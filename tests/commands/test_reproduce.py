"""``fedbench reproduce``: what it plans, and what becomes of runs that are there, fail, are cut short or lack data."""

import json
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from fake_runs import seal
from report_runs import call
from tools import ROOT

from fedbench.analysis.departures import Unit
from fedbench.analysis.matching import Evidence
from fedbench.config.compose import compose_run
from fedbench.core.config_values import leaves
from fedbench.core.errors import RequestError
from fedbench.papers.readings import Readings, Variant
from fedbench.papers.registry import papers
from fedbench.reproduce import outcomes as execution
from fedbench.reproduce.outcomes import unreadable_data
from fedbench.reproduce.plan import chosen, locate, missing_files, plan, table_names
from fedbench.runs import training as runner
from fedbench.runs.progress import duration
from fedbench.runs.run import Run, read_run

# three runs of made data, in this process, where tests can reach into them
SMOKE = ["reproduce", "adafedadam/table4", "--profile", "smoke", "--jobs", "1"]
SETUPS = [
    "adafedadam/table5_synthetic",
    "adafedadam/table7_synthetic_momentum",
    "adafedadam/table7_synthetic_nesterov",
]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """An empty directory, no data, and no lines of progress."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDBENCH_DATA", raising=False)
    # a slow machine prints what a fast one does
    monkeypatch.setattr("fedbench.runs.progress.EVERY", 1e6)


@pytest.fixture
def no_report(monkeypatch):
    """Leave the report out, where a test is not about it."""

    def written(folder, parts):
        return f"written: {folder}", []

    monkeypatch.setattr("fedbench.reports.write.write_report", written)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The three runs and their report, as the first call left them; tests that change anything copy them."""
    root = tmp_path_factory.mktemp("done")
    with pytest.MonkeyPatch.context() as patch:  # tests/report has the figures
        patch.setattr("fedbench.reports.write.paper_figures", lambda *_: [])
        status, out, err = call(*SMOKE, f"results_dir={root / 'results'}")
    assert (status, err.partition("\n")[0]) == (0, "fedbench: 3 runs, one at a time (jobs=1)")
    return SimpleNamespace(results=root / "results", out=out)


@pytest.fixture
def copied(done, tmp_path):
    shutil.copytree(done.results, tmp_path / "results")
    return tmp_path / "results"


def models(results):
    return {p.relative_to(results).parts[:2]: p for p in sorted(results.rglob("model.safetensors"))}


def entries(results):
    """Experiment, algorithm, seed and status of the runs on disk."""
    metas = [json.loads(path.read_text()) for path in sorted(results.rglob("seed_*/meta.json"))]
    return [(m["experiment"], m["algo"], m["seed"], m["status"]) for m in metas]


# ---- the plan


def registered():
    """The registry's files, read here."""
    read = [
        yaml.safe_load(p.read_text()) for p in sorted((ROOT / "fedbench/papers").glob("*.yaml"))
    ]
    return {c["paper"]["id"]: c for c in read}


def asked_for():
    """(part, experiment, algo, config keys) of every row of every table and figure."""
    for paper, c in registered().items():
        setups = {s["id"]: s for s in c["setups"]}
        methods = {m["id"]: m for m in c["methods"]}
        rows = [(t["id"], r["setup"], r) for t in c["tables"] for r in t["rows"]]
        rows += [
            (f["id"], s, r) for f in c["figures"] for r in f.get("runs", ()) for s in f["setups"]
        ]
        for part, setup, r in rows:
            m = methods[r["algo"]]
            known = {
                k: v
                for k, v in r.get("hyperparameters", {}).items()
                if k in m.get("keys", {}) and v is not None
            }
            wanted = {**m.get("set", {}), **{m["keys"][k]: v for k, v in known.items()}}
            yield f"{paper}/{part}", setups[setup], m["algo"], wanted


def test_every_table_and_every_figure_with_runs_is_planned():
    names = {f"{paper}/{t['id']}" for paper, c in registered().items() for t in c["tables"]}
    figures = {
        f"{paper}/{f['id']}": f["kind"] for paper, c in registered().items() for f in c["figures"]
    }
    needing = {name for name, kind in figures.items() if kind not in ("schematic", "functions")}
    assert {f"{p.id}/{part}" for p, part in chosen([])} == names | needing
    assert [name for name, _ in table_names()] == [f"{p.id}/{part}" for p, part in chosen([])]
    with_runs = {name for name, *_ in asked_for()}
    assert {p for j in plan([], "full") for p in j.parts} == with_runs
    assert names | needing == with_runs


def test_the_full_plan_is_every_row_at_the_papers_setting_with_the_papers_seeds():
    wanted = Counter()
    for part, setup, algo, keys in asked_for():
        for seed in range(setup["seeds"]):
            wanted[part, setup["experiment"], algo, json.dumps(keys, sort_keys=True), seed] += 1
    jobs = plan([], "full")
    planned = Counter()
    for j in jobs:
        assert j.cut == {}
        planned.update(
            (p, j.experiment, j.algo, json.dumps(j.wanted, sort_keys=True), j.seed) for p in j.parts
        )
    assert planned == wanted
    assert len({tuple(j.overrides) for j in jobs}) == len(jobs)


def test_runs_that_tables_share_are_planned_once():
    """Table 7 repeats Table 5 on Synthetic: 20 and 15 rows, 5 of them shared, 3 seeds each."""
    names = ["adafedadam/table5", "adafedadam/table7"]
    jobs = plan(names, "full")
    assert len(jobs) == 3 * (20 + 15 - 5)
    shared = [j for j in jobs if j.parts == names]
    assert {j.experiment for j in shared} == {SETUPS[0]}
    assert Counter(j.algo for j in shared) == dict.fromkeys(
        ("fedavg", "fedadam", "qfedavg", "fednova", "adafedadam"), 3
    )
    assert plan([*names, names[0], "adafedadam/table5"], "full") == jobs


def test_settings_that_are_typed_in_two_ways_are_one_run():
    """Figure 3 names alpha=1, which is what the tables have anyway."""
    names = ["adafedadam/table4", "adafedadam/figure3"]
    jobs = plan(names, "full", seeds=1)
    assert len(jobs) == 3 + 12
    found = locate(jobs, ["results_dir=here"])
    assert len(found) == len({j.path for j in found}) == 3 + 12 - 1
    (both,) = [j for j in found if j.parts == names]
    assert both.path.parts[:4] == ("here", "adafedadam", "table5_synthetic", "adafedadam")
    assert both.path.name == "seed_0"


def test_a_run_belongs_where_the_command_would_put_it():
    for job in locate(plan(["fedfa/table2"], "smoke", seeds=2)[:4], []):
        assert job.path == compose_run(job.overrides).path
        assert job.config.rounds == 2


def test_seeds_are_as_many_as_asked_for():
    for profile in ("full", "cpu", "smoke"):
        per_row = Counter((j.setting, j.experiment) for j in plan([], profile, seeds=4))
        assert set(per_row.values()) == {4}
    cpu = plan(["adafedadam/table5"], "cpu")
    seeds = {s.experiment: s.profiles["cpu"].seeds for s in papers()["adafedadam"].setups.values()}
    assert {(j.experiment, j.seed) for j in cpu} == {
        (j.experiment, s) for j in cpu for s in range(seeds[j.experiment])
    }


def test_readings_add_splits_and_variants_after_the_adopted_runs(monkeypatch, tmp_path):
    """Table 4 has three rows with 3 seeds: 9 runs, on 10 splits.

    Two setups have momentum, 6 runs of a variant; four variants concern AdaFedAdam everywhere.
    """
    own = dict.fromkeys(("loss_ratio", "unscaled_step", "ratio_unscaled", "certainty_after_6"), 9)
    monkeypatch.chdir(ROOT)
    adopted, every = (
        plan(["adafedadam/table4"], "full"),
        plan(["adafedadam/table4"], "full", readings=True),
    )
    assert [j.overrides for j in every[:9]] == [j.overrides for j in adopted]
    assert Counter(j.reading for j in every) == {"": 9, "split": 90, "carried_momentum": 6, **own}
    assert {j.keys["data.seed"] for j in every if j.reading == "split"} == set(range(10))
    assert {j.algo for j in every if j.reading == "carried_momentum"} == {"carried_adafedadam"}
    located = locate(every, [f"results_dir={tmp_path}"])
    # 0: adopted
    assert Counter(j.reading for j in located) == {"": 9, "split": 81, "carried_momentum": 6, **own}
    assert len({j.path for j in located}) == 132
    assert not [
        j
        for j in plan(["adafedadam/table5"], "full", readings=True)
        if j.reading == "carried_momentum"
    ]


def test_a_variant_of_one_method_is_planned_for_its_rows_only(monkeypatch):
    """Other methods keep their runs, and the rounds of a profile give way to those of the variant."""
    found = papers()["adafedadam"]
    variant = Variant(
        "own", "", "", setups=("synthetic",), methods={"adafedadam": {"local.lr": 0.5, "rounds": 7}}
    )
    changed = replace(found, readings=Readings(variants={"own": variant}))
    monkeypatch.setattr("fedbench.reproduce.plan.papers", lambda: {"adafedadam": changed})
    for profile in ("full", "cpu"):
        runs = [
            j
            for j in plan(["adafedadam/table5"], profile, seeds=2, readings=True)
            if j.reading == "own"
        ]
        assert [(j.row.setup, j.row.algo, j.seed) for j in runs] == [
            ("synthetic", "adafedadam", s) for s in range(2)
        ]
        assert {(j.keys["local.lr"], j.keys["rounds"]) for j in runs} == {(0.5, 7)}


def test_a_variant_whose_algorithms_are_elsewhere_is_left_out_and_named(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert "carried_momentum" not in {
        j.reading for j in plan(["adafedadam/table4"], "full", readings=True)
    }
    code, out, _ = call(
        "reproduce", "adafedadam/table4", "--readings", "--plan", f"results_dir={tmp_path}"
    )
    assert code == 0
    assert "carried_momentum" not in out.partition("for other readings:")[2].partition("\n")[0]
    assert ", split 270, " in out  # 3 rows, 10 seeds, 9 further splits
    assert (
        "without the variant carried_momentum of adafedadam: its algorithms are in examples/carried_momentum"
        in out
    )
    assert (
        "readings"
        not in call("reproduce", "adafedadam/table4", "--plan", f"results_dir={tmp_path}")[1]
    )


@pytest.mark.parametrize("profile", ["cpu", "smoke"])
def test_a_profile_cuts_what_the_registry_says_and_a_rows_own_settings_stay(profile):
    for j in plan([], profile, seeds=1):
        cut = j.paper.setups[j.row.setup].profiles[profile].set
        assert {**cut, **j.wanted, **({"rounds": cut["rounds"]} if "rounds" in cut else {})} == {
            **j.wanted,
            **j.cut,
        }
        keys = [o.split("=")[0] for o in j.overrides]
        assert len(keys) == len(set(keys))


def test_rounds_of_a_methods_own_are_cut_as_well():
    """FedCorr's 1100 rounds are part of its rows; the record still says what the rows set."""
    full, smoke = (
        {
            j.algo: j
            for j in plan(["adafed/table19"], profile)
            if j.algo.startswith("fedcorr") and j.seed == 0
        }
        for profile in ("full", "smoke")
    )
    assert set(full) == set(smoke) == {"fedcorr", "fedcorr_adafed"}
    for algo in full:
        assert "rounds=1100" in full[algo].setting
        assert [o for o in smoke[algo].setting if o.startswith("rounds=")] == ["rounds=2"]
        assert compose_run(smoke[algo].overrides).tree["rounds"] == 2
        assert (
            smoke[algo].wanted == full[algo].wanted == papers()["adafed"].overrides(full[algo].row)
        )


def test_a_whole_paper_and_unknown_names():
    whole = plan(["fedfa"], "full")
    assert whole == [j for j in plan([], "full") if j.paper.id == "fedfa"]
    for name, hint in (
        ("adafedadam/tabel4", "did you mean adafedadam/table4?"),
        ("fedfaa", "did you mean fedfa?"),
        ("adafedadam/figure1", "unknown table, figure or paper"),  # a sketch
    ):
        with pytest.raises(RequestError, match=name) as error:
            plan(["adafed", name], "full")
        assert hint in str(error.value)


# ---- what it would take


def test_times_in_words():
    times = {89.0: "89 s", 600.0: "10 min", 7200.0: "2.0 h", 200 * 3600.0: "8 days"}
    assert {seconds: duration(seconds) for seconds in times} == times


def test_a_deadline_leaves_runs_that_the_same_command_resumes(tmp_path, monkeypatch, no_report):
    monkeypatch.setattr(runner, "_CHECKPOINT_EVERY", 0)
    real = runner.evaluate

    def slow(*args):
        time.sleep(0.2)
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(runner, "evaluate", slow)
        status, out, _ = call(*SMOKE, "--hours", "0.0001")
    assert status == 0
    assert re.search(r"the hours are up: [123] of 3 runs are left; the same command runs them", out)
    status, out, _ = call(*SMOKE, "--hours", "1")
    assert status == 0
    assert [e[3] for e in entries(tmp_path / "results")] == ["done"] * 3


# ---- the command


def test_the_rows_of_one_experiment(tmp_path):
    """Of Table 5, those on Dir(0.05): 5 methods, 3 seeds; Table 3 has one of them, Table 2 none."""
    chosen_rows = [
        "--profile",
        "full",
        "--plan",
        "--experiment",
        "adafedadam/table5_cifar10_dir005",
    ]
    status, out, err = call(
        "reproduce", "adafedadam/table5", "adafedadam/table3", "adafedadam/table2", *chosen_rows
    )
    assert (status, err) == (0, "")
    rows = [line.split()[:3] for line in out.splitlines()[2:]]
    assert rows[:2] == [
        ["adafedadam/table5", "15", "0"],
        ["adafedadam/table3", "3", "0"],
    ]
    assert [row[0] for row in rows[2:]] == ["in"]


def test_showing_the_plan_writes_nothing(tmp_path):
    status, out, err = call(
        "reproduce", "adafedadam/table4", "--plan", "--seeds", "2", "adafedadam/figure3"
    )
    assert (status, err) == (0, "")
    assert list(tmp_path.iterdir()) == []
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["profile", "cpu,", "results", "in", "results"]
    assert lines[2][:3] == ["adafedadam/table4", "6", "0"]
    assert lines[3][:3] == ["adafedadam/figure3", "24", "0"]
    assert lines[4][:6] == ["in", "all,", "runs", "shared", "28", "0"]
    _, out, _ = call(*SMOKE, "--plan", "results_dir='a (new) =place'")
    assert "results in a (new) =place\n" in out
    assert "reduced: eval_every=1, local.steps=2, rounds=2, seeds 1 of 3\n" in out
    assert (
        "reduced: data.clients=100, "
        in call("reproduce", "--plan", "adafed/figure7", "--profile", "smoke")[1]
    )
    assert list(tmp_path.iterdir()) == []


def test_a_plan_does_without_torch(tmp_path):
    """It answers at once: torch and Matplotlib take seconds to import."""
    code = (
        "import sys; from fedbench.cli import main; assert main(['reproduce', '--plan', 'fedfa/table2']) == 0; "
        "sys.exit(any(m in sys.modules for m in ('torch', 'matplotlib')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


BAD = [
    (
        ["rounds=3"],
        "rounds=3: reproduce takes overrides of results_dir, data_dir, device, engine., tracker, ",
    ),
    (["algo=fedavg"], "to run a variant, type fedbench -m experiment=NAME algo=fedavg"),
    (["force=true"], "force=true: reproduce takes overrides of"),
    (["local.lr=1"], "since the papers determine the other keys"),
    (["data.clients=3"], "data.clients=3: reproduce takes"),
    (["adafedadam/tabel4"], "did you mean adafedadam/table4?"),
    (["--profile", "big"], "invalid choice: 'big'"),
    (["--quux"], "unknown flag --quux; see `fedbench reproduce --help`"),
    (["--seeds", "0"], "--seeds must be >= 1, got 0"),
    (
        ["adafedadam/table4", "--experiment", "adafedadam/table5_femnist"],
        "has no row here; the experiments are adafedadam/",
    ),
    (["--jobs", "0"], "--jobs must be >= 1, got 0"),
    (["--hours", "0"], "--hours must be > 0, got 0"),
    (
        ["--hours", "1", "hydra/launcher=basic"],
        "--hours cannot be combined with hydra/launcher=basic, whose jobs go",
    ),
    (
        ["hydra/launcher=jobli"],
        "hydra/launcher=jobli is unknown; did you mean joblib? Choices: basic, joblib",
    ),
    (["adafedadam/table4", "device=tpu"], "device must be one of auto, cpu, cuda or text that"),
    (["adafedadam/table4", "device=cpu,cuda"], "device has several values"),
    (
        ["adafedadam/table4", "engine.mode=fast"],
        "engine.mode must be one of auto, loop, stacked, compiled",
    ),
    (["adafedadam/table4", "engine.mod=loop"], "did you mean engine.mode?"),
    (["adafedadam/table4", "results_dir="], "results_dir must be a path"),
]


@pytest.mark.parametrize(
    ("args", "message"), BAD, ids=lambda v: " ".join(v) if isinstance(v, list) else ""
)
def test_a_wrong_request_is_one_line_and_changes_nothing(tmp_path, args, message):
    status, out, err = call("reproduce", *args)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_results_that_cannot_be_written_are_refused_before_data_are_read(tmp_path):
    status, _, err = call(
        "reproduce", "adafedadam/table4", "--profile", "smoke", "results_dir=/proc/none"
    )
    assert status == 2
    assert (
        err
        == "fedbench: results_dir=/proc/none cannot be written to (No such file or directory); change results_dir\n"
    )


def test_a_plan_is_carried_out(done):
    """Every run exists with its files; no sweep is left."""
    assert entries(done.results) == [(s, "adafedadam", 0, "done") for s in SETUPS]
    assert {p.name for p in done.results.iterdir()} == {"adafedadam", "report"}
    for path in models(done.results).values():
        run = read_run(path.parent)
        assert run.done
        assert run.rounds()["round"].tolist() == [0, 1, 2]
        assert (run.config["local"]["steps"], run.meta["seed"]) == (2, 0)
    table, _, last = done.out.rpartition("\n\n")
    assert last.splitlines()[-1] == f"written: {done.results / 'report' / 'index.html'}"
    # it ends with that table, its claims and the page
    table = table[table.index("## AdaFedAdam, Table 4") :]
    assert max(map(len, table.splitlines())) <= 100
    assert (
        "- not run, scaled-down check: unclear (6 comparisons, none run): Momentum at the clients"
        in table
    )


def test_doing_it_again_trains_nothing(copied, monkeypatch, no_figures):
    monkeypatch.setattr(runner, "train", lambda *_: pytest.fail("nothing is left to train"))
    before = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in copied.rglob("seed_0/*")}
    assert len(before) == 3 * 6
    status, out, _ = call(*SMOKE)
    assert status == 0
    assert {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in copied.rglob("seed_0/*")} == before
    assert ["adafedadam/table4", "3", "3", "0"] in [line.split()[:4] for line in out.splitlines()]
    assert entries(copied) == [(s, "adafedadam", 0, "done") for s in SETUPS]


def test_more_seeds_are_added_to_those_that_are_there(copied, no_report):
    stamps = {k: p.stat().st_mtime_ns for k, p in models(copied).items()}
    assert call(*SMOKE[:2], "--seeds", "2", *SMOKE[2:])[0] == 0
    assert entries(copied) == [(s, "adafedadam", seed, "done") for s in SETUPS for seed in (0, 1)]
    assert len(list(copied.rglob("DONE"))) == 6
    assert {p.stat().st_mtime_ns for p in copied.rglob("seed_0/model.safetensors")} == set(
        stamps.values()
    )


def stopping(monkeypatch, number, error):
    """Raise ``error`` at one of the evaluations that are to come; each run has three."""
    real, calls = runner.evaluate, []

    def evaluate(*args):
        calls.append(1)
        if len(calls) == number:
            raise error
        return real(*args)

    monkeypatch.setattr(runner, "evaluate", evaluate)
    return calls


def test_what_was_interrupted_goes_on_where_it_stopped(tmp_path, done, monkeypatch, no_report):
    """Ctrl-C at the last evaluation of the second of three runs."""
    with monkeypatch.context() as patch:
        patch.setattr(runner, "_CHECKPOINT_EVERY", 0)
        stopping(patch, 6, KeyboardInterrupt())
        status, _, err = call(*SMOKE)
    assert status == 130
    first, *_, last = err.splitlines()
    assert first == "fedbench: 3 runs, one at a time (jobs=1)"
    assert last == "fedbench: interrupted; run the same command again to resume"
    results = tmp_path / "results"
    assert [e[3] for e in entries(results)] == ["done", "interrupted"]
    assert not (results / "sweeps").exists()
    (first,) = models(results).values()
    stamp = first.stat().st_mtime_ns
    calls = stopping(monkeypatch, 0, AssertionError)
    assert call(*SMOKE)[0] == 0
    assert len(calls) == 1 + 3  # round 2 of the second run, and all of the third
    assert [e[3] for e in entries(results)] == ["done"] * 3
    assert first.stat().st_mtime_ns == stamp
    for a, b in zip(models(results).values(), models(done.results).values(), strict=True):
        assert a.read_bytes() == b.read_bytes()


def test_a_run_without_its_mark_is_trained_again(copied, done, no_report):
    lost = models(copied)["adafedadam", "table7_synthetic_momentum"]
    (lost.parent / "DONE").unlink()
    lost.unlink()
    stamps = {p: p.stat().st_mtime_ns for p in models(copied).values()}
    assert call(*SMOKE)[0] == 0
    assert (
        lost.read_bytes()
        == models(done.results)["adafedadam", "table7_synthetic_momentum"].read_bytes()
    )
    assert {p: p.stat().st_mtime_ns for p in stamps} == stamps


@pytest.mark.parametrize(
    ("profile", "step"),
    [("smoke", 31), *(pytest.param(p, 1, marks=pytest.mark.slow) for p in ("cpu", "smoke"))],
)
@pytest.mark.parametrize("paper", list(papers()))
def test_the_runs_of_a_profile_stand_for_their_rows(paper, profile, step, composer):
    """What a profile cuts may be cut: else a table would stay empty after all of its runs."""
    wholes = {}
    for job in plan([paper], profile, seeds=1)[::step]:
        config = composer.config(job.experiment, job.algo, job.keys)
        base = (job.experiment, job.algo)
        if base not in wholes:
            wholes[base] = leaves(composer.config(*base, {}).tree)
        here, there = leaves(config.tree), wholes[base]
        changed = {
            k: [there.get(k), here.get(k)] for k in {*here, *there} if here.get(k) != there.get(k)
        }
        departures = {
            k: v
            for k, v in changed.items()
            if not k.startswith(("eval_every", "eval_train_every", "seed"))
        }
        meta = {
            "experiment": job.experiment, "algo": job.algo, "hash": config.digest, "seed": 0, "model": "m",
            "departures": departures, "status": "running", "started": "", "sources": [],
        }  # fmt: skip
        run = Run(Path("nowhere"), config.tree, meta)
        found, _ = Evidence(job.paper, [run]).choices(job.row)
        split = config.tree["data"]["seed"] or 0  # drawn with the seed where it is null
        assert found.others == ((Unit(split, 0), "not finished"),), job.setting


def test_a_failure_does_not_stop_the_others(tmp_path, monkeypatch, no_figures):
    """The second run fails in its second evaluation, with a message of two lines."""
    with monkeypatch.context() as patch:
        stopping(patch, 5, RuntimeError("no such\n    luck & 100 %"))
        status, out, _ = call(*SMOKE)
    results = tmp_path / "results"
    assert status == 1
    assert [e[3] for e in entries(results)] == ["done", "failed", "done"]
    assert "1 of 3 runs are not finished, 0 for lack of data\n" in out
    assert out.endswith("seed=0: RuntimeError: no such\n    luck & 100 %\n")
    tables = results / "report" / "tables"
    row = next(
        x for x in (tables / "adafedadam_table4.csv").read_text().splitlines() if "momentum" in x
    )
    assert ",failed," in row
    markdown = (tables / "adafedadam_table4.md").read_text()
    assert "- AdaFedAdam: seed 0 failed; RuntimeError: no such luck & 100 %\n" in markdown
    assert (
        "RuntimeError: no such luck &amp; 100 %" in (results / "report" / "index.html").read_text()
    )
    for line in (tables / "adafedadam_table4.tex").read_text().splitlines():
        assert "no such" not in line or line.startswith(("%", r"\par{\footnotesize"))
    status, _, _ = call(*SMOKE)  # now it goes through
    assert status == 0
    assert [e[3] for e in entries(results)] == ["done"] * 3
    assert "no such luck" not in (results / "report" / "index.html").read_text()


def test_a_run_that_diverged_is_a_failure_that_is_remembered(copied, no_report):
    path = models(copied)["adafedadam", "table5_synthetic"].parent
    facts = json.loads((path / "meta.json").read_text())
    (path / "meta.json").write_text(json.dumps(facts | {"status": "diverged", "sealed": False}))
    seal(path)
    assert call(*SMOKE)[0] == 1
    assert [e[3] for e in entries(copied)] == ["diverged", "done", "done"]


def test_a_damaged_run_is_named_and_does_not_stop_the_others(copied, no_report):
    damaged, lost = (
        models(copied)["adafedadam", f"table7_synthetic_{k}"].parent
        for k in ("momentum", "nesterov")
    )
    (damaged / "meta.json").write_text("torn")
    shutil.rmtree(lost)
    status, out, _ = call(*SMOKE)
    assert status == 1
    assert "force=true trains it again" in out.rpartition("1 of 3 runs are not finished")[2]
    assert (lost / "DONE").exists()


def test_what_has_no_data_is_refused_and_the_others_run(tmp_path, no_figures):
    """Table 5 takes three data sets from files, of which there are none, and Synthetic, which is made."""
    where = ["data_dir=nothing", "data.download=false"]
    status, out, err = call("reproduce", "adafedadam/table5", "--profile", "smoke", *where)
    assert status == 0
    results = tmp_path / "results"
    setups = papers()["adafedadam"].tables["table5"].setups
    everything = {papers()["adafedadam"].setups[s].experiment for s in setups}
    assert {e[0] for e in entries(results)} == {SETUPS[0]}
    assert len(models(results)) == 1
    assert len(list(results.rglob("DONE"))) == 5
    for name in everything - {SETUPS[0]}:
        assert err.count(f"no data for {name}: ") == 1
    assert err.count("data.download=false") == 3
    assert out.endswith("15 of 20 runs are not finished, 15 for lack of data\n")
    rows = (results / "report" / "tables" / "adafedadam_table5.csv").read_text().splitlines()[1:]
    assert sum(",not run," in row for row in rows) == 15
    assert sum(",reduced," in row for row in rows) == 5
    assert not (tmp_path / "nothing").exists()


def test_data_that_several_experiments_share_are_read_once(monkeypatch):
    jobs = locate(plan(["adafedadam/table3", "adafedadam/table4"], "smoke"), [])
    read = []

    def reading(config):
        read.append(config.task_name)
        if "cifar10" in config.task_name:
            return None
        raise RequestError(f"no {config.data.source.target}")

    monkeypatch.setattr(execution, "read_examples", reading)
    faults = unreadable_data(jobs)
    assert len(read) == 2
    assert set(faults) == set(SETUPS)
    assert set(faults.values()) == {"no fedbench.data.sources.synthetic.leaf"}


@pytest.mark.slow
def test_two_at_a_time_are_the_same_runs(tmp_path, done, no_report):
    results = tmp_path / "results"
    status, _, err = call(*SMOKE[:4], "--jobs", "2")
    assert (status, err) == (0, "fedbench: 3 runs, 2 at a time (jobs=2)\n")
    assert entries(results) == entries(done.results)
    assert not (results / "sweeps").exists()
    for a, b in zip(models(results).values(), models(done.results).values(), strict=True):
        assert a.read_bytes() == b.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("how", [["--jobs", "3"], ["hydra/launcher=joblib"]], ids=" ".join)
def test_a_failure_in_another_process_is_told(tmp_path, no_report, how):
    """A file stands where the directory of a run belongs."""
    where = f"results_dir={tmp_path}"
    jobs = locate(plan(["adafedadam/table4"], "smoke"), [where])
    jobs[1].path.parent.mkdir(parents=True)
    jobs[1].path.write_text("in the way")
    status, out, _ = call(*SMOKE[:4], *how, where)
    assert [e[3] for e in entries(tmp_path)] == ["done", "done"]
    assert (
        f"results_dir={tmp_path} cannot be written to"
        in out.rpartition("1 of 3 runs are not finished")[2]
    )
    assert status == 1  # it has data


def test_results_may_be_anywhere(tmp_path, done, no_report):
    """Two of the runs are there, and the third is added."""
    shutil.copytree(done.results, results := tmp_path / "rés (ü) =1, x")
    shutil.rmtree(models(results)["adafedadam", "table7_synthetic_momentum"].parent)
    status, out, err = call(*SMOKE, "results_dir='rés (ü) =1, x'")
    assert (status, err.count("\n")) == (0, 1)
    assert len(models(results)) == 3
    assert out.splitlines()[-1] == "written: rés (ü) =1, x"


def test_a_plan_names_the_files_that_are_missing(tmp_path):
    for name in ("test_batch", *(f"data_batch_{k}" for k in range(1, 6))):
        (tmp_path / "cifar-10-batches-py").mkdir(exist_ok=True)
        (tmp_path / "cifar-10-batches-py" / name).touch()
    names = ["adafed/table1", "adafed/table2", "fedfa/table2", "adafedadam/table4"]
    found = missing_files(locate(plan(names, "smoke", seeds=1), []), tmp_path)
    assert found["adafed/table2_cifar100_s1"] == "cifar-100-python.tar.gz"
    assert found["fedfa/table2_sent140"] == "sent140/trainingandtestdata.zip, glove/glove.6B.zip"
    assert not {"adafed/table1_cifar10_s1", "adafedadam/table5_synthetic"} & set(found)
