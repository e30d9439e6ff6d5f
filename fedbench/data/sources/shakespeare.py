"""Shakespeare (McMahan et al., 2017; LEAF, Caldas et al., 2018): a client is a speaking role.

Project Gutenberg's complete works (1994 and 2011 editions) are read as in LEAF: the lines of a role
are joined with spaces into one text, and every 80 characters predict the next one. The Sonnets,
which come first, and works without roles are left out. Roles with at most two lines are not
clients.
"""

import re
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from fedbench.core.errors import RequestError
from fedbench.core.files import reading
from fedbench.core.options import Count, PositiveShare
from fedbench.core.randomness import DataPurpose, data_generator
from fedbench.data.examples import Examples, Part, join
from fedbench.data.files.fetch import published
from fedbench.data.files.readers import read_text
from fedbench.data.sources.leaf_json import json_files, users_of

LENGTH = 80
# LEAF's characters, in LEAF's order
LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
# replaces any other character; the roles in the Gutenberg text contain none
_UNKNOWN = LETTERS.index(" ")
_GAP = LENGTH - 1  # windows between training and test, left out so that inputs share no character

_AUTHOR = "by William Shakespeare"  # a few lines below the title of every work
# in this play, speeches begin at the margin; in other plays, after two spaces
_MISINDENTED = "THE COMEDY OF ERRORS"
_NAME = r"([a-zA-Z][a-zA-Z ]*)\. (.*)"
_TABLE = np.full(256, 255, dtype=np.uint8)  # 255: unknown
_TABLE[[ord(c) for c in LETTERS]] = np.arange(len(LETTERS))

_Lines: TypeAlias = dict[str, list[str]]  # lines of each role

FILES = (published("shakespeare"),)


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

    Tokens are indices into ``LETTERS``; x is uint8 so that 4.2 million windows fit into 338 MB.
    Every client's n windows are split in temporal order: the first int(split n) are for training,
    the next 79, which share characters with both sides, are left out, and the rest are for testing
    (as in LEAF, which uses a split of 0.9). As in LEAF, roles without windows on both sides are
    left out. Only the windows of the chosen roles are created.

    Args:
        data_dir: Directory of all data sets, with shakespeare/data/raw_data/raw_data.txt unless
            this file is downloaded.
        seed: Random seed of the choice of clients.
        download: Whether downloads are allowed.
        split: Fraction of each role's windows to train on; 1 holds none out.
        min_samples: Minimum number of windows per role, before the split.
        clients: Number of roles, chosen at random. If None, all.
        json_train: File or directory with LEAF's JSON for Shakespeare, to read instead of the text.
        json_test: The same for the test windows. If None, the windows of ``json_train`` are split
            in temporal order.

    Raises:
        RequestError: If files are missing or do not have the expected format, or no role is left.
    """
    if json_train is not None:
        windows = _from_json(json_train, "data.train")
        note = f"LEAF JSON: {json_train}"
    elif json_test is not None:
        raise RequestError("data.test needs data.train")
    else:
        windows, note = _from_text(data_dir, download)
    if json_test is None:
        roles = {name: _cut(rows, split) for name, rows in windows.items()}
    else:
        roles = _with_tests(windows, _from_json(json_test, "data.test"))
        note += f" and {json_test}"

    untested = split == 1 and json_test is None
    enough = {name: role for name, role in roles.items() if role.total >= min_samples}
    names = []
    for name, role in enough.items():
        if len(role.train) and (untested or len(role.test)):
            names.append(name)
    if not names:
        raise RequestError(
            f"no role has data.source.min_samples={min_samples} windows, and some on both sides "
            f"of data.split={split:g}"
        )
    chosen = _choose(names, clients, seed)
    detail = f"clients: {len(chosen)} of {len(names)} roles with {min_samples} or more windows"
    if not untested:
        detail += (
            f" and some on each side of the cut ({len(enough) - len(names)} roles have not); those "
            "across it are left out"
        )
    parts = []
    for name in chosen:
        parts.append(_part(name, False, roles[name].train))
        parts.append(_part(name, True, roles[name].test))
    return join(
        parts,
        classes=len(LETTERS),
        tokens=len(LETTERS),
        sources=(note, detail),
    )


class Role(NamedTuple):
    """The training and test windows [n, 81] of a role, and their total number before the split."""

    total: int
    train: np.ndarray
    test: np.ndarray


def plays(text: str) -> list[tuple[str, _Lines]]:
    """Return the title and the lines per role of every play in the complete works.

    A work begins at the author's line; its title is the nearest non-empty line, two to seven lines
    above. The first work and works with fewer than two roles are skipped. A speech begins, after
    two spaces, with a name (letters and spaces, converted to upper case), a full stop and a space.
    Lines indented by four spaces continue the speech; other lines (stage directions, verses of
    songs) belong to no role but do not end the speech. In the Comedy of Errors, names are at the
    margin, and every line continues a speech until "ACT ..." or a line that begins with "<".
    """
    lines = text.splitlines()
    starts = [i for i, line in enumerate(lines) if _AUTHOR in line]
    works = []
    for start, end in pairwise([*starts[1:], len(lines)]):
        above = lines[max(start - 7, 0) : max(start - 1, 0)]
        titles = [line.strip() for line in reversed(above)]
        title = next(filter(None, titles), "")
        roles = _roles(lines[start + 1 : end], title == _MISINDENTED)
        if len(roles) > 1:
            works.append((title, roles))
    return works


def _roles(
    lines: list[str],
    misindented: bool,
) -> _Lines:
    """Return the lines of each role in a work."""
    margin = "" if misindented else "  "
    speech = re.compile(margin + _NAME)
    indent = 2 * margin
    roles: _Lines = {}
    speaker: str | None = None
    for line in lines:
        match = speech.match(line)
        if match:
            speaker = match[1].upper()
            if misindented and speaker.startswith("ACT "):
                speaker = None
            else:
                roles.setdefault(speaker, []).append(match[2])
        elif misindented and line.startswith("<"):
            speaker = None
        elif speaker is not None and line.startswith(indent):
            roles[speaker].append(line.removeprefix(indent))
    return roles


def encode(text: str) -> tuple[np.ndarray, int]:
    """Return the tokens of a text, uint8 [len(text)], and the number of unknown characters."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    tokens = _TABLE[np.minimum(codes, 255)]
    unknown = tokens == 255
    tokens[unknown] = _UNKNOWN
    return tokens, int(unknown.sum())


