"""Figures of papers from made-up runs: the numbers, missing runs, and marks of reduced ones."""

from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from fake_runs import ROUNDS, edit, fake, fake_row, fake_run, measured, measured_curve, number

from fedbench.analysis.build_tables import run_tables
from fedbench.analysis.matching import Evidence
from fedbench.core.config_values import keys_text
from fedbench.core.metrics import metric_info
from fedbench.papers.registry import papers
from fedbench.reports.canvas import looks, method_look
from fedbench.reports.figures import paper_figure, paper_figures, run_figures
from fedbench.runs.results import Results

SVG = "{http://www.w3.org/2000/svg}"
ADAFED = papers()["adafed"]
ADAFEDADAM = papers()["adafedadam"]
FEDFA = papers()["fedfa"]
CUT = {"rounds": [1000, 20]}
every_paper = pytest.mark.parametrize("paper", papers().values(), ids=list(papers()))
# a figure of every kind that shows runs, and the pictures that are drawn
KINDS = [
    (FEDFA, "figure2", [""]),
    pytest.param(
        ADAFEDADAM,
        "figure2",
        ["", "_distribution"],
        marks=pytest.mark.slow,
    ),  # 5 s
    (ADAFED, "figure4", [""]),
    (ADAFED, "figure7", [""]),
    (FEDFA, "figure7", [""]),
    (ADAFEDADAM, "figure3", ["", "_curves"]),
    (ADAFED, "figure3", [""]),
]


def drawn(root, paper, figure):
    """The views of a figure."""
    evidence = Evidence(paper, Results(root))
    return paper_figure(paper.figures[figure], evidence, root / "pictures")


def leave(root, paper, rows, **more):
    """Leave the runs behind rows of a figure."""
    distinct = {
        (
            row.setup,
            row.algo,
            keys_text(row.hyperparameters),
        ): row
        for row in rows
    }
    for row in distinct.values():
        fake_row(root, paper, row, **more)


def experiment_of(paper, setup):
    return paper.setups[setup].experiment


def words(svg):
    """The texts of a picture; it is well-formed."""
    root = ElementTree.fromstring(svg)
    assert root.tag == f"{SVG}svg"
    return [" ".join("".join(text.itertext()).split()) for text in root.iter(f"{SVG}text")]


@pytest.fixture
def caught(monkeypatch):
    """The arguments of the functions that draw, by the names of the files; nothing is drawn."""
    calls = {}

    def drawing(base, picture, title, panels, **options):
        calls[base.name] = (picture, title, panels, options)
        base.parent.mkdir(exist_ok=True)
        path = base.with_name(f"{base.name}.svg")
        path.write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
        return [path]

    monkeypatch.setattr("fedbench.reports.plots.draw", drawing)
    return calls


def panels_of(caught, name):
    _, _, panels, _ = caught[name]
    return panels


def leave_and_draw(root, paper, figure):
    """Draw a figure whose runs are all there; return its rows."""
    rows = paper.figures[figure].rows
    leave(root, paper, rows)
    drawn(root, paper, figure)
    return rows


# ---- every kind, drawn


@pytest.mark.slow
@pytest.mark.parametrize(("paper", "figure", "ends"), KINDS)
def test_every_kind_is_drawn_as_png_and_svg(tmp_path, paper, figure, ends):
    source = paper.figures[figure]
    leave(tmp_path, paper, source.rows)
    views = drawn(tmp_path, paper, figure)
    assert {view.name for view in views} == {f"{paper.id}/{figure}{end}" for end in ends}
    shown = []
    for view in views:
        file = tmp_path / "pictures" / view.name.replace("/", "_")
        assert view.svg == file.with_suffix(".svg").read_text()
        assert file.with_suffix(".png").exists()
        assert (view.reduced, view.note) == ((), "")
        assert view.title == f"{paper.name}, Figure {figure.removeprefix('figure')}"
        assert "reduced setting" not in words(view.svg)
        shown += words(view.svg)
    assert any(paper.name in text for text in shown)
    if source.kind != "front":
        titles = [paper.setups[setup].title.partition(",")[0] for setup in source.setups]
        assert all(title in " ".join(shown) for title in titles)


