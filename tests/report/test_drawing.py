"""Pictures that other processes draw are those that this one would draw, and so are the errors."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from fedbench.core.errors import RequestError
from fedbench.core.files import NotWritten
from fedbench.report import plots
from fedbench.report.drawing import Drawing
from fedbench.report.looks import looks
from fedbench.report.plots import Panel, Series
from fedbench.report.views import FigureView


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedbench.report.drawing.available_cores", lambda: 2)


def view(name: str) -> FigureView:
    return FigureView(name, name, "", "", (), "")


def panels(slope: float) -> list[Panel]:
    x = np.arange(5.0)
    look = looks([("fedavg", "FedAvg")])["fedavg", "FedAvg"]
    return [Panel("", [Series("FedAvg", x, slope * x[None], look)], "round", "accuracy")]


def test_pictures_are_the_same_bytes_wherever_they_are_drawn(tmp_path: Path) -> None:
    found = {}
    for where, pictures in (("here", 0), ("there", 20)):
        with Drawing(pictures) as drawing:
            begun = [
                drawing.draw(view(f"v{k}"), plots.curves, tmp_path / where / f"v{k}", "t", panels(k + 1), reduced=False)
                for k in range(3)
            ]
            assert all(bool(v.svg) == (where == "here") for v in begun)  # later, where others draw
            found[where] = drawing.finished(begun)
    assert found["here"] == found["there"]
    assert len({v.svg for v in found["here"]}) == 3
    for file in sorted((tmp_path / "here").iterdir()):
        assert file.read_bytes() == (tmp_path / "there" / file.name).read_bytes()


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "v.svg").mkdir()
    with Drawing(20) as drawing, pytest.raises(OSError, match=r"v\.svg") as error:
        drawing.finished([drawing.draw(view("v"), plots.curves, tmp_path / "v", "t", panels(1), reduced=False)])
    assert isinstance(error.value, NotWritten)
    assert error.value.path == tmp_path / "v.svg"


def test_an_error_of_a_drawing_function_is_raised_here(tmp_path: Path) -> None:
    with Drawing(20) as drawing, pytest.raises(ValueError, match="there is nothing to draw"):
        drawing.finished([drawing.draw(view("v"), plots.curves, tmp_path / "v", "t", [], reduced=False)])


def _end(base: Path, *, reduced: bool) -> list[Path]:
    (base / "pid").write_text(str(os.getpid()), encoding="utf-8")
    os.kill(os.getpid(), signal.SIGKILL)
    return []


def _wait(base: Path, *, reduced: bool) -> list[Path]:
    (base / "pid").write_text(str(os.getpid()), encoding="utf-8")
    time.sleep(60)
    return []


def test_a_process_that_is_killed_is_named(tmp_path: Path) -> None:
    with Drawing(20) as drawing, pytest.raises(RequestError, match="exit status -9"):
        drawing.finished([drawing.draw(view("v"), _end, tmp_path, reduced=False)])
    assert int((tmp_path / "pid").read_text(encoding="utf-8")) != os.getpid()


def test_nothing_goes_on_drawing_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError), Drawing(20) as drawing:
        drawing.draw(view("v"), _wait, tmp_path, reduced=False)
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text(encoding="utf-8"):
            time.sleep(0.05)
        raise KeyError
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text(encoding="utf-8")), 0)
