"""What the suite has found so far, as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from suite.parts import Part, Setting
from suite.record import PROCESS, Record


def listing(parts: Sequence[tuple[Part, Record]], setting: Setting) -> str:
    """Return the pieces of the parts, the minutes that they are expected to take, and which are done."""
    lines = []
    for part, record in parts:
        pieces = part.pieces(setting)
        lines.append(f"{part.letter}  {part.title}: about {sum(p.minutes for p in pieces):.0f} min on a GPU")
        for piece in pieces:
            lines.append(f"     {'done' if record.done(piece.name) else '':<5} {piece.minutes:>4.1f} min  {piece.name}")
    return "\n".join(lines)


def summary(parts: Sequence[tuple[Part, Record]], setting: Setting) -> str:
    """Return a section for each part: its table, what is wrong, and what is left."""
    small = ", at a small size on a CPU: its figures mean nothing" if setting.small else ""
    lines = [f"# GPU suite{small}", ""]
    for part, record in parts:
        known = {p.name for p in part.pieces(setting)} | {PROCESS}
        found = {k: v for k, v in record.pieces.items() if k in known}
        lines += [f"## {part.title}", ""]
        if found:
            devices, commits = ({str(v[k]) for v in found.values()} for k in ("device_name", "git_commit"))
            seconds = sum(v.get("seconds", 0.0) for v in found.values())
            lines += [f"{', '.join(sorted(devices))}; commit {', '.join(sorted(commits))}; {seconds:.0f} s", ""]
            lines += [*part.table(found), ""]
        wrong = [f"- Wrong: {name}: {line}" for name, v in found.items() for line in v.get("wrong", [])]
        left = [p.name for p in part.pieces(setting) if not record.done(p.name)]
        lines += [*wrong, *([f"- Not done: {'; '.join(left)}"] if left else []), ""]
    return "\n".join(lines)


def is_wrong(parts: Sequence[tuple[Part, Record]]) -> bool:
    """Return whether anything that is recorded is wrong."""
    return any(piece.get("wrong") for _, record in parts for piece in record.pieces.values())
