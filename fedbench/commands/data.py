"""``fedbench data prepare|verify|show NAME``: fetch a data set, check it, look at it."""

from __future__ import annotations

from pathlib import Path

from fedbench.config.overrides import tidy
from fedbench.config.schema import options
from fedbench.core.errors import RequestError, nearest
from fedbench.core.trees import Tree

WORDS = ("prepare", "verify", "show")


def data_word(args: list[str]) -> tuple[str, int]:
    """Carry out a data word and return what there is to print and the exit status.

    ``prepare`` reads the data set, fetching what is missing, so that later runs find it. ``verify`` compares every
    official file that is read with its published checksum and then reads the data set from its sources again; it never
    fetches, and its status is 1 if a file is not the official one, or not as it was when it was prepared, and 2 if one
    is missing. ``show`` tells its numbers and draws pictures.

    Args:
        args: the word, the name of a data set, and overrides as on the command line.

    Raises:
        RequestError: for an unknown word or data set, or data that cannot be had.
    """
    names = [n for n in options("data") if n]
    if not args or args[0] not in WORDS:
        got = args[0] if args else "nothing"
        raise RequestError(f"fedbench data takes {', '.join(WORDS)} and a data set, got {got}{nearest(got, WORDS)}")
    if len(args) < 2 or "=" in args[1]:
        raise RequestError(f"fedbench data {args[0]} needs a data set: {', '.join(names)}")
    if args[1] not in names:
        raise RequestError(f"data={args[1]} is unknown; data is one of {', '.join(names)}{nearest(args[1], names)}")
    return _carry_out(args[0], args[1], tidy(args[2:]))


def _carry_out(word: str, name: str, overrides: list[str]) -> tuple[str, int]:
    from fedbench.config.compose import compose_tree

    tree = compose_tree([f"data={name}", *overrides])
    if word == "verify":
        return _verify(tree, name)
    from fedbench.data.inspect import as_lines, facts, owned, pictures
    from fedbench.runs.build_data import federated  # torch comes in here

    data = federated(tree, name)
    if word == "prepare":
        return f"{name}: {data.num_clients} clients, {owned(data)} examples\n" + "\n".join(data.sources), 0
    folder = Path(tree["results_dir"]).expanduser() / "data" / name
    try:
        drawn = pictures(data, folder, name)
    except OSError as error:
        raise RequestError(f"{folder} cannot be written: {error}; change results_dir") from error
    return as_lines({"data": name, **facts(data)}) + "\n" + "\n".join(f"written: {p}" for p in drawn), 0


def _verify(tree: Tree, name: str) -> tuple[str, int]:
    from fedbench.data.files.cache import ChangedFiles, read_again
    from fedbench.data.files.download import MissingFiles
    from fedbench.data.files.verify import verify
    from fedbench.runs.build_data import official_files, read_examples

    findings = verify(official_files(tree, name), Path(tree["data_dir"]).expanduser())
    lines = [f"{f.path}  {f.verdict}" for f in findings]
    wrong = sum(f.wrong for f in findings)
    if wrong:
        remedy = "remove them to have the official ones fetched, or say in results which data they are of"
        return "\n".join([*lines, f"{name}: {wrong} of {len(lines)} files are not the official ones; {remedy}"]), 1
    tree["data"]["download"] = False
    try:
        with read_again():
            return "\n".join([*lines, *read_examples(tree, name).sources]), 0
    except ChangedFiles as error:
        return "\n".join([*lines, str(error)]), 1
    except MissingFiles as error:
        said = f"{name}: not there: {error.wanted}; `fedbench data prepare {name}` fetches what can be fetched"
        return "\n".join([*lines, said]), 2
