"""Tables and claims of a report as Markdown, CSV and LaTeX."""

from __future__ import annotations

from collections.abc import Sequence

from fedbench.analysis.tables import Cell, Column, TableData
from fedbench.report.claim_views import AXIS_WORDS
from fedbench.report.render import csv_text, escape, in_markdown, latex, markdown, one_line
from fedbench.report.views import BlockView, CellView, ClaimView, LineView, TableView
from fedbench.report.words import CELLS, CLAIMS, HEADLINES, claim_mark
from fedbench.runs.run import Fields

_LEGEND = (
    "Mean ± sample STD over seeds; in or OUT: whether the paper's number lies in the 95 % interval of the mean, "
    "widened by its ±."
)
_FURTHER = (
    "A second table has the metrics that the paper does not print, in percent at the last round; (w): clients weighted "
    "by their test examples."
)
Part = tuple[list[str], list[list[str]]]  # headings, rows


def table_markdown(view: TableView) -> str:
    """Return a table as Markdown: per column the measured and the printed number, their difference and the verdict."""
    further = f" {_FURTHER}" if any(_has_further(block) for block in view.blocks) else ""
    title, caption = in_markdown(view.title), in_markdown(view.caption)
    parts = [f"{title}: {caption}\n"]
    if view.with_paper:
        parts = [f"## {title}\n", f"{caption}. {_LEGEND}{further}\n"]
    for block in view.blocks:
        if block.title:
            parts.append(f"### {in_markdown(block.title)}\n")
        parts += [markdown(*part) for part in _parts(view, block)]
        parts += ["".join(f"- {in_markdown(text)}\n" for text in _reduced(block.lines)), ""]
    parts.append("".join(f"- {in_markdown(n)}\n" for n in [*view.notes, *_impossible(view)]))
    return "\n".join(p for p in parts if p) + ("\n" if view.with_paper else "")


def table_latex(view: TableView) -> str:
    """Return a table as LaTeX (booktabs): the tabulars of each setup, then its reductions; other notes are comments."""
    parts = [_comment(f"{view.title}: {view.caption}")]
    for block in view.blocks:
        cuts = _reduced(block.lines)
        parts += [_comment(block.title) if block.title else "", *map(_comment, cuts)]
        parts += [latex(*part) for part in _parts(view, block)]
        parts += [*(f"\\par{{\\footnotesize {escape(text)}}}\n" for text in cuts), "\n"]
    return "".join(parts) + "".join(map(_comment, view.notes))


def _comment(text: str) -> str:
    return f"% {one_line(text)}\n"


def table_csv(table: TableData, view: TableView) -> str:
    """Return a table as CSV with plain numbers in full precision, a row per method, settings and setup.

    A table column named ``m`` becomes ``m_mean``, ``m_std`` (of the sample), ``m_n`` (seeds), ``m_lower`` and
    ``m_upper`` (the 95 % interval of the mean); a column of the paper also has ``m_paper``, ``m_paper_std``,
    ``m_difference`` and ``m_agreement``. Numbers are in the unit that the table prints; a missing one is empty.
    """
    rows: list[Fields] = []
    for block, shown in zip(table.blocks, view.blocks, strict=True):
        for line, texts in zip(block.lines, shown.lines, strict=True):
            row: Fields = {"setup": shown.title} if table.table is not None else {}
            row |= {"method": texts.label, "algo": line.algo, "settings": texts.settings, "seeds": texts.seeds}
            for column, cell in zip(table.columns, line.cells, strict=True):
                row |= _numbers(column, cell)
            row |= {"status": texts.status, "reduced": "; ".join(texts.reduced), "note": texts.note}
            rows.append(row | {"command": texts.command})
    return csv_text(rows)


def _numbers(column: Column, cell: Cell) -> Fields:
    lower, upper = cell.bounds or (None, None)
    found: Fields = {"mean": cell.mean, "std": cell.std, "n": cell.n, "lower": lower, "upper": upper}
    if column.printed:
        found |= {
            "paper": cell.printed.mean if cell.printed else None,
            "paper_std": cell.printed.std if cell.printed else None,
            "difference": cell.difference,
            "agreement": cell.agreement,
        }
    return {f"{column.name}_{name}": value for name, value in found.items()}


def claims_markdown(views: Sequence[ClaimView], title: str) -> str:
    """Return claims as Markdown."""
    heads = ["claim", "verdict", "readings", "printed numbers", "text", "where", "comparisons", "evidence"]
    rows = [
        [
            cell.replace("|", "/")
            for cell in (c.id, _verdict(c), headline(c), c.printed, c.text, c.where, _by_setup(c), c.evidence)
        ]
        for c in views
    ]
    return f"## {in_markdown(title)}: claims\n\n" + markdown(heads, rows)


