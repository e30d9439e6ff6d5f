"""``fedbench report --bundle FILE.zip``: what another machine needs to write the tables again, or to train them again.

| in the zip | content |
| --- | --- |
| ``README.md`` | how to write the tables again, and how to train the runs again |
| ``repeat.sh`` | the commands that train all runs and write the tables |
| ``configs/`` | the resolved configuration of every setting, at its first seed |
| ``partitions/`` | the examples of every client, as ``data/partition=indices`` reads them |
| ``paper/`` | tables, figures and statement (``fedbench.report.manuscript``) |
| ``evidence/`` and the rest | the published report with the numbers of all runs (``fedbench.runs.bundle``) |
"""

from __future__ import annotations

import io
import json
import shlex
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import yaml

from fedbench.config.user_code import user_code_from
from fedbench.core.errors import RequestError
from fedbench.core.files import NotWritten, replace_file
from fedbench.report.manuscript import ManuscriptOptions, write_manuscript
from fedbench.report.statement import Cite
from fedbench.report.write import Extras, write_report
from fedbench.runs.bundle import FOLDER
from fedbench.runs.results import Results
from fedbench.runs.run import Run

_OF_MACHINE = ("results_dir", "data_dir", "device", "tracker", "force", "hydra")  # not typed again elsewhere
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first time that a zip can have: equal contents give equal bytes
_PAPER = "paper"
_README = """# Results with everything that repeats them

Written by fedbench {version}.

- This command writes the tables and figures of `paper/` again, from the numbers in `evidence/`, with the same bytes
  under the same versions. It trains nothing.

      fedbench report FILE.zip {words} --into OUT

- `sh repeat.sh` trains all runs again in an empty directory and writes the tables to `results/paper`. On the same kind
  of device and with the same versions, the numbers are the same; fedbench downloads data sets where it may.
- `configs/` has the resolved configuration of every setting at its first seed, `partitions/` the examples of every
  client: `fedbench data=NAME data/partition=indices data.partition.file=FILE data.clients=N`.
- `index.html` is the page with all runs.
{notes}"""


def write_paper_bundle(folder: Path, file: Path, options: ManuscriptOptions, cite: Cite, own: Path | None) -> list[str]:
    """Write the bundle of a paper and return its lines of text.

    Args:
        folder: Directory of the runs.
        file: The zip file.
        options: What the tables show.
        cite: As in ``write_manuscript``.
        own: A config tree of the user's own, which the runs were made with.

    Raises:
        RequestError: If there is nothing to compare, or the file cannot be written.
    """
    if file.suffix != ".zip":
        raise RequestError(f"--bundle must name a .zip file, got {file}")
    with tempfile.TemporaryDirectory() as room:
        place = Path(room) / "bundle"

        def add(runs: Sequence[Run], new: Path) -> None:
            write_manuscript(runs, new / _PAPER, options, cite)

        write_report(folder, place, extras=Extras(also=add))
        runs = [run for run in Results(place) if run.done]
        notes = _add_configs(runs, place) + _add_partitions(runs, place / "partitions", own)
        _add_commands(runs, place, options, own, notes)
        content = _zipped(place)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, content)
    except (NotWritten, OSError) as error:
        raise RequestError(f"--bundle {file} cannot be written: {error}") from error
    for note in notes:
        print(f"fedbench: {note}", file=sys.stderr)
    return [f"written: {file} ({len(runs)} runs, {len(content) / 2**20:.1f} MiB)"]


@contextmanager
def unpacked(file: Path) -> Iterator[Path]:
    """Give a directory with the numbers of a bundle inside this block.

    Raises:
        RequestError: If it is no bundle.
    """
    with tempfile.TemporaryDirectory() as room:
        try:
            with zipfile.ZipFile(file) as found:
                wanted = [i for i in found.infolist() if PurePosixPath(i.filename).parts[:1] == (FOLDER,)]
                if not wanted:
                    raise RequestError(f"{file} has no {FOLDER}/ of a bundle; fedbench report DIR --bundle writes one")
                for member in wanted:
                    found.extract(member, room)  # which leaves no path outside of the directory
        except (zipfile.BadZipFile, OSError, NotImplementedError, RuntimeError) as error:
            raise RequestError(f"{file} cannot be read as a bundle: {error}") from error
        yield Path(room)


