"""Figures of papers from runs made up here: what they draw, which runs they miss, and that reduced ones say so."""

from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from fake_runs import ROUNDS, fake, fake_row, measured, number

from fedbench.analysis.build_tables import run_tables
from fedbench.analysis.matching import Evidence
from fedbench.core.config_values import keys_text
from fedbench.core.metrics import metric_info
from fedbench.papers.registry import papers
from fedbench.reports.canvas import looks, method_look
from fedbench.reports.figures import paper_figure, paper_figures, run_figures
from fedbench.runs.results import Results

# a figure of every kind that shows runs, and what is drawn
KINDS = {
    ("fedfa", "figure2"): ("curves", ["fedfa_figure2"]),
    ("adafedadam", "figure2"): (
        "curves",
        ["adafedadam_figure2", "adafedadam_figure2_distribution"],
    ),
    ("adafed", "figure4"): ("curves", ["adafed_figure4"]),
    ("adafed", "figure7"): ("distribution", ["adafed_figure7"]),
    ("fedfa", "figure7"): ("sweep", ["fedfa_figure7"]),
    ("adafedadam", "figure3"): ("front", ["adafedadam_figure3", "adafedadam_figure3_curves"]),
    ("adafed", "figure3"): ("two_clients", ["adafed_figure3"]),
}


def drawn(root, paper, figure):
    """The views of a figure."""
    p = papers()[paper]
    return paper_figure(p.figures[figure], Evidence(p, Results(root)), root / "pictures")


def runs_of(root, paper, figure, rows=None, **more):
    """Runs behind a figure, or behind some of its rows."""
    p = papers()[paper]
    wanted = p.figures[figure].rows if rows is None else rows
    for row in dict.fromkeys(wanted_key(r) for r in wanted):
        fake_row(root, p, next(r for r in wanted if wanted_key(r) == row), **more)
    return p.figures[figure]


def wanted_key(row):
    return row.setup, row.algo, tuple(sorted(row.hyperparameters.items()))


def words(svg):
    """The texts of a picture; it is well-formed."""
    root = ElementTree.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    return [
        " ".join("".join(t.itertext()).split())
        for t in root.iter("{http://www.w3.org/2000/svg}text")
    ]


@pytest.fixture
def caught(monkeypatch):
    """What is handed to the functions that draw, by the names of the files; nothing is drawn."""
    calls = {}

    def drawing(base, picture, title, panels, **options):
        calls[base.name] = picture, title, panels, options
        base.parent.mkdir(exist_ok=True)
        path = base.with_name(f"{base.name}.svg")
        path.write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
        return [path]

    monkeypatch.setattr("fedbench.reports.plots.draw", drawing)
    return calls


# ---- every kind, drawn


@pytest.mark.parametrize(
    ("paper", "figure"),
    # 5 s
    [
        pytest.param(*f, marks=[pytest.mark.slow] if f == ("adafedadam", "figure2") else [])
        for f in KINDS
    ],
)
def test_every_kind_is_drawn_as_png_and_svg(tmp_path, paper, figure):
    kind, names = KINDS[paper, figure]
    assert papers()[paper].figures[figure].kind == kind
    wanted = runs_of(tmp_path, paper, figure)
    views = drawn(tmp_path, paper, figure)
    assert {p.name for p in (tmp_path / "pictures").iterdir()} == {
        f"{n}.{e}" for n in names for e in ("png", "svg")
    }
    assert sorted(v.name for v in views) == sorted(n.replace("_", "/", 1) for n in names)
    for view in views:
        assert (
            view.svg == (tmp_path / "pictures" / f"{view.name.replace('/', '_')}.svg").read_text()
        )
        assert (view.reduced, view.note, view.caption) == ((), "", wanted.caption)
        assert view.title == f"{papers()[paper].name}, Figure {figure.removeprefix('figure')}"
        texts = words(view.svg)
        assert "reduced setting" not in texts
        assert any(papers()[paper].name in t for t in texts)
    titles = {papers()[paper].setups[s].title for s in wanted.setups}
    shown = " ".join(t for v in views for t in words(v.svg))
    if kind != "front":
        assert all(t.split(",")[0] in shown for t in titles)


