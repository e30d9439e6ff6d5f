"""Figures of papers from runs made up here: what they draw, which runs they miss, and that reduced ones say so."""

import json
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from fake_runs import ROUNDS, fake, fake_row, measured, number

from fedbench.analysis.matching import Evidence
from fedbench.analysis.tables import run_tables
from fedbench.core.metrics import metric_info
from fedbench.papers.registry import papers
from fedbench.report import figures, grids, plots
from fedbench.report.canvas import method_look
from fedbench.report.figures import FigureMaker
from fedbench.report.plots import Series
from fedbench.report.run_figures import run_figures
from fedbench.runs.results import Results

CKA = [[1.0, 0.25], [0.25, 1.0]]
# a figure of every kind that shows runs, and what is drawn
KINDS = {
    ("fedfa", "figure2"): ("curves", ["fedfa_figure2"]),
    ("adafedadam", "figure2"): ("curves", ["adafedadam_figure2", "adafedadam_figure2_distribution"]),
    ("adafed", "figure4"): ("curves", ["adafed_figure4"]),
    ("adafed", "figure7"): ("distribution", ["adafed_figure7"]),
    ("fedfa", "figure7"): ("sweep", ["fedfa_figure7"]),
    ("adafedadam", "figure3"): ("front", ["adafedadam_figure3", "adafedadam_figure3_curves"]),
    ("adafed", "figure3"): ("two_clients", ["adafed_figure3"]),
    ("fedcada", "figure2"): ("cka", ["fedcada_figure2"]),
}


def maker(root, paper):
    return FigureMaker(papers()[paper], Evidence(Results(root)), root, root / "pictures")


def drawn(root, paper, figure):
    """The views of a figure."""
    return maker(root, paper).one(papers()[paper].figures[figure])


def runs_of(root, paper, figure, rows=None, **more):
    """Runs behind a figure, or behind some of its rows."""
    p = papers()[paper]
    wanted = p.figures[figure].rows if rows is None else rows
    moments = CKA if p.figures[figure].kind == "cka" else None
    for row in dict.fromkeys(wanted_key(r) for r in wanted):
        fake_row(root, p, next(r for r in wanted if wanted_key(r) == row), moments=moments, **more)
    return p.figures[figure]


def wanted_key(row):
    return row.setup, row.algo, tuple(sorted(row.hyperparameters.items()))