def _add_configs(runs: Sequence[Run], place: Path) -> list[str]:
    """Write the configuration of every setting, and return what the settings need besides."""
    code = set()
    for run in _first_seeds(runs):
        relative = run.path.relative_to(place).parent
        path = place / "configs" / relative.with_name(f"{relative.name}.yaml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(run.config, sort_keys=False), encoding="utf-8")
        code |= {*run.meta.get("code", {})}
    return [f"add your own code, which is not in the bundle: {', '.join(sorted(code))}"] if code else []


def _first_seeds(runs: Sequence[Run]) -> list[Run]:
    first: dict[Path, Run] = {}
    for run in sorted(runs, key=lambda r: (str(r.path.parent), r.meta["seed"])):
        first.setdefault(run.path.parent, run)
    return list(first.values())


def _add_partitions(runs: Sequence[Run], folder: Path, own: Path | None) -> list[str]:
    """Write the partitions of the runs, equal ones once, and return why some are left out."""
    from fedbench.config.compose import Composer
    from fedbench.data.partitions.index_file import write
    from fedbench.runs.build_data import as_given, federated  # imports torch

    notes, known = [], set()
    with user_code_from(own):
        for run in runs:
            data, split = run.config["data"], run.config["data"].get("seed")
            seed = run.meta["seed"] if split is None else split
            key = json.dumps([data, seed], sort_keys=True, default=str)
            if key in known:
                continue
            known.add(key)
            name = f"{run.meta['data']}_{len(known)}_seed_{seed}.json"
            try:
                found = federated(Composer(own).config(_typed(run, ("tracker", "force", "hydra"))))
            except (RequestError, OSError) as error:
                notes.append(f"partitions/{name} is left out: {' '.join(str(error).split())}")
                continue
            folder.mkdir(exist_ok=True)
            write(folder / name, run.meta["data"], len(found.y), as_given(found))
    return notes


def _typed(run: Run, without: Iterable[str] = _OF_MACHINE) -> list[str]:
    """Return the overrides of a run but for some keys."""
    return [
        o for o in run.meta.get("overrides", ()) if o.lstrip("+~").partition("=")[0].partition(".")[0] not in without
    ]


def commands(runs: Sequence[Run], own: Path | None = None) -> list[str]:
    """Return the commands that make runs: one per setting, with all of its seeds."""
    seeds: dict[tuple[str, ...], list[int]] = {}
    for run in runs:
        typed = tuple(o for o in _typed(run) if o.partition("=")[0] != "seed")
        seeds.setdefault(typed, []).append(run.meta["seed"])
    flags = [] if own is None else ["--config-dir", own.name]
    return [
        shlex.join(["fedbench", "-m", *flags, *typed, f"seed={','.join(map(str, sorted(set(found))))}"])
        for typed, found in seeds.items()
    ]


def _add_commands(
    runs: Sequence[Run], place: Path, options: ManuscriptOptions, own: Path | None, notes: Sequence[str]
) -> None:
    """Write ``repeat.sh`` and ``README.md``."""
    from fedbench import __version__

    report = shlex.join(["fedbench", "report", "results", *options.words()])
    text = "\n".join(["#!/bin/sh", "set -e", *commands(runs, own), report]) + "\n"
    (place / "repeat.sh").write_text(text, encoding="utf-8")
    listed = "".join(f"- {note}\n" for note in notes)
    readme = _README.format(version=__version__, words=shlex.join(options.words()), notes=listed)
    (place / "README.md").write_text(readme, encoding="utf-8")


def _zipped(place: Path) -> bytes:
    """Return the content of a zip file: equal contents give equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as out:
        for path in sorted(p for p in place.rglob("*") if p.is_file()):
            info = zipfile.ZipInfo(path.relative_to(place).as_posix(), _EPOCH)
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            out.writestr(info, path.read_bytes())
    return buffer.getvalue()
