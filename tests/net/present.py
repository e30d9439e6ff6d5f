"""What the present code says, in the form of the references: the only part of the net that knows
its modules.

A change that moves a module or renames a column mends this file, and no reference.
"""

import csv
import importlib
import inspect
from pathlib import Path

import fedbench
from fedbench.config.compose import Composer
from fedbench.config.overrides import options
from fedbench.config.targets import present
from fedbench.config.user_sources import user_code_from
from fedbench.reproduce.plan import plan

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PUBLISHED = ROOT / "results" / "published"
PAPERS = ("adafed", "adafedadam", "fafed", "fedcada", "fedfa", "known")

# ---- digests


class Digests:
    """Digests of settings; each directory of user code has a composer of its own."""

    def __init__(self):
        self._composers = {}

    def of(self, setting, config_dir=""):
        """The digest of a setting, as overrides: experiment, algorithm and further keys."""
        folder = ROOT / config_dir if config_dir else None
        composer = self._composers.setdefault(config_dir, Composer(folder))
        with user_code_from(folder):
            return composer.config(setting.split(" ")).digest


def experiments():
    """Names of the experiments."""
    return sorted(options("experiment"))


def algorithms():
    """Names of the algorithms."""
    return sorted(options("algo"))


def planned():
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


# ---- public names


def signatures():
    """The arguments of each public function and record."""
    public = {name: getattr(fedbench, name) for name in sorted(fedbench.__all__)}
    return {
        name: [_argument(p) for p in inspect.signature(of).parameters.values()]
        for name, of in public.items()
    }


def _argument(p):
    """Name of an argument, with a star if it is by keyword only, and what it is if nothing is
    given.
    """
    default = (
        "" if p.default is p.empty else "=..." if not _is_plain(p.default) else f"={p.default!r}"
    )
    return f"{'*' if p.kind is p.KEYWORD_ONLY else ''}{p.name}{default}"


def _is_plain(value):
    return value is None or isinstance(value, bool | int | float | str)


def resolves(target):
    """Whether a ``_target_`` names a function or class today, or one whose library is not
    installed.
    """
    module, _, name = present(target).rpartition(".")
    try:
        return callable(getattr(importlib.import_module(module), name, None))
    except ModuleNotFoundError as error:
        return not str(error.name).startswith("fedbench")


# ---- files


def read(name):
    """The rows of a reference."""
    with (HERE / name).open(newline="") as text:
        return list(csv.DictReader(text))


def write(name, rows):
    """Write a reference, sorted."""
    ordered = sorted(rows, key=lambda row: tuple(row.values()))
    with (HERE / name).open("w", newline="") as file:
        writer = csv.DictWriter(file, list(ordered[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(ordered)
