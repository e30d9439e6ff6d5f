"""``fedbench publish``: write the runs of a benchmark for others to compare with."""

import re
from pathlib import Path

from fedbench.benchmarks.bundle import LICENCE, read_baselines, write_baselines
from fedbench.benchmarks.definition import read_benchmark
from fedbench.benchmarks.entries import FOLDER, entries_of
from fedbench.benchmarks.execution import BenchmarkContext
from fedbench.commands.result import CommandResult
from fedbench.config.compose import Composer
from fedbench.core.errors import RequestError, shown
from fedbench.core.files import existing_directory, user_path
from fedbench.data.files.fetch import checksum
from fedbench.reports.benchmark import write_benchmark
from fedbench.reports.page import PAGE
from fedbench.runs import bundle
from fedbench.runs.executors.local import LocalExecutor


def execute(
    folder: str | Path = "results",
    *,
    into: str | Path,
    benchmark: str | None = None,
    licence: str = LICENCE,
    config_dir: Path | None = None,
) -> CommandResult:
    """Write the entries of a benchmark and their page, like ``fedbench publish``.

    Args:
        folder: Directory of the results.
        into: Folder of the published runs: new, empty, or written by this command before.
        benchmark: The benchmark. If None, the only one with entries.
        licence: Identifier of the licence, as in the list of SPDX.
        config_dir: The user's directory with config files and modules.

    Raises:
        RequestError: If there are no entries, an entry is unfinished or wrong, or an argument is
            invalid.
        DamagedRun: If a run cannot be read.
    """
    folder = existing_directory("DIR", folder)
    target = user_path("--into", into)
    if not re.fullmatch(r"[\w.+-]+", licence, re.ASCII):
        raise RequestError(
            f"--licence must be an identifier such as {LICENCE} or CC-BY-4.0, got {shown(licence)}"
        )
    labels = sorted(place.name for place in (folder / FOLDER).glob("*@*"))
    present = f"{folder} has entries of {', '.join(labels) or 'no benchmark'}"
    names = {label.partition("@")[0] for label in labels}
    if benchmark is None and len(names) != 1:
        raise RequestError(f"{present}; type --benchmark NAME of one that was run")
    definition = read_benchmark(benchmark or names.pop(), config_dir)
    entries = list(entries_of(folder, definition))
    if not entries:
        raise RequestError(
            f"{present}, and none of {definition.label}; fedbench benchmark {definition.name} "
            "makes them"
        )
    composer = Composer(config_dir)
    shared = BenchmarkContext(definition, composer, LocalExecutor(), folder)
    write_baselines(entries, target, shared, licence)
    # drawn from what is published, which has no names of folders on this machine
    published = read_baselines(target, shared, composer.config([]).data_dir)
    write_benchmark(definition, published, (), target)

    manifest = target / bundle.FOLDER / bundle.MANIFEST
    methods = {entry.method for entry in entries}
    print(f"written: {target}: {definition.label}, {len(methods)} methods, {licence}")
    print(f"readers pin it with --baselines URL#sha256={checksum(manifest, 'sha256')}")
    return CommandResult(page=target / PAGE)
