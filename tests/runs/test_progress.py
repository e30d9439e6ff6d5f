import re

from rich.console import Console

from fedbench.runs import progress
from fedbench.runs.progress import Bar


def test_quiet_where_nobody_watches(capsys):
    with Bar("a run", 10) as bar:
        bar.advance(5, 100, 0.5)
    assert capsys.readouterr() == ("", "")


def test_rounds_accuracy_and_rate_fit_80_columns(monkeypatch):
    """A bar drawn for a terminal of 80 columns shows everything but the end of a long title."""
    console = Console(width=80, force_terminal=True, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("rich.console.Console", lambda **options: console)
    with Bar("adafedadam seed 0 adafedadam/table5_synthetic", 1000, done=100) as bar:
        bar.advance(500, 12_345, 0.98765)
        console.print(bar._bar.get_renderable())
    (line,) = {row.rstrip() for row in console.export_text().splitlines() if "500/1000" in row}
    assert "adafedadam seed 0" in line
    assert "accuracy 98.8 %" in line
    assert re.search(r"[\d,]+ clients/s", line)
    assert re.search(r"\d:\d\d:\d\d|-:--:--", line)
    console.file.close()
