"""Identity of a run: unchanged for earlier runs, independent of where fedbench's code is, and by content."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from command_line import FAST
from tools import ALGORITHMS, CONF, ROOT, composed, factory, key_of

from fedbench.config import identity
from fedbench.config.compose import compose_run, merge_presets
from fedbench.config.identity import identify
from fedbench.config.schema import parse
from fedbench.config.targets import MOVED, function_of, present, stable
from fedbench.core.errors import RequestError
from fedbench.runs.run import read_run

OLD = Path(__file__).parent / "old_runs"
HASHES = json.loads((OLD / "hashes.json").read_text())
RUNS = json.loads((OLD / "runs.json").read_text())


def identity_of(*overrides):
    return compose_run(overrides).identity


def parsed(tree, names):
    """The typed configuration of a composed tree, presets merged in."""
    return parse(merge_presets(tree, names["algo"], set()), names)


def digest_of(*overrides):
    return identity_of(*overrides).digest


# ---- runs made before modules moved and identity was by content


@pytest.mark.parametrize(
    "rows",
    [HASHES[::15], pytest.param(HASHES, marks=pytest.mark.slow)],
    ids=["some settings", "all settings"],
)
def test_the_digests_of_old_runs_are_unchanged(rows, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # no user file by chance
    changed = [r for r in rows if compose_run(r["overrides"]).digest != r["digest"]]
    assert not changed


@pytest.fixture
def old(tmp_path):
    """A working directory with the old runs and the user files of that time."""
    shutil.copytree(OLD, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def files_of(folder):
    """Files below a directory that do not change when a run is found: name -> (content, time of modification)."""
    found = (p for p in sorted(folder.rglob("*")) if p.is_file() and "sweeps" not in p.parts)
    return {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in found}


@pytest.mark.parametrize(
    "run",
    [r for r in RUNS if "-m" not in r["args"] and not r["user_files"]],
    ids=lambda r: r["title"],
)
def test_an_old_run_is_done_already(fed, old, run):
    before = files_of(old / "results")
    status, out, err = fed(*run["args"])
    assert status == (0 if run["status"] == "done" else 1), err
    assert out[-1] == f"results/{run['path']}"
    assert ("done already" if run["status"] == "done" else "diverged at round") in out[0]
    assert files_of(old / "results") == before
    model = (old / out[-1] / "model.safetensors").read_bytes()
    assert hashlib.sha256(model).hexdigest() == run["sha256_model"]


def test_an_old_sweep_is_done_already(fed, old):
    jobs = [r for r in RUNS if "-m" in r["args"]]
    before = files_of(old / "results")
    status, out, _ = fed(*jobs[0]["args"])
    assert status == 0
    assert sum("done already" in line for line in out) == len(jobs) == 4
    assert {f"results/{r['path']}" for r in jobs} <= set(out)
    assert files_of(old / "results") == before


def test_old_paths_of_functions_are_read_as_present_ones(old):
    paths = {r["title"]: old / "results" / r["path"] for r in RUNS}
    run = read_run(paths["imagefolder"])
    assert "fedbench.data.partition.iid" in (run.path / "config.yaml").read_text()
    assert run.config["data"]["partition"] == {"_target_": "fedbench.data.partitions.basic.iid"}
    run = read_run(paths["npz with a partition, departures"])
    there, here = run.meta["departures"]["data.partition._target_"]
    assert there is None
    assert here == "fedbench.data.partitions.dirichlet.dirichlet"


def test_a_run_counts_if_it_is_complete_and_did_not_diverge(old):
    runs = {r["title"]: read_run(old / "results" / r["path"]) for r in RUNS}
    assert runs["plain fedavg"].counts
    assert runs["diverged"].done
    assert not runs["diverged"].counts
    (runs["plain fedavg"].path / "DONE").unlink()
    assert not runs["plain fedavg"].counts


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


def test_a_function_may_move_alone(monkeypatch):
    monkeypatch.setitem(MOVED, "fedbench.data.partition.iid", "fedbench.data.partitions.equal.iid")
    assert present("fedbench.data.partition.iid") == "fedbench.data.partitions.equal.iid"
    assert present("fedbench.data.partition.other") == "fedbench.data.partitions.basic.other"
    assert stable("fedbench.data.partitions.equal.iid") == "fedbench.data.partition.iid"
    assert stable("fedbench.data.partitions.basic.other") == "fedbench.data.partition.other"


def test_the_table_of_moves_can_be_read_in_both_directions():
    """Of several former names of a function the last row has the first one."""
    firsts = {today: first for first, today in MOVED.items()}
    # the right side is today's path, not a step on the way
    assert not set(MOVED.values()) & set(MOVED)
    for first, today in MOVED.items():
        # a function that has moved alone
        if not (ROOT / today.replace(".", "/")).with_suffix(".py").is_file():
            assert present(first) == today
            assert stable(today) == firsts[today]
            assert callable(function_of(today, "algo"))
            continue
        assert present(f"{first}.f") == present(f"{today}.f") == f"{today}.f"
        assert stable(f"{first}.f") == stable(f"{today}.f") == f"{first}.f"


def targets(tree):
    if isinstance(tree, dict):
        own = [tree["_target_"]] if isinstance(tree.get("_target_"), str) else []
        return own + [t for v in tree.values() for t in targets(v)]
    return []


@pytest.mark.parametrize(
    "folder", [CONF, *sorted(p.parent.parent for p in (ROOT / "docs").rglob("algo/*.yaml"))]
)
def test_every_target_resolves(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    found = {t for p in folder.rglob("*.yaml") for t in targets(yaml.safe_load(p.read_text()))}
    assert found
    # these import packages that may not be installed
    for target in found - {t for t in found if ".trackers." in t}:
        assert callable(function_of(target, key_of(target)))
    for target in (t for t in found if ".trackers." in t):
        module, name = target.rsplit(".", 1)
        assert f"class {name}" in (ROOT / module.replace(".", "/")).with_suffix(".py").read_text()


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
    before = {a: digest_of(f"algo={a}") for a in ("fedcorr_adafed", "fedcorr", "adafed", "fedavg")}
    assert identity_of("algo=fedcorr_adafed").facts["revision"] == {"algo": 1, "algo.server": 1}
    (tmp_path / "fedbench/algorithms").mkdir(parents=True)
    text = (ROOT / "fedbench/algorithms/adafed.py").read_text()
    (tmp_path / "fedbench/algorithms/adafed.py").write_text(
        f"{text}\nREVISION = 2  # the step is shorter\n"
    )
    monkeypatch.setattr(identity, "_PACKAGE", tmp_path / "fedbench")
    identity._revision.cache_clear()
    try:
        assert identity_of("algo=fedcorr_adafed").facts["revision"] == {"algo": 1, "algo.server": 2}
        after = {a: digest_of(f"algo={a}") for a in before}
    finally:
        identity._revision.cache_clear()
    assert {a for a in before if after[a] != before[a]} == {"fedcorr_adafed", "adafed"}


# ---- user files


def save_npz(path, value=0.0):
    x = np.arange(24, dtype=np.float32).reshape(12, 2) + np.float32(value)
    np.savez(path, x=x, y=np.arange(12) % 2, owner=np.arange(12) % 3)


def trained(fed, *args):
    """Run a command; returns whether it trained, and the directory."""
    status, out, err = fed(*args)
    assert status == 0, err
    return "done already" not in out[0], out[-1]


def test_a_changed_npz_trains_again_and_the_old_content_finds_its_run(fed, tmp_path):
    args = ("data=npz", "data.file=mine.npz", "rounds=1")
    save_npz("mine.npz")
    first = trained(fed, *args)[1]
    assert trained(fed, *args) == (False, first)
    save_npz("mine.npz", 0.5)  # of the same size
    fresh, second = trained(fed, *args)
    assert fresh
    assert second != first
    save_npz("mine.npz")
    assert trained(fed, *args) == (False, first)
    meta = read_run(tmp_path / first).meta
    assert meta["identity_format"] == 1
    assert meta["code"] == {}
    assert meta["revision"] == {"algo": 1}


def test_a_file_typed_in_two_ways_is_one_setting(fed, tmp_path):
    save_npz("mine.npz")
    for n, algo in enumerate(("fedavg", "fedprox")):
        ways = ("mine.npz", str(tmp_path / "mine.npz"))
        for seed in (0, 1):
            fed(
                "data=npz",
                f"algo={algo}",
                f"data.file={ways[n - seed]}",
                "rounds=1",
                f"seed={seed}",
            )
    status, out, err = fed("report", "--compare", "algo")
    assert status == 0, err
    (head, _) = (line for line in out if line.startswith("### "))
    assert re.fullmatch(
        r"### npz \(file=mine\.npz \(\w{10}\)\), 3 clients, participation 1: mean accuracy", head
    )
    assert [line.split("|")[1:3] for line in out if line.startswith("| fed")][:2] == [
        [" fedavg  ", "     2 "], [" fedprox ", "     2 "],
    ]  # fmt: skip
    save_npz("mine.npz", 0.5)
    fed("-m", "data=npz", "algo=fedavg,fedprox", "data.file=mine.npz", "rounds=1")
    heads = [
        line for line in fed("report", "--compare", "algo")[1] if line.endswith(": mean accuracy")
    ]
    assert len(set(heads)) == 2
    assert all(head.startswith("### npz (file=mine.npz (") for head in heads)


def test_a_changed_image_or_json_trains_again(fed, old):
    images = (
        "data=imagefolder",
        "data.root=files/images",
        "data.clients=2",
        "model=linear",
        "rounds=1",
    )
    leaf = ("algo=fedprox", "data=leaf_json", "data.train=files/leaf_folder", "rounds=1")
    assert trained(fed, *images)[0]
    assert trained(fed, *leaf)[0]
    picture = old / "files/images/train/dark/0.png"
    other = (old / "files/images/train/light/0.png").read_bytes()
    size, content = picture.stat().st_size, picture.read_bytes()
    picture.write_bytes(other)
    assert trained(fed, *images)[0]
    assert not trained(fed, *images)[0]
    picture.write_bytes(content)
    assert picture.stat().st_size == size
    part = old / "files/leaf_folder/part0.json"
    content = json.loads(part.read_text())
    user = content["users"][0]
    content["user_data"][user]["y"][0] ^= 1
    part.write_text(json.dumps(content))
    assert trained(fed, *leaf)[0]


@pytest.mark.parametrize(
    ("key", "name", "data"),
    [
        ("data.file", "mine.npz", ["data=npz"]),
        ("data.train", "leaf", ["data=leaf_json"]),
        ("data.train", "leaf/a.json", ["data=shakespeare"]),
        ("data.root", "train", ["data=huggingface"]),  # also the name of a split
        ("data.root", "train", ["data=imagefolder"]),
        ("init.path", "mine.npz", []),
        ("data.source.root", "train", ["data=imagefolder", "data.root=elsewhere"]),
    ],
)
def test_a_path_may_be_typed_in_any_way(tmp_path, monkeypatch, key, name, data):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    monkeypatch.setenv("HOME", str(home))
    save_npz("mine.npz")
    Path("leaf").mkdir()
    Path("leaf/a.json").write_text("{}")
    Path("train").mkdir()
    Path("train/1.png").write_bytes(b"1")
    ways = [name, f"./{name}", f"../home/{name}", str(home / name), f"'~/{name}'"]
    digests = {digest_of(*data, f"{key}={way}") for way in ways}
    assert len(digests) == 1
    shutil.copytree(home, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    assert digest_of(*data, f"{key}={name}") in digests
    for path in (p for p in Path().rglob("*") if p.is_file()):
        path.write_bytes(path.read_bytes() + b"x")
    assert digest_of(*data, f"{key}={name}") not in digests


def test_results_inside_a_directory_of_data_do_not_count(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train").mkdir()
    Path("train/1.png").write_bytes(b"1")
    before = digest_of("data=imagefolder", "data.root=.")
    Path("results/a").mkdir(parents=True)
    Path("results/a/meta.json").write_text("{}")
    assert digest_of("data=imagefolder", "data.root=.") == before
    assert digest_of("data=imagefolder", "data.root=.", "results_dir=elsewhere") != before


def test_a_setting_without_user_files_does_not_look_at_the_working_directory(tmp_path, monkeypatch):
    before = [
        digest_of(*o) for o in ([], ["data=clothing1m"], ["data=cifar10_dir0.5", "algo=scaffold"])
    ]
    monkeypatch.chdir(tmp_path)
    for name in ("noisy", "train", "file", "auto", "size", "uniform"):
        Path(name).mkdir()
        Path(name, "x").write_text(name)
    assert [
        digest_of(*o) for o in ([], ["data=clothing1m"], ["data=cifar10_dir0.5", "algo=scaffold"])
    ] == before


# ---- user code

METHOD = """
from fedbench.core.algorithm import Algorithm, descent, server_descent
from fedbench.core.optim import SGD
{imports}