@pytest.mark.parametrize(
    ("paper", "figure"),
    [(FEDFA, "figure7"), (ADAFED, "figure3")],
)
def test_a_picture_of_a_reduced_run_says_so(tmp_path, paper, figure):
    first, *others = paper.figures[figure].rows
    leave(tmp_path, paper, [first], cut=CUT)
    leave(tmp_path, paper, others)
    (view,) = drawn(tmp_path, paper, figure)
    assert "reduced setting" in words(view.svg)
    (reason,) = view.reduced
    assert reason.startswith(paper.methods[first.algo].label)
    assert reason.endswith(f"on {paper.setups[first.setup].title}: rounds 20 (paper 1000)")


@pytest.mark.usefixtures("caught")
def test_the_rows_of_a_setup_are_drawn_reduced_alike(tmp_path):
    """A method has reduced runs alone: full runs of others are not drawn beside it."""
    rows = ADAFED.figures["figure4"].rows
    leave(tmp_path, ADAFED, rows, cut=CUT)
    leave(tmp_path, ADAFED, rows[1:])
    (view,) = drawn(tmp_path, ADAFED, "figure4")
    assert view.reduced == ("all runs: rounds 20 (paper 1000)",)


@pytest.mark.usefixtures("caught")
def test_rows_that_are_not_drawn_are_listed_with_the_reason(tmp_path):
    """A data set without runs in a word; a method that diverged by its name."""
    figure = ADAFEDADAM.figures["figure2"]
    first, *others = [row for row in figure.rows if row.setup == "synthetic"]
    leave(tmp_path, ADAFEDADAM, others)
    leave(tmp_path, ADAFEDADAM, [first], status="diverged")
    titles = {setup: ADAFEDADAM.setups[setup].title for setup in figure.setups}
    diverged = f"FedAvg on {titles.pop('synthetic')} (diverged)"
    not_run = [f"everything on {title} (not run)" for title in titles.values()]
    for view in drawn(tmp_path, ADAFEDADAM, "figure2"):
        reasons = view.note.removeprefix("not drawn: ").split("; ")
        assert reasons == [*not_run, diverged]


@every_paper
def test_sketches_are_left_out_and_figures_without_runs_are_empty(tmp_path, paper):
    views = paper_figures(Evidence(paper, []), tmp_path / "pictures")
    figures = [x for x in paper.figures.values() if x.kind not in ("schematic", "cka")]
    assert {view.name for view in views} == {f"{paper.id}/{figure.id}" for figure in figures}
    for view in views:
        rows = paper.figures[view.name.partition("/")[2]].rows
        assert view.svg == ""
        assert view.note.startswith("not drawn: everything on ") == bool(rows)


# ---- the numbers that are drawn


def test_curves_are_those_of_the_runs_in_printed_units(tmp_path, caught):
    figure = ADAFEDADAM.figures["figure2"]
    leave_and_draw(tmp_path, ADAFEDADAM, "figure2")
    panels = panels_of(caught, "adafedadam_figure2")
    worst = "accuracy_worst30_weighted"
    assert [(panel.title, panel.y_label) for panel in panels] == [
        (ADAFEDADAM.setups[setup].title, metric_info(field).axis)
        for setup in figure.setups
        for field in ("accuracy_mean_weighted", worst)
    ]
    synthetic = panels[-1]
    labels = [series.label for series in synthetic.series]
    assert labels == ["FedAvg", "FedAdam", "q-FedAvg", "FedNova", "AdaFedAdam"]
    series = synthetic.series[2]
    assert series.x.tolist() == list(ROUNDS)
    experiment = experiment_of(ADAFEDADAM, "synthetic")
    for seed in range(3):
        curve = measured_curve(experiment, "qfedavg", {}, seed, worst)
        assert series.y[seed] == pytest.approx(100 * np.array(curve))

    ranks = panels_of(caught, "adafedadam_figure2_distribution")[-1]
    ranked = ranks.series[2]
    assert ranked.look == series.look
    last = [
        100
        * number(
            experiment,
            "qfedavg",
            [],
            seed,
            "accuracy",
            ROUNDS[-1],
            client,
        )
        for seed in range(3)
        for client in range(6)
    ]
    assert ranked.y == pytest.approx(np.array([sorted(last)]))
    assert ranked.x == pytest.approx(100 * np.arange(1, 19) / 18)


