"""How far a run is: a bar on a terminal, a line now and then elsewhere, nothing where something else shows it."""

import io
import re
from contextlib import nullcontext
from types import SimpleNamespace

from rich.console import Console

from fedbench.runs import progress
from fedbench.runs.progress import RunDisplay, hidden


def test_a_bar_shows_rounds_and_accuracy(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(
        progress, "Console", lambda **_: Console(width=120, force_terminal=True, file=screen)
    )
    display = RunDisplay("adafedadam seed 0", 1000, done=100)
    with display.bars:
        display.advance(500, {"accuracy_mean": 0.98765, "accuracy_worst30": 0.91234})
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    line = next(row for row in re.split(r"[\r\n]", shown) if "500/1000" in row)
    assert "accuracy 98.8 %, worst 30 % 91.2 %" in line
    assert "adafedadam seed 0" in line


def test_a_narrow_terminal_cuts_the_text_and_not_the_bar(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(
        progress, "Console", lambda **_: Console(width=100, force_terminal=True, file=screen)
    )
    display = RunDisplay("adafedadam seed 0 adafedadam/table5_synthetic", 1000)
    with display.bars:
        display.advance(500, {"accuracy_mean": 0.98765, "accuracy_worst30": 0.91234})
    assert "━" * 5 in screen.getvalue()
    assert "accuracy 98.8 %" in screen.getvalue()


def test_off_a_terminal_a_line_says_how_far_a_run_is(monkeypatch, capsys):
    """10 of 20 rounds were done before; 5 of the 10 others have taken as long as the 5 that are left will."""
    clock = [0.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    display = RunDisplay("a run", 20, done=10)
    with display.bars:
        clock[0] = 9.0
        display.advance(11, None)
        clock[0] = 61.0
        display.advance(15, {"accuracy_mean": 0.5, "accuracy_worst30": 0.25})
        clock[0] = 62.0
        display.advance(16, None)
    first, line = capsys.readouterr().err.splitlines()
    assert first == "fedbench: a run: resuming at round 10 of 20"
    measured = "accuracy 50.0 %, worst 30 % 25.0 %"
    assert line == f"fedbench: a run: round 15 of 20, {measured}, 61 s left"


def test_the_phase_before_the_first_round_is_named_at_once(monkeypatch, capsys):
    """The estimate counts from the end of that phase."""
    clock = [0.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(progress, "EVERY", 0)
    display = RunDisplay("a run", 2)
    with display.bars:
        first = capsys.readouterr().err
        clock[0] = 200.0
        display.advance(0, {"accuracy_mean": 0.5})
        clock[0] = 203.0
        display.advance(1, None)
    assert first == "fedbench: a run: round 0 of 2, evaluating the initial model\n"
    assert capsys.readouterr().err.splitlines() == [
        "fedbench: a run: round 0 of 2, accuracy 50.0 %",
        "fedbench: a run: round 1 of 2, accuracy 50.0 %, 3 s left",
    ]


def test_nothing_is_said_of_a_run_that_is_hidden(monkeypatch, capsys):
    monkeypatch.setattr(progress, "EVERY", 0)
    for shown in (True, False):
        with nullcontext() if shown else hidden():
            RunDisplay("a run", 10).advance(1, None)
        assert capsys.readouterr().err.count("\n") == 2 * shown
