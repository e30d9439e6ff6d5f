"""Parts of the suite, divided into pieces: what is done is kept, and what no longer fits into the time is not begun."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from suite.record import Record

from fedbench.simulation.forms import Form

_CLOSING = 30.0  # seconds before the end of the time in which no form is begun

Outcome = dict[str, Any]
"""What a piece has found, as JSON: ``wrong`` lists what must not be, ``unfinished`` says that a rest is left.

``rows`` are kept if a rest is left. ``seconds``, the time that the piece took, is added when it ends.
"""


@dataclass(frozen=True)
class Setting:
    """What the pieces of a suite have in common.

    Attributes:
        device: The device that is measured.
        out: The directory of the results.
        data: The directory of the data sets; None if there is none.
        overrides: Overrides for the runs of papers.
        seconds_left: Returns the seconds until the time is used up.
        earlier: What the piece found before the time was used up, if it has a rest left.
    """

    device: torch.device
    out: Path
    data: Path | None
    overrides: tuple[str, ...]
    seconds_left: Callable[[], float]
    earlier: Outcome = field(default_factory=dict)

    @property
    def small(self) -> bool:
        """Whether everything is done at a small size, to show that it runs."""
        return self.device.type == "cpu"


@dataclass(frozen=True)
class Piece:
    """A piece of a part: the least that is done at once.

    Attributes:
        name: Name of the piece, unique in its part.
        minutes: Minutes that it is expected to take on a GPU; it does not begin with less.
        run: Does the work.
    """

    name: str
    minutes: float
    run: Callable[[Setting], Outcome]


@dataclass(frozen=True)
class Part:
    """A part of the suite.

    Attributes:
        letter: How the part is named on the command line.
        title: What it is about.
        pieces: Returns its pieces, in order of value.
        table: Returns the outcomes of its pieces as lines of Markdown.
    """

    letter: str
    title: str
    pieces: Callable[[Setting], Sequence[Piece]]
    table: Callable[[Mapping[str, Outcome]], list[str]]


def carry_out(part: Part, setting: Setting, record: Record, clock: Callable[[], float]) -> None:
    """Carry out the pieces of a part that are not done and that fit into the time; each is saved when it ends.

    A piece that raises an error is recorded as wrong, and the others go on.
    """
    record.begin(part.title)
    for piece in part.pieces(setting):
        label = f"{part.letter}, {piece.name}"
        if record.done(piece.name):
            print(f"{label}: done already", flush=True)
            continue
        if 60 * piece.minutes > setting.seconds_left():
            print(f"{label}: not begun, about {piece.minutes:g} min do not fit into the time that is left", flush=True)
            continue
        print(f"{label} ...", flush=True)
        begun = clock()
        try:
            outcome = piece.run(replace(setting, earlier=record.left_over(piece.name)))
        except Exception as error:
            traceback.print_exc()
            outcome = {"wrong": [f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"]}
        record.put(piece.name, {**outcome, "seconds": clock() - begun})
        for line in outcome.get("wrong", []):
            print(f"WRONG {label}: {line}", flush=True)
        release(setting.device)


def of_each_form(forms: Sequence[Form], setting: Setting, row: Callable[[Form], dict[str, Any]]) -> Outcome:
    """Return ``row`` of each form, which is a process of some seconds to a minute.

    Rows found earlier are kept, no form is begun in the last half minute, and one that fails is wrong.
    """
    rows, wrong, left = list(setting.earlier.get("rows", [])), [], False
    done = {r["form"] for r in rows}
    for form in forms:
        if str(form) in done:
            continue
        if setting.seconds_left() < _CLOSING:
            left = True
            break
        try:
            rows.append({"form": str(form), **row(form)})
        except Exception as error:  # of one form: the others are still of interest
            wrong.append(f"{form}: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}")
        release(setting.device)
    return {"rows": rows, "wrong": wrong, "unfinished": left}


def release(device: torch.device) -> None:
    """Return unused memory of a GPU to its driver."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def wait_for(device: torch.device) -> None:
    """Wait until a device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
