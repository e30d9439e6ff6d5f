"""Shell blocks of the documentation, each with what the comment above it says about running it."""

import re
from dataclasses import dataclass

from tools import ROOT

PAGES = sorted((ROOT / "docs").glob("*.md"))
_BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]+) -->\n)?```(?:bash|sh|shell|console)\n(?P<text>.*?)^```",
    re.M | re.S,
)


@dataclass(frozen=True)
class Block:
    line: int
    lines: tuple[str, ...]
    reason: str | None  # why it is not run


def blocks(text):
    return [
        Block(text.count("\n", 0, m.start()) + 1, tuple(commands(m["text"])), m["reason"])
        for m in _BLOCK.finditer(text)
    ]


def commands(text):
    """The commands of a block: a quoted text or a backslash goes on in the next line."""
    found, part = [], ""
    for line in text.splitlines():
        part += line
        if line.endswith("\\"):
            part = part[:-1]
        elif part.count('"') % 2:
            part += "\n"
        else:
            found += [part] if part.strip() else []
            part = ""
    return found
