"""Identity of a run: unchanged for earlier runs and moved modules, and by the content of files."""

import hashlib
import json
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from command_line import FAST, meta_of, model_of, write_files
from tools import ALGORITHMS, ROOT, composed, factory

from fedbench.config import identity
from fedbench.config.compose import compose_run
from fedbench.config.identity import identify
from fedbench.config.targets import MOVED, function_of, present, stable
from fedbench.runs.run import read_run

OLD = Path(__file__).parent / "old_runs"
HASHES = json.loads((OLD / "hashes.json").read_text())
RUNS = json.loads((OLD / "runs.json").read_text())


def identity_of(*overrides):
    return compose_run(overrides).identity


def digest_of(*overrides):
    return identity_of(*overrides).digest


# ---- runs made before modules moved and identity was by content


@pytest.mark.parametrize(
    "rows",
    [
        HASHES[::15],
        pytest.param(HASHES, marks=pytest.mark.slow),
    ],
    ids=["some settings", "all settings"],
)
def test_the_digests_of_old_runs_are_unchanged(rows, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # no user file by chance
    for row in rows:
        identity = compose_run(row["overrides"]).identity
        revised = max(identity.facts["revision"].values(), default=1) > 1
        assert (identity.digest == row["digest"]) != revised, row


@pytest.fixture
def old(tmp_path):
    """A working directory with the old runs and the user files of that time."""
    shutil.copytree(OLD, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def files_of(folder):
    """Content and time of modification of the files that do not change when a run is found."""
    files = [p for p in folder.rglob("*") if p.is_file() and "sweeps" not in p.parts]
    return {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in files}


SWEEP = [r for r in RUNS if "-m" in r["args"]]
REVISED = "nested method"  # of FedCorr, whose results have changed since
SINGLE = [r for r in RUNS if r not in SWEEP and not r["user_files"] and r["title"] != REVISED]


@pytest.mark.parametrize("run", SINGLE, ids=lambda r: r["title"])
def test_an_old_run_is_done_already(fed, old, run):
    before = files_of(old / "results")
    status, out, err = fed(*run["args"])
    done = run["status"] == "done"
    assert status == (0 if done else 1), err
    assert out[-1] == f"results/{run['path']}"
    assert ("done already" if done else "diverged at round") in out[0]
    assert files_of(old / "results") == before
    digest = hashlib.sha256(model_of(old / out[-1])).hexdigest()
    assert digest == run["sha256_model"]


def test_an_old_sweep_is_done_already(fed, old):
    before = files_of(old / "results")
    status, out, _ = fed(*SWEEP[0]["args"])
    assert status == 0
    assert sum("done already" in line for line in out) == len(SWEEP) == 4
    assert {f"results/{run['path']}" for run in SWEEP} <= set(out)
    assert files_of(old / "results") == before


def old_run(old, title):
    (path,) = [run["path"] for run in RUNS if run["title"] == title]
    return read_run(old / "results" / path)


def test_old_paths_of_functions_are_read_as_present_ones(old):
    run = old_run(old, "imagefolder")
    assert "fedbench.data.partition.iid" in (run.path / "config.yaml").read_text()
    assert run.config["data"]["partition"] == {"_target_": "fedbench.data.partitions.basic.iid"}
    departures = old_run(old, "npz with a partition, departures").meta["departures"]
    moved = [None, "fedbench.data.partitions.dirichlet.dirichlet"]
    assert departures["data.partition._target_"] == moved


def test_a_run_counts_if_it_is_complete_and_did_not_diverge(old):
    plain = old_run(old, "plain fedavg")
    diverged = old_run(old, "diverged")
    assert plain.counts
    assert diverged.done
    assert not diverged.counts
    (plain.path / "DONE").unlink()
    assert not plain.counts


# ---- names


def test_a_module_moves_by_one_row_of_the_table(monkeypatch):
    tree, _ = composed("model=mlp")
    before = identify(tree).digest
    tree["model"]["_target_"] = "fedbench.models.perceptrons.MLP"
    assert identify(tree).digest != before
    monkeypatch.setitem(MOVED, "fedbench.models.dense", "fedbench.models.perceptrons")
    assert identify(tree).digest == before
    tree["model"]["_target_"] = "fedbench.models.dense.MLP"  # as a user's own YAML may still say
    assert identify(tree).digest == before


def test_the_table_of_moves_can_be_read_in_both_directions():
    """If a function has several former names, the last row has the first one."""
    firsts = {today: first for first, today in MOVED.items()}
    # the right side is today's path, not a step on the way
    assert not set(MOVED.values()) & set(MOVED)
    for first, today in MOVED.items():
        is_module = (ROOT / today.replace(".", "/")).with_suffix(".py").is_file()
        if is_module:
            assert present(f"{first}.f") == present(f"{today}.f") == f"{today}.f"
            assert stable(f"{first}.f") == stable(f"{today}.f") == f"{first}.f"
        else:  # a function that has moved alone
            assert present(first) == today
            assert stable(today) == firsts[today]
            assert callable(function_of(today, "algo"))


# ---- format and revisions


def test_the_format_enters_the_digest_from_2_on(monkeypatch):
    before = digest_of()
    assert identity_of().facts["identity_format"] == identity.IDENTITY_FORMAT == 1
    monkeypatch.setattr(identity, "IDENTITY_FORMAT", 2)
    assert digest_of() != before
    assert identity_of().facts["identity_format"] == 2


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_revision_is_that_of_the_methods_file(name):
    function = factory(name)
    assert identity._revision(f"{function.__module__}.{name}") == getattr(
        sys.modules[function.__module__], "REVISION", 1
    )


def test_a_revision_above_1_enters_the_digest(tmp_path, monkeypatch):
    """Of the method and of a method inside it; only of the method that changed."""
    names = ("fedcorr_adafed", "fedcorr", "adafed", "fedavg")
    before = {name: digest_of(f"algo={name}") for name in names}
    assert identity_of("algo=fedcorr_adafed").facts["revision"] == {"algo": 2, "algo.server": 1}
    code = (ROOT / "fedbench/algorithms/adafed.py").read_text()
    revised = f"{code}\nREVISION = 2  # the step is shorter\n"
    same = (ROOT / "fedbench/algorithms/fedcorr.py").read_text()
    files = {"adafed.py": revised, "fedcorr.py": same}
    write_files(tmp_path, {f"fedbench/algorithms/{name}": text for name, text in files.items()})
    monkeypatch.setattr(identity, "_PACKAGE", tmp_path / "fedbench")
    monkeypatch.setattr(identity, "_revision", identity._revision.__wrapped__)  # not cached
    assert identity_of("algo=fedcorr_adafed").facts["revision"] == {"algo": 2, "algo.server": 2}
    changed = {name for name in names if digest_of(f"algo={name}") != before[name]}
    assert changed == {"fedcorr_adafed", "adafed"}


# ---- user files


@pytest.fixture
def trained(fed, tmp_path):
    """Run a command; returns whether it trained, and the directory."""

    def run(*args):
        status, out, err = fed(*args)
        assert status == 0, err
        return "done already" not in out[0], tmp_path / out[-1]

    return run


@pytest.mark.parametrize(
    ("key", "name", "data"),
    [
        ("data.file", "mine.npz", ["data=npz"]),
        ("data.train", "leaf", ["data=leaf_json"]),
        ("data.root", "train", ["data=huggingface"]),  # also the name of a split
        ("data.root", "train", ["data=imagefolder"]),
        ("init.path", "mine.npz", []),
        ("data.source.root", "train", ["data=imagefolder", "data.root=elsewhere"]),
    ],
)
def test_a_path_may_be_typed_in_any_way(tmp_path, monkeypatch, key, name, data):
    home = tmp_path / "home"
    write_files(home, {"mine.npz": "npz", "leaf/a.json": "{}", "train/1.png": "png"})
    monkeypatch.chdir(home)
    monkeypatch.setenv("HOME", str(home))
    ways = [name, f"./{name}", f"../home/{name}", str(home / name), f"'~/{name}'"]
    (digest,) = {digest_of(*data, f"{key}={way}") for way in ways}
    shutil.copytree(home, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    assert digest_of(*data, f"{key}={name}") == digest
    for path in (p for p in Path().rglob("*") if p.is_file()):
        path.write_text("changed")
    assert digest_of(*data, f"{key}={name}") != digest


def test_results_inside_a_directory_of_data_do_not_count(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = ["data=imagefolder", "data.root=."]
    write_files(tmp_path, {"train/1.png": "1"})
    before = digest_of(*data)
    write_files(tmp_path, {"results/a/meta.json": "{}"})
    assert digest_of(*data) == before
    assert digest_of(*data, "results_dir=elsewhere") != before


@pytest.mark.parametrize(
    "typed",
    [
        [],
        ["data=clothing1m"],
        ["data=cifar10_dir0.5", "algo=scaffold"],
    ],
    ids=" ".join,
)
def test_a_setting_without_user_files_does_not_look_at_the_working_directory(
    tmp_path, monkeypatch, typed
):
    before = digest_of(*typed)
    monkeypatch.chdir(tmp_path)
    names = ("noisy", "train", "file", "auto", "size", "uniform")
    write_files(tmp_path, {f"{name}/x": name for name in names})
    assert digest_of(*typed) == before


# ---- user code

METHOD = """
from fedbench.core.algorithm import Algorithm, descent, server_descent
from fedbench.core.optim import SGD

def mine(local=SGD, *, server_lr=1.0):
    return Algorithm(**descent(local), **server_descent(lr={lr} * server_lr))
"""
MINE = ("--config-dir", "own", "algo=mine", *FAST)


@pytest.fixture
def method(tmp_path, monkeypatch):
    """Write an own method, ``mine``, and return the function that writes it again."""
    own = tmp_path / "own"
    write_files(own, {"algo/mine.yaml": "# Mine\n_target_: mine.mine\nserver_lr: 1.0\n"})

    def write(lr="1.0"):
        (own / "mine.py").write_text(METHOD.format(lr=lr))

    monkeypatch.setattr(sys, "path", list(sys.path))
    write()
    yield write
    sys.modules.pop("mine", None)


def test_an_edited_method_trains_again_with_the_new_code(trained, tmp_path, method):
    _, first = trained(*MINE)
    assert trained(*MINE) == (False, first)
    method(lr="0.25")
    again, second = trained(*MINE)
    assert again
    assert model_of(second) != model_of(first)
    method()
    assert trained(*MINE) == (False, first)
    meta = meta_of(first)
    assert meta["identity_format"] == 1
    digest = hashlib.sha256((tmp_path / "own/mine.py").read_bytes()).hexdigest()
    assert meta["code"] == {"mine.py": digest}
    assert meta["revision"] == {}


def test_a_finished_run_of_an_own_method_is_found_without_importing_it_or_torch(
    train, tmp_path, method
):
    path = train(*MINE)
    code = (
        "import sys; from fedbench.cli import main; status = main(sys.argv[1:])\n"
        "assert not {'torch', 'mine'} & set(sys.modules); sys.exit(status)"
    )
    command = [sys.executable, "-c", code, *MINE]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert tmp_path / found.stdout.splitlines()[-1] == path


@pytest.fixture
def own_code(tmp_path, monkeypatch):
    """A working directory with the module ``net``, which can be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    write_files(tmp_path, {"net.py": "f = print\n"})
    return tmp_path


@pytest.mark.parametrize(
    "text",
    [".", "./", "/", "..", "size " * 200, "~nobody/x", "sum", 7],
)
def test_a_value_of_own_code_that_is_no_file_is_taken_as_it_is(own_code, text):
    """Neither files with that name by chance nor the working directory are read."""
    tree, _ = composed()
    tree["model"] = {
        "_target_": "net.f",
        "text": text,
        "files": ["b.csv", text],
    }
    before = identify(tree).digest
    write_files(own_code, {"results/x": "1", "sum": "by chance", "7": "by chance"})
    assert identify(tree).digest == before


@pytest.mark.parametrize(
    ("place", "section"),
    [
        ("algo", {"file": "b.csv"}),
        ("model", {"files": ["a.csv", "./b"]}),
        ("model", {"more": {0: {"x": "b.csv"}}}),
        ("metrics", {"m": {"_target_": "net.f", "file": "b.csv"}}),
    ],
)
def test_files_in_any_place_of_own_code_count(own_code, place, section):
    tree, _ = composed()
    tree[place] = section if place == "metrics" else {"_target_": "net.f", **section}
    digests = {identify(tree).digest}
    for content in ("1", "2"):
        write_files(own_code, {"b.csv": content, "b": content})
        digests.add(identify(tree).digest)
    assert len(digests) == 3


def test_an_installed_function_goes_by_the_version_of_its_package(monkeypatch):
    tree, _ = composed()
    tree["model"] = {"_target_": "torch.nn.Linear", "in_features": 60, "out_features": 10}
    first = identify(tree)
    assert first.facts["code"] == {"torch": version("torch")}
    monkeypatch.setattr("fedbench.config.user_sources.version", lambda name: "0.0")
    assert identify(tree).digest != first.digest


def test_own_models_and_sources_count_and_trackers_do_not(own_code):
    write_files(own_code, {"reader.py": "f = print\n", "watcher.py": "f = print\n"})
    tree, _ = composed()
    tree["model"]["_target_"] = "net.f"
    tree["data"]["source"]["_target_"] = "reader.f"
    tree["tracker"] = {"_target_": "watcher.f"}
    first = identify(tree)
    assert set(first.facts["code"]) == {"net.py", "reader.py"}
    write_files(own_code, {"watcher.py": "f = repr\n"})
    assert identify(tree) == first
    for name in ("net.py", "reader.py"):
        write_files(own_code, {name: "f = repr\n"})
        assert identify(tree).digest != first.digest
        write_files(own_code, {name: "f = print\n"})
