"""Progress of a run: a bar on a terminal, lines elsewhere, nothing if something else shows it."""

import io
import re
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from rich.console import Console

from fedbench.runs import progress
from fedbench.runs.progress import RunDisplay, hidden

MEASURED = {"accuracy_mean": 0.98765, "accuracy_worst30": 0.91234}


@pytest.fixture
def terminal(monkeypatch):
    """Make standard error a terminal of some width; returns what it shows."""

    def shows(width):
        screen = io.StringIO()
        console = Console(width=width, force_terminal=True, file=screen)
        monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)
        monkeypatch.setattr(progress, "Console", lambda **_: console)
        return screen

    return shows


def test_a_bar_shows_rounds_and_accuracy(terminal):
    screen = terminal(120)
    display = RunDisplay("adafedadam seed 0", 1000, done=100)
    with display.bars:
        display.advance(500, MEASURED)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    line = next(row for row in re.split(r"[\r\n]", shown) if "500/1000" in row)
    assert "accuracy 98.8 %, worst 30 % 91.2 %" in line
    assert "adafedadam seed 0" in line


def test_a_narrow_terminal_cuts_the_text_and_not_the_bar(terminal):
    screen = terminal(100)
    display = RunDisplay("adafedadam seed 0 adafedadam/table5_synthetic", 1000)
    with display.bars:
        display.advance(500, MEASURED)
    assert "━" * 5 in screen.getvalue()
    assert "accuracy 98.8 %" in screen.getvalue()


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def test_off_a_terminal_a_line_says_how_far_a_run_is(clock, capsys):
    """10 of 20 rounds were done before; 5 of the 10 others took 61 s, as the last 5 will."""
    display = RunDisplay("a run", 20, done=10)
    with display.bars:
        clock.now = 9.0
        display.advance(11, None)
        clock.now = 61.0
        display.advance(15, {"accuracy_mean": 0.5, "accuracy_worst30": 0.25})
        clock.now = 62.0
        display.advance(16, None)
    first, line = capsys.readouterr().err.splitlines()
    assert first == "fedbench: a run: resuming at round 10 of 20"
    measured = "accuracy 50.0 %, worst 30 % 25.0 %"
    assert line == f"fedbench: a run: round 15 of 20, {measured}, 61 s left"


def test_the_phase_before_the_first_round_is_named_at_once(clock, monkeypatch, capsys):
    """The estimate counts from the end of that phase."""
    monkeypatch.setattr(progress, "EVERY", 0)
    display = RunDisplay("a run", 2)
    with display.bars:
        first = capsys.readouterr().err
        clock.now = 200.0
        display.advance(0, {"accuracy_mean": 0.5})
        clock.now = 203.0
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