def test_norms_of_updates_are_on_a_logarithmic_axis_and_lack_the_first_round(tmp_path, caught):
    leave_and_draw(tmp_path, ADAFED, "figure4")
    picture, _, (panel,), _ = caught["adafed_figure4"]
    assert picture.keywords == {"log_y": True}
    assert {tuple(series.x) for series in panel.series} == {ROUNDS[1:]}


def test_a_sweep_is_the_last_round_over_the_parameter(tmp_path, caught):
    """One seed lacks a value of the parameter."""
    rows = FEDFA.figures["figure7"].rows
    for place, row in enumerate(rows):
        fake_row(
            tmp_path,
            FEDFA,
            row,
            seeds=(0,) if place == 3 else (0, 2),
        )
    drawn(tmp_path, FEDFA, "figure7")
    mean, variance = panels_of(caught, "fedfa_figure7")
    assert mean.y_label == "mean accuracy (%)"
    assert variance.y_label == "variance of the accuracy (%²)"
    assert variance.x_label == "alpha"
    (series,) = variance.series
    assert series.x.tolist() == [row.hyperparameters["alpha"] for row in rows]
    experiment = experiment_of(FEDFA, "synthetic_1_1")
    for line, seed in zip(series.y, (0, 2), strict=True):
        last = [
            1e4 * measured(experiment, "fedfa", FEDFA.overrides(row), seed, "accuracy_variance")
            for row in rows
        ]
        if seed == 2:
            last[3] = np.nan
        assert line == pytest.approx(np.array(last), nan_ok=True)


def test_a_front_connects_the_sweep_and_sets_the_others_apart(tmp_path, caught):
    rows = leave_and_draw(tmp_path, ADAFEDADAM, "figure3")
    (panel,) = panels_of(caught, "adafedadam_figure3")
    assert panel.x_label == "mean error, weighted (%)"
    assert panel.y_label == "relative STD of the error, weighted (%)"
    others = {series.label: series for series in panel.series}
    swept = others.pop("AdaFedAdam over alpha")
    assert set(others) == {"FedAvg", "FedAdam", "FedNova", "q-FedAvg"}
    assert swept.look == replace(method_look("adafedadam"), subject=True)
    assert swept.texts == ("0", "1", "2", "3", "4", "5", "6", "8")
    assert {series.x.shape for series in others.values()} == {(3, 1)}

    experiment = experiment_of(ADAFEDADAM, "synthetic")
    keys = ADAFEDADAM.overrides(rows[2])
    for seed in range(3):
        mean = measured(experiment, "adafedadam", keys, seed, "accuracy_mean_weighted")
        std = measured(experiment, "adafedadam", keys, seed, "accuracy_std_weighted")
        assert swept.x[seed][2] == pytest.approx(100 * (1 - mean))
        assert swept.y[seed][2] == pytest.approx(100 * std / (1 - mean))
    labels = [f"AdaFedAdam alpha={value}" for value in swept.texts]
    for curves in panels_of(caught, "adafedadam_figure3_curves"):
        assert [series.label for series in curves.series] == labels


