"""Draw the picture of the demo that the README shows: curves of its runs above its table.

    python scripts/demo_picture.py [RUNS] [PICTURE]

By default the runs are those of `make demo` in demo/, and the picture is docs/figures/demo.png.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.figure
import numpy as np

from fedbench.analysis.build_tables import summary_tables
from fedbench.analysis.table_model import TableData
from fedbench.reports.canvas import draw, legend_lines, method_look
from fedbench.reports.table_pages import best_columns, main_columns, measured_text, printed_text
from fedbench.runs.results import Results

ROOT = Path(__file__).parent.parent
DRAWN = {"accuracy_mean_weighted": "mean accuracy (%)", "accuracy_worst30_weighted": "worst 30 % of the clients (%)"}
COLOURS = {"inside": "#1B7F3B", "outside": "#B3261E"}  # of the paper's number


def main(argv: Sequence[str]) -> int:
    """Draw the picture and return the exit status."""
    runs = Path(argv[0]) if argv else ROOT / "demo"
    (table,) = summary_tables(list(Results(runs)))
    picture = Path(argv[1]) if len(argv) > 1 else ROOT / "docs" / "figures" / "demo.png"
    for path in draw(picture, picture_of, table):
        print(f"written: {path}")
    return 0


def picture_of(table: TableData) -> Any:
    """Return curves of the mean over seeds, with bands from the lowest to the highest, and the rows below them."""
    figure = matplotlib.figure.Figure(figsize=(8.6, 4.6), layout="constrained")
    curves, below = figure.subfigures(2, 1, height_ratios=(3, 2))
    (block,) = table.blocks
    looks = {line.label: method_look(line.algo) for line in block.lines}
    for axes, (metric, label) in zip(curves.subplots(1, 2), DRAWN.items(), strict=True):
        for line in block.lines:
            frames = [run.rounds().dropna(subset=[metric]) for run in line.found.runs.values()]
            rounds, values = frames[0]["round"], 100 * np.array([frame[metric] for frame in frames])  # [S, T]
            colour = looks[line.label].colour
            axes.plot(rounds, values.mean(0), color=colour, linestyle=looks[line.label].dashes, linewidth=1.4)
            axes.fill_between(rounds, values.min(0), values.max(0), color=colour, alpha=0.18, linewidth=0)
        axes.set(xlabel="round", ylabel=label, ylim=(0, 100))
    legend = legend_lines(looks.items(), marker="")
    curves.legend(handles=legend, loc="outside upper center", ncols=len(looks))
    _draw_rows(below.subplots(), table)
    return figure


def _draw_rows(axes: Any, table: TableData) -> None:
    """Draw the rows of a table of a paper as text: measured, then the paper's number in green or red."""
    (block,) = table.blocks
    axes.set(xlim=(0, 1), ylim=(-len(block.lines) - 2, 0.6))
    axes.axis("off")
    axes.text(0.01, 0, "method", weight="bold")
    starts, best = (0.14, 0.43, 0.72), best_columns(table, block)
    for place, x in zip(main_columns(table), starts, strict=True):
        axes.text(x, 0, table.columns[place].metric.label, weight="bold")
        axes.text(x + 0.13, 0, "paper", weight="bold")
    axes.axhline(-0.45, color="0.6", linewidth=0.8)
    for row, line in enumerate(block.lines, 1):
        axes.text(0.01, -row, line.label)
        for place, x in zip(main_columns(table), starts, strict=True):
            cell, column = line.cells[place], table.columns[place]
            axes.text(x, -row, measured_text(cell, column), weight="bold" if place in best[row - 1] else "normal")
            axes.text(x + 0.13, -row, printed_text(cell, column), color=COLOURS.get(cell.agreement, "0.3"))
    seeds = len(block.lines[0].found.runs)
    setup = block.setup.title if block.setup else ""
    what = f"{table.title}: {setup}; mean ± sample STD over {seeds} seeds; band: lowest to highest"
    signs = "bold: best mean; green: the paper's number lies in the 95 % interval of ours, widened by its ±; red: not"
    axes.text(0.01, -len(block.lines) - 1.7, f"{what}\n{signs}", color="0.35", fontsize=7.5, linespacing=1.5)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
