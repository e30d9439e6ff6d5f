"""Print the size and density of every folder of a package, and compare them with limits.

usage: python scripts/code_size.py [DIR] [--max-tokens N] [--max-per-line X] [--max-branches X]
[--max-wide X]

Tokens are those of Python's tokenizer without comments, docstrings and layout, so neither joining
nor splitting lines changes their number. A line counts if a token begins on it. The exit status is
1 if a limit is exceeded.
"""

from __future__ import annotations

import argparse
import ast
import io
import sys
import tokenize
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

WIDEST = 100  # columns of a line that is not counted as wide
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
BRANCHES = (
    ast.If,
    ast.For,
    ast.While,
    ast.Try,
    ast.ExceptHandler,
    ast.With,
    ast.BoolOp,
    ast.IfExp,
    ast.comprehension,
    ast.Match,
)


@dataclass(frozen=True)
class Size:
    """Size of a module, a folder or the package.

    Attributes:
        files: Number of modules.
        tokens: Number of tokens.
        lines: Lines on which a token begins.
        branches: Number of conditions, loops, handlers, boolean operators and comprehensions.
        wide: Lines of more than 100 columns.
    """

    files: int = 0
    tokens: int = 0
    lines: int = 0
    branches: int = 0
    wide: int = 0

    def __add__(self, other: Size) -> Size:
        pairs = zip(astuple(self), astuple(other), strict=True)
        return Size(*map(sum, pairs))

    def per_line(self, count: int) -> float:
        """Return a count per line of code."""
        return count / max(self.lines, 1)


def measured(source: str) -> Size:
    """Return the size of a module with this source text."""
    tree = ast.parse(source)
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            docstrings.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    starts = [
        token.start[0]
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in LAYOUT and token.start[0] not in docstrings
    ]
    lines = set(starts)
    text = source.splitlines()
    return Size(
        files=1,
        tokens=len(starts),
        lines=len(lines),
        branches=sum(isinstance(node, BRANCHES) for node in ast.walk(tree)),
        wide=sum(len(text[number - 1]) > WIDEST for number in lines),
    )


def sizes(root: Path) -> dict[str, Size]:
    """Return the size of every folder of a package by its name, and of the package as ``sum``."""
    by_folder: dict[str, Size] = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        folder = parts[0] if len(parts) > 1 else "(top)"
        size = measured(path.read_text(encoding="utf-8"))
        by_folder[folder] = by_folder.get(folder, Size()) + size
    by_folder["sum"] = sum(by_folder.values(), Size())
    return by_folder


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table and return the exit status."""
    package = Path(__file__).resolve().parent.parent / "fedbench"
    p = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    p.add_argument("folder", nargs="?", type=Path, default=package)
    p.add_argument("--max-tokens", type=int, help="the most tokens of the package")
    p.add_argument("--max-per-line", type=float, help="the most tokens a line")
    p.add_argument("--max-branches", type=float, help="the most branches a line")
    p.add_argument("--max-wide", type=float, help="the largest share of lines over 100 columns")
    args = p.parse_args(argv)

    print(
        f"{'folder':14}{'files':>6}{'tokens':>9}{'lines':>8}"
        f"{'tokens/line':>13}{'branches/line':>15}{'wide':>7}"
    )
    by_folder = sizes(args.folder)
    for folder, size in by_folder.items():
        print(
            f"{folder:14}{size.files:6}{size.tokens:9}{size.lines:8}"
            f"{size.per_line(size.tokens):13.2f}{size.per_line(size.branches):15.3f}"
            f"{size.per_line(size.wide):7.1%}"
        )

    whole = by_folder["sum"]
    limits = (
        ("tokens", whole.tokens, args.max_tokens),
        ("tokens a line", whole.per_line(whole.tokens), args.max_per_line),
        ("branches a line", whole.per_line(whole.branches), args.max_branches),
        ("lines over 100 columns, as a share", whole.per_line(whole.wide), args.max_wide),
    )
    status = 0
    for quantity, value, most in limits:
        if most is not None and value > most:
            print(
                f"code_size: {value:.6g} {quantity}, at most {most:.6g} are allowed",
                file=sys.stderr,
            )
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