@pytest.mark.parametrize(
    ("paper", "figure"), [("fedfa", "figure7"), ("adafed", "figure3")], ids=str
)
def test_a_picture_of_a_reduced_run_says_so(tmp_path, paper, figure):
    first, *others = papers()[paper].figures[figure].rows
    runs_of(tmp_path, paper, figure, [first], cut={"rounds": [1000, 20]})
    runs_of(tmp_path, paper, figure, others)
    (view,) = drawn(tmp_path, paper, figure)
    assert "reduced setting" in words(view.svg)
    (why,) = view.reduced
    assert why.startswith(papers()[paper].methods[first.algo].label)
    assert why.endswith(f"on {papers()[paper].setups[first.setup].title}: rounds 20 (paper 1000)")


def test_the_rows_of_a_setup_are_drawn_reduced_alike(tmp_path, caught):
    """Where one method has no runs at the paper's settings, those of the others at these are not drawn beside it."""
    runs_of(tmp_path, "adafed", "figure4", cut={"rounds": [1000, 20]})
    runs_of(tmp_path, "adafed", "figure4", papers()["adafed"].figures["figure4"].rows[1:])
    (view,) = drawn(tmp_path, "adafed", "figure4")
    assert view.reduced == ("all runs: rounds 20 (paper 1000)",)


def test_what_is_not_drawn_is_listed_with_the_reason(tmp_path, caught):
    """A data set without runs in a word; a method that diverged by its name."""
    p = papers()["adafedadam"]
    rows = [r for r in p.figures["figure2"].rows if r.setup == "synthetic"]
    runs_of(tmp_path, "adafedadam", "figure2", rows[1:])
    fake_row(tmp_path, p, rows[0], status="diverged")
    others = [
        f"everything on {p.setups[s].title} (not run)"
        for s in p.figures["figure2"].setups
        if s != "synthetic"
    ]
    for view in drawn(tmp_path, "adafedadam", "figure2"):
        text, _, reason = view.note.removeprefix("not drawn: ").rpartition("; ")
        assert text.split("; ") == others
        assert reason == f"FedAvg on {p.setups['synthetic'].title} (diverged)"


def test_sketches_are_left_out_and_what_lacks_runs_is_empty(tmp_path):
    for paper, p in papers().items():
        views = {v.name: v for v in paper_figures(Evidence(p, []), tmp_path / "pictures")}
        assert set(views) == {
            f"{paper}/{f.id}" for f in p.figures.values() if f.kind not in ("schematic", "cka")
        }
        for name, view in views.items():
            assert view.svg == ""
            assert view.note.startswith("not drawn: everything on ") == bool(
                p.figures[name.split("/")[1]].rows
            )


# ---- the numbers that are drawn


def test_curves_are_those_of_the_runs_in_printed_units(tmp_path, caught):
    p = papers()["adafedadam"]
    runs_of(tmp_path, "adafedadam", "figure2")
    drawn(tmp_path, "adafedadam", "figure2")
    _, heading, panels, options = caught["adafedadam_figure2"]
    assert (heading, options) == ("AdaFedAdam, Figure 2", {"reduced": False})
    fields = ["accuracy_mean_weighted", "accuracy_worst30_weighted"]
    assert [(x.title, x.y_label) for x in panels] == [
        (p.setups[s].title, metric_info(f).axis)
        for s in p.figures["figure2"].setups
        for f in fields
    ]
    synthetic = panels[-1]
    assert [s.label for s in synthetic.series] == [
        "FedAvg",
        "FedAdam",
        "q-FedAvg",
        "FedNova",
        "AdaFedAdam",
    ]
    series = synthetic.series[2]
    assert series.x.tolist() == list(ROUNDS)
    experiment = p.setups["synthetic"].experiment
    values = [
        [100 * measured(experiment, "qfedavg", {}, s, fields[1], t) for t in ROUNDS]
        for s in range(3)
    ]
    assert series.y == pytest.approx(np.array(values))
    ranks = caught["adafedadam_figure2_distribution"][2][-1]
    assert ranks.title == synthetic.title
    last = [
        100 * number(experiment, "qfedavg", [], s, "accuracy", ROUNDS[-1], k)
        for s in range(3)
        for k in range(6)
    ]
    (clients,) = ranks.series[2].y
    assert (ranks.series[2].label, ranks.series[2].look) == ("q-FedAvg", series.look)
    assert clients == pytest.approx(sorted(last))
    assert ranks.series[2].x == pytest.approx(100 * np.arange(1, 19) / 18)


