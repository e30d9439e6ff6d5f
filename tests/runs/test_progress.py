"""How far a run is: a bar on a terminal, a line now and then elsewhere, nothing where something else shows it."""

import io
import re
from contextlib import nullcontext

from rich.console import Console

from fedbench.runs import progress
from fedbench.runs.progress import hidden, shown_progress


def test_a_bar_shows_rounds_accuracy_and_rate(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(progress, "Console", lambda **_: Console(width=120, force_terminal=True, file=screen))
    with shown_progress("adafedadam seed 0", 1000, done=100) as advance:
        advance(500, 12_345, {"accuracy_mean": 0.98765, "accuracy_worst30": 0.91234})
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    line = next(row for row in re.split(r"[\r\n]", shown) if "500/1000" in row)
    assert "accuracy 98.8 % worst 30 % 91.2 %" in line
    assert "clients/s" in line
    assert "adafedadam seed 0" in line


def test_off_a_terminal_a_line_says_how_far_a_run_is(monkeypatch, capsys):
    """10 of 20 rounds were done before; 5 of the 10 others have taken as long as the 5 that are left will."""
    clock = iter([0.0, 9.0, 61.0, 62.0])
    monkeypatch.setattr(progress.time, "perf_counter", lambda: next(clock))
    with shown_progress("a run", 20, done=10) as advance:
        advance(11, 20, None)
        advance(15, 102, {"accuracy_mean": 0.5, "accuracy_worst30": 0.25})
        advance(16, 1, None)
    (line,) = capsys.readouterr().err.splitlines()
    measured = "accuracy 50.0 % worst 30 % 25.0 % 2 clients/s"
    assert line == f"fedbench: a run: round 15 of 20, {measured}, 61 s left"


def test_nothing_is_said_of_a_run_that_is_hidden(monkeypatch, capsys):
    monkeypatch.setattr(progress, "EVERY", 0)
    for shown in (True, False):
        with nullcontext() if shown else hidden(), shown_progress("a run", 10) as advance:
            advance(1, 2, None)
        assert capsys.readouterr().err.count("\n") == shown
