"""Shakespeare (McMahan et al., 2017; LEAF, Caldas et al., 2018): a client is a speaking role of a play.

From Project Gutenberg's complete works (1994 and 2011 editions) as LEAF reads them: the lines of a role are joined
by spaces into one text, and every 80 characters predict the next one. The Sonnets, which come first, and works without
roles are left out. Roles of at most two lines are not clients.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import numpy as np

from fedbench.core.errors import RequestError
from fedbench.core.files import reading
from fedbench.core.options import Count, PositiveShare
from fedbench.core.randomness import DataPurpose, data_generator
from fedbench.data.examples import Examples
from fedbench.data.files.fetch import Files, Remote
from fedbench.data.sources.leaf_json import json_files, users_of

LENGTH = 80
LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"  # LEAF's, in its order
_UNKNOWN = LETTERS.index(" ")  # replaces any other character; the roles of the Gutenberg text have none
_GAP = LENGTH - 1  # windows left out between training and test: no character is an input of both

_ARCHIVE = Remote(
    "shakespeare/1994-01-100.zip",
    (
        "https://www.gutenberg.org/files/100/old/old/1994-01-100.zip",
        "https://mirror.ossplanet.net/mirror/gutenberg/1/0/100/old/1994-01-100.zip",
        "https://readingroo.ms/1/0/100/old/old/1994-01-100.zip",
        "https://gutenberg.pglaf.org/1/0/100/old/old/1994-01-100.zip",
    ),
    "md5:b8d60664a90939fa7b5d9f4dd064a1d5",
)
_LAYOUTS = (
    ("shakespeare/data/raw_data/raw_data.txt",),  # as LEAF names it
    ("shakespeare/1994-01-100/100.txt",),
)
_AUTHOR = "by William Shakespeare"  # a few lines below the title of every work
_MISINDENTED = "THE COMEDY OF ERRORS"  # its speeches begin at the margin, those of other plays after two spaces
_NAME = r"([a-zA-Z][a-zA-Z ]*)\. (.*)"
_TABLE = np.full(256, 255, dtype=np.uint8)  # 255: unknown
_TABLE[[ord(c) for c in LETTERS]] = np.arange(len(LETTERS))

_Parts: TypeAlias = tuple[np.ndarray, ...]  # windows [n, 81] of a role: all, or those to train and those to test on
# the text itself, of which there are several editions, has no published checksum
FILES = (Files("Shakespeare", _LAYOUTS, [_ARCHIVE], into="shakespeare/1994-01-100"),)


def load(
    data_dir: Path,
    seed: int,
    *,
    download: bool = True,
    split: PositiveShare = 0.8,
    min_samples: Count = 1,
    clients: Count | None = None,
    json_train: str | None = None,
    json_test: str | None = None,
) -> Examples:
    """Read roles as clients: x [T, 80] uint8 tokens, y [T] the token that follows.

    Tokens are indices into ``LETTERS``; x is uint8 so that 4.2 million windows fit into 338 MB. Every client's windows
    are split in time: the first int(split n) train, the next 79 share characters with both sides and are left out, the
    rest test (LEAF, there with a split of 0.9). As in LEAF a role without a window on both sides is left out. Only the
    windows of the chosen roles are created.

    Args:
        data_dir: Directory of all data sets; contains shakespeare/data/raw_data/raw_data.txt, unless it is downloaded.
        seed: Random seed of the choice of clients.
        download: Whether downloads are allowed.
        split: Fraction of a role's windows to train on; 1 holds none out.
        min_samples: Lowest number of windows of a role, before the split.
        clients: Number of roles, chosen at random; None takes all.
        json_train: LEAF's JSON for Shakespeare, a file or a directory, instead of the text.
        json_test: The same for the test windows; None splits those of ``json_train`` in time.

    Raises:
        RequestError: If files are missing or not of the expected form, or no role is left.
    """
    if json_train is not None:
        roles, note = _from_json(json_train, json_test)
    elif json_test is not None:
        raise RequestError("data.test needs data.train")
    else:
        roles, note = _from_text(data_dir, download)
    return _examples(roles, note, split, min_samples, clients, seed)


def plays(text: str) -> list[tuple[str, dict[str, list[str]]]]:
    """The title and the lines per role of every play in the complete works.

    A work begins at the author's line, its title is the nearest line above that is not empty, two to seven lines up;
    the first work is skipped, and works with fewer than two roles. A speech begins with a name (letters and
    spaces, converted to upper case), a full stop and a space, after two spaces; lines after four spaces continue it,
    and others (stage directions, verse of songs) belong to no role but do not end it. In the Comedy of Errors names
    are at the margin and every line continues a speech, until "ACT ..." or a line that begins with "<".
    """
    lines = text.splitlines()
    starts = [i for i, line in enumerate(lines) if _AUTHOR in line]
    read = []
    for start, end in pairwise([*starts[1:], len(lines)]):
        title = next((t for k in range(2, 8) if (t := lines[max(start - k, 0)].strip())), "")
        roles = _roles(lines[start + 1 : end], title == _MISINDENTED)
        if len(roles) > 1:
            read.append((title, roles))
    return read


def _roles(lines: list[str], misindented: bool) -> dict[str, list[str]]:
    begin, indent = re.compile(_NAME if misindented else "  " + _NAME), "" if misindented else "    "
    roles: dict[str, list[str]] = {}
    speaker: str | None = None
    for line in lines:
        if match := begin.match(line):
            speaker = match[1].upper()
            if misindented and speaker.startswith("ACT "):
                speaker = None
            else:
                roles.setdefault(speaker, []).append(match[2])
        elif speaker is not None and misindented and line.startswith("<"):
            speaker = None
        elif speaker is not None and line.startswith(indent):
            roles[speaker].append(line[len(indent) :])
    return roles


def encode(text: str) -> tuple[np.ndarray, int]:
    """The tokens of a text, uint8 [len(text)], and the number of characters not in ``LETTERS``."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    tokens = _TABLE[np.minimum(codes, 255)]
    unknown = tokens == 255
    tokens[unknown] = _UNKNOWN
    return tokens, int(unknown.sum())


