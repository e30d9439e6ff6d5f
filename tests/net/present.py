"""What the present code says, in the form of the references: the only part of the net that knows
its modules.

A change that moves a module or renames a column mends this file, and no reference.
"""

from __future__ import annotations

import csv
import importlib
import inspect
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import fedbench
from fedbench.cli import main
from fedbench.config.compose import Composer
from fedbench.config.overrides import options
from fedbench.config.targets import present
from fedbench.config.user_sources import user_code_from
from fedbench.reproduce.plan import plan

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PUBLISHED = ROOT / "results" / "published"
PAPERS = ("adafed", "adafedadam", "fafed", "fedcada", "fedfa", "known")
Row = dict[str, str]

# ---- digests


class Digests:
    """Digests of settings; each directory of user code has a composer of its own."""

    def __init__(self) -> None:
        self._composers: dict[str, Composer] = {}

    def of(self, setting: str, config_dir: str = "") -> str:
        """The digest of a setting, as overrides: experiment, algorithm and further keys."""
        folder = ROOT / config_dir if config_dir else None
        composer = self._composers.setdefault(config_dir, Composer(folder))
        with user_code_from(folder):
            return composer.config(setting.split(" ")).digest


def experiments() -> list[str]:
    """Names of the experiments."""
    return sorted(options("experiment"))


def algorithms() -> list[str]:
    """Names of the algorithms."""
    return sorted(options("algo"))


def planned() -> Iterator[tuple[str, str, str, str, str]]:
    """Each planned run: profile, table or figure, reading, directory of user code, overrides but
    the seed in order.
    """
    for profile in ("full", "cpu", "smoke"):
        for run in plan([], profile, readings=True):
            folder = "" if run.config_dir is None else run.config_dir.as_posix()
            for part in run.parts:
                yield (
                    profile,
                    part,
                    run.reading,
                    folder,
                    " ".join((*run.setting[:2], *sorted(run.setting[2:]))),
                )


# ---- reports


def report(paper: str, into: Path) -> Path:
    """Write the report of a paper's published runs, and return the directory of its tables."""
    assert main(["report", str(PUBLISHED / paper), "--into", str(into)]) == 0
    return into / "tables"


def _rows(path: Path) -> list[Row]:
    with path.open(newline="", encoding="utf-8") as text:
        return list(csv.DictReader(text))


def claims(tables: Path, paper: str) -> list[Row]:
    """Verdict, basis, whether it counts, scaled-down check, what readings come to, and the counts,
    of each claim.
    """
    named = "id verdict basis counted scaled readings".split()
    return [
        {k: r[k] for k in named} | {"counts": _numbers(r["counts"])}
        for r in _rows(tables / f"{paper}_claims.csv")
    ]


def comparisons(tables: Path, paper: str) -> list[Row]:
    """Mean lead, number of seeds or splits, p-values, state and marks of each comparison of a
    claim.
    """
    named = "claim label state reduced untuned".split()
    named += "for_p against_p adjusted_for_p adjusted_against_p".split()
    rows = _rows(tables / f"{paper}_comparisons.csv")
    return [
        {k: r[k] for k in named}
        | {"lead": _number(r["lead"]), "pairs": _number(r["pairs"]).removeprefix("0")}
        for r in rows
    ]


def readings(tables: Path, paper: str) -> list[Row]:
    """Verdict, scaled-down check and counts of each claim under each reading."""
    named = (
        "claim",
        "weighting",
        "round",
        "data splits",
        "settings",
        "adopted",
        "verdict",
        "scaled",
        "blocks",
    )
    rows = _rows(tables / f"{paper}_readings.csv")
    return [
        {k: r[k] for k in named} | {k: _numbers(r[k]) for k in ("counts", "scaled_counts")}
        for r in rows
    ]


def cells(tables: Path, paper: str) -> list[Row]:
    """Mean, standard deviation, number of seeds and agreement with the paper of each measured
    number of the tables.
    """
    parts = ("mean", "std", "n", "agreement")
    found = []
    for file in sorted(tables.glob("*.csv")):
        if file.stem.removeprefix(f"{paper}_") in ("claims", "comparisons", "readings"):
            continue
        for row in _rows(file):
            key = {
                "table": file.stem,
                **{k: row.get(k, "") for k in ("setup", "method", "settings")},
            }
            for column in [name.removesuffix("_n") for name in row if name.endswith("_n")]:
                values = {part: row.get(f"{column}_{part}", "") for part in parts}
                if values["n"] not in ("", "0"):
                    found.append(
                        key | {"column": column} | {k: _short(v) for k, v in values.items()}
                    )
    return found


def _numbers(text: str) -> str:
    return " ".join(re.findall(r"\d+", text))


def _number(text: str) -> str:
    """The number that a text begins with; other texts as they are."""
    found = re.match(r"'?([+-]?[\d.]+(?:e[+-]?\d+)?)", text)
    return found[1].removeprefix("+") if found else text


def _short(text: str) -> str:
    """A number with ten digits; other texts as they are."""
    return f"{float(text):.10g}" if re.fullmatch(r"[-\d.e+]+", text) else text


KINDS = {
    "claims": (claims, ("id",)),
    "comparisons": (comparisons, ("claim", "label")),
    "readings": (readings, ("claim", "weighting", "round", "data splits", "settings")),
    "cells": (cells, ("table", "setup", "method", "settings", "column")),
}


# ---- public names


def signatures() -> dict[str, list[str]]:
    """The arguments of each public function and record."""
    public = {name: getattr(fedbench, name) for name in sorted(fedbench.__all__)}
    return {
        name: [_argument(p) for p in inspect.signature(of).parameters.values()]
        for name, of in public.items()
    }


def _argument(p: inspect.Parameter) -> str:
    """Name of an argument, with a star if it is by keyword only, and what it is if nothing is
    given.
    """
    default = (
        "" if p.default is p.empty else "=..." if not _is_plain(p.default) else f"={p.default!r}"
    )
    return f"{'*' if p.kind is p.KEYWORD_ONLY else ''}{p.name}{default}"


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def resolves(target: str) -> bool:
    """Whether a ``_target_`` names a function or class today, or one whose library is not
    installed.
    """
    module, _, name = present(target).rpartition(".")
    try:
        return callable(getattr(importlib.import_module(module), name, None))
    except ModuleNotFoundError as error:
        return not str(error.name).startswith("fedbench")


# ---- files


def read(name: str) -> list[Row]:
    """The rows of a reference."""
    return _rows(HERE / name)


def write(name: str, rows: Iterable[Row]) -> None:
    """Write a reference, sorted."""
    ordered = sorted(rows, key=lambda row: tuple(row.values()))
    with (HERE / name).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(ordered[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(ordered)
