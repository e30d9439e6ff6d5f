"""How far a sweep is, in a table and in a line."""

import io
import json

import pytest
from command_line import FAST
from rich.console import Console

from fedbench.commands import sweep_view
from fedbench.commands.sweep_view import SweepView, follow_notes, told_apart
from fedbench.config.compose import compose_run
from fedbench.runs.sweep_notes import Note, leave

RUNS = [["algo=fedavg", f"seed={n}"] for n in range(4)]


@pytest.fixture
def view(tmp_path, monkeypatch):
    """Four runs, two at a time: one took 30 s and failed, one is at round 25 of 100 after 10 s, two wait."""
    now = [1000.0]
    monkeypatch.setattr(sweep_view.time, "monotonic", lambda: now[0])
    view = SweepView(RUNS, 2)
    config = compose_run([f"results_dir={tmp_path}", "rounds=100"])
    view.begins(0, config)
    now[0] += 30
    view.ended(Note(0, RUNS[0], "failed", None, "no [luck]"))
    view.begins(1, config)
    now[0] += 10
    config.path.mkdir(parents=True)
    row = {"round": 25, "accuracy_mean": 0.5, "accuracy_worst30": 0.25, "seconds_train": 8.0, "seconds_eval": 2.0}
    (config.path / "rounds.jsonl").write_text(json.dumps(row) + "\n")
    return view


def drawn(view, most=9):
    console = Console(width=100, file=io.StringIO(), record=True)
    console.print(view.table(most))
    return [line.split() for line in console.export_text().splitlines()]


def test_a_line(view):
    """The running run has 75 * 10 / 25 = 30 s left and takes 40 s; two wait, (30 + 40) / 2 s each: 100 s by two."""
    assert view.line() == "run 2 of 4: 1 failed, 1 running, 2 waiting; about 50 s left"


def test_a_table(view):
    title, _, *rows = drawn(view)
    assert title[:4] == ["run", "2", "of", "4:"]
    assert rows == [
        ["1", "failed", "25/100", "50.00", "%", "25.00", "%", "seed=0:", "no", "[luck]"],
        ["2", "running", "25/100", "50.00", "%", "25.00", "%", "30", "s", "seed=1"],
        ["3", "waiting", "seed=2"],
        ["4", "waiting", "seed=3"],
    ]
    styles = [row.style for row in view.table(9).rows]
    assert styles == ["red", "bold", "dim", "dim"]


def test_a_short_terminal_shows_what_goes_on_and_what_failed(view):
    assert [row[1] for row in drawn(view, most=3)[2:]] == ["failed", "running"]


def test_runs_are_told_apart_by_what_differs():
    assert told_apart(RUNS[:2]) == ["seed=0", "seed=1"]
    assert told_apart([["seed=0"], ["seed=0", "algo=afl"]]) == ["run 1", "algo=afl"]
    assert told_apart([["a=1", "b=2"]]) == ["a=1 b=2"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_lines_of_a_sweep_that_is_slow(fed, monkeypatch, jobs):
    """Lines come while runs go on, in whole, whatever carries the runs out, and the results are as without them."""
    monkeypatch.setattr("fedbench.runs.progress.EVERY", 0.01)
    status, out, err = fed("-m", "--jobs", str(jobs), *FAST, "seed=0,1,2")
    lines = [line for line in err.splitlines() if line.startswith("fedbench: run ")]
    assert status == 0
    assert lines and all(" of 3: " in line for line in lines)
    assert set(err.splitlines()) - set(lines) == {
        f"fedbench: 3 runs, {'one at a time' if jobs == 1 else '2 at a time'} (jobs={jobs})"
    }
    assert len([line for line in out if line.endswith(("seed_0", "seed_1", "seed_2"))]) == 3


def test_what_failed_is_named_with_the_command_that_repeats_it(fed, monkeypatch):
    def broken(*_, **__):
        raise OSError("no luck")

    monkeypatch.setattr("fedbench.commands.launch.cached_run", broken)
    status, _, err = fed("-m", "--jobs", "1", *FAST, "seed=0,1")
    assert status == 2
    lines = [line for line in err.splitlines() if "to repeat it" in line]
    assert lines == [f"fedbench: to repeat it: fedbench data.clients=8 rounds=4 seed={n}" for n in (0, 1)]


def test_a_terminal_gets_a_table_and_what_runs_print(tmp_path):
    console = Console(width=100, force_terminal=True, file=io.StringIO())
    with SweepView(RUNS, 2, console) as view:
        view.begins(0, None)
        view.ended(Note(0, RUNS[0], "done", None, None))
        view._draw()
        assert "1 done, 3 waiting" in console.file.getvalue()


def test_runs_of_other_launchers_are_counted_by_their_notes(tmp_path, capsys):
    for k, status in enumerate(("done", "failed", "done")):
        leave(tmp_path, Note(k, [], status, None, None))
    follow_notes(tmp_path, 5)._call()
    follow_notes(tmp_path, None)._call()
    assert capsys.readouterr().err.splitlines() == [
        "fedbench: 3 of 5 runs are over, 2 done, 1 failed",
        "fedbench: 3 runs are over, 2 done, 1 failed",
    ]
