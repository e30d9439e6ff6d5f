"""Sentiment140 (Go et al., 2009; LEAF, Caldas et al., 2018): a client is a Twitter account.

The official CSV files contain polarity, id, date, query, user and text, all quoted, in latin-1,
without a header. The words of a tweet become indices into a list of GloVe vectors (Pennington et
al., 2014).
"""

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedbench.core.errors import RequestError, reason_of
from fedbench.core.files import reading
from fedbench.core.options import Count
from fedbench.data.examples import Examples, Part, join
from fedbench.data.files.cache import prepared
from fedbench.data.files.fetch import Files, published

# tokens: padding, a word without a vector, and the word with the first vector
PADDING, UNKNOWN, FIRST = range(3)
_NEUTRAL = 2

_IN_ARCHIVE = tuple(f"glove.6B.{d}d.txt" for d in (50, 100, 200, 300))
_WORDS = re.compile(r"[\w']+|[.,!?;]")  # LEAF's words: letters, digits and apostrophes, or one sign


def _glove(name: str) -> Files:
    """Return a file of vectors; the GloVe 6B archive contains vectors of all dimensions."""
    layouts = [[f"glove/{name}"], [f"glove/glove.6B/{name}"]]
    if name in _IN_ARCHIVE:
        return published("glove", layouts=layouts)
    remedy = f"put the file there, or set data.source.glove to {_IN_ARCHIVE[0]}"
    return Files("GloVe", layouts, remedy=remedy)


# the files in the archives have no published checksums
_TWEETS = published("sent140")
FILES = (_TWEETS, _glove("glove.6B.300d.txt"))


def load(
    data_dir: Path,
    *,
    download: bool = True,
    min_tweets: Count = 50,
    length: Count = 25,
    lowercase: bool = True,
    glove: str = "glove.6B.300d.txt",
) -> Examples:
    """Read accounts as clients: x [T, length] int64 tokens, y [T] 1 if a tweet is positive, else 0.

    Token 0 pads tweets at the end, token 1 is a word without a vector, and the other tokens are the
    words that occur, in the order of the GloVe file (LEAF uses one token for both of the first two,
    and one for each of GloVe's words). ``vectors`` of the examples returns the embeddings of the
    tokens. As in LEAF, the official training and test tweets are joined. Neutral tweets (in the
    test file) are left out, whereas LEAF counts them as negative. Clients are sorted by name;
    tweets of a client are in file order.

    Args:
        data_dir: Directory of all data sets, with sent140/ and glove/, unless they are downloaded.
        download: Whether downloads are allowed.
        min_tweets: Minimum number of tweets per account.
        length: Number of tokens per tweet; longer tweets are cut. LEAF uses 25.
        lowercase: Whether to convert words to lower case, as in GloVe 6B and Twitter 27B. LEAF's
            code does not, so that its words with a capital letter have no vector.
        glove: Name of a file of vectors in data_dir/glove; glove.6B.{50,100,200,300}d.txt can be
            downloaded.

    Raises:
        RequestError: If files are missing or do not have the official format, or no account has
            enough tweets.
    """
    files = _TWEETS.find(data_dir, download=download)
    (words,) = _glove(glove).find(data_dir, download=download)
    options = {"min_tweets": min_tweets, "length": length, "lower": lowercase}
    examples = prepared(
        data_dir,
        "sent140",
        [*files, words],
        options,
        lambda: _read(files, words, min_tweets, length, lowercase),
    )
    used = np.union1d(examples.x, [PADDING, UNKNOWN])  # about one hundredth of GloVe's words

    def embeddings() -> np.ndarray:
        every = vocabulary(words)
        occurring = [every[token - FIRST] for token in used[FIRST:].tolist()]
        return vectors(words, occurring)

    return replace(
        examples,
        x=np.searchsorted(used, examples.x),
        tokens=len(used),
        vectors=embeddings,
    )


def vocabulary(path: Path) -> list[str]:
    """Return the words of a file of GloVe vectors; the word on line i is token 2 + i."""
    with reading(path), path.open("rb") as file:
        return [_word(line) for line in file]


