import re
import threading

from rich.console import Console

from fedbench.runs import progress
from fedbench.runs.progress import Bar, Ticker, hidden


def test_quiet_where_nobody_watches(capsys):
    with Bar("a run", 10) as bar:
        bar.advance(5, 100, {"accuracy_mean": 0.5})
    assert capsys.readouterr() == ("", "")


def test_rounds_accuracy_and_rate_fit_80_columns(monkeypatch):
    """A bar drawn for a terminal of 80 columns shows everything but the end of a long title."""
    console = Console(width=80, force_terminal=True, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("rich.console.Console", lambda **options: console)
    with Bar("adafedadam seed 0 adafedadam/table5_synthetic", 1000, done=100) as bar:
        bar._start -= 1.0  # a rate that has a plausible width
        bar.advance(500, 12_345, {"accuracy_mean": 0.98765, "accuracy_worst30": 0.91234})
        console.print(bar._bar.get_renderable())
    (line,) = {row.rstrip() for row in console.export_text().splitlines() if "500/1000" in row}
    assert "adafedad…" in line or "adafedada…" in line
    assert "accuracy 98.8 % worst 30 % 91.2 %" in line
    assert re.search(r"[\d,]+ clients/s", line)
    assert re.search(r"\d:\d\d:\d\d|-:--:--", line)
    console.file.close()


def test_off_a_terminal_a_line_says_how_far_a_run_is(capsys):
    """10 of 20 rounds were done before; 5 of the 10 others have taken as long as the 5 that are left will."""
    bar = Bar("a run", 20, done=10)
    bar.advance(15, 100, {"accuracy_mean": 0.5, "accuracy_worst30": 0.25})
    bar._start -= 61.0
    bar._say()
    line = capsys.readouterr().err
    assert line.startswith("fedbench: a run: round 15 of 20, accuracy 50.0 % worst 30 % 25.0 % 2 clients/s, 1 min 0")
    assert line.endswith(" left\n")


def test_a_ticker_calls_until_its_block_ends():
    calls, enough = [], threading.Event()

    def call():
        calls.append(1)
        if len(calls) == 3:
            enough.set()

    with Ticker(call, 0.001):
        assert enough.wait(60)
    after = len(calls)
    assert not enough.clear() and not enough.wait(0.05)
    assert len(calls) == after


def test_lines_come_from_a_run_that_is_slow_and_from_none_that_is_hidden(monkeypatch, capsys):
    monkeypatch.setattr(progress, "EVERY", 0.001)
    said = threading.Event()
    monkeypatch.setattr(Bar, "_say", lambda self: said.set())
    with Bar("a run", 10):
        assert said.wait(60)
    said.clear()
    with hidden(), Bar("a run", 10):
        assert not said.wait(0.1)
    assert capsys.readouterr().err == ""
