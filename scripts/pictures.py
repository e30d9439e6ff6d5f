"""Take or draw a picture of the README.

    python scripts/pictures.py demo [RUNS] [PICTURE]
    python scripts/pictures.py evidence [PAGE] [PICTURE] [--chromium PATH]

`demo` draws curves of the runs of `make demo` above their table. By default it reads demo/ and
writes docs/figures/demo.png. `evidence` takes a picture of the top of a page in the light scheme,
1280 pixels wide, in 64 colours. By default it takes results/published/index.html and writes
docs/figures/evidence.png. --chromium or $CHROMIUM names the program; by default it is the installed
Chromium. Needs the extra `dev`.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.figure
import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright

from fedbench.analysis.build_tables import summary_tables
from fedbench.analysis.table_model import Line, TableData
from fedbench.reports.canvas import Look, draw, legend_lines, method_look
from fedbench.reports.table_pages import best_columns, main_columns, measured_text, printed_text
from fedbench.runs.results import Results

ROOT = Path(__file__).parent.parent
FIGURES = ROOT / "docs" / "figures"
PAGE = ROOT / "results" / "published" / "index.html"
WIDTH = 1280
HEIGHT = 960
COLOURS = 64
AROUND = 20  # pixels left and right of the text
DRAWN = {
    "accuracy_mean_weighted": "mean accuracy (%)",
    "accuracy_worst30_weighted": "worst 30 % of the clients (%)",
}
AGREEMENT = {  # colours of the paper's number
    "inside": "#1B7F3B",
    "outside": "#B3261E",
}
STARTS = (0.14, 0.43, 0.72)  # of the columns of the table, as shares of its width
PRINTED = 0.13  # from the start of a column to the paper's number


def main(argv: Sequence[str]) -> int:
    """Make the picture and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)

    demo = commands.add_parser("demo", help="draw curves of runs above their table")
    demo.add_argument("runs", type=Path, nargs="?", default=ROOT / "demo")
    demo.add_argument("picture", type=Path, nargs="?", default=FIGURES / "demo.png")

    evidence = commands.add_parser(
        "evidence",
        help="take the top of the page of the published reports",
    )
    evidence.add_argument("page", type=Path, nargs="?", default=PAGE)
    evidence.add_argument("picture", type=Path, nargs="?", default=FIGURES / "evidence.png")
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    evidence.add_argument("--chromium", default=chromium, help="path of Chromium")

    args = parser.parse_args(argv)
    if args.command == "demo":
        draw_demo(args.runs, args.picture)
    else:
        take_evidence(args.page, args.picture, args.chromium)
    return 0


# ---- the page of the published reports


def take_evidence(page: Path, picture: Path, chromium: str | None) -> None:
    """Take a picture of the top of a page."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium,
            args=["--no-sandbox", "--disable-gpu"],
        )
        tab = browser.new_page(
            viewport={"width": WIDTH, "height": HEIGHT + 2 * AROUND},
            color_scheme="light",
        )
        tab.goto(page.resolve().as_uri())
        box = tab.locator("header.front").bounding_box()
        assert box is not None
        clip = {
            "x": box["x"] - AROUND,
            "y": AROUND,
            "width": box["width"] + 2 * AROUND,
            "height": HEIGHT,
        }
        png = io.BytesIO(tab.screenshot(clip=clip))
        browser.close()
    image = Image.open(png).convert("RGB")
    quantized = image.quantize(
        COLOURS,
        method=Image.Quantize.MEDIANCUT,
        dither=Image.Dither.NONE,
    )
    quantized.save(picture, optimize=True)
    print(f"written: {picture}")


# ---- the demo


def draw_demo(runs: Path, picture: Path) -> None:
    """Draw curves of runs above their table."""
    (table,) = summary_tables(list(Results(runs)))
    for path in draw(picture, demo_figure, table):
        print(f"written: {path}")


def demo_figure(table: TableData) -> Any:
    """Return the curves of a table's runs with its rows below them."""
    figure = matplotlib.figure.Figure(figsize=(8.6, 4.6), layout="constrained")
    curves, below = figure.subfigures(2, 1, height_ratios=(3, 2))
    (block,) = table.blocks
    looks = {line.label: method_look(line.algo) for line in block.lines}
    panels = curves.subplots(1, len(DRAWN))
    for axes, (metric, label) in zip(panels, DRAWN.items(), strict=True):
        for line in block.lines:
            _draw_curve(axes, line, metric, looks[line.label])
        axes.set(xlabel="round", ylabel=label, ylim=(0, 100))
    legend = legend_lines(looks.items(), marker="")
    curves.legend(handles=legend, loc="outside upper center", ncols=len(looks))
    _draw_rows(below.subplots(), table)
    return figure


def _draw_curve(
    axes: Any,
    line: Line,
    metric: str,
    look: Look,
) -> None:
    """Draw the mean over seeds with a band from the lowest to the highest."""
    runs = line.matched.runs.values()
    frames = [run.rounds().dropna(subset=[metric]) for run in runs]
    rounds = frames[0]["round"]
    # [S, T]
    values = 100 * np.array([frame[metric] for frame in frames])
    axes.plot(
        rounds,
        values.mean(0),
        color=look.colour,
        linestyle=look.dashes,
        linewidth=1.4,
    )
    axes.fill_between(
        rounds,
        values.min(0),
        values.max(0),
        color=look.colour,
        alpha=0.18,
        linewidth=0,
    )


def _draw_rows(axes: Any, table: TableData) -> None:
    """Draw the rows of a table as text: measured numbers and the paper's in green or red."""
    (block,) = table.blocks
    bottom = -len(block.lines) - 2
    axes.set(xlim=(0, 1), ylim=(bottom, 0.6))
    axes.axis("off")
    axes.text(0.01, 0, "method", weight="bold")
    axes.axhline(-0.45, color="0.6", linewidth=0.8)
    for row, line in enumerate(block.lines, 1):
        axes.text(0.01, -row, line.label)

    best = best_columns(table, block)
    for place, x in zip(main_columns(table), STARTS, strict=True):
        column = table.columns[place]
        axes.text(x, 0, column.metric.label, weight="bold")
        axes.text(x + PRINTED, 0, "paper", weight="bold")
        for row, line in enumerate(block.lines, 1):
            cell = line.cells[place]
            axes.text(
                x,
                -row,
                measured_text(cell, column),
                weight="bold" if place in best[row - 1] else "normal",
            )
            axes.text(
                x + PRINTED,
                -row,
                printed_text(cell, column),
                color=AGREEMENT.get(cell.agreement, "0.3"),
            )

    seeds = len(block.lines[0].matched.runs)
    setup = block.setup.title if block.setup else ""
    axes.text(
        0.01,
        bottom + 0.3,
        f"{table.title}: {setup}; mean ± sample STD over {seeds} seeds; band: lowest to highest\n"
        "bold: best mean; green: the paper's number lies in the 95 % prediction interval of "
        "another run; red: not",
        color="0.35",
        fontsize=7.5,
        linespacing=1.5,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