def _from_text(data_dir: Path, download: bool) -> tuple[dict[str, _Parts], str]:
    """The windows of every role that has any, [n, 81] views, and a note with the counts."""
    (path,) = FILES[0].find(data_dir, download=download)
    with reading(path):
        raw = path.read_bytes()
    try:
        works = plays(raw.decode("utf-8-sig"))
    except UnicodeDecodeError:
        works = plays(raw.decode("latin-1"))
    spoken: dict[str, list[str]] = {}
    count = 0
    for title, roles in works:
        for role, lines in roles.items():
            if len(lines) > 2:
                count += 1
                name = re.sub(r"\W+", "_", f"{title}_{role}".replace(" ", "_"))
                spoken.setdefault(name, []).extend(lines)
    windows: dict[str, _Parts] = {}
    strange = 0
    for name, lines in spoken.items():
        tokens, unknown = encode(re.sub("  +", " ", " ".join(lines) + " "))
        strange += unknown
        if len(tokens) > LENGTH:
            windows[name] = (np.lib.stride_tricks.sliding_window_view(tokens, LENGTH + 1),)
    if not windows:
        raise RequestError(f"{path} contains no plays; it must be {Path(_LAYOUTS[-1][0]).name} of {_ARCHIVE.urls[0]}")
    total = sum(len(every) for (every,) in windows.values())
    note = f"Shakespeare: {len(works)} plays, {count} roles, {len(windows)} with a window, {total} windows"
    return windows, note + (f", {strange} unknown characters read as blanks" if strange else "")


def _from_json(train: str, test: str | None) -> tuple[dict[str, _Parts], str]:
    given = {"data.train": train} | ({} if test is None else {"data.test": test})
    sides = [dict(_windows(where, option)) for option, where in given.items()]
    nothing = np.empty((0, LENGTH + 1), dtype=np.uint8)
    names = dict.fromkeys(name for side in sides for name in side)
    roles = {name: tuple(side.get(name, nothing) for side in sides) for name in names}
    return roles, f"LEAF JSON: {' and '.join(given.values())}"


def _windows(where: str, option: str) -> Iterator[tuple[str, np.ndarray]]:
    for place, name, x, y, _ in users_of(json_files(where, option)):
        texts = [*x, *y] if isinstance(x, list) and isinstance(y, list) and len(x) == len(y) else [None]
        if not all(isinstance(v, str) for v in texts) or {*map(len, x)} - {LENGTH} or {*map(len, y)} - {1}:
            raise RequestError(
                f"{place}: x and y must be lists of the same length, of strings of {LENGTH} characters and of one"
            )
        tokens, _ = encode("".join(a + b for a, b in zip(x, y, strict=True)))
        yield name, tokens.reshape(len(x), LENGTH + 1)


def _examples(
    roles: dict[str, _Parts], note: str, split: float, min_samples: int, clients: int | None, seed: int
) -> Examples:
    asked = {k: v for k, v in roles.items() if sum(map(len, v)) >= min_samples}
    whole_roles = split == 1 and all(len(parts) == 1 for parts in asked.values())
    cut = {k: parts if len(parts) == 2 else _cut(parts[0], split) for k, parts in asked.items()}
    names = [k for k, (train, test) in cut.items() if len(train) and (len(test) or whole_roles)]
    if not names:
        most = max((sum(map(len, v)) for v in roles.values()), default=0)
        raise RequestError(
            f"no role has data.source.min_samples={min_samples} windows, and some on both sides of "
            f"data.split={split:g}; the most is {most}"
        )
    chosen = names
    if clients is not None:
        if clients > len(names):
            raise RequestError(
                f"data.clients (plus data.test_clients) must be at most {len(names)}, the number of roles of this "
                f"source; got {clients}"
            )
        drawn = data_generator(seed, DataPurpose.ROLES).choice(len(names), clients, replace=False)
        chosen = [names[k] for k in np.sort(drawn)]
    parts = [p for k in chosen for p in cut[k]]
    sizes = [len(p) for p in parts]
    x, y = np.empty((sum(sizes), LENGTH), dtype=np.uint8), np.empty(sum(sizes), dtype=np.int64)
    for end, part in zip(np.cumsum(sizes), parts, strict=True):
        x[end - len(part) : end], y[end - len(part) : end] = part[:, :-1], part[:, -1]
    held_out = np.repeat([False, True] * len(chosen), sizes)
    lost = sum(sum(map(len, asked[k])) for k in chosen) - len(y)
    detail = f"clients: {len(chosen)} of {len(names)} roles with {min_samples} or more windows"
    if not whole_roles:
        detail += (
            f" and some on each side of the cut ({len(asked) - len(names)} roles have not); {len(y) - held_out.sum()} "
            f"windows to train on, {held_out.sum()} to test on, {lost} across the border left out"
        )
    return Examples(
        x=x,
        y=y,
        classes=len(LETTERS),
        owner=np.repeat(np.arange(len(chosen)).repeat(2), sizes),
        names=tuple(chosen),
        held_out=held_out,
        sources=(note, detail),
        tokens=len(LETTERS),
    )


def _cut(windows: np.ndarray, split: float) -> tuple[np.ndarray, np.ndarray]:
    """Split windows [n, 81] in time into training and test windows, without those across the border."""
    border = max(1, int(split * len(windows) + 1e-9))  # 0.7 * 10 is a little less than 7
    return windows[:border], windows[border + _GAP :]