def test_norms_of_updates_are_on_a_logarithmic_axis_and_lack_the_first_round(tmp_path, caught):
    runs_of(tmp_path, "adafed", "figure4")
    drawn(tmp_path, "adafed", "figure4")
    picture, _, (panel,), _ = caught["adafed_figure4"]
    assert picture.keywords == {"log_y": True}
    assert {tuple(s.x) for s in panel.series} == {ROUNDS[1:]}


def test_a_sweep_is_the_last_round_over_the_parameter(tmp_path, caught):
    """One seed lacks a value of the parameter."""
    p, figure = papers()["fedfa"], papers()["fedfa"].figures["figure7"]
    for i, row in enumerate(figure.rows):
        fake_row(tmp_path, p, row, seeds=(0,) if i == 3 else (0, 2))
    drawn(tmp_path, "fedfa", "figure7")
    _, _, panels, _ = caught["fedfa_figure7"]
    assert [x.y_label for x in panels] == ["mean accuracy (%)", "variance of the accuracy (%²)"]
    values = [r.hyperparameters["alpha"] for r in figure.rows]
    (series,) = panels[1].series
    assert series.x.tolist() == values
    assert panels[1].x_label == "alpha"
    experiment = p.setups["synthetic_1_1"].experiment
    last = np.array(
        [
            [
                1e4 * measured(experiment, "fedfa", p.overrides(r), s, "accuracy_variance")
                for r in figure.rows
            ]
            for s in (0, 2)
        ]
    )
    last[1, 3] = np.nan
    assert series.y == pytest.approx(last, nan_ok=True)


def test_a_front_connects_the_sweep_and_sets_the_others_apart(tmp_path, caught):
    p, figure = papers()["adafedadam"], papers()["adafedadam"].figures["figure3"]
    runs_of(tmp_path, "adafedadam", "figure3")
    drawn(tmp_path, "adafedadam", "figure3")
    _, _, (panel,), _ = caught["adafedadam_figure3"]
    axes = ("mean error, weighted (%)", "relative STD of the error, weighted (%)")
    assert (panel.x_label, panel.y_label) == axes
    one = {series.label: series for series in panel.series}
    assert set(one) == {"FedAvg", "FedAdam", "FedNova", "q-FedAvg", "AdaFedAdam over alpha"}
    swept = one.pop("AdaFedAdam over alpha")
    assert swept.look == replace(method_look("adafedadam"), subject=True)
    assert swept.look.colour not in {other.look.colour for other in one.values()}
    assert swept.texts == ("0", "1", "2", "3", "4", "5", "6", "8")
    assert all(other.texts == () and other.x.shape == (3, 1) for other in one.values())
    experiment = p.setups["synthetic"].experiment
    row = figure.rows[2]
    for s in range(3):
        m, d = (
            measured(experiment, "adafedadam", p.overrides(row), s, f"accuracy_{k}_weighted")
            for k in ("mean", "std")
        )
        assert (swept.x[s][2], swept.y[s][2]) == pytest.approx((100 * (1 - m), 100 * d / (1 - m)))
    _, _, panels, _ = caught["adafedadam_figure3_curves"]
    assert [[s.label for s in q.series] for q in panels] == [
        [f"AdaFedAdam alpha={v}" for v in swept.texts]
    ] * 2