def _by_setup(c: ClaimView) -> str:
    """Return the counts of a claim, and of one with several setups the verdict on each and what its readings give."""
    setups = [
        f"{g.title}: {CLAIMS[g.verdict].word}" + (f" ({g.headline})" if g.headline not in ("", g.verdict) else "")
        for g in c.groups
    ]
    return "; ".join([c.counts, *setups] if c.counts else setups)


def _verdict(c: ClaimView) -> str:
    return claim_mark(c.basis, c.verdict).word + (" (reduced)" if c.reduced else "")


def headline(c: ClaimView) -> str:
    """Return what the readings of a claim amount to: ``robust``, ``depends on: weighting``; empty without readings."""
    if c.multiverse is None:
        return ""
    word = HEADLINES[c.multiverse.headline].word
    return word + c.multiverse.details


def claims_csv(views: Sequence[ClaimView]) -> str:
    """Return claims as CSV."""
    texts = ("text", "tested", "beyond", "refuted", "needs", "where", "counts", "evidence")
    return csv_text(
        [
            {
                **{"id": c.id, "verdict": c.verdict, "basis": c.basis, "readings": headline(c), "reduced": c.reduced},
                **{"printed": c.printed, **{name: getattr(c, name) for name in texts}},
            }
            for c in views
        ]
    )


def comparisons_csv(views: Sequence[ClaimView]) -> str:
    """Return all comparisons of claims as CSV, a row per comparison."""
    names = ("group", "label", "direction", "lead", "interval", "pairs", "for_p", "against_p", "adjusted_p")
    return csv_text([{"claim": v.id, **{n: getattr(c, n) for n in names}} for v in views for c in v.comparisons])


def readings_csv(views: Sequence[ClaimView]) -> str:
    """Return verdicts under every reading as CSV, a row per reading; an axis without alternatives is empty."""
    return csv_text(
        [
            {
                "claim": v.id,
                **dict.fromkeys(AXIS_WORDS.values(), ""),
                **dict(zip(v.multiverse.axes, r.choices, strict=True)),
                **{"adopted": r.adopted, "verdict": r.verdict, "blocks": r.blocks, "counts": r.counts},
            }
            for v in views
            if v.multiverse
            for r in v.multiverse.readings
        ]
    )


def _parts(view: TableView, block: BlockView) -> list[Part]:
    """Return the paper's columns with the measured numbers, then the further columns if there are any."""
    main = _part(block, view.columns, [line.cells for line in block.lines], view.with_paper)
    if not _has_further(block):
        return [main]
    cells = [[CellView(text, "", "", "none", None, "") for text in line.further] for line in block.lines]
    return [main, _part(block, view.further, cells, with_paper=False, status=True)]


def _has_further(block: BlockView) -> bool:
    return any(text for line in block.lines for text in line.further)


def _part(
    block: BlockView,
    columns: Sequence[str],
    cells: Sequence[Sequence[CellView]],
    with_paper: bool,
    status: bool = False,
) -> Part:
    settings = any(line.settings for line in block.lines)
    status = status or with_paper or any(line.status != "full" for line in block.lines)
    heads = ["method", *(["settings"] if settings else []), "seeds"]
    for label in columns:
        heads += [label, "paper", "diff.", ""] if with_paper else [label]
    rows = []
    for line, cells_of_line in zip(block.lines, cells, strict=True):
        row = [line.label, *([line.settings] if settings else []), str(line.seeds)]
        for cell in cells_of_line:
            row.append(cell.measured or "–")
            row += [cell.paper or "–", cell.difference or "–", CELLS[cell.verdict].sign] if with_paper else []
        rows.append([*row, *([line.status] if status else [])])
    return [*heads, *(["status"] if status else [])], rows


def _reduced(lines: Sequence[LineView]) -> list[str]:
    """Return each reduction once, with the rows it applies to, then the notes of the rows."""
    reasons: dict[tuple[str, ...], list[str]] = {}
    for line in lines:
        if line.reduced:
            reasons.setdefault(line.reduced, []).append(f"{line.label} {line.settings}".rstrip())
    texts = [
        "reduced" + ("" if len(names) == len(lines) else f" ({', '.join(names)})") + f": {', '.join(why)}"
        for why, names in reasons.items()
    ]
    return texts + [f"{line.label}: {line.note}" for line in lines if line.note]


def _impossible(view: TableView) -> list[str]:
    return [
        f"{block.title}, {line.label} {line.settings}".rstrip() + f": {notes[0].split('. ')[-1]}"
        for block in view.blocks
        for line in block.lines
        if (notes := [c.note for c in line.cells if c.verdict == "impossible"])
    ]
