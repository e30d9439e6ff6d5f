"""WikiText-2 (Merity et al., 2017): words of Wikipedia articles.

Clients have contiguous streams of words, as in FAFED (Wu et al., 2023).
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
    """Read contiguous pieces as clients: x and y [T, length] int64, words and the next words.

    The training words are cut into ``clients`` equal pieces, and each piece into ``columns`` equal
    columns, which are read side by side, ``length`` words at a time: row s * columns + c of a
    client is segment s of its column c. Batches of ``columns`` rows in stored order therefore
    proceed down the columns, as is usual for training a language model; in any other order, the
    segments are the same. y[t, i] is the word after x[t, i]: every position is predicted.

    Words are numbered by first appearance in the training file, every line ends with <eos>, and a
    word that is not in the training file becomes <unk>. Words that do not fill a piece, a column or
    a segment are left out; ``sources`` contains the counts.

    Args:
        data_dir: Directory of all data sets, with wikitext-2/wiki.{train,valid,test}.tokens unless
            they are downloaded.
        download: Whether downloads are allowed.
        clients: Number of clients; 16 in FAFED.
        columns: Number of columns, the batch size; 20 in FAFED.
        length: Number of words per segment; 35 in FAFED's code.
        held_out: File to test on, "test" or "valid", cut into one piece and one column per client.
            If None, nothing is held out.
        first: Number of words to read from every file, for a quick look. If None, all.

    Raises:
        RequestError: If files are missing, or too short for the numbers of clients and columns.
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
        RequestError: If the file is not text in UTF-8.
    """
    lines = read_text(path).removesuffix("\n").split("\n")
    return [word for line in lines for word in (*line.split(), EOS)]


def vocabulary(train: list[str]) -> dict[str, int]:
    """Number the words by first appearance; <unk> comes last if it does not appear."""
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
    """Cut a stream of words into one piece per client, and each piece into columns and segments.

    Args:
        numbers: [W] numbers of the words.
        names: Names of the N clients, which get equal contiguous pieces of W // N words.
        columns: Number of equal contiguous columns per piece.
        length: Number of words per segment.
        file: Name of the file, for messages.
        held_out: Whether the words are held out for testing.

    Returns:
        One part per client: x [n, length] and y [n, length], ordered by segment, then by column.

    Raises:
        RequestError: If no segment fits.
    """
    clients = len(names)
    piece = len(numbers) // clients
    depth = piece // columns
    segments = (depth - 1) // length  # the last word of a column serves only as a label
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
