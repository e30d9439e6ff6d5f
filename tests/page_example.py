"""Pages of made-up runs: one of one's own runs, and one with a hostile text wherever people or runs
can put one.
"""

from dataclasses import replace
from types import SimpleNamespace

from fake_runs import fake

from fedbench.analysis.build_tables import paper_table, run_tables
from fedbench.analysis.claims.judge import judge_readings
from fedbench.analysis.matching import Evidence
from fedbench.papers.readings import Contradiction
from fedbench.papers.registry import papers
from fedbench.papers.schema import Tuning
from fedbench.reports.page import Chapter, Content
from fedbench.reports.paper import PaperReport
from fedbench.reports.plots import DrawnFigure
from fedbench.reports.text_table import Cell, table_of
from fedbench.runs.results import Results

HOSTILE = (
    "</style></script><script>alert(1)</script><img src=x onerror=alert(2)>"
    """"'&amp;&{{{{ 7*7 }}}}{{% x %}}{0}"""
)
SVG = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 560 300" width="560" height="300">
<rect width="560" height="300" fill="#fff"/>
<path d="M50 240C140 90 220 90 540 60" stroke="#1d5a9e" fill="none"/>
<text x="480" y="52">AdaFedAdam</text></svg>
"""


def own_content(root):
    """A page of runs of no paper, with a comparison."""
    for algo in ("fedavg", "fedprox", "qfedavg", "term"):
        fake(root, None, algo)
    rows = [(n, Cell(f"{v:.1f}", v, v == 3.5)) for n, v in (("b", 12.0), ("a", 3.5), ("c", -1.0))]
    table = table_of("means", ("method", "loss"), rows, "over seeds")
    figure = DrawnFigure("own_curves", "own", svg=SVG, alt="curves of two methods")
    chapters = (Chapter("Comparison", "at the end", (table,)),)
    return Content(
        "report", tables=tuple(run_tables(Results(root))), figures=(figure,), chapters=chapters
    )


def hostile_content(text=HOSTILE):
    """How many texts a page has, and the page, in which each of them is hostile and has its number
    at the end.
    """
    count = 0

    def put():
        nonlocal count
        count += 1
        return text.format(count - 1)

    given = papers()["fedfa"]
    claim = next(c for c in given.claims.values() if c.check)
    claim = replace(
        claim, text=put(), tested=put(), beyond=put(), refuted=put(), needs=put(), reference=put()
    )
    gap = replace(
        next(iter(given.gaps.values())),
        field=put(),
        adopted=put(),
        why=put(),
    )
    setup = next(s for s in given.setups.values() if s.experiment == "fedfa/table2_synthetic_iid")
    setups = {**given.setups, setup.id: replace(setup, title=put(), gaps=(gap.id,))}
    methods = {k: replace(m, label=put()) for k, m in given.methods.items()}
    source = given.tables["table2"]
    rows = tuple(row for row in source.rows if row.setup == setup.id)
    table = replace(source, caption=put(), setups=(setup.id,), rows=rows)
    paper = replace(
        given,
        paper=replace(given.paper, name=put(), title=put()),
        claims={claim.id: claim},
        gaps={gap.id: gap},
        contradictions={"x01": Contradiction(put(), put(), put())},
        setups=setups,
        methods=methods,
        tables={"table2": table},
    )
    figure = DrawnFigure(
        put(),
        put(),
        put(),
        put(),
        (put(),),
        put(),
        put(),
        Tuning(put(), put()),
    )
    printed = paper_table(table, Evidence(paper, []))
    first, *others = printed.blocks[0].lines
    broken = replace(
        first,
        matched=replace(
            first.matched, every=(SimpleNamespace(meta={"error": put()}, counts=False),)
        ),
    )
    printed = replace(
        printed,
        blocks=(replace(printed.blocks[0], lines=(broken, *others)),),
    )
    verdicts = ((claim, judge_readings(given.claims[claim.id], Evidence(given, []))),)
    report = PaperReport(paper, (printed,), (figure,), verdicts)
    grid = table_of(
        put(),
        (put(), put()),
        [(put(), Cell(put(), 1.0, True))],
        put(),
        [put()],
    )
    chapter = Chapter(
        put(),
        put(),
        (grid,),
        (),
        ((put(), put()),),
    )
    content = Content(
        put(),
        (report,),
        (),
        (),
        {put(): {put(): 1}},
        (put(),),
        (chapter,),
        (put(),),
    )
    return count, content
