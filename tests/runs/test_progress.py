"""Progress of a run: a bar on a terminal, lines elsewhere, nothing if something else shows it."""

import io
import re
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from rich.console import Console

from fedbench.runs import progress
from fedbench.runs.progress import AFTER, BatchDisplay, RunDisplay, RunProgress, hidden

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


ESTIMATE = (7200.0, "about 2.0 h on this CPU")


def test_a_new_run_announces_how_long_it_takes(capsys):
    RunDisplay("a run", 100).announce(lambda: ESTIMATE)
    _, line = capsys.readouterr().err.splitlines()
    assert line == "fedbench: a run: about 2.0 h on this CPU"


def test_no_run_is_estimated_that_is_short_resumed_or_shown_by_nobody(capsys):
    asked = []
    RunDisplay("a run", 100).announce(lambda: asked.append("short"))
    RunDisplay("a run", 100, done=1).announce(lambda: asked.append("resumed"))
    with hidden():
        RunDisplay("a run", 100).announce(lambda: asked.append("hidden"))
    assert asked == ["short"]
    assert "about" not in capsys.readouterr().err


def test_who_shows_a_run_receives_its_estimate_and_its_rounds(capsys):
    received = []
    with hidden(lambda *report: received.append(report)):
        display = RunDisplay("a run", 100)
        display.announce(lambda: ESTIMATE)
        display.evaluating(0, 0.5)
        display.advance(0, MEASURED)
        display.advance(1, None)
    assert received == [(0, 7200.0), (0, 0.0), (1, 0.0)]
    assert capsys.readouterr().err == ""


def test_the_time_left_of_a_sweep_counts_the_runs_that_follow(clock, monkeypatch, capsys):
    """10 of 40 rounds take 60 s; two more runs of 240 s follow."""
    monkeypatch.setattr(progress, "EVERY", 0)
    token = AFTER.set(2)
    display = RunDisplay("a run", 40)
    display.announce(lambda: ESTIMATE)
    display.advance(0, None)
    clock.now = 60.0
    display.advance(10, None)
    AFTER.reset(token)
    _, announced, _, line = capsys.readouterr().err.splitlines()
    assert announced == (
        "fedbench: a run: about 2.0 h on this CPU, about 6.0 h with the runs after it (2)"
    )
    assert line == (
        "fedbench: a run: round 10 of 40, 3 min left, about 11 min with the runs after it (2)"
    )


def test_off_a_terminal_an_evaluation_prints_a_line_every_ten_seconds(clock, capsys):
    display = RunDisplay("a run", 20)
    for seconds in range(1, 26):
        clock.now = float(seconds)
        display.evaluating(0, seconds / 50)
    _, *lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "fedbench: a run: round 0 of 20, evaluating, 20 % of the examples",
        "fedbench: a run: round 0 of 20, evaluating, 40 % of the examples",
    ]


def test_a_bar_shows_the_evaluation(terminal):
    screen = terminal(120)
    display = RunDisplay("a run", 20)
    with display.bars:
        display.evaluating(3, 0.25)
    assert "evaluating, 25 % of the examples" in screen.getvalue()


@pytest.mark.parametrize(
    ("running", "left"),
    [
        # of 5 runs one is over: two run for 100 s and 60 s, two wait for 80 s each
        ([RunProgress(0, 10, seconds=100.0), RunProgress(0, 10, seconds=60.0)], "3 min"),
        ([RunProgress(9, 10, seconds=100.0), RunProgress(0, 10, seconds=60.0)], "2 min"),
        # two of whom nothing is known take 50 s each, like the two that wait
        ([RunProgress(5, 10, seconds=50.0), RunProgress(0, 10), RunProgress(0, 10)], "58 s"),
        # the last run of all is the longest
        ([RunProgress(0, 10, seconds=80.0), *[RunProgress(9, 10, seconds=10.0)] * 3], "80 s"),
        ([RunProgress(0, 10), RunProgress(0, 10)], "5 min"),  # one run took 80 s
    ],
)
def test_the_time_left_of_several_runs_rests_on_the_runs_that_are_known(clock, running, left):
    display = BatchDisplay(5)
    clock.now = 80.0
    assert display.line(["done"], running).rpartition("; ")[2] == f"about {left} left"
