"""A paper's bundle: its tables again from its numbers alone, and again from its commands in an empty directory."""

import contextlib
import io
import json
import shlex
import zipfile
from pathlib import Path

import pytest

from fedbench.cli import main

RUNS = ["algo=fedavg,qfedavg", "data=synthetic_iid", "data.clients=4", "rounds=2", "seed=0,1"]
OPTIONS = ["--metric", "accuracy_mean,test_loss", "--baseline", "fedavg"]


def call(*words):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(list(words))
    return status, out.getvalue(), err.getvalue()


def contents(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """A bundle, the directory that it comes from, and its content."""
    place = tmp_path_factory.mktemp("lab")
    with contextlib.chdir(place):
        assert call("-m", "--jobs", "1", *RUNS)[0] == 0
        assert call("report", "results", "--latex", "--bundle", "ours.zip", *OPTIONS)[0] == 0
    with zipfile.ZipFile(place / "ours.zip") as found:
        return place, {name: found.read(name) for name in found.namelist()}


def part(content, folder):
    return {name.removeprefix(f"{folder}/"): v for name, v in content.items() if name.startswith(f"{folder}/")}


def test_the_tables_come_from_the_zip_alone(bundle, tmp_path, monkeypatch):
    place, content = bundle
    monkeypatch.chdir(tmp_path)
    assert call("report", str(place / "ours.zip"), "--latex", *OPTIONS, "--into", "again")[0] == 0
    assert contents(tmp_path / "again") == part(content, "paper") == contents(place / "results" / "paper")


def test_the_page_comes_from_the_zip_alone(bundle, tmp_path, monkeypatch):
    place, content = bundle
    monkeypatch.chdir(tmp_path)
    assert call("report", str(place / "ours.zip"), "--into", "again")[0] == 0
    assert (tmp_path / "again" / "index.html").read_bytes() == content["index.html"]


def test_its_commands_give_the_same_numbers(bundle, tmp_path, monkeypatch):
    _, content = bundle
    monkeypatch.chdir(tmp_path)
    lines = content["repeat.sh"].decode().splitlines()
    assert lines[:2] == ["#!/bin/sh", "set -e"]
    for line in lines[2:]:
        word, *words = shlex.split(line)
        assert word == "fedbench"
        jobs = ["--jobs", "1"] if words[0] == "-m" else []
        assert call(*words[:1], *jobs, *words[1:])[0] == 0
    again = part(contents(tmp_path / "results" / "paper"), "tables")
    assert again == part(content, "paper/tables")
    assert list(again) == ["setting.tex"]


def test_its_partitions_are_those_of_the_runs(bundle, tmp_path, monkeypatch):
    """A run on the partition of the bundle has the clients of the run that the bundle comes from."""
    place, content = bundle
    monkeypatch.chdir(tmp_path)
    ((name, text),) = part(content, "partitions").items()
    assert name == "synthetic_iid_1_seed_0.json"
    clients = json.loads(text)["clients"]
    (first,) = (place / "results").glob("synthetic_iid/fedavg/*/seed_0")
    import pandas as pd

    table = pd.read_parquet(first / "clients.parquet")
    sizes = {k: (len(v["train"]), len(v["test"])) for k, v in clients.items()}
    assert sizes == {str(r.client): (r.n_train, r.n_test) for r in table.itertuples()}


def test_no_path_of_the_machine_is_in_it(bundle):
    place, content = bundle
    assert not [name for name, data in content.items() if str(place).encode() in data]
    assert {name.partition("/")[0] for name in content} >= {"README.md", "repeat.sh", "configs", "partitions", "paper"}


def test_the_same_runs_give_the_same_zip(bundle, tmp_path, monkeypatch):
    place, _ = bundle
    with contextlib.chdir(place):
        assert call("report", "results", "--bundle", str(tmp_path / "second.zip"), *OPTIONS)[0] == 0
    assert (tmp_path / "second.zip").read_bytes() == (place / "ours.zip").read_bytes()


def test_what_is_no_bundle_is_refused(tmp_path):
    (tmp_path / "x.zip").write_bytes(b"nothing")
    with zipfile.ZipFile(tmp_path / "y.zip", "w") as other:
        other.writestr("../evidence/runs.parquet", "x")
    for name, fault in (("x.zip", "cannot be read as a bundle"), ("y.zip", "has no evidence/ of a bundle")):
        status, _, error = call("report", str(Path(tmp_path) / name), "--latex")
        assert status == 2
        assert fault in error
