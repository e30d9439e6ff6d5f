"""``fedbench data prepare|verify|show|export-partition NAME``: download, check and describe data sets."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from fedbench.config.compose import Composer
from fedbench.config.groups import options, unknown_choice
from fedbench.config.schema import RunConfig
from fedbench.config.user_code import user_code_from
from fedbench.core.errors import RequestError
from fedbench.core.files import user_path
from fedbench.data.describe import as_lines, facts, owned, pictures
from fedbench.data.files.fetch import MissingFiles, verify
from fedbench.data.partitions.index_file import write
from fedbench.runs.build_data import as_given, federated, official_files, read_examples, without_downloads


def carry_out(asked: Namespace) -> int:
    """Carry out ``fedbench data`` and return the exit status.

    Raises:
        RequestError: If the data set is unknown, or data are missing.
    """
    own, name = asked.config_dir, asked.name
    if not name or "=" in name:
        raise RequestError(f"data {asked.action} needs a data set, such as mnist_iid; see `fedbench list data`")
    known = [*options("data"), *(options("data", own) if own else [])]
    if name not in known:
        raise unknown_choice("data", name, known)
    export = asked.action == "export-partition"
    if export and (not asked.rest or "=" in asked.rest[0]):
        raise RequestError(f"data export-partition needs a file, such as: data export-partition {name} clients.json")
    file, overrides = (asked.rest[0], asked.rest[1:]) if export else ("", asked.rest)
    with user_code_from(own):
        config = Composer(own).config([f"data={name}", *overrides])
        if export:
            lines, status = _export(config, file), 0
        else:
            lines, status = {"prepare": _prepare, "verify": _verify, "show": _show}[asked.action](config)
    print("\n".join(lines))
    return status


def _prepare(config: RunConfig) -> tuple[Sequence[str], int]:
    """Read the data set, downloading what is missing, so that later runs find it."""
    found = federated(config)
    return [f"{config.names.data}: {found.num_clients} clients, {owned(found)} examples", *found.sources], 0


def _verify(config: RunConfig) -> tuple[Sequence[str], int]:
    """Compare files with their published checksums and read the data set; nothing is downloaded.

    The status is 1 if a file is not the official one, and 2 if a file is missing.
    """
    name = config.names.data
    findings = verify(official_files(config), config.data_dir)
    lines = [f"{path}  {result}" for path, result, _ in findings]
    if wrong := sum(differs for _, _, differs in findings):
        remedy = "remove them to download the official ones, or state in your results which data they contain"
        return [*lines, f"{name}: {wrong} of {len(lines)} files are not the official ones; {remedy}"], 1
    try:
        return [*lines, *read_examples(without_downloads(config)).sources], 0
    except MissingFiles as error:
        return [*lines, f"{error}; `fedbench data prepare {name}` downloads what can be downloaded"], 2


def _show(config: RunConfig) -> tuple[Sequence[str], int]:
    """Describe the data set in numbers and pictures."""
    name, found = config.names.data, federated(config)
    folder = config.results_dir / "data" / name
    try:
        drawn = pictures(found, folder, name)
    except OSError as error:
        reason = error.strerror or error
        raise RequestError(f"{folder} cannot be written ({reason}); set results_dir to a directory that can") from error
    return [as_lines({"data": name, **facts(found)}), *(f"written: {path}" for path in drawn)], 0


def _export(config: RunConfig, file: str) -> Sequence[str]:
    """Write the training and test examples of every client to a file, which ``data/partition=indices`` reads."""
    path, name = user_path("FILE", file), config.names.data
    if path.exists():
        raise RequestError(f"{path} exists already; remove it, or name another file")
    found = federated(config)
    try:
        write(path, name, len(found.y), as_given(found))
    except OSError as error:
        raise RequestError(f"{path} cannot be written: {error.strerror or error}") from error
    rule = "+data/partition=indices" if config.data.partition is None else "data/partition=indices"
    return [
        f"written: {path} ({found.num_clients} clients)",
        f"to use it: fedbench data={name} {rule} data.partition.file={path} data.clients={found.num_clients}",
    ]