def _from_text(
    data_dir: Path,
    download: bool,
) -> tuple[dict[str, np.ndarray], str]:
    """Return the windows of each role that has any, as [n, 81] views, and a note with counts."""
    (path,) = FILES[0].find(data_dir, download=download)
    works = plays(read_text(path))
    spoken: _Lines = {}
    count = 0
    for title, roles in works:
        for role, lines in roles.items():
            if len(lines) > 2:
                count += 1
                name = re.sub(r"\W+", "_", f"{title}_{role}".replace(" ", "_"))
                spoken.setdefault(name, []).extend(lines)

    windows: dict[str, np.ndarray] = {}
    strange = 0
    for name, lines in spoken.items():
        text = " ".join([*lines, ""])
        tokens, unknown = encode(re.sub("  +", " ", text))
        strange += unknown
        if len(tokens) > LENGTH:
            windows[name] = np.lib.stride_tricks.sliding_window_view(tokens, LENGTH + 1)
    if not windows:
        raise RequestError(
            f"{path} contains no plays; it must be 100.txt of {FILES[0].remotes[0].urls[0]}"
        )
    total = sum(map(len, windows.values()))
    note = (
        f"Shakespeare: {len(works)} plays, {count} roles, {len(windows)} with a window, "
        f"{total} windows"
    )
    if strange:
        note += f", {strange} unknown characters read as blanks"
    return windows, note


def _from_json(where: str, option: str) -> dict[str, np.ndarray]:
    """Return the windows [n, 81] of each role in LEAF's JSON."""
    windows = {}
    form = f"x and y must be lists of the same length, of strings of {LENGTH} characters and of one"
    for user in users_of(json_files(where, option)):
        with reading(f"{user.place}:", form):
            pairs = [*zip(user.x, user.y, strict=True)]
            if any(len(x) != LENGTH or len(y) != 1 for x, y in pairs):
                raise ValueError("of other lengths")
            texts = [x + y for x, y in pairs]
            tokens, _ = encode("".join(texts))
            windows[user.name] = tokens.reshape(-1, LENGTH + 1)
    return windows


def _cut(windows: np.ndarray, split: float) -> Role:
    """Split windows [n, 81] in temporal order, leaving out windows that overlap both parts."""
    border = max(1, int(split * len(windows) + 1e-9))  # 0.7 * 10 is a little less than 7
    return Role(len(windows), windows[:border], windows[border + _GAP :])


def _with_tests(
    train: dict[str, np.ndarray],
    test: dict[str, np.ndarray],
) -> dict[str, Role]:
    """Return the roles that occur in either file."""
    none = np.empty((0, LENGTH + 1), dtype=np.uint8)
    roles = {}
    for name in train | test:
        trained = train.get(name, none)
        tested = test.get(name, none)
        roles[name] = Role(len(trained) + len(tested), trained, tested)
    return roles


def _part(name: str, held_out: bool, windows: np.ndarray) -> Part:
    """Return windows [n, 81] as inputs of 80 characters and the character that follows."""
    return Part(name, held_out, windows[:, :-1], windows[:, -1])


def _choose(
    names: list[str],
    clients: int | None,
    seed: int,
) -> list[str]:
    """Choose ``clients`` roles at random, in their original order; if None, return all."""
    if clients is None:
        return names
    if clients > len(names):
        raise RequestError(
            f"data.clients (plus data.test_clients) must be at most {len(names)}, the number of "
            f"roles of this source; got {clients}"
        )
    rng = data_generator(seed, DataPurpose.ROLES)
    drawn = rng.choice(len(names), clients, replace=False)
    return [names[k] for k in np.sort(drawn)]
