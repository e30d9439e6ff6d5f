"""``fedbench clean``: what it lists and removes, and what it leaves alone."""

import json
import os
import shutil

import pytest
from command_line import FAST, interrupted, run_dir
from fake_runs import seal
from filelock import FileLock


@pytest.fixture
def runs(fed, monkeypatch, tmp_path):
    """A finished run, one that diverged, one that was interrupted and one that failed, by name."""
    done = run_dir(tmp_path, fed(*FAST)[1])
    diverged = run_dir(tmp_path, fed(*FAST, "seed=2", "local.lr=1e20", "local.weight_decay=1")[1])
    interrupted(fed, monkeypatch, 3, *FAST, "seed=1")
    failed = done.parent.parent / "0123456789" / "seed_1"
    shutil.copytree(done.with_name("seed_1"), failed)
    meta = json.loads((failed / "meta.json").read_text())
    (failed / "meta.json").write_text(
        json.dumps({**meta, "status": "failed", "error": "ValueError: a bug"})
    )
    return {
        "done": done,
        "diverged": diverged,
        "interrupted": done.with_name("seed_1"),
        "failed": failed,
    }


def left(runs):
    return {name for name, path in runs.items() if path.exists()}


def test_it_lists_first_and_removes_with_yes_what_has_failed(fed, runs):
    status, out, _ = fed("clean")
    assert (status, left(runs)) == (0, set(runs))
    assert [line.split()[0] for line in out[1:-3]] == ["failed"]
    assert "ValueError: a bug" in "\n".join(out)
    assert out[-2] == "to remove 1: fedbench clean results --yes"
    kept = "kept: 1 interrupted, which the same command resumes; --state interrupted is for these"
    assert out[-1] == kept
    status, out, _ = fed(*out[-2].partition("fedbench ")[2].split())
    assert (status, left(runs)) == (0, {"done", "diverged", "interrupted"})
    assert [line.partition("/")[0] for line in out] == ["removed: results", kept]
    assert not runs["failed"].parent.exists()  # nor is anything else left of it
    assert not list(runs["done"].parent.glob(".*"))
    assert fed("clean", "--yes")[1][0].startswith("nothing to remove in results")


def test_a_directory_may_be_absolute_and_a_run_is_counted_once(fed, runs, tmp_path):
    twice = ("clean", "results", str(tmp_path / "results"), str(runs["done"].parent))
    status, out, _ = fed(*twice)
    assert status == 0
    assert [line.split()[0] for line in out[1:-3]] == ["failed"]
    assert f" {runs['failed']}: " in out[1]
    assert out[-1].startswith("kept: 1 interrupted")
    status, out, _ = fed(*twice, "--yes")
    assert (status, [line.split()[0] for line in out]) == (0, ["removed:", "kept:"])


def test_what_can_be_resumed_is_removed_by_the_name_of_its_state(fed, runs):
    meta = json.loads((runs["failed"] / "meta.json").read_text())
    (runs["failed"] / "meta.json").write_text(json.dumps({**meta, "status": "running"}))
    assert fed("clean", "--state", "process gone")[1][-2:] == [
        "to remove 1: fedbench clean results --state 'process gone' --yes",
        "kept: 1 interrupted, which the same command resumes; --state interrupted is for these",
    ]
    fed("clean", "--state", "interrupted", "--yes")
    assert left(runs) == {"done", "diverged", "failed"}
    fed("clean", "--state", "process gone", "--yes")
    assert left(runs) == {"done", "diverged"}
    assert fed("clean", "--state", "done")[0] == 2


def test_any_other_run_must_be_named(fed, runs):
    fed("clean", str(runs["done"].parent), "--yes")
    assert left(runs) == set(runs)
    fed("clean", str(runs["done"]), str(runs["interrupted"]), "--yes")
    assert left(runs) == {"diverged", "failed"}


def test_the_directory_of_a_run_may_be_meant_by_a_dot(fed, runs, monkeypatch):
    monkeypatch.chdir(runs["failed"])
    assert fed("clean", ".", "--yes")[:2] == (0, ["removed: ."])
    assert left(runs) == {"done", "diverged", "interrupted"}


def test_a_run_that_a_process_is_working_on_is_kept(fed, runs):
    with FileLock(runs["failed"] / ".lock"):
        assert "failed" not in {line.split()[0] for line in fed("clean")[1][1:-3]}
        status, out, _ = fed("clean", str(runs["failed"]), "--yes")
        assert (status, out[-1].startswith("kept, a process is or was working on it: ")) == (
            0,
            True,
        )
    assert runs["failed"].exists()


def test_a_run_that_was_finished_meanwhile_is_kept(fed, runs, monkeypatch):
    monkeypatch.setattr(
        "fedbench.commands.clean.FileLock", lambda *_, **__: FinishedMeanwhile(runs["failed"])
    )
    assert fed("clean", str(runs["failed"].parent), "--yes")[1][-1].startswith("kept, ")
    assert runs["failed"].exists()


class FinishedMeanwhile:
    """A lock that is free once another process has finished the run."""

    def __init__(self, path):
        self.path = path

    def __enter__(self):
        seal(self.path)

    def __exit__(self, *error):
        """Release nothing."""


def test_what_killed_processes_were_writing_is_listed_and_removed(fed, runs, tmp_path):
    """Untouched for an hour: what is younger, another process may be writing."""
    results = tmp_path / "results"
    old = [results / ".fedbench-abcd_123", results / ".seed_0.removed"]
    kept = [results / ".fedbench-just_new", results / ".fedbench-of-a-user", results / ".removed"]
    for path in (*old, *kept):
        path.mkdir()
        (path / "file").touch()
    for path in (*old, *kept[1:]):
        os.utime(path, (0, 0))
    before = sorted(results.rglob("*"))
    lines = fed("clean")[1]
    assert sorted(line.partition(": ")[2] for line in lines if "killed process" in line) == sorted(
        str(path.relative_to(tmp_path)) for path in old
    )
    assert sorted(results.rglob("*")) == before
    fed("clean", "--yes")
    gone = {
        p
        for p in set(before) - set(results.rglob("*"))
        if not p.is_relative_to(runs["failed"].parent)
    }
    assert gone == {*old, *(path / "file" for path in old)}
