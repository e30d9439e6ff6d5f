"""Count the lines of code of the package, without docstrings, comments and blank lines, and print a table per room.

usage: python scripts/code_size.py [DIR] [--max-lines N] [--max-files N] [--max-module N]

A line counts if a token of code stands on it. Modules of more than 350 lines in all, whatever stands on them, are
named below the table. The exit status is 1 if there are more lines or files than allowed, or a module is longer.
"""

from __future__ import annotations

import argparse
import ast
import io
import sys
import tokenize
from pathlib import Path

LONGEST = 350  # lines of a module in all
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def lines_of_code(source: str) -> int:
    """The number of lines of a module on which a token of code stands."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, WITH_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            lines.difference_update(range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1))
    return len(lines)


def room_of(module: Path) -> str:
    """The first directory of a module's path below the package."""
    return module.parts[0] if len(module.parts) > 1 else "(top)"


def main(argv: list[str] | None = None) -> int:
    """Print the table and return the exit status."""
    p = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    p.add_argument("folder", nargs="?", type=Path, default=Path(__file__).resolve().parent.parent / "fedbench")
    p.add_argument("--max-lines", type=int, help="the most lines of code that are allowed")
    p.add_argument("--max-files", type=int, help="the most files that are allowed")
    p.add_argument("--max-module", type=int, help="the most lines in all that a module may have")
    asked = p.parse_args(argv)

    files: dict[str, int] = {}
    code: dict[str, int] = {}
    lengths: dict[Path, int] = {}
    for path in sorted(asked.folder.rglob("*.py")):
        source, module = path.read_text(encoding="utf-8"), path.relative_to(asked.folder)
        room = room_of(module)
        files[room] = files.get(room, 0) + 1
        code[room] = code.get(room, 0) + lines_of_code(source)
        lengths[module] = len(source.splitlines())

    print(f"{'room':<14}{'files':>7}{'code':>8}")
    for room in sorted(files):
        print(f"{room:<14}{files[room]:>7}{code[room]:>8}")
    print(f"{'sum':<14}{sum(files.values()):>7}{sum(code.values()):>8}")
    for module, length in lengths.items():
        if length > LONGEST:
            print(f"{module} has {length} lines")
    limits = [
        ("lines of code", sum(code.values()), asked.max_lines),
        ("files", sum(files.values()), asked.max_files),
        ("lines in a module", max(lengths.values()), asked.max_module),
    ]
    exceeded = [(what, found, most) for what, found, most in limits if most is not None and found > most]
    for what, found, most in exceeded:
        print(f"code_size: {found} {what}, at most {most} are allowed", file=sys.stderr)
    return 1 if exceeded else 0


if __name__ == "__main__":
    sys.exit(main())
