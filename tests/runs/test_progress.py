"""How far a run is: a bar on a terminal, a line now and then elsewhere, nothing where something else shows it."""

import io
import re
import threading

from rich.console import Console

from fedbench.runs import progress
from fedbench.runs.progress import RunProgress, Ticker, hidden, shown_progress


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


def test_off_a_terminal_a_line_says_how_far_a_run_is():
    """10 of 20 rounds were done before; 5 of the 10 others have taken as long as the 5 that are left will."""
    run = RunProgress("a run", 20, done=10)
    run.advance(15, 100, {"accuracy_mean": 0.5, "accuracy_worst30": 0.25})
    run._start -= 61.0
    line = run.line()
    assert line.startswith("fedbench: a run: round 15 of 20, accuracy 50.0 % worst 30 % 25.0 % 2 clients/s, 1 min 0")
    assert line.endswith(" left\n")


def test_a_ticker_calls_until_its_block_ends():
    calls, enough = [], threading.Event()

    def call():
        calls.append(1)
        if len(calls) == 3:
            enough.set()

    with Ticker(call, 0.001) as ticker:
        assert enough.wait(60)
    assert not ticker._thread.is_alive()


def test_lines_come_from_a_run_that_is_slow_and_from_none_that_is_hidden(monkeypatch, capsys):
    monkeypatch.setattr(progress, "EVERY", 0.001)
    said = threading.Event()
    monkeypatch.setattr(progress, "_write", lambda line: said.set())
    with shown_progress("a run", 10):
        assert said.wait(60)
    said.clear()
    with hidden(), shown_progress("a run", 10) as advance:
        advance(1, 2, None)
    assert not said.is_set()
    assert capsys.readouterr().err == ""
