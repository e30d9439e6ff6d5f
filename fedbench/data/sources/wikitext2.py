"""WikiText-2 (Merity et al., 2017): words of Wikipedia articles.

Clients have contiguous streams, as in FAFED (Wu et al., 2023).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from fedbench.core.errors import RequestError
from fedbench.core.options import Count
from fedbench.data.examples import Examples, Part, join, numbered
from fedbench.data.files.fetch import published
from fedbench.data.files.readers import read_text

EOS, UNKNOWN = "<eos>", "<unk>"

FILES = (published("wikitext2"),)


def load(
    data_dir: Path,
    *,
    download: bool = True,
    clients: Count = 16,
    columns: Count = 20,
    length: Count = 35,
    held_out: Literal["test", "valid"] | None = "test",
    first: Count | None = None,
) -> Examples:
    """Read contiguous pieces as clients: x and y [T, length] int64, words and the words after them.

    The training words are cut into ``clients`` equal pieces, and each piece into ``columns`` equal
    columns that are read side by side, ``length`` words at a time: row s * columns + c of a client
    is segment s of its column c. Batches of ``columns`` rows in stored order therefore walk down
    the columns, as a language model is trained; in another order they are the same segments. y[t,
    i] is the word after x[t, i]: every position is predicted.

    Words are numbered by first appearance in the training file, every line ends in <eos>, and a
    word that is not in that file is <unk>. Words that do not fill a piece, a column or a segment
    are left out; ``sources`` has the counts.

    Args:
        data_dir: Directory of all data sets; contains wikitext-2/wiki.{train,valid,test}.tokens,
            unless downloaded.
        download: Whether downloads are allowed.
        clients: Number of clients; FAFED has 16.
        columns: Number of columns, the batch size; FAFED has 20.
        length: Number of words of a segment; 35 in FAFED's code.
        held_out: File to test on, "test" or "valid", cut into one piece and one column per client;
            None holds nothing out.
        first: Number of words to read of every file, for a quick look; None reads all.

    Raises:
        RequestError: If files are missing, or too short for that many clients and columns.
    """
    files = FILES[0].find(data_dir, download=download)
    origin = FILES[0].origin(files)
    train, valid, test = files
    texts = {train: words(train)[:first]}
    if held_out is not None:
        path = valid if held_out == "valid" else test
        texts[path] = words(path)[:first]
    known = vocabulary(texts[train])
    names = numbered("piece", clients)
    parts = []
    for path, text in texts.items():
        width = columns if path == train else 1
        numbers = np.array([known.get(word, known[UNKNOWN]) for word in text])
        pieces = streams(numbers, names, width, length, path.name, held_out=path != train)
        parts += pieces

        predicted = sum(part.y.size for part in pieces)
        detail = f"{len(known)} different"
        if path != train:
            strange = sum(word not in known for word in text)
            detail = f"{strange} read as {UNKNOWN}"
        origin["sources"] += (f"{path.name}: {len(text)} words, {detail}, {predicted} predicted",)
    return join(parts, classes=len(known), tokens=len(known), **origin)


def words(path: Path) -> list[str]:
    """Return the words of a file, with <eos> at the end of every line.

    Raises:
        RequestError: If it is not text in UTF-8.
    """
    lines = read_text(path).removesuffix("\n").split("\n")
    return [word for line in lines for word in (*line.split(), EOS)]


def vocabulary(train: list[str]) -> dict[str, int]:
    """Number the words by first appearance; <unk> is last if it does not appear."""
    distinct = dict.fromkeys([*train, UNKNOWN])
    return {word: k for k, word in enumerate(distinct)}


def streams(
    numbers: np.ndarray,
    names: Sequence[str],
    columns: int,
    length: int,
    file: str,
    *,
    held_out: bool = False,
) -> list[Part]:
    """Cut a stream of words into a piece per client, and these into columns and segments.

    Args:
        numbers: [W] numbers of the words.
        names: Names of the N clients, which get equal contiguous pieces, W // N words each.
        columns: Number of equal contiguous columns of a piece.
        length: Number of words of a segment.
        file: Name of the file, for messages.
        held_out: Whether the words are held out for testing.

    Returns:
        A part for each client: x [n, length] and y [n, length], by segment, then by column.

    Raises:
        RequestError: If no segment fits.
    """
    clients = len(names)
    piece = len(numbers) // clients
    depth = piece // columns
    segments = (depth - 1) // length  # the last word of a column is only a label
    if segments < 1:
        raise RequestError(
            f"{file} has {len(numbers)} words, too few for data.clients={clients} with {columns} "
            f"columns of {length + 1}; lower data.clients, data.source.columns or "
            "data.source.length"
        )

    parts = []
    column = np.arange(columns) * depth
    segment = np.arange(segments) * length
    for k, name in enumerate(names):
        starts = (k * piece + segment[:, None] + column).reshape(-1, 1)
        places = starts + np.arange(length)
        parts.append(Part(name, held_out, numbers[places], numbers[places + 1]))
    return parts