def test_two_clients_are_those_with_the_least_and_the_largest_loss_at_first(tmp_path, caught):
    p, figure = papers()["adafed"], papers()["adafed"].figures["figure3"]
    runs_of(tmp_path, "adafed", "figure3")
    drawn(tmp_path, "adafed", "figure3")
    _, _, panels, _ = caught["adafed_figure3"]
    row, seed = figure.rows[0], 1
    keys, setup = p.overrides(row), p.setups[row.setup]
    algo = p.methods[row.algo].algo
    losses = [
        [
            number(setup.experiment, algo, sorted(keys.items()), seed, "train_loss", t, k)
            for t in ROUNDS
        ]
        for k in range(6)
    ]
    low, high = panels[0].series
    assert panels[0].title == setup.title
    assert low.y[seed].tolist() == min(losses)
    assert high.y[seed].tolist() == max(losses)


# ---- looks and units


@pytest.mark.parametrize("paper", list(papers()))
def test_no_colour_occurs_twice_in_a_figure_and_a_method_alone_has_its_own(paper):
    """And the subject of the paper is on top in every figure with others."""
    p = papers()[paper]
    for figure in p.figures.values():
        lines = {
            f"{r.algo} {keys_text(r.hyperparameters)}": p.methods[r.algo].algo for r in figure.rows
        }
        given = looks(lines, paper)
        assert len({look.colour for look in given.values()}) == len(given), figure.id
        algos = list(lines.values())
        for label, look in given.items():
            algo = lines[label]
            if algos.count(algo) == 1:
                assert look.colour == method_look(algo).colour, label
        if len(set(algos)) > 1:
            assert any(look.subject for label, look in given.items() if lines[label] == paper), (
                figure.id
            )


def test_alternative_texts_name_axes_panels_and_lines(tmp_path, caught):
    p = papers()["adafed"]
    runs_of(tmp_path, "adafed", "figure5")
    (view,) = drawn(tmp_path, "adafed", "figure5")
    figure = p.figures["figure5"]
    titles = ", ".join(p.setups[s].title for s in figure.setups)
    labels = ", ".join(dict.fromkeys(p.methods[r.algo].label for r in figure.rows))
    assert view.alt == f"mean accuracy (%) by round; panels: {titles}; lines: {labels}."


# ---- one's own


def test_ones_own_runs_are_drawn_by_method_and_setting(tmp_path, caught):
    fake(tmp_path, None, "fedavg")
    for q in (0.1, 1.0):
        fake(tmp_path, None, "qfedavg", {"algo.q": q}, seeds=(0,))
    fake(tmp_path, None, "fedprox", status="diverged")
    runs = list(Results(tmp_path))
    (table,) = run_tables(runs)
    views = run_figures(table, tmp_path / "pictures")
    assert [v.name for v in views] == ["synthetic_leaf_curves", "synthetic_leaf_clients"]
    _, _, panels, _ = caught["synthetic_leaf_curves"]
    labels = [s.label for s in panels[0].series]
    assert labels == ["fedavg", "qfedavg algo.q=0.1", "qfedavg algo.q=1"]
    assert panels[1].series[0].y[2].tolist() == [
        100 * measured(None, "fedavg", {}, 2, "accuracy_mean", t) for t in ROUNDS
    ]
    (nothing,) = run_tables([r for r in runs if r.meta["status"] != "done"])
    assert run_figures(nothing, tmp_path / "pictures") == []


def test_settings_are_drawn_apart(tmp_path, caught):
    """A row of panels per setting, of which the first ones are drawn; methods keep their looks."""
    for rounds in range(1, 10):
        fake(tmp_path, None, "fedavg", {"rounds": rounds}, seeds=(0,))
    fake(tmp_path, None, "qfedavg", {"rounds": 5}, seeds=(0,))
    (table,) = run_tables(Results(tmp_path))
    views = run_figures(table, tmp_path / "pictures")
    assert {view.note for view in views} == {"drawn are the first 8 of 9 settings"}
    titles = [f"synthetic_leaf rounds={n}" for n in range(1, 9)]
    _, _, panels, _ = caught["synthetic_leaf_curves"]
    assert [x.title for x in panels] == [title for title in titles for _ in range(3)]
    assert [s.label for s in panels[12].series] == ["fedavg", "qfedavg"]
    assert len({x.series[0].look for x in panels}) == 1
    _, _, panels, _ = caught["synthetic_leaf_clients"]
    assert [x.title for x in panels] == titles