def test_two_clients_are_those_with_the_least_and_the_largest_loss_at_first(tmp_path, caught):
    row, *_ = leave_and_draw(tmp_path, ADAFED, "figure3")
    panel, *_ = panels_of(caught, "adafed_figure3")
    keys = sorted(ADAFED.overrides(row).items())
    algo = ADAFED.methods[row.algo].algo
    of_run = (experiment_of(ADAFED, row.setup), algo, keys, 1, "train_loss")
    losses = [
        [
            number(
                *of_run,
                t,
                client,
            )
            for t in ROUNDS
        ]
        for client in range(6)
    ]
    low, high = panel.series
    assert low.y[1].tolist() == min(losses)
    assert high.y[1].tolist() == max(losses)


# ---- looks and texts


@every_paper
def test_the_lines_of_a_figure_are_told_apart(paper):
    """By colours; a method alone has its own, and the paper's method is on top of others."""
    for figure in paper.figures.values():
        lines = {
            f"{row.algo} {keys_text(row.hyperparameters)}": paper.methods[row.algo].algo
            for row in figure.rows
        }
        given = looks(lines, paper.id)
        assert len({look.colour for look in given.values()}) == len(given), figure.id
        algos = list(lines.values())
        for label, algo in lines.items():
            if algos.count(algo) == 1:
                assert given[label].colour == method_look(algo).colour, label
        if paper.id in algos and len(set(algos)) > 1:
            own = [given[label] for label, algo in lines.items() if algo == paper.id]
            assert any(look.subject for look in own), figure.id


# ---- runs of no paper


def own_figures(root):
    (table,) = run_tables(Results(root))
    return run_figures(table, root / "pictures")


def test_own_runs_are_drawn_by_method_and_setting(tmp_path, caught):
    fake(tmp_path, None, "fedprox", status="diverged")
    assert own_figures(tmp_path) == []
    fake(tmp_path, None, "fedavg")
    fake(tmp_path, None, "qfedavg", {"algo.q": 0.1})
    fake(tmp_path, None, "qfedavg", {"algo.q": 1.0})
    own_figures(tmp_path)
    losses, accuracies, *_ = panels_of(caught, "synthetic_leaf_curves")
    labels = [series.label for series in losses.series]
    assert labels == ["fedavg", "qfedavg algo.q=0.1", "qfedavg algo.q=1"]
    curve = measured_curve(None, "fedavg", {}, 2, "accuracy_mean")
    assert accuracies.series[0].y[2] == pytest.approx(100 * np.array(curve))


def nine_settings(root):
    """Leave a run of FedAvg in each of nine settings."""
    for rounds in range(1, 10):
        fake_run(
            root,
            None,
            "fedavg",
            {"rounds": rounds},
        )


def test_settings_are_drawn_apart(tmp_path, caught):
    """A row of panels per setting, of which the first ones are drawn; methods keep their looks."""
    nine_settings(tmp_path)
    fake_run(
        tmp_path,
        None,
        "qfedavg",
        {"rounds": 5},
    )
    assert {view.note for view in own_figures(tmp_path)} == {"drawn are the first 8 of 9 settings"}
    titles = [f"synthetic_leaf rounds={rounds}" for rounds in range(1, 9)]
    panels = panels_of(caught, "synthetic_leaf_curves")
    assert [panel.title for panel in panels] == [title for title in titles for _ in range(3)]
    assert [series.label for series in panels[12].series] == ["fedavg", "qfedavg"]
    assert len({panel.series[0].look for panel in panels}) == 1


def test_a_setting_without_a_metric_makes_no_room_for_others(tmp_path, caught):
    nine_settings(tmp_path)
    for file in tmp_path.rglob("rounds.jsonl"):
        if "rounds: 1\n" in (file.parent / "config.yaml").read_text():
            edit(file, lambda text: text.replace('"train_loss"', '"other"'))
    own_figures(tmp_path)
    titles = {panel.title for panel in panels_of(caught, "synthetic_leaf_curves")}
    assert titles == {f"synthetic_leaf rounds={rounds}" for rounds in range(1, 9)}