def words(svg):
    """The texts of a picture; it is well-formed."""
    root = ElementTree.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    return [" ".join("".join(t.itertext()).split()) for t in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.fixture
def caught(monkeypatch):
    """What is handed to the functions that draw, by their names; nothing is drawn."""
    calls = {}

    def catch(name):
        def drawing(base, *args, **kwargs):
            calls.setdefault(name, []).append((base.name, args, kwargs))
            base.parent.mkdir(exist_ok=True)
            path = base.with_name(f"{base.name}.svg")
            path.write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
            return [path]

        return drawing

    for name in ("curves", "sweep", "distribution", "front"):
        monkeypatch.setattr(plots, name, catch(name))
    for name in ("bars", "matrix"):
        monkeypatch.setattr(grids, name, catch(name))
    return calls


# ---- every kind, drawn


@pytest.mark.parametrize(
    ("paper", "figure"),
    [pytest.param(*f, marks=[pytest.mark.slow] if f == ("adafedadam", "figure2") else []) for f in KINDS],  # 5 s
)
def test_every_kind_is_drawn_as_png_and_svg(tmp_path, paper, figure):
    kind, names = KINDS[paper, figure]
    assert papers()[paper].figures[figure].kind == kind
    wanted = runs_of(tmp_path, paper, figure)
    views = drawn(tmp_path, paper, figure)
    assert {p.name for p in (tmp_path / "pictures").iterdir()} == {f"{n}.{e}" for n in names for e in ("png", "svg")}
    assert sorted(v.name for v in views) == sorted(n.replace("_", "/", 1) for n in names)
    for view in views:
        assert view.svg == (tmp_path / "pictures" / f"{view.name.replace('/', '_')}.svg").read_text()
        assert (view.reduced, view.note, view.caption) == ((), "", wanted.caption)
        assert view.title == f"{papers()[paper].name}, Figure {figure.removeprefix('figure')}"
        texts = words(view.svg)
        assert "reduced setting" not in texts
        assert any(papers()[paper].name in t for t in texts)
    titles = {papers()[paper].setups[s].title for s in wanted.setups}
    shown = " ".join(t for v in views for t in words(v.svg))
    if kind not in ("front", "cka"):
        assert all(t.split(",")[0] in shown for t in titles)


@pytest.mark.parametrize(
    ("paper", "figure"), [("fedfa", "figure7"), ("fedcada", "figure2"), ("adafed", "figure3")], ids=str
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


def test_a_picture_says_which_of_its_data_sets_have_not_been_run(tmp_path):
    p = papers()["adafedadam"]
    rows = [r for r in p.figures["figure2"].rows if r.setup == "synthetic"]
    runs_of(tmp_path, "adafedadam", "figure2", rows)
    for view in drawn(tmp_path, "adafedadam", "figure2"):
        text = " ".join(words(view.svg))
        heading = text.partition("not run: ")[2]
        assert all(p.setups[s].title in heading for s in p.figures["figure2"].setups if s != "synthetic")
    runs_of(tmp_path / "all", "adafedadam", "figure3")
    assert all("not run" not in " ".join(words(v.svg)) for v in drawn(tmp_path / "all", "adafedadam", "figure3"))


def test_labels_are_drawn_from_counts(tmp_path):
    setups = papers()["adafedadam"].setups
    path = tmp_path / "labels" / f"{setups['cifar10_dir01'].experiment}.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps([[3, 1], [0, 5]]))
    (view,) = drawn(tmp_path, "adafedadam", "figure6")
    texts = words(view.svg)
    assert setups["cifar10_dir01"].title in texts
    assert setups["cifar10_dir1"].title not in texts


def test_sketches_are_left_out_and_what_lacks_runs_is_empty(tmp_path):
    for paper, p in papers().items():
        views = {v.name: v for v in maker(tmp_path, paper).all()}
        assert set(views) == {f"{paper}/{f.id}" for f in p.figures.values() if f.kind != "schematic"}
        for f in p.figures.values():
            if f.kind not in ("schematic", "functions"):
                view = views[f"{paper}/{f.id}"]
                assert view.svg == ""
                assert view.note == (f"{len(f.rows)} of {len(f.rows)} runs are missing" if f.rows else "")


def test_runs_that_are_missing_are_counted(tmp_path, caught):
    figure = papers()["fedfa"].figures["figure2"]
    runs_of(tmp_path, "fedfa", "figure2", figure.rows[:5])
    fake_row(tmp_path, papers()["fedfa"], figure.rows[5], status="failed")
    (view,) = drawn(tmp_path, "fedfa", "figure2")
    assert view.note == f"{len(figure.rows) - 5} of {len(figure.rows)} runs are missing"
    fake_row(tmp_path / "more", papers()["fedfa"], figure.rows[5])
    assert (
        drawn(tmp_path, "fedfa", "figure2")[0].note == f"{len(figure.rows) - 6} of {len(figure.rows)} runs are missing"
    )


# ---- the numbers that are drawn


def test_curves_are_those_of_the_runs_in_printed_units(tmp_path, caught):
    p = papers()["adafedadam"]
    runs_of(tmp_path, "adafedadam", "figure2")
    drawn(tmp_path, "adafedadam", "figure2")
    ((name, (heading, panels), options),) = caught["curves"]
    assert (name, heading, options) == (
        "adafedadam_figure2",
        "AdaFedAdam, Figure 2",
        {"log_y": False, "reduced": False},
    )
    fields = ["accuracy_mean_weighted", "accuracy_worst30_weighted"]
    assert [(x.title, x.y_label) for x in panels] == [
        (p.setups[s].title, metric_info(f).axis) for s in p.figures["figure2"].setups for f in fields
    ]
    synthetic = panels[-1]
    assert [s.label for s in synthetic.series] == ["FedAvg", "FedAdam", "q-FedAvg", "FedNova", "AdaFedAdam"]
    series = synthetic.series[2]
    assert series.x.tolist() == list(ROUNDS)
    experiment = p.setups["synthetic"].experiment
    values = [[100 * measured(experiment, "qfedavg", {}, s, fields[1], t) for t in ROUNDS] for s in range(3)]
    assert series.y == pytest.approx(np.array(values))
    ((_, (_, spread), _),) = caught["distribution"]
    title, rows, note = spread[-1]
    assert (title, note) == (synthetic.title, "")
    label, accuracies, look, seeds = rows[2]
    assert (label, look, seeds) == ("q-FedAvg", series.look, 3)
    last = [100 * number(experiment, "qfedavg", [], s, "accuracy", ROUNDS[-1], k) for s in range(3) for k in range(6)]
    assert accuracies == pytest.approx(last)


def test_norms_of_updates_are_on_a_logarithmic_axis_and_lack_the_first_round(tmp_path, caught):
    runs_of(tmp_path, "adafed", "figure4")
    drawn(tmp_path, "adafed", "figure4")
    ((_, (_, (panel,)), options),) = caught["curves"]
    assert options["log_y"] is True
    assert {tuple(s.x) for s in panel.series} == {ROUNDS[1:]}


def test_a_sweep_is_the_last_round_over_the_parameter(tmp_path, caught):
    """One seed lacks a value of the parameter."""
    p, figure = papers()["fedfa"], papers()["fedfa"].figures["figure7"]
    for i, row in enumerate(figure.rows):
        fake_row(tmp_path, p, row, seeds=(0,) if i == 3 else (0, 2))
    drawn(tmp_path, "fedfa", "figure7")
    ((_, (_, panels), _),) = caught["sweep"]
    assert [x.y_label for x in panels] == ["mean accuracy (%)", "variance of the accuracy (%²)"]
    values = [r.hyperparameters["alpha"] for r in figure.rows]
    (series,) = panels[1].series
    assert series.x.tolist() == values
    assert panels[1].x_label == "alpha"
    experiment = p.setups["synthetic_1_1"].experiment
    last = np.array(
        [
            [1e4 * measured(experiment, "fedfa", p.overrides(r), s, "accuracy_variance") for r in figure.rows]
            for s in (0, 2)
        ]
    )
    last[1, 3] = np.nan
    assert series.y == pytest.approx(last, nan_ok=True)


def test_a_front_connects_the_sweep_and_sets_the_others_apart(tmp_path, caught):
    p, figure = papers()["adafedadam"], papers()["adafedadam"].figures["figure3"]
    runs_of(tmp_path, "adafedadam", "figure3")
    drawn(tmp_path, "adafedadam", "figure3")
    ((_, (_, points, connected, one, two), _),) = caught["front"]
    assert (one, two) == ("mean error, weighted (%)", "relative STD of the error, weighted (%)")
    assert {label for label, *_ in points} == {"FedAvg", "FedAdam", "FedNova", "q-FedAvg"}
    ((label, x, y, texts, look),) = connected
    assert (label, look) == ("AdaFedAdam over alpha", replace(method_look("adafedadam"), subject=True))
    assert look.colour not in {point.look.colour for point in points}
    assert texts == ["0", "1", "2", "3", "4", "5", "6", "8"]
    experiment = p.setups["synthetic"].experiment
    row = figure.rows[2]
    for s in range(3):
        m, d = (
            measured(experiment, "adafedadam", p.overrides(row), s, f"accuracy_{k}_weighted") for k in ("mean", "std")
        )
        assert (x[2][s], y[2][s]) == pytest.approx((100 * (1 - m), 100 * d / (1 - m)))
    ((name, (_, panels), _),) = caught["curves"]
    assert name == "adafedadam_figure3_curves"
    assert [[s.tag for s in q.series] for q in panels] == [texts, texts]


def test_two_clients_are_those_with_the_least_and_the_largest_loss_at_first(tmp_path, caught):
    p, figure = papers()["adafed"], papers()["adafed"].figures["figure3"]
    runs_of(tmp_path, "adafed", "figure3")
    drawn(tmp_path, "adafed", "figure3")
    ((_, (_, panels), _),) = caught["curves"]
    row, seed = figure.rows[0], 1
    keys, setup = p.overrides(row), p.setups[row.setup]
    algo = p.methods[row.algo].algo
    losses = [
        [number(setup.experiment, algo, sorted(keys.items()), seed, "train_loss", t, k) for t in ROUNDS]
        for k in range(6)
    ]
    low, high = panels[0].series
    assert panels[0].title == setup.title
    assert low.y[seed].tolist() == min(losses)
    assert high.y[seed].tolist() == max(losses)


def test_moments_are_those_of_the_first_seed(tmp_path, caught):
    p = papers()["fedcada"]
    for row in p.figures["figure2"].rows:
        fake_row(tmp_path, p, row, seeds=(4,), moments=[[1.0, 0.5], [0.5, None]])
        fake_row(tmp_path, p, row, seeds=(1,), moments=CKA)
    drawn(tmp_path, "fedcada", "figure2")
    ((_, (_, panels), _),) = caught["matrix"]
    assert [title for title, _ in panels] == [f"{p.methods[r.algo].label}, seed 1" for r in p.figures["figure2"].rows]
    assert all(m.tolist() == CKA for _, m in panels)


# ---- looks and units


@pytest.mark.parametrize("paper", list(papers()))
def test_no_colour_occurs_twice_in_a_figure_and_a_method_alone_has_its_own(paper, tmp_path):
    m = maker(tmp_path, paper)
    for figure in papers()[paper].figures.values():
        given = m._looks(figure.rows)
        assert len({look.colour for look in given.values()}) == len(given), figure.id
        for (algo, label), look in given.items():
            if [a for a, _ in given].count(algo) == 1:
                assert look.colour == method_look(algo).colour, label


def test_the_subject_of_a_paper_is_on_top_in_every_figure_with_others(tmp_path):
    for paper, p in papers().items():
        m = maker(tmp_path, paper)
        for figure in p.figures.values():
            given = m._looks(figure.rows)
            if len({algo for algo, _ in given}) > 1:
                assert [algo for (algo, _), look in given.items() if look.subject].count(paper) > 0, figure.id


@pytest.mark.parametrize(("status", "word"), [("diverged", "diverged"), ("failed", "not run")])
def test_a_method_that_is_not_drawn_is_named_with_the_reason(tmp_path, caught, status, word):
    p = papers()["fedfa"]
    for row in p.figures["figure2"].rows:
        fake_row(tmp_path, p, row, status=status if row.algo == "fedfa" else "done")
    (view,) = drawn(tmp_path, "fedfa", "figure2")
    ((_, (_, panels), _),) = caught["curves"]
    assert {panel.note for panel in panels} == {f"not drawn: FedFa alpha=0 beta=0 ({word})"}
    assert f"Not drawn: FedFa alpha=0 beta=0 ({word})." in view.alt


def test_few_clients_per_point_are_smoothed():
    def given(points):
        return [Series("a", np.arange(points), np.ones((1, points)), method_look("fedavg"))]

    assert [figures._window("improved_clients", given(n)) for n in (19, 20, 100, 101)] == [1, 3, 11, 11]
    assert figures._window("accuracy_mean", given(100)) == 1


def test_alternative_texts_say_which_method_is_highest_at_the_end(tmp_path, caught):
    p = papers()["adafed"]
    runs_of(tmp_path, "adafed", "figure5")
    (view,) = drawn(tmp_path, "adafed", "figure5")
    figure = p.figures["figure5"]
    last = {
        p.methods[r.algo].label: np.mean(
            [
                100 * measured(p.setups[r.setup].experiment, p.methods[r.algo].algo, {}, s, "accuracy_mean")
                for s in range(5)
            ]
        )
        for r in figure.rows
    }
    low, *_, high = sorted(last, key=last.get)
    assert f"at the end of the lines: {high} {last[high]:.4g}, " in view.alt
    assert view.alt.endswith(f", {low} {last[low]:.4g}.")


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
    ((_, (_, panels), _),) = caught["curves"]
    labels = [s.label for s in panels[0].series]
    assert labels[0] == "fedavg"
    assert labels[1:] == ["qfedavg algo.q=0.1", "qfedavg algo.q=1"]
    assert panels[1].series[0].y[2].tolist() == [
        100 * measured(None, "fedavg", {}, 2, "accuracy_mean", t) for t in ROUNDS
    ]
    (nothing,) = run_tables([r for r in runs if r.meta["status"] != "done"])
    assert run_figures(nothing, tmp_path / "pictures") == []


def test_runs_of_different_lengths_are_drawn_apart(tmp_path, caught):
    """A panel per number of rounds; settings keep their looks."""
    for rounds in (20, 5):
        fake(tmp_path, None, "fedavg", {"rounds": rounds}, seeds=(0,))
    fake(tmp_path, None, "qfedavg", {"rounds": 5}, seeds=(0,))
    (table,) = run_tables(Results(tmp_path))
    run_figures(table, tmp_path / "pictures")
    ((_, (_, panels), _),) = caught["curves"]
    assert [x.title for x in panels] == ["5 rounds", "20 rounds"] * 3
    assert [[s.label for s in x.series] for x in panels[:2]] == [
        ["fedavg rounds=5", "qfedavg rounds=5"],
        ["fedavg rounds=20"],
    ]
    ((_, (_, panels), _),) = caught["distribution"]
    assert [p.title for p in panels] == ["clients, 5 rounds", "clients, 20 rounds"]


def test_seeds_that_do_not_end_together_are_marked(tmp_path, caught):
    paths = fake(tmp_path, None, "fedavg", seeds=(0, 1))
    lines = (paths[0] / "rounds.jsonl").read_text().splitlines(keepends=True)
    (paths[0] / "rounds.jsonl").write_text("".join(lines[:2]))
    facts = json.loads((paths[0] / "meta.json").read_text()) | {"rounds": json.loads(lines[1])["round"]}
    (paths[0] / "meta.json").write_text(json.dumps(facts))
    (table,) = run_tables(Results(tmp_path))
    run_figures(table, tmp_path / "pictures")
    ((_, (_, panels), _),) = caught["curves"]
    assert panels[0].series[0].label == "fedavg (seeds end at rounds 5, 10)"
