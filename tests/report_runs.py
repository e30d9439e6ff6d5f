"""A directory of made-up runs with everything that a report shows, and how tests read reports."""

import contextlib
import io
import re
from html import unescape

from fake_runs import fake, fake_row, fake_run
from table_readers import latex_tables, markdown_tables, read_csv

from fedbench.cli import main
from fedbench.papers.registry import papers
from fedbench.runs.results import Results

ADAM = papers()["adafedadam"]
PLAIN, MOMENTUM, HETERO = (
    f"adafedadam/{x}"
    for x in ("table5_synthetic", "table7_synthetic_momentum", "table2_cifar10_hetero")
)
FIGURE_ONLY = "fafed/figure2_mnist_low"
TITLES = {s.experiment: s.title for s in ADAM.setups.values()}
CUTS = {
    MOMENTUM: {"rounds": [1000, 20]},
    HETERO: {
        "model._target_": ["fedbench.models.vgg.VGG11", "fedbench.models.dense.Linear"],
        "rounds": [50, 20],
    },
}
# (table, block, row) -> what is not as in the paper, of every row with numbers of a reduced run
PAPERS_ROWS = {
    ("adafedadam_table2", TITLES[HETERO], "FedNova"): {
        "model linear (paper VGG11)", "rounds 20 (paper 50)", "seeds 1 (paper 3)",
    },
    ("adafedadam_table7", TITLES[MOMENTUM], "FedAvg"): {
        "rounds 20 (paper 1000)", "seeds 2 (paper 3)",
    },
}  # fmt: skip
OWN_ROWS = {
    ("fafed_figure2_mnist_low", "", "FedAvg"): {"rounds 20 (experiment 1000)"},
    ("smoke", "", "fedavg"): {"rounds 1 (experiment 3)"},
}


def fill(root):
    """Leave full runs behind Table 4, reduced ones, runs of no paper, and failed ones."""
    for row in ADAM.tables["table4"].rows:
        fake_row(root, ADAM, row, preset={"algo.alpha": 1.0})
    fake(root, MOMENTUM, "fedavg", seeds=(0, 1), cut=CUTS[MOMENTUM])
    fake_run(root, HETERO, "fednova", cut=CUTS[HETERO])
    fake_run(root, FIGURE_ONLY, "fedavg", cut={"rounds": [1000, 20]})
    fake_run(root, "smoke", "fedavg", cut={"rounds": [3, 1]})
    fake(root, None, "qfedavg", seeds=(0, 1))
    damaged = fake_run(root, None, "fedavg")
    (damaged / "rounds.jsonl").write_text("torn")
    fake(root, PLAIN, "fedadam", seeds=(1,), status="failed")
    fake_run(
        root,
        PLAIN,
        "fednova",
        status="failed",
        error="RuntimeError: 100 %\nof <it> & #1",
    )


def leave_runs(root, *algos, experiment=None, **options):
    """Leave runs of methods in a directory, and return all runs that it has."""
    for algo in algos:
        fake(root, experiment, algo, **options)
    return list(Results(root))


def files(folder):
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()
    }


def differing(one, other):
    """The names of files that differ, or that only one of two reports has."""
    return {name for name in one.keys() | other if one.get(name) != other.get(name)}


def call(*args):
    """Return status, stdout and stderr of the command."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(list(args))
    return status, out.getvalue(), err.getvalue()


def call_report(*words):
    """Return status, stdout and stderr of ``fedbench report``."""
    return call("report", *map(str, words))


def text_of(html):
    """The text of a part of a page."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


def links_of(page):
    return re.findall(r'<a [^>]*href="([^"]*)"', page)


def rows_of(path):
    """The rows of a table's file as dictionaries, in whichever of the three forms it is."""
    text = path.read_text()
    if path.suffix == ".csv":
        return read_csv(text)
    tables = markdown_tables(text) if path.suffix == ".md" else latex_tables(text)
    return [dict(zip(heads, r, strict=False)) for _, (heads, *rows) in tables for r in rows]


def tables_in(folder, ending):
    others = ("_claims", "_comparisons", "_readings")
    return [p for p in sorted(folder.glob(f"*.{ending}")) if not p.stem.endswith(others)]
