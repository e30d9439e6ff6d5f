#!/usr/bin/env python
"""Write the tables of docs/findings.md from the summaries of the published reports.

    python scripts/findings.py [--check]

Text between ``<!-- claims: PAPER -->`` and ``<!-- end -->`` is replaced by a table of the paper's
claims that runs have decided, and text between ``<!-- counts -->`` and ``<!-- end -->`` by the
counts of all papers. With ``--check``, nothing is written, and the exit status is 1 if a table is
out of date.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from fedbench.reports.paper import SUMMARY, PaperSummary

PUBLISHED = Path("results/published")
PAGE = Path("docs/findings.md")
STATES = ("holds", "fails", "mixed", "undecided", "cannot hold", "not counted", "not run")
MARKED = re.compile(r"(<!-- (\w+)(?:: (\w+))? -->\n).*?(<!-- end -->)", re.DOTALL)


def summary_of(paper: str) -> PaperSummary:
    """Return the summary of a published report on a paper."""
    summary = SUMMARY.validate_json((PUBLISHED / paper / "summary.json").read_bytes())
    (mine,) = (report for report in summary.papers if report.id == paper)
    return mine


def cell(text: str) -> str:
    """Return a text as a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("\n", " ")


def claims(paper: str) -> Iterator[str]:
    """Yield the lines of the table of a paper's claims that runs, tests or print decide."""
    yield "| claim | says | verdict | comparisons | weakest or worst comparison |"
    yield "| --- | --- | --- | --- | --- |"
    for claim in summary_of(paper).claims:
        if claim.word in ("not run", "not testable"):
            continue
        link = f"../results/published/{paper}/index.html#paper-{paper}-claim-{claim.id}"
        word = claim.word
        if claim.status:
            word = f"{word}, {claim.status}"
        elif claim.basis == "test":
            word = f"{word}, by a test of the code"
        elif claim.basis == "print":
            word = f"{word}, in print"
        if claim.one_way:
            word = f"{word}; not counted: {claim.one_way}"
        cells = (f"[{claim.id}]({link})", claim.text, word, claim.counts, claim.effect)
        yield f"| {' | '.join(map(cell, cells))} |"


def counts() -> Iterator[str]:
    """Yield the lines of the table of all papers' claims by state, and of numbers by setting."""
    yield f"| | claims | confirmed | {' | '.join(STATES)} |"
    yield f"| --- {'| ---: ' * (2 + len(STATES))}|"
    numbers = ["", "| printed numbers | as printed | retuned | reduced | not run |"]
    numbers.append("| --- | ---: | ---: | ---: | ---: |")
    for folder in sorted(PUBLISHED.iterdir()):
        if not (folder / "evidence").is_dir():
            continue
        paper = summary_of(folder.name)
        by_state = [str(paper.states[state]) for state in STATES]
        cells = [paper.title, str(len(paper.claims)), str(paper.confirmed.total()), *by_state]
        yield f"| {' | '.join(cells)} |"
        c = paper.coverage
        amounts = (c.as_printed, c.retuned, c.reduced, c.not_run)
        numbers.append(f"| {paper.title} | {' | '.join(map(str, amounts))} |")
    yield from numbers


def filled(text: str) -> str:
    """Return the page with present tables."""

    def table(found: re.Match[str]) -> str:
        begin, kind, paper, end = found.groups()
        lines = claims(paper) if kind == "claims" else counts()
        return begin + "".join(f"{line}\n" for line in lines) + end

    return MARKED.sub(table, text)


def main() -> None:
    """Write or check the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only check, and write nothing")
    args = parser.parse_args()
    text = PAGE.read_text(encoding="utf-8")
    present = filled(text)
    if args.check:
        if present != text:
            sys.exit(f"{PAGE} is out of date; run: python scripts/findings.py")
        return
    PAGE.write_text(present, encoding="utf-8")


if __name__ == "__main__":
    main()