def mine(local=SGD, *, server_lr=1.0, table=""):
    return Algorithm(**descent(local), **server_descent(lr={lr} * server_lr))
"""


@pytest.fixture
def method(tmp_path):
    """Write an own method, ``mine``, and return the function that writes it again."""
    (tmp_path / "own/algo").mkdir(parents=True)
    (tmp_path / "own/algo/mine.yaml").write_text("# Mine\n_target_: mine.mine\nserver_lr: 1.0\n")

    def write(lr="1.0", imports=""):
        (tmp_path / "own/mine.py").write_text(METHOD.format(lr=lr, imports=imports))

    path, modules = list(sys.path), set(sys.modules)
    write()
    yield write
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name in ("mine", "helper"):
            del sys.modules[name]


MINE = ("--config-dir", "own", "algo=mine", *FAST)


def test_an_edited_method_trains_again_with_the_new_code(fed, tmp_path, method):
    first = trained(fed, *MINE)[1]
    assert trained(fed, *MINE) == (False, first)
    method(lr="0.25")
    fresh, second = trained(fed, *MINE)
    assert fresh
    model = (tmp_path / second / "model.safetensors").read_bytes()
    assert model != (tmp_path / first / "model.safetensors").read_bytes()
    method()
    assert trained(fed, *MINE) == (False, first)
    code = read_run(tmp_path / first).meta["code"]
    assert code == {"mine.py": hashlib.sha256((tmp_path / "own/mine.py").read_bytes()).hexdigest()}
    assert read_run(tmp_path / first).meta["revision"] == {}


def test_a_finished_run_of_an_own_method_is_found_without_importing_it_or_torch(
    fed, tmp_path, method
):
    method(imports="assert True")
    first = trained(fed, *MINE)[1]
    code = (
        "import sys; from fedbench.cli import main; status = main(sys.argv[1:])\n"
        "assert not {'torch', 'mine'} & set(sys.modules); sys.exit(status)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, *MINE], cwd=tmp_path, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.splitlines()[-1] == first


def test_all_code_of_the_configuration_directory_counts(fed, tmp_path, method):
    (tmp_path / "own/helper.py").write_text("import json\nRATE = 1.0\n")
    method(lr="RATE", imports="import math\nfrom helper import RATE")
    first = trained(fed, *MINE)[1]
    assert set(read_run(tmp_path / first).meta["code"]) == {"mine.py", "helper.py"}
    (tmp_path / "own/helper.py").write_text("import json\nRATE = 0.125\n")
    fresh, second = trained(fed, *MINE)
    assert fresh
    models = {(tmp_path / p / "model.safetensors").read_bytes() for p in (first, second)}
    assert len(models) == 2


def test_a_file_that_a_method_reads_counts(fed, tmp_path, method):
    (tmp_path / "table.csv").write_text("1")
    args = (*MINE, "+algo.table=table.csv")
    first = trained(fed, *args)[1]
    (tmp_path / "table.csv").write_text("2")
    assert trained(fed, *args)[0]
    (tmp_path / "table.csv").write_text("1")
    assert trained(fed, *args, "algo.table=./table.csv") == (False, first)


@pytest.mark.parametrize("text", [".", "./", "/", "..", "size " * 200, "~nobody/x"])
def test_a_string_of_own_code_that_is_no_data_is_taken_as_it_is(tmp_path, monkeypatch, text):
    """The working directory, where results appear, and the directories around it are not read."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("net.py").write_text("f = print\n")
    tree, names_ = composed()
    tree["model"] = {"_target_": "net.f", "text": text}
    before = parsed(tree, names_).digest
    Path("results").mkdir()
    Path("results/x").write_text("1")
    assert parsed(tree, names_).digest == before


