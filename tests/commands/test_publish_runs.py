"""``fedbench publish``: what is published, and what is refused."""

import shutil

import pytest
import yaml
from command_line import meta_of
from published_runs import BENCHMARK, files_of, run_methods, sha256, shared_of
from pydantic import TypeAdapter

from fedbench.benchmarks.bundle import read_baselines
from fedbench.benchmarks.definition import Benchmark


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A directory with the benchmark's definition, and one with its results."""
    root = tmp_path_factory.mktemp("publish")
    define(root / "own")
    run_methods(root / "results", ("fedavg",))
    return root


def define(folder, **changes):
    """Write the definition of the benchmark, with changes."""
    tree = TypeAdapter(Benchmark).dump_python(BENCHMARK, mode="json") | changes
    file = folder / "benchmark" / f"{tree.pop('name')}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(tree))


@pytest.fixture
def place(finished, tmp_path, monkeypatch):
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


PUBLISH = "publish results --into out -cd own".split()


def test_a_published_folder_is_read_and_published_again(fed, place):
    status, lines, _ = fed(*PUBLISH)
    assert status == 0
    digest = sha256((place / "out/evidence/bundle.json").read_bytes())
    assert lines == [
        "written: out: small@1, 1 methods, CC0-1.0",
        f"readers pin it with --baselines URL#sha256={digest}",
    ]
    (entry,) = read_baselines(place / "out", shared_of(place / "other"), place)
    assert [run.meta["seed"] for run in entry.runs] == [0, 1]
    files = files_of(place / "out")
    assert fed(*PUBLISH, "--benchmark", "small")[0] == 0
    assert files_of(place / "out") == files
    assert fed(*PUBLISH, "--licence", "CC-BY-4.0")[0] == 0
    changed = {name for name, content in files_of(place / "out").items() if content != files[name]}
    assert changed == {"evidence/benchmark.json", "evidence/bundle.json"}
    assert b'"licence": "CC-BY-4.0"' in (place / "out/evidence/benchmark.json").read_bytes()


def test_the_page_is_of_the_published_entries(fed, place):
    shared = shared_of(place / "results", place / "own")
    shared.planned("one", "fedprox").write(reason="its file /home/alice/secret/list.txt is missing")
    assert fed(*PUBLISH)[0] == 0
    for name in ("index.html", "numbers.csv"):
        text = (place / "out" / name).read_text()
        assert "its file list.txt is missing" in text
        assert "secret" not in text
    page = " ".join((place / "out/index.html").read_text().split())
    assert "<dt>published runs</dt><dd>4 runs" in page
    assert "<dt>run here</dt><dd>0 runs" in page


def refused(fed, message, *more):
    status, _, err = fed(*PUBLISH, *more)
    assert (status, message in err) == (2, True), err


def test_directories_without_entries_are_refused(fed, place):
    (place / "results/benchmark").rename(place / "benchmark")
    refused(fed, "results has entries of no benchmark; type --benchmark NAME of one that was run")
    refused(fed, "no benchmark, and none of small@1; fedbench", "--benchmark", "small")
    (place / "benchmark").rename(place / "results/benchmark")
    define(place / "own", version=2, changes={2: ""})
    refused(fed, "results has entries of small@1, and none of small@2; fedbench benchmark small")


def test_one_of_several_benchmarks_is_named(fed, place):
    shutil.copytree(place / "results/benchmark/small@1", place / "results/benchmark/other@3")
    refused(fed, "results has entries of other@3, small@1; type --benchmark NAME")
    assert fed(*PUBLISH, "--benchmark", "small")[0] == 0


def test_unfinished_runs_other_content_and_other_licences_are_refused(fed, place):
    refused(fed, "--licence must be an identifier such as CC0-1.0", "--licence", "do not copy")
    refused(fed, "is no part of published runs; name another folder", "--into", "own")
    refused(fed, "is no part of published runs; name another folder", "--into", "results")
    (done, *_) = (place / "results").rglob("seed_1/DONE")
    done.unlink()
    assert meta_of(done.parent)["status"] == "done"
    refused(fed, "is not finished; it must be finished")
    shutil.rmtree(done.parent)
    refused(fed, "fedavg.json cannot be read")
    assert not (place / "out").exists()


def test_the_folder_must_be_named(fed, place):
    status, _, err = fed("publish", "results")
    assert status == 2
    assert "required: --into" in err