def _word(line: bytes) -> str:
    return line.partition(b" ")[0].decode("utf-8", "replace")


def vectors(path: Path, words: Sequence[str]) -> np.ndarray:
    """Return GloVe vectors of words from a file, [2 + len(words), dimensions] float32.

    The first two vectors, for padding and for words without a vector, are zero, and so are the
    vectors of words that are not in the file.

    Raises:
        RequestError: If the file is not in GloVe's format: a word and its numbers on each line,
            separated by spaces.
    """
    wanted = {*words}
    rows: dict[str, np.ndarray] = {}
    form = "must have a word and its numbers in every line, as many as in the first"
    with reading(path, form), path.open("rb") as file:
        for number, line in enumerate(file, 1):
            word = _word(line)
            if not rows or (word in wanted and word not in rows):
                with reading(f"{path}, line {number}:", form):
                    vector = np.array(line.split()[1:], dtype=np.float32)
                    if not vector.size or not np.isfinite(vector).all():
                        raise ValueError("some are missing or not finite")
                    rows[word] = vector
        zero = np.zeros_like(next(iter(rows.values())))
        table = [rows.get(word, zero) for word in words]
        return np.stack([zero, zero, *table])


def tokens(
    text: str,
    index: dict[str, int],
    length: int,
    *,
    lowercase: bool,
) -> list[int]:
    """Return the tokens of a tweet, cut or padded to ``length``; ``index`` maps words to tokens."""
    if lowercase:
        text = text.lower()
    words = _WORDS.findall(text)[:length]
    padding = [PADDING] * (length - len(words))
    return [index.get(word, UNKNOWN) for word in words] + padding


def _rows(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield the label (0, 1 or neutral), user and text of every tweet in a file."""
    labels = {"0": 0, "2": _NEUTRAL, "4": 1}
    form = "polarity (0, 2 or 4), id, date, query, user and text, without a header"
    with reading(path), path.open(encoding="latin-1", newline="") as file:
        reader = csv.reader(file)
        try:
            for polarity, _, _, _, user, text in reader:
                yield labels[polarity], user, text
        except (csv.Error, ValueError, KeyError) as error:
            raise RequestError(
                f"{path}, line {reader.line_num}: expected {form} ({reason_of(error)})"
            ) from error


def _read(
    files: Sequence[Path],
    glove: Path,
    min_tweets: int,
    length: int,
    lowercase: bool,
) -> Examples:
    accounts: dict[str, list[tuple[int, str]]] = {}
    sizes = []
    for path in files:
        size = 0
        for label, user, text in _rows(path):
            size += 1
            if label != _NEUTRAL:
                accounts.setdefault(user, []).append((label, text))
        sizes.append(size)
    names = sorted(user for user, tweets in accounts.items() if len(tweets) >= min_tweets)
    if not names:
        raise RequestError(f"no account has data.source.min_tweets={min_tweets} tweets; lower it")

    index: dict[str, int] = {}
    for token, word in enumerate(vocabulary(glove), FIRST):
        index.setdefault(word, token)  # a word that occurs twice keeps its first vector
    parts = []
    for name in names:
        y, texts = zip(*accounts[name], strict=True)
        x = [tokens(text, index, length, lowercase=lowercase) for text in texts]
        parts.append(Part(name, None, np.array(x), np.array(y)))
    examples = join(parts, classes=2)
    neutral = sum(sizes) - sum(map(len, accounts.values()))
    read = (examples.x != PADDING).sum()
    known = (examples.x >= FIRST).sum() / max(read, 1)
    notes = (
        f"Sentiment140: {sizes[0]} training and {sizes[1]} test tweets (official: 1600000 and "
        f"498), {neutral} neutral ones left out, {len(accounts)} accounts with others",
        f"clients: {len(names)} accounts with {min_tweets} or more tweets, {len(examples.y)} "
        "tweets",
        f"GloVe: {glove.name}, {len(index)} words, vectors for {known:.1%} of the words read",
    )
    return replace(examples, sources=notes)
