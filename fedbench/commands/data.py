"""``fedbench data prepare|verify|show|export-partition NAME`` and ``check-links``: what is done with data sets."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from fedbench.config.groups import options
from fedbench.config.schema import RunConfig
from fedbench.config.user_code import user_code_from
from fedbench.core.errors import RequestError, nearest
from fedbench.core.paths import user_path

WORDS = ("prepare", "verify", "show", "export-partition", "check-links")


def carry_out(asked: Namespace) -> int:
    """Carry out ``fedbench data`` and return the exit status.

    Raises:
        RequestError: If the data set is unknown, or data are missing.
    """
    text, status = data([asked.action, *([asked.name] if asked.name else []), *asked.rest], asked.config_dir)
    print(text)
    return status


def data(args: Sequence[str], own: Path | None = None) -> tuple[str, int]:
    """Carry out ``fedbench data`` and return what to print and the exit status.

    ``prepare`` reads the data set, downloading what is missing, so that later runs find it. ``verify`` compares every
    official file with its published checksum and then reads the data set from its sources again; it never downloads.
    Its status is 1 if a file is not the official one, or has changed since it was prepared, and 2 if a file is missing.
    ``show`` prints the data set's numbers and draws pictures. ``export-partition`` writes the training and test
    examples of every client to a file, which ``data/partition=indices`` reads. ``check-links`` tries every address of
    the data set's published files, or of those of all data sets; its status is 1 if a file has no address that works.

    Args:
        args: The word, the name of a data set (``check-links`` needs none), the file for ``export-partition``, and
            overrides.
        own: A config tree of the user's own.

    Raises:
        RequestError: If the word or the data set is unknown, or data are missing.
    """
    names = [*options("data"), *(options("data", own) if own else [])]
    if not args or args[0] not in WORDS:
        got = args[0] if args else "nothing"
        usage = f"fedbench data {'|'.join(WORDS[:-1])} NAME, or fedbench data check-links [NAME]"
        raise RequestError(f"usage: {usage}; got {got}{nearest(got, WORDS)}")
    if args[0] == "check-links" and (len(args) < 2 or "=" in args[1]):
        return _check_links(None, args[1:], own)
    if len(args) < 2 or "=" in args[1]:
        raise RequestError(f"data {args[0]} needs a data set, such as mnist_iid; see `fedbench list data`")
    if args[1] not in names:
        from fedbench.config.groups import unknown_choice

        raise unknown_choice("data", args[1], names)
    if args[0] == "export-partition":
        return _export(args[1], args[2:], own), 0
    return _carry_out(args[0], args[1], args[2:], own)


def _export(name: str, rest: Sequence[str], own: Path | None) -> str:
    from fedbench.config.compose import Composer

    if not rest or "=" in rest[0]:
        raise RequestError(f"data export-partition needs a file, such as: data export-partition {name} clients.json")
    path = user_path("FILE", rest[0])
    if path.exists():
        raise RequestError(f"{path} exists already; remove it, or name another file")
    with user_code_from(own):
        config = Composer(own).config([f"data={name}", *rest[1:]])
        from fedbench.data.partitions.index_file import write
        from fedbench.runs.build_data import as_given, federated  # imports torch

        found = federated(config)
    try:
        write(path, name, len(found.y), as_given(found))
    except OSError as error:
        raise RequestError(f"{path} cannot be written: {error.strerror or error}") from error
    others = "" if config.data.partition is None else "data/partition=indices "
    plus = "" if others else "+data/partition=indices "
    return (
        f"written: {path} ({found.num_clients} clients)\n"
        f"to use it: fedbench data={name} {others}{plus}data.partition.file={path} data.clients={found.num_clients}"
    )


def _carry_out(word: str, name: str, overrides: Sequence[str], own: Path | None) -> tuple[str, int]:
    from fedbench.config.compose import Composer

    if word == "check-links":
        return _check_links(name, overrides, own)
    with user_code_from(own):
        config = Composer(own).config([f"data={name}", *overrides])
        if word == "verify":
            return _verify(config)
        from fedbench.data.inspect import as_lines, facts, owned, pictures
        from fedbench.runs.build_data import federated  # imports torch

        found = federated(config)
    if word == "prepare":
        return f"{name}: {found.num_clients} clients, {owned(found)} examples\n" + "\n".join(found.sources), 0
    folder = config.results_dir / "data" / name
    try:
        drawn = pictures(found, folder, name)
    except OSError as error:
        raise RequestError(
            f"{folder} cannot be written ({error.strerror or error}); set results_dir to a directory that can"
        ) from error
    return as_lines({"data": name, **facts(found)}) + "\n" + "\n".join(f"written: {p}" for p in drawn), 0


def _verify(config: RunConfig) -> tuple[str, int]:
    from fedbench.data.files.cache import ChangedFiles, read_again
    from fedbench.data.files.download import MissingFiles
    from fedbench.data.files.verify import verify
    from fedbench.runs.build_data import official_files, read_examples, without_downloads

    name = config.names.data
    findings = verify(official_files(config), config.data_dir)
    lines = [f"{f.path}  {f.verdict}" for f in findings]
    wrong = sum(f.wrong for f in findings)
    if wrong:
        remedy = "remove them to download the official ones, or state in your results which data they contain"
        return "\n".join([*lines, f"{name}: {wrong} of {len(lines)} files are not the official ones; {remedy}"]), 1
    try:
        with read_again():
            return "\n".join([*lines, *read_examples(without_downloads(config)).sources]), 0
    except ChangedFiles as error:
        return "\n".join([*lines, str(error)]), 1
    except MissingFiles as error:
        missing = f"{name}: missing: {error.wanted}; `fedbench data prepare {name}` downloads what can be downloaded"
        return "\n".join([*lines, missing]), 2


def _check_links(name: str | None, overrides: Sequence[str], own: Path | None) -> tuple[str, int]:
    from fedbench.config.compose import Composer
    from fedbench.data.files.download import offline
    from fedbench.data.files.mirrors import VARIABLE, using
    from fedbench.runs.build_data import all_official_files, official_files

    with user_code_from(own):
        config = Composer(own).config([*([f"data={name}"] if name else []), *overrides])
        remotes = official_files(config) if name else all_official_files()
    if offline():
        raise RequestError("downloads are disabled by FEDBENCH_OFFLINE; unset it")
    from fedbench.data.files.links import check  # imports requests

    with using(config.data.mirrors):
        links = check(remotes)
    if not links:
        return f"{name}: no published files", 0
    rows = [("file", "address", "bytes", "seconds", "status")]
    rows += [(k.path, k.url, "" if k.size is None else str(k.size), f"{k.seconds:.1f}", k.status) for k in links]
    widths = [max(len(row[c]) for row in rows) for c in range(5)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    working = {k.path for k in links if k.works}
    dead = [path for path in dict.fromkeys(k.path for k in links) if path not in working]
    lines.append(f"{sum(k.works for k in links)} of {len(links)} addresses work")
    lines += [f"{path}: no address works; name another in data.mirrors or {VARIABLE}" for path in dead]
    return "\n".join(lines), 1 if dead else 0