@pytest.mark.parametrize(
    ("place", "section"),
    [
        ("model", {"files": ["a.csv", "b.csv"]}), ("model", {"more": {"x.1": "b.csv"}}),
        ("model", {"more": {0: {"x": "b.csv"}}}),
        ("metrics", {"m": {"_target_": "net.f", "file": "b.csv"}}), ("attack", {"file": "b.csv"}),
    ],
)  # fmt: skip
def test_files_in_any_place_of_own_code_count(tmp_path, monkeypatch, place, section):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("net.py").write_text("f = print\n")
    tree, _ = composed()
    tree[place] = section if place == "metrics" else {"_target_": "net.f", **section}
    digests = [identify(tree).digest]
    for content in ("1", "2"):
        Path("b.csv").write_text(content)
        digests.append(identify(tree).digest)
    assert len(set(digests)) == 3


@pytest.mark.parametrize("text", ["sum", ".", "/", 7])
def test_what_is_no_file_in_a_list_of_own_code_does_not_count(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("net.py").write_text("f = print\n")
    Path("b.csv").write_text("1")
    tree, _ = composed()
    tree["model"] = {"_target_": "net.f", "files": ["b.csv", text]}
    before = identify(tree).digest
    for name in ("sum", "7"):
        Path(name).write_text("a file by chance")
    assert identify(tree).digest == before


def test_a_word_is_no_file_of_own_code(fed, method):
    args = (*MINE, "+algo.table=sum")
    first = trained(fed, *args)[1]
    Path("sum").write_text("a file by chance")
    assert trained(fed, *args) == (False, first)
    assert trained(fed, *MINE, "+algo.table=./sum")[0]


def test_an_installed_function_goes_by_the_version_of_its_package(monkeypatch):
    import torch

    tree, names_ = composed()
    tree["model"] = {"_target_": "torch.nn.Linear", "in_features": 60, "out_features": 10}
    first = parsed(tree, names_).identity
    assert first.facts["code"] == {"torch": torch.__version__}
    monkeypatch.setattr("fedbench.config.user_sources.version", lambda name: "0.0")
    assert parsed(tree, names_).digest != first.digest


def test_own_code_that_cannot_be_found_is_refused(fed, method):
    status, _, err = fed(*MINE, "algo._target_=nowhere.mine")
    assert status == 2
    assert err == "fedbench: algo._target_=nowhere.mine: there is no module nowhere\n"
    method(imports="def broken(:")
    status, _, err = fed(*MINE)
    assert status == 2
    assert re.search(r"mine\.py, line \d+: ", err)


def test_own_models_and_sources_count_and_trackers_do_not(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("net", "reader", "watcher"):
        (tmp_path / f"{name}.py").write_text("f = print\n")
    tree, names_ = composed()
    tree["model"]["_target_"], tree["data"]["source"]["_target_"] = "net.f", "reader.f"
    tree["tracker"] = {"_target_": "watcher.f"}
    first = parsed(tree, names_).identity
    assert set(first.facts["code"]) == {"net.py", "reader.py"}
    (tmp_path / "watcher.py").write_text("f = repr\n")
    assert parsed(tree, names_).identity == first
    for name in ("net", "reader"):
        (tmp_path / f"{name}.py").write_text("f = repr\n")
        assert parsed(tree, names_).digest != first.digest
        (tmp_path / f"{name}.py").write_text("f = print\n")


def test_a_name_that_is_no_path_is_refused_by_its_own_message():
    tree, names_ = composed()
    tree["algo"]["_target_"] = "nodot"
    parsed(tree, names_)
    with pytest.raises(
        RequestError, match="must name a function as package.module.function, got 'nodot'"
    ):
        function_of(tree["algo"]["_target_"], "algo")
