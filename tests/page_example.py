"""A report page as rich as a real one: several papers, 20 tables, 0 to 8 columns, every verdict and status."""

from collections import Counter
from dataclasses import replace
from itertools import product

from fedbench.analysis.coverage import Coverage
from fedbench.report.views import (
    BlockView,
    CellView,
    ChapterView,
    ClaimView,
    ComparisonView,
    FigureView,
    GridCell,
    GridView,
    GroupView,
    LineView,
    MultiverseView,
    PageView,
    PaperView,
    ReadingView,
    TableView,
    TwinView,
)
from fedbench.report.words import COMPARISONS, OF_BASIS, PRINTED

METHODS = ("FedAvg", "FedAdam", "q-FedAvg", "FedNova", "AdaFedAdam", "SCAFFOLD (option II)", "FedMGDA+")
METRICS = ("mean (w)", "STD (w)", "worst 30 % (w)", "mean", "STD", "worst 30 %", "angle", "KL")
REASON = "the printed STD of 61.2 exceeds 50, the largest that accuracies between 0 and 100 can have"
MINUS = "\N{MINUS SIGN}"
SVG = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 560 300" width="560" height="300">
<rect width="560" height="300" fill="#fff"/><g id="axes" stroke="#444" fill="none"><path d="M50 20V260H540"/></g>
<path d="M50 240C140 {0} 220 90 540 60" stroke="#1d5a9e" stroke-width="2.5" fill="none"/>
<path d="M50 250C160 {1} 260 150 540 120" stroke="#c9622b" stroke-width="2.5" fill="none" stroke-dasharray="6 4"/>
<g font-family="sans-serif" font-size="13" fill="#333"><text x="260" y="290">round</text>
<text x="480" y="52">AdaFedAdam</text><text x="490" y="142">FedAvg</text></g></svg>
"""


def example_cell(row: int, column: int, measured: bool, with_paper: bool = True) -> CellView:
    number = round(94.65 - 1.37 * row + 0.83 * column * (-1) ** row, 2) if measured else None
    own = f"{number:.2f} ± {0.2 + 0.11 * ((row + column) % 7):.2f}" if measured else ""
    if not with_paper:
        return CellView(own, "", "", "none", number, "n = 3, 95 % interval 93.1 to 95.9" if measured else "")
    printed = 94.18 - 1.2 * row + 0.8 * column * (-1) ** row
    paper = f"{printed:.2f} ± 0.45"
    if not measured:
        return CellView("", paper, "", "missing", None, "")
    verdict = ("inside", "inside", "outside", "single", "inside", "outside", "inside")[(2 * row + column) % 7]
    verdict = "impossible" if row == 3 else verdict  # a row as a whole
    if (row + 3 * column) % 11 == 10:
        return CellView(own, "", "", "none", number, "")
    note = f"n = 10, 95 % interval 94.20 to 95.10, widened by the paper's 0.45: {printed:.2f} lies inside"
    difference = f"{number - printed:+.2f}".replace("-", MINUS)
    return CellView(own, paper, difference, verdict, number, f"{note}. {REASON}" if verdict == "impossible" else note)


def example_line(row: int, columns: int, name: str, with_paper: bool = True, long: bool = False) -> LineView:
    status = ("full", "reduced", "reduced", "full", "not run", "reduced", "failed")[row % 7]
    measured = status in ("full", "reduced")
    algo = METHODS[row % len(METHODS)].split()[0].lower().replace("-", "")
    reduced = ("rounds 100 (paper 1000)", "seeds 3 (paper 10)", "clients 20 (paper 100)")[: 1 + row % 3]
    seeds = (10 if status == "full" else 3) if measured else 0
    notes = {5: "seed 2 diverged in round 17", 6: "exit 1: data are not there"}
    return LineView(
        label=METHODS[row % len(METHODS)],
        settings=f"algo.q={0.1 * row:g} algo.server_lr=0.01" + (" optim.weight_decay=0.0001 batch=10" if long else ""),
        seeds=seeds,
        status=status,
        reduced=reduced if status == "reduced" else (),
        cells=tuple(example_cell(row, c, measured, with_paper) for c in range(columns)),
        runs=tuple(f"../{name}/{algo}/3fa94c1{row}/seed_{s}/" for s in range(seeds)),
        command=f"fedbench -m experiment={name} algo={algo} seed=0,1,2,3,4,5,6,7,8,9 algo.q={0.1 * row:g} "
        "results_dir='results' data_dir=\"$FEDBENCH_DATA\"",
        note=notes.get(row % 7, ""),
        further=tuple(f"{93.1 - row - c:.2f} ± 0.31" if measured else "" for c in range(3)) if with_paper else (),
    )


def example_table(paper: str, number: int, columns: int, with_paper: bool = True) -> TableView:
    name = f"{paper}/table{number}"
    setups = ("Synthetic, 100 clients", "Femnist, 3500 clients", "Sent140")[: 1 + number % 3]
    blocks = tuple(
        BlockView(
            title,
            tuple(example_line(r + b, columns, name, with_paper, long=number % 4 == 0) for r in range(5 + b)),
            "all seeds share one data split (data.seed=0)" if with_paper else "",
        )
        for b, title in enumerate(setups if len(setups) > 1 else ("",))
    )
    caption = "Test accuracy (%) at the last round, mean ± sample STD over seeds; (w): weighted by test examples."
    title = f"{paper}, Table {number}: " + (
        "accuracy and its spread across clients" if number % 2 else "effect of momentum"
    )
    notes = ("CIFAR-10: not the official files (md5 differs)", "FedYogi: no run yet") if number % 3 == 0 else ()
    if not with_paper:
        return TableView(name, title, caption, METRICS[:columns], blocks, notes)
    twins = tuple(TwinView("weighted", "unweighted", c) if c < 3 else None for c in range(columns))
    tuning = (("in the paper", "a grid for the rivals."), ("here", "nothing."))
    further = ("mean", "STD", "worst 30 %")
    return TableView(name, title, caption, METRICS[:columns], blocks, notes, further, True, twins, tuning)


def example_comparison(i: int) -> ComparisonView:
    direction = list(COMPARISONS)[i % len(COMPARISONS)]
    label = f"worst 30 % of AdaFedAdam against {METHODS[i % 4]}"
    group = ("Synthetic, vanilla SGD", "FEMNIST")[i % 2]
    if direction in ("not run", "not comparable"):
        return ComparisonView(label, group, direction)
    lead = "+0.3914" if "for" in direction else "-0.3914".replace("-", MINUS)
    differences = tuple((f"seed {s}", f"+0.{s}{i}1") for s in range(10))
    return ComparisonView(label, group, direction, lead, "+0.10 to +0.68", "10 seeds", "0.0098", "1.0000", differences)


def example_multiverse(i: int) -> MultiverseView:
    """One of each headline; six readings along three axes."""
    headline = ("robust", "depends on", "robust over", "one reading")[i % 4]
    verdicts = ("holds", "fails", "undecided", "partly measured", "not run", "holds")
    readings = tuple(
        ReadingView((weights, "last", splits), verdicts[(k + i) % 6], "36 of 36 significant", "10 seeds", k == 0)
        for k, (weights, splits) in enumerate(product(("weighted", "unweighted"), ("0", "0 to 4", "own")))
    )
    details = {"depends on": ": weighting, split", "robust over": ": weighting; not measured: split (so far against)"}
    return MultiverseView(headline, details.get(headline, ""), ("weighting", "round", "data splits"), readings)


CLAIM_KINDS = [(basis, verdict) for basis, known in OF_BASIS.items() for verdict in known]


def example_claim(i: int) -> ClaimView:
    """The kinds of verdicts in turn."""
    (basis, verdict), printed = CLAIM_KINDS[i % len(CLAIM_KINDS)], list(PRINTED)[i % 4]
    text = (
        "AdaFedAdam reaches a higher mean accuracy than every other method on all three data sets.",
        "The spread of accuracies across clients is smaller than under FedAvg, at no cost in mean accuracy, "
        "and this holds for every value of the fairness parameter between 0.1 and 5 that has been tried.",
        "Momentum does not help FedAvg.",
    )[i % 3]
    evidence = "FedAvg: -1.32 points over 10 seeds, exact p = 0.00195; FedNova: -0.11, p = 0.43"
    evidence = evidence.replace("-", MINUS)
    where, by_runs = f"Section 5.{i}, Table {5 + i}", basis == "runs" and verdict != "not testable"
    return ClaimView(
        id=f"C{i + 1}",
        text=text,
        where=where,
        verdict=verdict,
        evidence=evidence,
        reduced=i % 3 == 1,
        printed=printed,
        basis=basis,
        tested="each metric of Table 5 against every baseline, paired by seed",
        beyond="its speed on a GPU" if i % 2 else "",
        refuted="a baseline ahead in one metric",
        needs="a GPU" if verdict == "not run" else "",
        counts="8 comparisons, 6 run: 3 point the paper's way (1 significant), 2 against it (1 significant), 1 level"
        if by_runs
        else "",
        groups=(
            GroupView("Synthetic, vanilla SGD", "holds", "all 12 significant", "robust"),
            GroupView("FEMNIST", "not run", ""),
        )
        if verdict == "partly measured"
        else (),
        comparisons=tuple(map(example_comparison, range(8))) if by_runs else (),
        multiverse=example_multiverse(i) if by_runs else None,
    )


def example_figure(paper: str, i: int) -> FigureView:
    svg = "" if i == 2 else SVG.format(90 + 20 * i, 190)
    reduced = ("rounds 100 (paper 1000)",) if i == 1 else ()
    caption = "Mean test accuracy over communication rounds on Femnist, a band of one standard deviation over seeds."
    alt = "Lines over the rounds; at the end: AdaFedAdam 94.7 (highest), FedAvg 89.4 (lowest)."
    return FigureView(f"{paper}/figure{i + 1}", f"Figure {i + 1}: accuracy over rounds", caption, svg, reduced, "", alt)


def example_paper(paper: str, title: str, tables: list[int], rich: bool = True) -> PaperView:
    assumptions = (
        ("A1", "The batch size of Synthetic is not stated.", "10", "The code that the authors published uses 10."),
        ("A2", "Whether clients are drawn with replacement.", "Without", "Section 3 speaks of subsets of clients."),
    )
    contradictions = (
        ("Table 5 / Section 5.1", "The text says 1000 rounds, the caption 500."),
        ("Equation 7", "With α = 0 the step is zero, yet α = 0 is recommended in the appendix."),
    )
    return PaperView(
        id=paper,
        title=title,
        citation="L. Ju, T. Zhang, S. Toor and A. Hellander. Transactions on Machine Learning, 2023. https://example.org/x",
        tables=tuple(example_table(paper, n + 1, columns) for n, columns in enumerate(tables)),
        figures=tuple(example_figure(paper, i) for i in range(3 if rich else 0)),
        claims=tuple(example_claim(i) for i in range(len(CLAIM_KINDS) if rich else 2)),
        assumptions=assumptions if rich else (),
        contradictions=contradictions if rich else (),
        readings=(("weighting", "unweighted", "the paper does not say"),) if rich else (),
        coverage=Coverage(60, 9, 132, Counter(inside=14, outside=53, impossible=1, single=1)),
    )


def example() -> PageView:
    """A page of three papers with 18 tables, and two tables of own runs."""
    fl = "Federated Learning"
    papers = (
        example_paper("adafedadam", f"Accelerating Fair {fl}: Adaptive Federated Adam", [3, 6, 8, 1, 0, 4, 2, 5]),
        example_paper("fedcada", f"FedCAda: Adaptive Client-Side Optimization for Stable {fl}", [2, 8, 3, 1, 2, 6]),
        example_paper("afl", f"Agnostic {fl}", [1, 2, 3, 2], rich=False),
    )
    environment = (
        ("fedbench", "0.2.0 (43ad655)"), ("Python", "3.11.7"), ("PyTorch", "2.9.1+cpu"), ("device", "NVIDIA H200"),
        ("platform", "Linux-6.8.0-1021-x86_64-with-glibc2.36"), ("seeds", "0 to 9"),
    )  # fmt: skip
    own = (example_table("own", 1, 8, with_paper=False), example_table("own", 2, 2, with_paper=False))
    return PageView(
        "What holds of three papers", papers, own, (example_figure("own", 0),), environment, ("left out: x",)
    )


EMPTY = PageView("Empty", (), (), (), (), ())
HOSTILE = """</style></script><script>alert(1)</script><img src=x onerror=alert(2)>"'&amp;&{{{{ 7*7 }}}}{{% x %}}{0}"""


def own_page() -> PageView:
    """A page of runs of no paper, with a comparison."""
    table = example_table("own", 0, 2, with_paper=False)
    lines = [
        replace(line, reduced=(), status="full", note="", settings="local.lr=0.1", runs=(), command="")
        for line in table.blocks[0].lines
    ]
    cells = [[replace(c, best=i == 0) for c in line.cells] for i, line in enumerate(lines)]
    lines = [replace(line, cells=tuple(c)) for line, c in zip(lines, cells, strict=True)]
    table = replace(table, title="own", caption="", blocks=(BlockView("", tuple(lines)),))
    rows = tuple((GridCell(n), GridCell(f"{v:.1f}", v, v == 3.5)) for n, v in (("b", 12.0), ("a", 3.5), ("c", -1.0)))
    grid = GridView("means", "over seeds", (("method", False), ("loss", True)), rows)
    figure = FigureView("own_curves", "own", "", SVG.format(200, 180), (), "", alt="curves of two methods")
    return PageView("report", (), (table,), (figure,), (), (), (ChapterView("Comparison", "at the end", (grid,)),))
