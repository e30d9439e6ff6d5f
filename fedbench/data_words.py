"""``fedbench data prepare|verify|show NAME``: fetch a data set, check it, look at it."""

from __future__ import annotations

from pathlib import Path

from fedbench.arguments import tidy
from fedbench.config import options
from fedbench.errors import RequestError, nearest

WORDS = ("prepare", "verify", "show")


def data_word(args: list[str]) -> str:
    """Carry out a data word and return what there is to print.

    ``prepare`` reads the data set, fetching what is missing, so that later runs find it; ``verify`` reads it from its
    sources again and says whether they are the official files; ``show`` tells its numbers and draws pictures.

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


def _carry_out(word: str, name: str, overrides: list[str]) -> str:
    from fedbench.job import compose_tree

    tree = compose_tree([f"data={name}", *overrides])
    from fedbench.build_data import federated, read_examples  # torch comes in here
    from fedbench.data.cache import read_again
    from fedbench.data.look import as_lines, facts, pictures

    if word == "verify":
        with read_again():
            return "\n".join(read_examples(tree, name).sources)
    data = federated(tree, name)
    if word == "prepare":
        return f"{name}: {data.num_clients} clients, {len(data.y)} examples\n" + "\n".join(data.sources)
    folder = Path(tree["results_dir"]).expanduser() / "data" / name
    drawn = pictures(data, folder, name)
    return as_lines({"data": name, **facts(data)}) + "\n" + "\n".join(f"written: {p}" for p in drawn)
